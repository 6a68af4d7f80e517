package p2p

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// ErrSelf is what a blocking synchronous send to the rank itself ends with when
// no receive is posted: nobody could post it while the call waits, unless calls take turns.
var ErrSelf = errors.New("a synchronous send to the rank itself, with no receive posted, would wait for ever")

// outbound is messages that leave, to the rank itself too. Those that wait in line are
// their peer's.
type outbound struct{ inbound }

// sendSelf gives a message to the rank itself without waiting for its receive:
// there is nobody else to post that while the call runs.
func (out *outbound) sendSelf(buf []byte, env match.Envelope, mode Mode) error {
	if r := out.self.matches.Arrive(env); r != nil {
		out.deliver(r.Value, env, buf)
		return nil
	}
	if mode == Synchronous {
		return &PeerError{Peer: out.self.rank, Err: ErrSelf}
	}
	out.keepOwn(buf, env)
	return nil
}

// keepOwn keeps a copy of a message to the rank itself.
func (out *outbound) keepOwn(buf []byte, env match.Envelope) {
	m := out.inbound.newArrival(env)
	m.Value.data = append(m.Value.data[:0], buf...)
	m.Value.length = len(buf)
	out.self.matches.Keep(m)
}

// TrySend sends buf if it can leave at once and nothing is to be waited for. That
// is all of a send then; false: nothing was done.
func (e *Engine) TrySend(buf []byte, env match.Envelope, peer int, mode Mode) bool {
	if mode != Standard && mode != Ready || peer == e.self.rank || e.lines.err != nil {
		return false
	}
	p := &e.self.peers[peer]
	return p.Err() == nil && len(buf) <= p.eager && p.queue.head == nil && e.traffic.sendShort(p, eager, buf, env, 0) && p.Err() == nil
}

// Isend starts to send buf, which is the operation's until that is done. It does
// not block: what cannot leave waits in line, in order.
func (e *Engine) Isend(buf []byte, mr rdma.MR, env match.Envelope, peer int, mode Mode) (*Op, error) {
	if e.lines.err != nil {
		return nil, e.lines.err
	}
	if peer == e.self.rank {
		return e.traffic.isendSelf(buf, env, mode), nil
	}
	p := &e.self.peers[peer]
	if p.Err() != nil {
		return nil, p.Err()
	}
	o := e.self.newOp()
	if len(buf) <= p.eager && mode != Synchronous && p.queue.head == nil && e.traffic.sendShort(p, eager, buf, env, 0) {
		o.state, o.err = done, p.Err()
		return o, nil
	}
	o.Envelope, o.peer, o.mode = env, p, mode
	o.state, o.buf, o.mr = queued, buf, mr
	p.queue.push(o)
	e.traffic.pump(p)
	return o, nil
}

// Notify sends a short message that nobody waits for, in memory that is the engine's from here on. A
// message that cannot leave at once stays in line, and leaves in some later call of this rank, at the latest
// in Drain: no time limit loses it, only the failure of its peer.
func (e *Engine) Notify(buf []byte, env match.Envelope, peer int) {
	o, err := e.Isend(buf, nil, env, peer, Standard)
	if err != nil {
		return
	}
	if o.detached = true; o.state == done {
		e.self.recycle(o)
	}
}

// isendSelf starts a send to the rank itself. A long or a synchronous one is done
// when it was received.
func (out *outbound) isendSelf(buf []byte, env match.Envelope, mode Mode) *Op {
	o := out.self.newOp()
	o.Envelope, o.mode = env, mode
	if r := out.self.matches.Arrive(env); r != nil {
		out.deliver(r.Value, env, buf)
	} else if mode != Synchronous && len(buf) <= out.self.eager {
		out.keepOwn(buf, env)
	} else {
		o.state, o.buf = sent, buf
		m := out.inbound.newArrival(env)
		m.Value.op, m.Value.length = o, len(buf)
		out.self.matches.Keep(m)
		return o
	}
	o.state = done
	return o
}

// pump sends what waits in line, in order, as far as there is room; what is left
// goes on when Progress finds some.
func (out *outbound) pump(p *peer) {
	for p.Err() == nil && p.queue.head != nil && out.ship(p, p.queue.head) {
	}
	if p.Err() == nil && p.queue.head != nil {
		out.wire.later(p)
	}
}

// ship lets the first send in line leave; false: there is no room.
func (out *outbound) ship(p *peer, o *Op) bool {
	long := len(o.buf) > p.eager
	if long && p.zone == nil {
		return out.announce(p, o)
	}
	number := uint32(0)
	if o.mode == Synchronous {
		if p.outstanding >= p.most {
			return false
		}
		var ok bool
		if number, ok = out.self.add(o); !ok {
			return false
		}
	}
	var left bool
	switch sync := o.mode == Synchronous; {
	case long && sync:
		left = out.land(p, landedSync, o.buf, o.Envelope, number)
	case long:
		left = out.land(p, landed, o.buf, o.Envelope, 0)
	case sync:
		left = out.sendShort(p, eagerSync, o.buf, o.Envelope, number)
	default:
		left = out.sendShort(p, eager, o.buf, o.Envelope, 0)
	}
	if o.mode == Synchronous && (!left || p.Err() != nil) {
		out.self.remove(number)
	}
	switch {
	case !left:
		return long && out.announce(p, o)
	case p.Err() != nil: // which has ended the operation too
		return true
	}
	p.queue.pop()
	if o.mode != Synchronous {
		out.self.complete(o, nil)
		return true
	}
	p.outstanding++
	o.state, o.number, o.landed = sent, number, long
	return true
}

// sendShort sends a message of at most l.eager bytes; false: there is no room.
func (out *outbound) sendShort(p *peer, what kind, buf []byte, env match.Envelope, number uint32) bool {
	number = typedID(env.Type, number)
	if p.far != nil {
		return out.lines.sendMapped(p, what, buf, env, number)
	}
	if p.mapped {
		// A failure fails the peer, which ends the message too.
		return !out.wire.meet(p) || out.lines.sendMapped(p, what, buf, env, number)
	}
	if !out.wire.connected(p) {
		return p.Err() != nil
	}
	inline := eagerHeader+len(buf) <= out.self.inline
	if out.self.credits(p) <= 0 || p.Room() <= 0 || !inline && len(out.self.slots) == 0 {
		return false
	}
	p.sent++
	if inline {
		n := putEager(out.wire.small[:], what, uint32(out.self.rank), env.Tag, env.Context, number)
		out.wire.postInline(p, n+copy(out.wire.small[n:], buf)) // a failure fails the peer
		return true
	}
	slot := out.self.slots[len(out.self.slots)-1]
	out.self.slots = out.self.slots[:len(out.self.slots)-1]
	b := out.self.mem[out.self.slotAt(slot):]
	n := putEager(b, what, uint32(out.self.rank), env.Tag, env.Context, number)
	out.wire.postSlot(p, slot, n+copy(b[n:], buf))
	return true
}
