package p2p

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// ErrSelf is what a blocking synchronous send to the rank itself ends with when
// no receive is posted: nobody could post it while the call waits.
var ErrSelf = errors.New("a synchronous send to the rank itself, with no receive posted, would wait for ever")

// Send sends buf and returns when it may be changed again. mr is the region that
// holds buf, nil when it is ordinary memory.
func (e *Engine) Send(ctx context.Context, buf []byte, mr rdma.MR, env match.Envelope, peer int) error {
	return e.SendMode(ctx, buf, mr, env, peer, Standard)
}

// SendMode is Send in a mode. When ctx ends the message is taken back; where the
// peer may hold the announcement of a long one, its connection fails (ErrCut).
func (e *Engine) SendMode(ctx context.Context, buf []byte, mr rdma.MR, env match.Envelope, peer int, mode Mode) error {
	if e.err != nil {
		return e.err
	}
	if peer == e.rank {
		return e.sendSelf(buf, env, mode)
	}
	p := &e.peers[peer]
	if p.Err() != nil {
		return p.Err()
	}
	if len(buf) <= p.eager && mode != Synchronous && p.queue.head == nil && e.sendShort(p, eager, buf, env, 0) {
		return p.Err()
	}
	o, err := e.Isend(buf, mr, env, peer, mode)
	if err != nil {
		return err
	}
	if o.state != done {
		if err := e.Wait(ctx, o); err != nil {
			_, err = e.giveUp(o, err)
			return err
		}
	}
	_, err = e.Finish(o)
	return err
}

// sendSelf gives a message to the rank itself without waiting for its receive:
// there is nobody else to post that while the call runs.
func (e *Engine) sendSelf(buf []byte, env match.Envelope, mode Mode) error {
	if r := e.matches.Arrive(env); r != nil {
		e.deliver(r.Value, env, buf)
		return nil
	}
	if mode == Synchronous {
		return &PeerError{Peer: e.rank, Err: ErrSelf}
	}
	e.keepOwn(buf, env)
	return nil
}

// keepOwn keeps a copy of a message to the rank itself.
func (e *Engine) keepOwn(buf []byte, env match.Envelope) {
	m := e.newArrival(env)
	m.Value.data = append(m.Value.data[:0], buf...)
	m.Value.length = len(buf)
	e.matches.Keep(m)
}

// TrySend sends buf if it can leave at once and nothing is to be waited for. That
// is all of a send then; false: nothing was done.
func (e *Engine) TrySend(buf []byte, env match.Envelope, peer int, mode Mode) bool {
	if mode != Standard && mode != Ready || peer == e.rank || e.err != nil {
		return false
	}
	p := &e.peers[peer]
	return p.Err() == nil && len(buf) <= p.eager && p.queue.head == nil && e.sendShort(p, eager, buf, env, 0) && p.Err() == nil
}

// Isend starts to send buf, which is the operation's until that is done. It does
// not block: what cannot leave waits in line, in order.
func (e *Engine) Isend(buf []byte, mr rdma.MR, env match.Envelope, peer int, mode Mode) (*Op, error) {
	if e.err != nil {
		return nil, e.err
	}
	if peer == e.rank {
		return e.isendSelf(buf, env, mode), nil
	}
	p := &e.peers[peer]
	if p.Err() != nil {
		return nil, p.Err()
	}
	o := e.newOp()
	if len(buf) <= p.eager && mode != Synchronous && p.queue.head == nil && e.sendShort(p, eager, buf, env, 0) {
		o.state, o.err = done, p.Err()
		return o, nil
	}
	o.Envelope, o.peer, o.mode = env, p, mode
	o.state, o.buf, o.mr = queued, buf, mr
	p.queue.push(o)
	e.pump(p)
	return o, nil
}

// Notify sends an empty message that nobody waits for. A message that cannot leave at once
// stays in line, and leaves in some later call of this rank, at the latest in Drain: no time limit
// loses it, only the failure of its peer.
func (e *Engine) Notify(env match.Envelope, peer int) {
	o, err := e.Isend(nil, nil, env, peer, Standard)
	if err != nil {
		return
	}
	if o.detached = true; o.state == done {
		e.recycle(o)
	}
}

// isendSelf starts a send to the rank itself. A long or a synchronous one is done
// when it was received.
func (e *Engine) isendSelf(buf []byte, env match.Envelope, mode Mode) *Op {
	o := e.newOp()
	o.Envelope, o.mode = env, mode
	if r := e.matches.Arrive(env); r != nil {
		e.deliver(r.Value, env, buf)
	} else if mode != Synchronous && len(buf) <= e.eager {
		e.keepOwn(buf, env)
	} else {
		o.state, o.buf = sent, buf
		m := e.newArrival(env)
		m.Value.op, m.Value.length = o, len(buf)
		e.matches.Keep(m)
		return o
	}
	o.state = done
	return o
}

