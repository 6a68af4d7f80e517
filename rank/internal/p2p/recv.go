package p2p

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// errGivenUp ends the receive half of an Exchange whose send failed.
var errGivenUp = errors.New("given up")

// Recv receives a message that fits want into buf. group is who may send it when
// want leaves the source open, nil for all: when one of them dies Recv fails.
func (e *Engine) Recv(ctx context.Context, buf []byte, mr rdma.MR, want match.Envelope, group []int32) (Status, error) {
	o, err := e.Irecv(buf, mr, want, group)
	if err != nil {
		return Status{}, err
	}
	return e.end(ctx, o)
}

// Exchange sends and receives at the same time.
func (e *Engine) Exchange(ctx context.Context, send []byte, sendMR rdma.MR, env match.Envelope, peer int,
	recv []byte, recvMR rdma.MR, want match.Envelope, group []int32) (Status, error) {
	_, st, err := e.Swap(ctx, send, sendMR, env, peer, recv, recvMR, want, group)
	return st, err
}

// Swap is Exchange, and tells whether the message has left: one that was taken back when
// ctx ended has not.
func (e *Engine) Swap(ctx context.Context, send []byte, sendMR rdma.MR, env match.Envelope, peer int,
	recv []byte, recvMR rdma.MR, want match.Envelope, group []int32) (sent bool, st Status, err error) {
	o, err := e.Irecv(recv, recvMR, want, group)
	if err != nil {
		return false, Status{}, err
	}
	if err := e.Send(ctx, send, sendMR, env, peer); err != nil {
		_, _ = e.giveUp(o, errGivenUp)
		return false, Status{}, about(peer, err)
	}
	st, err = e.end(ctx, o)
	return true, st, about(int(want.Source), err)
}

// about is an error with the peer that it concerns, unless it says so already or
// there is none.
func about(peer int, err error) error {
	if err == nil || peer < 0 {
		return err
	}
	if _, said := errors.AsType[*PeerError](err); said {
		return err
	}
	return &PeerError{Peer: peer, Err: err}
}

// Irecv starts to receive a message that fits want into buf, which is the
// operation's until that is done. group, which is the operation's too, is who may
// send it when want leaves the source open, nil for all: when one of them dies
// the operation fails.
func (e *Engine) Irecv(buf []byte, mr rdma.MR, want match.Envelope, group []int32) (*Op, error) {
	if e.err != nil {
		return nil, e.err
	}
	o := e.newOp()
	o.Envelope, o.buf, o.mr, o.group = want, buf, mr, group
	for m := e.matches.Peek(want); m != nil; m = e.matches.Peek(want) {
		e.matches.Drop(m)
		if e.claimKept(m) {
			e.consume(o, m)
			return o, nil
		}
		e.refuse(m) // its sender has taken it back
	}
	if e.failed > 0 {
		if err := e.hopeless(want, group); err != nil {
			e.complete(o, err)
			return o, nil
		}
	}
	o.state = posted
	e.matches.Stand(&o.Receive)
	return o, nil
}

// end waits for a receive and gives its outcome.
func (e *Engine) end(ctx context.Context, o *Op) (Status, error) {
	if o.state != done {
		if err := e.Wait(ctx, o); err != nil {
			return e.giveUp(o, err)
		}
	}
	return e.Finish(o)
}

// consume gives a message that was kept to a receive.
func (e *Engine) consume(o *Op, m *match.Message[arrival]) {
	a := &m.Value
	switch {
	case a.op != nil:
		e.deliver(o, m.Envelope, a.op.buf)
		e.complete(a.op, nil)
		a.op = nil
	case a.header.kind == announce:
		e.begin(o, m.Envelope, &e.peers[m.Source], &a.header)
	default:
		e.deliver(o, m.Envelope, a.data)
		if a.header.kind == eagerSync {
			e.answer(&e.peers[m.Source], finished, a.header.id)
		}
	}
	e.release(m)
}

// deliver ends a receive with a message that is at hand.
func (e *Engine) deliver(o *Op, env match.Envelope, payload []byte) {
	n, length := copy(o.buf, payload), len(payload)
	if e.rest.bytes > 0 {
		length += e.rest.bytes
		n += e.rest.copy(o.buf[n:])
	}
	o.st.Source, o.st.Tag, o.st.Bytes = int(env.Source), int(env.Tag), n
	o.state = done
	if n < length {
		o.err = &TruncateError{Message: length, Buffer: len(o.buf)}
	}
}

