package soft

import (
	stdctx "context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A compChannel tells a goroutine that waits without polling of completions.
//
// No wake-up is lost. Whether a completion is one that the program waits for is
// decided where it enters the ring, under the completion queue's lock, which
// ReqNotify takes too. What enters it by the owner's own doing is decided there
// and then. What initiators have completed lies in receive queues until a goroutine
// looks: that is Poll, or, while one waits in Get, the watch, which sleeps
// only after a barrier of all initiators and a look behind it (watch.run). Who
// arms a queue while it sleeps makes it begin anew.
type compChannel struct {
	ctx *context

	mu     sync.Mutex // guards what follows; no lock is taken under it
	list   []*completionQueue
	wake   chan struct{} // capacity 1
	uses   int
	closed bool
	ring   func() // Wake's; nil without it
	heard  bool   // the watch looks for it
}

var _ Waker = (*compChannel)(nil)

func (ch *compChannel) Wake(wake func()) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ring = wake
}

func (ch *compChannel) Next() (rdma.CQ, error) {
	c, err := ch.next()
	if c == nil {
		return nil, err
	}
	return c, nil
}

// hear has the watch look for a program that waits by Wake, from its first ReqNotify on.
func (ch *compChannel) hear() {
	ch.mu.Lock()
	begins := ch.ring != nil && !ch.heard
	ch.heard = ch.heard || begins
	ch.mu.Unlock()
	if begins {
		ch.ctx.p.watch.enter()
	}
}

func (c *context) CreateCompChannel() (rdma.CompChannel, error) {
	if err := c.adopt("create_comp_channel"); err != nil {
		return nil, err
	}
	return &compChannel{ctx: c, wake: make(chan struct{}, 1)}, nil
}

// CreateCQEx makes a completion queue with a channel, timestamps, or both.
func (c *context) CreateCQEx(attr rdma.CQInitAttr) (rdma.CQ, error) {
	bad := func(detail string) (rdma.CQ, error) {
		return nil, &rdma.OpError{Op: "create_cq_ex", Detail: detail, Err: rdma.ErrInvalid}
	}
	var ch *compChannel
	if attr.Channel != nil {
		var ok bool
		if ch, ok = attr.Channel.(*compChannel); !ok || ch.ctx != c {
			return bad("a channel of another context")
		}
		ch.mu.Lock()
		closed := ch.closed
		if !closed {
			ch.uses++
		}
		ch.mu.Unlock()
		if closed {
			return bad("the channel is closed")
		}
	}
	made, err := c.createCQ("create_cq_ex", attr)
	if err != nil {
		if ch != nil {
			ch.leave(nil)
		}
		return nil, err
	}
	cq := made.(*completionQueue)
	cq.channel, cq.ignoreOverrun = ch, attr.IgnoreOverrun
	if attr.Timestamps {
		cq.stamps = []uint64{}
		atomic.StoreUint32(&cq.head.stamps, 1)
	}
	return cq, nil
}

// post appends an event of a completion queue.
func (ch *compChannel) post(c *completionQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.list = append(ch.list, c)
	ch.signal()
	if ch.ring != nil {
		ch.ring()
	}
}

// signal wakes one that waits. Called with mu held.
func (ch *compChannel) signal() {
	select {
	case ch.wake <- struct{}{}:
	default: // a token is there already
	}
}

// leave takes a completion queue off the channel.
func (ch *compChannel) leave(c *completionQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.uses--
	ch.list = slices.DeleteFunc(ch.list, func(have *completionQueue) bool { return have == c })
}

// next takes the first event out. It is nil without an error when there is none.
func (ch *compChannel) next() (*completionQueue, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		ch.signal() // for the others that wait
		return nil, &rdma.OpError{Op: "get_cq_event", Detail: "the channel is closed", Err: rdma.ErrInvalid}
	}
	if len(ch.list) == 0 {
		return nil, nil
	}
	c := ch.list[0]
	ch.list = slices.Delete(ch.list, 0, 1)
	if len(ch.list) > 0 {
		ch.signal()
	}
	return c, nil
}

func (ch *compChannel) Get(ctx stdctx.Context) (rdma.CQ, error) {
	watched := false
	for {
		c, err := ch.next()
		if err != nil {
			return nil, err
		}
		if c != nil {
			return c, nil
		}
		if !watched {
			watched = true
			ch.ctx.p.watch.enter()
			defer ch.ctx.p.watch.leave()
		}
		select {
		case <-ch.wake:
		case <-ctx.Done():
			return nil, stdctx.Cause(ctx)
		}
	}
}

func (ch *compChannel) Close() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil
	}
	if ch.uses > 0 {
		return &rdma.OpError{Op: "destroy_comp_channel", Detail: "completion queues still use it: close them first", Err: rdma.ErrBusy}
	}
	ch.closed = true
	ch.signal()
	if ch.heard {
		ch.ctx.p.watch.leave()
	}
	ch.ctx.disown()
	return nil
}

// ReqNotify arms the queue: what completes from now on makes an event.
func (c *completionQueue) ReqNotify(solicitedOnly bool) error {
	if c.channel == nil {
		return &rdma.OpError{Op: "req_notify_cq", Detail: "the completion queue has no channel: name one in CreateCQEx", Err: rdma.ErrInvalid}
	}
	armed := armedAny
	if solicitedOnly {
		armed = armedSolicited
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosedCQ("req_notify_cq")
	}
	c.lookLocked() // what is there already counts for nothing
	// The wider request of two is the one in force.
	c.armed = max(c.armed, armed)
	atomic.StoreUint32(&c.head.armed, c.armed)
	c.mu.Unlock()
	c.channel.hear()
	c.p.watch.again()
	return nil
}

// notify makes the event that the queue is armed for. Called with mu held.
func (c *completionQueue) notify() {
	c.armed = 0
	atomic.StoreUint32(&c.head.armed, 0)
	c.channel.post(c)
}

// Resize changes the size; what lies in the receive queues counts as there.
func (c *completionQueue) Resize(cqe int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosedCQ("resize_cq")
	}
	c.lookLocked()
	if cqe < 1 || cqe > maxCQE || uint32(cqe) < c.count {
		return &rdma.OpError{Op: "resize_cq", Detail: fmt.Sprintf("found %d entries, expected 1 to %d and no fewer than the %d outstanding", cqe, maxCQE, c.count), Err: rdma.ErrInvalid}
	}
	c.size = cqe
	return nil
}

func (c *completionQueue) PollEx(wc []rdma.WCEx) (int, error) {
	if c.p.work.wanted() {
		c.p.work.poll()
	}
	if c.idle() {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookLocked()
	if err := c.broken(); err != nil {
		return 0, err
	}
	n := min(len(wc), int(c.count))
	for i := range n {
		k := (c.first + uint32(i)) & uint32(len(c.ring)-1)
		e := &c.ring[k]
		wc[i] = rdma.WCEx{WC: e.wc, Offset: e.offset}
		if c.notes != nil {
			wc[i].TMTag, wc[i].TMAppCtx = c.notes[k].tag, c.notes[k].appCtx
			if e.kind == entryOp {
				wc[i].Offset = 0
			}
		}
		if c.stamps != nil {
			wc[i].Timestamp = c.stamps[k]
		}
		c.p.freed(e)
	}
	c.drop(n)
	return n, nil
}
