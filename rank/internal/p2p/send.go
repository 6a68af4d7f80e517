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
	l := &e.links[peer]
	if l.err != nil {
		return l.err
	}
	if len(buf) <= l.eager && mode != Synchronous && l.queue.head == nil && e.sendShort(l, eager, buf, env, 0) {
		return l.err
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
	l := &e.links[peer]
	return l.err == nil && len(buf) <= l.eager && l.queue.head == nil && e.sendShort(l, eager, buf, env, 0) && l.err == nil
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
	l := &e.links[peer]
	if l.err != nil {
		return nil, l.err
	}
	o := e.newOp()
	if len(buf) <= l.eager && mode != Synchronous && l.queue.head == nil && e.sendShort(l, eager, buf, env, 0) {
		o.state, o.err = done, l.err
		return o, nil
	}
	o.Envelope, o.link, o.mode = env, l, mode
	o.state, o.buf, o.mr = queued, buf, mr
	l.queue.push(o)
	e.pump(l)
	return o, nil
}

// Notify sends an empty message that nobody waits for. A message that cannot leave at once
// stays in line, and leaves in some later call of this rank, at the latest in Drain: no time limit
// loses it, only the failure of its link.
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
func (e *Engine) pump(l *link) {
	for l.err == nil && l.queue.head != nil && e.ship(l, l.queue.head) {
	}
	if l.err == nil && l.queue.head != nil {
		e.later(l)
	}
}

// ship lets the first send in line leave; false: there is no room.
func (e *Engine) ship(l *link, o *Op) bool {
	if len(o.buf) > l.eager {
		return e.announce(l, o)
	}
	what, number := eager, uint32(0)
	if o.mode == Synchronous {
		if l.outstanding >= l.most {
			return false
		}
		var ok bool
		if number, ok = e.ops.add(o); !ok {
			return false
		}
		what = eagerSync
	}
	if !e.sendShort(l, what, o.buf, o.Envelope, number) {
		if what == eagerSync {
			e.ops.remove(number)
		}
		return false
	}
	if l.err != nil { // which has ended the operation too
		if what == eagerSync {
			e.ops.remove(number)
		}
		return true
	}
	l.queue.pop()
	if what == eager {
		e.complete(o, nil)
		return true
	}
	l.outstanding++
	o.state, o.number = sent, number
	return true
}

// sendShort sends a message of at most l.eager bytes; false: there is no room.
func (e *Engine) sendShort(l *link, what kind, buf []byte, env match.Envelope, number uint32) bool {
	if l.far != nil {
		return e.sendMapped(l, what, buf, env, number)
	}
	if l.mapped {
		// A failure fails the link, which ends the message too.
		return !e.meet(l) || e.sendMapped(l, what, buf, env, number)
	}
	if !e.connected(l) {
		return l.err != nil
	}
	inline := eagerHeader+len(buf) <= e.inline
	if e.credits(l) <= 0 || e.room(l) <= 0 || !inline && len(e.slots) == 0 {
		return false
	}
	h := header{kind: what, source: uint32(e.rank), tag: env.Tag, context: env.Context, id: number}
	l.sent++
	if inline {
		n := h.put(e.small[:])
		_ = e.postInline(l, n+copy(e.small[n:], buf)) // a failure fails the link
		return true
	}
	slot := e.slots[len(e.slots)-1]
	e.slots = e.slots[:len(e.slots)-1]
	b := e.mem[e.slotAt(slot):]
	n := h.put(b)
	_ = e.postSlot(l, slot, n+copy(b[n:], buf))
	return true
}

// announce announces the first send in line; false: there is no room.
func (e *Engine) announce(l *link, o *Op) bool {
	if l.far != nil {
		return e.announceMapped(l, o)
	}
	if l.mapped {
		return !e.meet(l) || e.announceMapped(l, o) // as in sendShort
	}
	if !e.connected(l) {
		return l.err != nil
	}
	if e.credits(l) <= 0 || e.room(l) <= 0 || l.outstanding >= l.most {
		return false
	}
	number, ok := e.ops.add(o)
	if !ok {
		return false
	}
	key, temp, err := e.key(o.buf, o.mr, rdma.AccessRemoteRead)
	if err != nil {
		e.ops.remove(number)
		l.queue.pop()
		e.complete(o, err)
		return true
	}
	h := header{kind: announce, source: uint32(e.rank), tag: o.Tag, context: o.Context, id: number, length: uint64(len(o.buf)), address: address(o.buf), key: key.RKey()}
	if e.isPath(l) {
		h.ticket, _ = e.hold(l, number) // there is one for each that is outstanding
	}
	l.queue.pop()
	l.sent++
	l.outstanding++
	o.temp, o.state, o.number = temp, sent, number
	_ = e.postInline(l, h.put(e.small[:])) // a failure fails the link, and o with it
	return true
}

// answered handles the answer to an announcement.
func (e *Engine) answered(l *link, id uint32, err error) {
	o := e.ops.get(id)
	if o == nil || o.link != l || o.state != sent {
		e.fail(l, errStray)
		return
	}
	e.ops.remove(id)
	e.freeTicket(o)
	e.letGo(l, id)
	l.outstanding--
	if closing := o.drop(); err == nil {
		err = closing
	}
	e.complete(o, err)
	if l.queue.head != nil {
		e.pump(l)
	}
}

// cut fails a link whose peer may still read memory that its owner takes back.
// The peer is told when that takes no waiting; otherwise it finds out by reading.
func (e *Engine) cut(l *link) {
	if l.qp != nil && e.credits(l) > 0 && e.room(l) > 0 {
		h := header{kind: gone, source: uint32(e.rank)}
		l.sent++
		_ = e.postInline(l, h.put(e.small[:])) // a failure fails the link
	}
	e.fail(l, ErrCut)
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
