package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A long message between mapped ranks. Its ticket, in the sender's region, makes
// taking it back harmless:
//
//	        the receiver claims it before it reads
//	open -----------------------------------------> read
//	   \ the sender's call gives up
//	    `-----------------------------------------> withdrawn
//
// Each is one compare-and-swap with the generation of the announcement, so that
// one that is late or made up fails. The receiver's answer frees the ticket in
// every case.
const (
	ticketOpen uint64 = iota + 1
	ticketRead
	ticketWithdrawn
)

// copyMost is how much is copied between two safe points of the Go scheduler.
const copyMost = 1 << 20

// ErrStill fails a peer that stood still in the middle of a long message, stopped by
// a signal, say, when the call here was given up: what it would do with the message when
// it goes on must not reach memory that is the caller's again.
var ErrStill = errors.New("it stood still in the middle of a message that was given up")

// ErrWithdrawn is what receiving a matched message ends with when its sender has
// given it up in the meantime.
var ErrWithdrawn = errors.New("the sender has given the message up")

func ticketWord(generation uint32, state uint64) uint64 { return uint64(generation)<<8 | state }

// announceMapped announces the first send in line; false: there is no room.
func (e *Engine) announceMapped(p *peer, o *Op) bool {
	s := &e.own
	if e.credits(p) <= 0 || p.outstanding >= p.most || len(s.freeTickets) == 0 {
		return false
	}
	number, ok := e.ops.add(o)
	if !ok {
		return false
	}
	key, temp, err := e.key(o.buf, o.mr, rdma.AccessRemoteRead)
	if err != nil {
		e.ops.remove(number)
		p.queue.pop()
		e.complete(o, err)
		return true
	}
	t := s.freeTickets[len(s.freeTickets)-1]
	s.generation++
	var data [32]byte
	binary.NativeEndian.PutUint64(data[0:], uint64(len(o.buf)))
	binary.NativeEndian.PutUint64(data[8:], address(o.buf))
	binary.NativeEndian.PutUint32(data[16:], key.RKey())
	binary.NativeEndian.PutUint32(data[20:], uint32(t))
	binary.NativeEndian.PutUint32(data[24:], s.generation)
	if o.mr != nil {
		data[28] = 1
	}
	s.tickets[t].moved = 0
	// Before the line that names it, which is a release too.
	arch.StoreRelease64(&s.tickets[t].state, ticketWord(s.generation, ticketOpen))
	if !e.put(p, announce, uint64(uint32(o.Tag))<<32|uint64(o.Context), uint64(number), data[:]) {
		e.ops.remove(number)
		if temp != nil {
			_ = temp.Close() // it is made anew at the next try
		}
		return false
	}
	s.freeTickets = s.freeTickets[:len(s.freeTickets)-1]
	p.queue.pop()
	p.sent++
	p.outstanding++
	o.temp, o.state, o.number = temp, sent, number
	o.ticket, o.generation = int32(t)+1, s.generation
	return true
}

// freeTicket gives back the ticket of a send that was answered.
func (e *Engine) freeTicket(o *Op) {
	if o.ticket > 0 {
		e.own.freeTickets = append(e.own.freeTickets, uint16(o.ticket-1))
		o.ticket = 0
	}
}

// claimTicket makes sure that an announced message stays where it is while it is
// read; false: its sender has taken it back.
func (e *Engine) claimTicket(p *peer, h *header) bool {
	if p.far == nil || p.Err() != nil {
		return true
	}
	return atomic.CompareAndSwapUint64(&p.far.tickets[h.ticket].state, ticketWord(h.generation, ticketOpen), ticketWord(h.generation, ticketRead))
}

// claimKept is claimTicket for a message that was kept.
func (e *Engine) claimKept(m *Message) bool {
	a := &m.Value
	if a.op != nil || a.header.kind != announce {
		return true
	}
	return e.claimTicket(&e.peers[m.Source], &a.header)
}

// stale tells whether the sender of a kept message has taken it back.
func (e *Engine) stale(m *Message) bool {
	a := &m.Value
	if a.op != nil || a.header.kind != announce {
		return false
	}
	p := &e.peers[m.Source]
	return p.far != nil && p.Err() == nil && atomic.LoadUint64(&p.far.tickets[a.header.ticket].state) != ticketWord(a.header.generation, ticketOpen)
}

// withdrawMapped takes back a long message that was announced to a mapped peer. If
// that reads it already, it is waited for.
func (e *Engine) withdrawMapped(o *Op, cause error) {
	t := &e.own.tickets[o.ticket-1]
	if atomic.CompareAndSwapUint64(&t.state, ticketWord(o.generation, ticketOpen), ticketWord(o.generation, ticketWithdrawn)) {
		// The peer's answer is nobody's.
		rest := e.newOp()
		rest.state, rest.detached, rest.peer, rest.number, rest.ticket = sent, true, o.peer, o.number, o.ticket
		e.ops.replace(o.number, rest)
		o.ticket = 0
		if err := o.drop(); err != nil {
			cause = errors.Join(cause, err)
		}
		e.complete(o, cause)
		return
	}
	short, cancel := context.WithTimeout(e.forever, stillLimit+helpLimit)
	defer cancel()
	err := e.wait(short, condition{what: untilDone, op: o})
	if o.state == done {
		return
	}
	atomic.StoreUint64(&t.state, ticketWord(o.generation, ticketWithdrawn)) // who copies finds out
	if err == short.Err() {
		e.breakOff(o.peer)
	} else {
		e.fail(o.peer, err)
	}
}

// breakOff fails a peer that stands still, with all operations that concern it,
// and tells it for when it goes on. A ring has room for that.
func (e *Engine) breakOff(p *peer) {
	_ = e.put(p, gone, 0, 0, nil)
	e.fail(p, ErrStill)
}

// copyMapped copies an announced message out of the sender's mapped memory; false:
// it is not mapped.
func (e *Engine) copyMapped(o *Op, p *peer, h *header) bool {
	from, err := p.far.memory.Map(h.address, h.key, o.length, rdma.AccessRemoteRead)
	if err != nil {
		return false
	}
	for at := 0; at < o.length; at += copyMost {
		move(o.buf[at:min(at+copyMost, o.length)], from[at:])
	}
	if o.withdrawn() {
		e.complete(o, ErrWithdrawn)
	} else {
		e.answer(p, finished, h.id)
		e.complete(o, o.err)
	}
	return true
}

// unread takes back a receive that was to read from a peer and has not begun, because
// the queue pair is not connected: the peer may be busy outside of any call. Its sender
// is let go.
func (e *Engine) unread(o *Op) bool {
	p := o.peer
	if p.QP != nil || o.number != noNumber {
		return false
	}
	p.todo = slices.DeleteFunc(p.todo, func(c chore) bool { return c.read == o })
	e.helpless(o)
	p.reading--
	_ = o.drop()
	e.answer(p, finished, o.id)
	return true
}

// withdrawn tells whether this rank stood still while it read a message, so that its
// sender has given up waiting: what was read then may be anything.
func (o *Op) withdrawn() bool {
	return o.offer != nil && atomic.LoadUint64(&o.offer.state) != ticketWord(o.generation, ticketRead)
}

// move is copy with a stack check, at which the runtime can stop the goroutine.
//
//go:noinline
func move(dst, src []byte) { copy(dst, src) }