// begin reads an announced message.
func (e *Engine) begin(o *Op, env match.Envelope, p *peer, h *header) {
	o.length = min(len(o.buf), int(h.length))
	o.st = Status{Source: int(env.Source), Tag: int(env.Tag), Bytes: o.length}
	if int(h.length) > len(o.buf) {
		o.err = &TruncateError{Message: int(h.length), Buffer: len(o.buf)}
	}
	o.peer, o.id, o.address, o.rkey = p, h.id, h.address, h.key
	o.asked, o.pending = 0, 0
	o.share = share{}
	if p.far != nil {
		o.offer, o.generation = &p.far.tickets[h.ticket], h.generation
	}
	if p.Err() != nil {
		e.complete(o, p.Err())
		return
	}
	if o.length == 0 {
		e.answer(p, finished, o.id)
		e.complete(o, o.err)
		return
	}
	if h.mapped && e.copyMapped(o, p, h) {
		return
	}
	key, temp, err := e.key(o.buf[:o.length], o.mr, rdma.AccessLocalWrite)
	if err != nil {
		e.answer(p, finished, o.id) // the sender is not to blame
		e.complete(o, err)
		return
	}
	o.temp, o.lkey, o.state, o.number = temp, key.LKey(), moving, noNumber
	p.reading++
	o.word, o.checking = h.ticket, false
	// A peer that writes here late is not to be stopped over dynamic connections.
	if o.mr == nil && temp == nil && o.length >= shareFrom && !e.isPath(p) {
		e.shareOut(o, p, h, key.RKey())
	}
	e.assign(p, chore{read: o})
}

// read posts the next read of a receive and tells whether the chore is over. It
// stays when there are too many operations with a number.
func (e *Engine) read(p *peer, o *Op) (over, blocked bool) {
	if o.number == noNumber {
		number, ok := e.ops.add(o)
		if !ok {
			return false, true
		}
		o.number = number
	}
	if o.checking {
		e.readWord(p, o)
		return true, false
	}
	at, n := o.asked, min(o.length-o.asked, readMax)
	if o.share.of != nil {
		if at, n = o.share.first(o.length, (o.share.pieces+1)/2); n == 0 {
			o.asked = o.length
			if o.pending == 0 {
				e.shared = append(e.shared, o.number)
			}
			return true, false
		}
	}
	if o.share.of == nil {
		o.asked += n
	}
	over = o.asked == o.length
	e.readPart(p, o, at, n)
	return over, false
}

// readPart posts a read of a part of a receive.
func (e *Engine) readPart(p *peer, o *Op, at, n int) {
	e.sge[0] = rdma.SGE{Addr: address(o.buf) + uint64(at), Length: uint32(n), LKey: o.lkey}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: e.sge[:], RemoteAddr: o.address + uint64(at), RKey: o.rkey}
	o.pending++
	e.post(p, whatRead, o.number) // a failure fails the peer, and o with it
}

// readDone handles the completion of a read.
func (e *Engine) readDone(p *peer, number uint32) {
	o := e.ops.get(number)
	if o == nil || o.peer != p || o.state != moving {
		return
	}
	o.pending--
	if o.pending == 0 && o.asked == o.length {
		e.readAll(p, o)
	}
}

// readAll ends a receive that has read all that it is to read.
func (e *Engine) readAll(p *peer, o *Op) {
	if s := &o.share; s.of != nil {
		switch s.stage() {
		case stageFree, stageTheirs:
			e.shared = append(e.shared, o.number)
			return
		case stageAlone:
			atomic.StoreUint64(&s.of.claim, 0) // no piece is taken any more
			o.asked = min(s.taken*s.piece, o.length)
			if o.share = (share{}); o.asked < o.length {
				e.assign(p, chore{read: o})
				return
			}
		}
	}
	unmapped := p.far == nil && e.isPath(p)
	if unmapped && !o.checking {
		o.checking = true
		e.assign(p, chore{read: o})
		return
	}
	e.ops.remove(o.number)
	p.reading--
	if err := o.drop(); err != nil && o.err == nil {
		o.err = err
	}
	if o.withdrawn() || unmapped && !e.held(o) {
		e.complete(o, ErrWithdrawn)
		return
	}
	e.answer(p, finished, o.id)
	e.complete(o, o.err)
}
