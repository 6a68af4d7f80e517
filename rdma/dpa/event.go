package dpa

import (
	"context"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A Location is where an event is published or waited for.
type Location uint8

// The locations.
const (
	CPU       Location = iota + 1 // the program
	Device                        // device threads of the event's Context
	RemoteNet                     // a peer, by RDMA
)

var locationNames = [...]string{"nowhere", "the CPU", "the device", "the remote network"}

// String is the location's name.
func (l Location) String() string {
	return locationNames[min(int(l), len(locationNames))%len(locationNames)]
}

// A SyncEvent is a counter of 64 bits with one publisher, which updates it, and one subscriber, which waits
// for it. Both may read it. It is 0 at first.
//
// An event that the remote network publishes or subscribes to is a registered word: a peer
// sets it by an RDMA write of 8 bytes in native byte order, adds to it by a fetch-and-add, reads it by an
// RDMA read. The methods here are the program's; those of [Thread] are the device's.
//
// An event that stands for the completion of a launch can fail. From then on each
// operation on it returns the launch's error.
type SyncEvent struct {
	ctx        *Context
	word       *uint64
	own        uint64 // word, of an event without a remote side
	remote     RemoteEvent
	publisher  Location
	subscriber Location
	bell       bell
	failure    atomic.Pointer[error]
}

// A RemoteEvent is a peer's event, as its peers name it: a word of registered memory. The program sends
// it to them as it sends any address and key.
type RemoteEvent struct {
	Addr uint64
	RKey uint32
}

// NewSyncEvent makes an event. It lives until the Context is closed.
func (c *Context) NewSyncEvent(publisher, subscriber Location) (*SyncEvent, error) {
	for _, l := range [...]Location{publisher, subscriber} {
		if l < CPU || l > RemoteNet {
			return nil, bad("sync event", "the publisher is %v and the subscriber %v: expected CPU, Device or RemoteNet of each", publisher, subscriber)
		}
	}
	if publisher == RemoteNet && subscriber == RemoteNet {
		return nil, bad("sync event", "publisher and subscriber are both the remote network")
	}
	e := &SyncEvent{ctx: c, publisher: publisher, subscriber: subscriber}
	e.word = &e.own
	if publisher == RemoteNet || subscriber == RemoteNet {
		s, err := c.takeSlot()
		if err != nil {
			return nil, err
		}
		e.word, e.remote = s.word, RemoteEvent{Addr: s.addr, RKey: s.rkey}
	}
	return e, c.open("sync event")
}

// Export gives what a peer needs for the event; its publisher or subscriber is the remote network.
func (e *SyncEvent) Export() (RemoteEvent, error) {
	if e.publisher != RemoteNet && e.subscriber != RemoteNet {
		return RemoteEvent{}, e.misuse("export", RemoteNet)
	}
	return e.remote, e.Err()
}

// Get reads the value. The publisher or the subscriber is the CPU.
func (e *SyncEvent) Get() (uint64, error) { return e.get(CPU) }

// Set sets the value. The publisher is the CPU.
func (e *SyncEvent) Set(value uint64) error { return e.update(CPU, value, false) }

// Add adds to the value atomically. The publisher is the CPU.
func (e *SyncEvent) Add(value uint64) error { return e.update(CPU, value, true) }

// WaitGt waits until the value is greater than above, and returns at once when it is. The subscriber is the CPU. An
// error is the event's own, [ErrClosed] when its Context closes, or that of ctx.
func (e *SyncEvent) WaitGt(ctx context.Context, above uint64) error {
	if e.subscriber != CPU {
		return e.misuse("wait_gt", CPU)
	}
	if ready, err := e.reached(above); ready || err != nil {
		return err
	}
	w := e.ctx.waiters.Get().(*waiter)
	err := w.waitGt(ctx, e, above, nil)
	e.ctx.waiters.Put(w)
	return err
}

// Err is why the event has failed, or [ErrClosed] when its Context is closed, or nil.
func (e *SyncEvent) Err() error {
	if f := e.failure.Load(); f != nil {
		return *f
	}
	return e.ctx.open("sync event")
}

// reached tells whether the value is above a number. An event's failure comes first.
func (e *SyncEvent) reached(above uint64) (bool, error) {
	if err := e.Err(); err != nil {
		return false, err
	}
	return atomic.LoadUint64(e.word) > above, nil
}

func (e *SyncEvent) get(from Location) (uint64, error) {
	if e.publisher != from && e.subscriber != from {
		return 0, e.misuse("get", from)
	}
	if err := e.Err(); err != nil {
		return 0, err
	}
	return atomic.LoadUint64(e.word), nil
}

func (e *SyncEvent) update(from Location, value uint64, add bool) error {
	if e.publisher != from {
		op := "set"
		if add {
			op = "add"
		}
		return e.misuse(op, from)
	}
	if err := e.Err(); err != nil {
		return err
	}
	e.store(value, add)
	return nil
}

// store changes the value and wakes the subscriber.
func (e *SyncEvent) store(value uint64, add bool) {
	if add {
		atomic.AddUint64(e.word, value)
	} else {
		atomic.StoreUint64(e.word, value)
	}
	e.bell.ring()
}

// fail makes err the event's error, unless it has one.
func (e *SyncEvent) fail(err error) {
	e.failure.CompareAndSwap(nil, &err)
	e.bell.ring()
}

func (e *SyncEvent) misuse(op string, from Location) error {
	return &LocationError{Op: op, From: from, Publisher: e.publisher, Subscriber: e.subscriber}
}

// slotBytes keeps events apart: a peer's writes to one must not slow the reader of the next.
const slotBytes = 64

// pageSlots is how many events a region of the Context has.
const pageSlots = 64

// A slot is 8 registered bytes.
type slot struct {
	word *uint64
	addr uint64
	rkey uint32
	lkey uint32
}

// takeSlot takes a slot, of a new region where none is left.
func (c *Context) takeSlot() (slot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open("sync event"); err != nil {
		return slot{}, err
	}
	if c.slots%pageSlots == 0 {
		const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
		mr, err := c.pd.AllocMR(pageSlots*slotBytes, access)
		if err != nil {
			return slot{}, err
		}
		c.pages = append(c.pages, mr)
	}
	mr, at := c.pages[len(c.pages)-1], c.slots%pageSlots*slotBytes
	c.slots++
	return slot{word: word(mr.Bytes(), at), addr: mr.Addr() + uint64(at), rkey: mr.RKey(), lkey: mr.LKey()}, nil
}
