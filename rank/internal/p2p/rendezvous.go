package p2p

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/match"
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
var ErrStill = errors.New("it stopped in the middle of moving a message that this rank gave up")

// ErrWithdrawn is what receiving a matched message ends with when its sender has
// given it up in the meantime.
var ErrWithdrawn = errors.New("the sender has given the message up")

func ticketWord(generation uint32, state uint64) uint64 { return uint64(generation)<<8 | state }

// copyMapped copies an announced message out of the sender's mapped memory; false:
// it is not mapped.
func (in *inbound) copyMapped(o *Op, p *peer, h *header) bool {
	from, err := p.far.memory.Map(h.address, h.key, o.length, rdma.AccessRemoteRead)
	if err != nil {
		return false
	}
	for at := 0; at < o.length; at += copyMost {
		move(o.buf[at:min(at+copyMost, o.length)], from[at:])
	}
	if o.withdrawn() {
		in.self.complete(o, ErrWithdrawn)
	} else {
		in.wire.answer(p, finished, h.id)
		in.self.complete(o, o.err)
	}
	return true
}

// unread takes back a receive that was to read from a peer and has not begun, because
// the queue pair is not connected: the peer may be busy outside of any call. Its sender
// is let go.
func (in *inbound) unread(o *Op) bool {
	p := o.peer
	if p.QP != nil || o.number != noNumber {
		return false
	}
	p.todo = slices.DeleteFunc(p.todo, func(c chore) bool { return c.read == o })
	in.lines.helpless(o)
	p.reading--
	_ = o.drop()
	in.wire.answer(p, finished, o.id)
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
func move(dst, src []byte) { arch.Copy(dst, src) }

// begin reads an announced message.
func (in *inbound) begin(o *Op, env match.Envelope, p *peer, h *header) {
	o.length = min(len(o.buf), int(h.length))
	o.st = Status{Source: int(env.Source), Tag: int(env.Tag), Bytes: o.length}
	if int(h.length) > len(o.buf) {
		o.err = &TruncateError{Message: int(h.length), Buffer: len(o.buf)}
	}
	o.peer, o.id, o.address, o.rkey = p, h.id, h.address, h.key
	o.asked, o.pending = 0, 0
	o.split = split{}
	if !p.mapped && !in.wire.isPath(p) {
		in.wire.lend(p, h.length)
	}
	if p.far != nil {
		o.offer, o.generation = &p.far.tickets[h.word], h.generation
	}
	if p.Err() != nil {
		in.self.complete(o, p.Err())
		return
	}
	if differ(o.Type, env.Type) && h.length > 0 {
		o.length, o.st.Bytes, o.err = 0, 0, &TypeError{int(env.Source), int(env.Tag), env.Type, o.Type}
	}
	if o.length == 0 {
		in.wire.answer(p, finished, o.id)
		in.self.complete(o, o.err)
		return
	}
	if h.mapped && in.copyMapped(o, p, h) {
		return
	}
	key, temp, err := in.self.key(o.buf[:o.length], o.mr, rdma.AccessLocalWrite)
	if err != nil {
		in.wire.answer(p, finished, o.id) // the sender is not to blame
		in.self.complete(o, err)
		return
	}
	o.temp, o.lkey, o.state, o.number = temp, key.LKey(), moving, noNumber
	p.reading++
	o.word, o.checking = h.word, false
	// A peer that writes here late is not to be stopped over dynamic connections.
	if o.mr == nil && temp == nil && o.length >= splitFrom && !in.wire.isPath(p) {
		in.lines.splitOut(o, p, h, key.RKey())
	}
	in.wire.assign(p, chore{read: o})
}

// readDone handles the completion of a read.
func (in *inbound) readDone(p *peer, number uint32) {
	o := in.self.get(number)
	if o == nil || o.peer != p || o.state != moving {
		return
	}
	o.pending--
	if o.pending == 0 && o.asked == o.length {
		in.readAll(p, o)
	}
}

// readAll ends a receive that has read all that it is to read.
func (in *inbound) readAll(p *peer, o *Op) {
	if s := &o.split; s.of != nil {
		switch s.stage() {
		case stageFree, stageTheirs:
			in.wire.splits = append(in.wire.splits, o.number)
			return
		case stageAlone:
			atomic.StoreUint64(&s.of.claim, 0) // no piece is taken any more
			o.asked = min(s.taken*s.piece, o.length)
			if o.split = (split{}); o.asked < o.length {
				in.wire.assign(p, chore{read: o})
				return
			}
		}
	}
	unmapped := p.far == nil && in.wire.isPath(p)
	if unmapped && !o.checking {
		o.checking = true
		in.wire.assign(p, chore{read: o})
		return
	}
	in.self.remove(o.number)
	p.reading--
	if err := o.drop(); err != nil && o.err == nil {
		o.err = err
	}
	if o.withdrawn() || unmapped && !in.self.held(o) {
		in.self.complete(o, ErrWithdrawn)
		return
	}
	in.wire.answer(p, finished, o.id)
	in.self.complete(o, o.err)
}

// announce announces the first send in line; false: there is no room.
func (out *outbound) announce(p *peer, o *Op) bool {
	if p.mapped {
		if !out.wire.meet(p) {
			return true // as in sendShort
		}
	} else if !out.wire.connected(p) {
		return p.Err() != nil
	}
	if out.self.credits(p) <= 0 || p.outstanding >= p.most || p.far == nil && p.Room() <= 0 || p.far != nil && len(out.lines.freeTickets) == 0 {
		return false
	}
	number, ok := out.self.add(o)
	if !ok {
		return false
	}
	from, mr := o.buf, o.mr
	if p.far != nil && mr == nil {
		if staged := out.lines.stage(len(from)); staged != nil {
			copy(staged, from)
			from, mr = staged, out.self.stages
		}
	}
	key, temp, err := out.self.key(from, mr, rdma.AccessRemoteRead)
	if err != nil {
		out.self.remove(number)
		p.queue.pop()
		out.self.complete(o, err)
		return true
	}
	if p.far != nil && !out.lines.announce(p, o, number, address(from), key.RKey(), mr != nil) {
		out.self.remove(number)
		if temp != nil {
			_ = temp.Close() // it is made anew at the next try
		}
		return false
	}
	p.queue.pop()
	p.sent++
	p.outstanding++
	o.temp, o.state, o.number = temp, sent, number
	if p.far == nil {
		h := header{kind: announce, source: uint32(out.self.rank), tag: o.Tag, context: o.Context, typ: o.Type, id: number, length: uint64(len(o.buf)), address: address(o.buf), key: key.RKey()}
		if out.wire.isPath(p) {
			h.word, _ = out.self.hold(p, number) // there is one for each that is outstanding
		}
		out.wire.postInline(p, h.put(out.wire.small[:])) // a failure fails the peer, and o with it
	}
	return true
}

// stage is where a message of n bytes can be copied that is announced next; nil: it stays where it is.
func (s *rings) stage(n int) []byte { return s.self.stage(s.freeTickets[len(s.freeTickets)-1], n) }

// announce announces a send under a number, with a ticket, of which there is one, and where its bytes are; false: there
// is no room.
func (s *rings) announce(p *peer, o *Op, number uint32, from uint64, key uint32, mapped bool) bool {
	last := len(s.freeTickets) - 1
	t := s.freeTickets[last]
	s.generation++
	var data [32]byte
	binary.NativeEndian.PutUint64(data[0:], uint64(len(o.buf)))
	binary.NativeEndian.PutUint64(data[8:], from)
	binary.NativeEndian.PutUint32(data[16:], key)
	binary.NativeEndian.PutUint32(data[20:], uint32(t))
	binary.NativeEndian.PutUint32(data[24:], s.generation)
	if mapped {
		data[28] = 1
	}
	s.tickets[t].moved = 0
	// Before the line that names it, which is a release too.
	arch.StoreRelease64(&s.tickets[t].state, ticketWord(s.generation, ticketOpen))
	if !s.put(p, announce, uint64(uint32(o.Tag))<<32|uint64(o.Context), uint64(typedID(o.Type, number)), data[:]) {
		return false
	}
	s.freeTickets = s.freeTickets[:last]
	o.ticket, o.generation = int32(t)+1, s.generation
	return true
}

// answered handles the answer to an announcement.
func (out *outbound) answered(p *peer, id uint32, err error) {
	o := out.self.get(id)
	if o == nil || o.peer != p || o.state != sent {
		out.lines.fail(p, errStray)
		return
	}
	out.self.remove(id)
	out.lines.freeTicket(o)
	out.self.letGo(p, id)
	p.outstanding--
	if closing := o.drop(); err == nil {
		err = closing
	}
	out.self.complete(o, err)
	if p.queue.head != nil {
		out.pump(p)
	}
}