// pump sends what waits in line, in order, as far as there is room; what is left
// goes on when Progress finds some.
func (e *Engine) pump(p *peer) {
	for p.Err() == nil && p.queue.head != nil && e.ship(p, p.queue.head) {
	}
	if p.Err() == nil && p.queue.head != nil {
		e.later(p)
	}
}

// ship lets the first send in line leave; false: there is no room.
func (e *Engine) ship(p *peer, o *Op) bool {
	if len(o.buf) > p.eager {
		return e.announce(p, o)
	}
	what, number := eager, uint32(0)
	if o.mode == Synchronous {
		if p.outstanding >= p.most {
			return false
		}
		var ok bool
		if number, ok = e.ops.add(o); !ok {
			return false
		}
		what = eagerSync
	}
	if !e.sendShort(p, what, o.buf, o.Envelope, number) {
		if what == eagerSync {
			e.ops.remove(number)
		}
		return false
	}
	if p.Err() != nil { // which has ended the operation too
		if what == eagerSync {
			e.ops.remove(number)
		}
		return true
	}
	p.queue.pop()
	if what == eager {
		e.complete(o, nil)
		return true
	}
	p.outstanding++
	o.state, o.number = sent, number
	return true
}

// sendShort sends a message of at most l.eager bytes; false: there is no room.
func (e *Engine) sendShort(p *peer, what kind, buf []byte, env match.Envelope, number uint32) bool {
	if p.far != nil {
		return e.sendMapped(p, what, buf, env, number)
	}
	if p.mapped {
		// A failure fails the peer, which ends the message too.
		return !e.meet(p) || e.sendMapped(p, what, buf, env, number)
	}
	if !e.connected(p) {
		return p.Err() != nil
	}
	inline := eagerHeader+len(buf) <= e.inline
	if e.credits(p) <= 0 || p.Room() <= 0 || !inline && len(e.slots) == 0 {
		return false
	}
	h := header{kind: what, source: uint32(e.rank), tag: env.Tag, context: env.Context, id: number}
	p.sent++
	if inline {
		n := h.put(e.small[:])
		e.postInline(p, n+copy(e.small[n:], buf)) // a failure fails the peer
		return true
	}
	slot := e.slots[len(e.slots)-1]
	e.slots = e.slots[:len(e.slots)-1]
	b := e.mem[e.slotAt(slot):]
	n := h.put(b)
	e.postSlot(p, slot, n+copy(b[n:], buf))
	return true
}

// announce announces the first send in line; false: there is no room.
func (e *Engine) announce(p *peer, o *Op) bool {
	if p.far != nil {
		return e.announceMapped(p, o)
	}
	if p.mapped {
		return !e.meet(p) || e.announceMapped(p, o) // as in sendShort
	}
	if !e.connected(p) {
		return p.Err() != nil
	}
	if e.credits(p) <= 0 || p.Room() <= 0 || p.outstanding >= p.most {
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
	h := header{kind: announce, source: uint32(e.rank), tag: o.Tag, context: o.Context, id: number, length: uint64(len(o.buf)), address: address(o.buf), key: key.RKey()}
	if e.isPath(p) {
		h.ticket, _ = e.hold(p, number) // there is one for each that is outstanding
	}
	p.queue.pop()
	p.sent++
	p.outstanding++
	o.temp, o.state, o.number = temp, sent, number
	e.postInline(p, h.put(e.small[:])) // a failure fails the peer, and o with it
	return true
}

// answered handles the answer to an announcement.
func (e *Engine) answered(p *peer, id uint32, err error) {
	o := e.ops.get(id)
	if o == nil || o.peer != p || o.state != sent {
		e.fail(p, errStray)
		return
	}
	e.ops.remove(id)
	e.freeTicket(o)
	e.letGo(p, id)
	p.outstanding--
	if closing := o.drop(); err == nil {
		err = closing
	}
	e.complete(o, err)
	if p.queue.head != nil {
		e.pump(p)
	}
}

// cut fails a peer that may still read memory that its owner takes back.
// The peer is told when that takes no waiting; otherwise it finds out by reading.
func (e *Engine) cut(p *peer) {
	if p.QP != nil && e.credits(p) > 0 && p.Room() > 0 {
		h := header{kind: gone, source: uint32(e.rank)}
		p.sent++
		e.postInline(p, h.put(e.small[:])) // a failure fails the peer
	}
	e.fail(p, ErrCut)
}

// key is the region by which buf is named: the caller's, the whole address
// space, or one made for this operation, which is temp too.
func (e *Engine) key(buf []byte, mr rdma.MR, access rdma.Access) (key, temp rdma.MR, err error) {
	if mr != nil {
		return mr, nil, nil
	}
	if e.all != nil {
		return e.all, nil, nil
	}
	temp, err = e.pd.RegMR(buf, access)
	if err != nil {
		return nil, nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return temp, temp, nil
}
