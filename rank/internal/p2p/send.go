package p2p

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// A parcel is a long message under way: announced, and not yet answered.
type parcel struct {
	link *link
	buf  []byte  // keeps the memory alive and on the heap
	temp rdma.MR // registered for this send
	done bool
	err  error
	next *parcel
}

func (p *parcel) complete(err error) { p.done, p.err = true, err }

// Send sends buf and returns when it may be changed again. mr is the region that
// holds buf, nil when it is ordinary memory.
func (e *Engine) Send(ctx context.Context, buf []byte, mr rdma.MR, env match.Envelope, peer int) error {
	if e.err != nil {
		return e.err
	}
	if peer == e.rank {
		e.sendSelf(buf, env)
		return nil
	}
	l := &e.links[peer]
	if l.err != nil {
		return l.err
	}
	if len(buf) > e.eager {
		return e.sendLong(ctx, l, buf, mr, env)
	}
	inline := eagerHeader+len(buf) <= e.inline
	if e.credits(l) <= 0 || e.room(l) <= 0 || !inline && len(e.slots) == 0 {
		if err := e.wait(ctx, condition{what: untilRoom, link: l, slot: !inline}); err != nil {
			return err
		}
	}
	h := header{kind: eager, tag: env.Tag, context: env.Context}
	l.sent++
	if inline {
		n := h.put(e.small[:])
		return e.postInline(l, n+copy(e.small[n:], buf))
	}
	slot := e.slots[len(e.slots)-1]
	e.slots = e.slots[:len(e.slots)-1]
	b := e.mem[e.slotAt(slot):]
	n := h.put(b)
	return e.postSlot(l, slot, n+copy(b[n:], buf))
}

// sendSelf gives a message to the rank itself. It is never long: there is nobody
// else to receive it while its sender waits.
func (e *Engine) sendSelf(buf []byte, env match.Envelope) {
	env.Source = int32(e.rank)
	if r := e.matches.Arrive(env); r != nil {
		r.Value.deliver(env, buf)
		return
	}
	m := e.newArrival(env)
	m.Value.data = append(m.Value.data[:0], buf...)
	e.matches.Keep(m)
}

// sendLong announces a message and waits until the peer has read it.
func (e *Engine) sendLong(ctx context.Context, l *link, buf []byte, mr rdma.MR, env match.Envelope) error {
	if e.credits(l) <= 0 || e.room(l) <= 0 || l.outstanding >= rendezvousMax {
		if err := e.wait(ctx, condition{what: untilRoom, link: l, long: true}); err != nil {
			return err
		}
	}
	p := e.parcels
	if p == nil {
		p = new(parcel)
	} else {
		e.parcels = p.next
	}
	*p = parcel{link: l, buf: buf}
	key, temp, err := e.key(buf, mr, rdma.AccessRemoteRead)
	if err != nil {
		return err
	}
	p.temp = temp
	id, ok := e.sends.add(p)
	if !ok {
		return fmt.Errorf("more than %d long sends at a time", 1<<16)
	}
	h := header{kind: announce, tag: env.Tag, context: env.Context, id: id, length: uint64(len(buf)), address: address(buf), key: key.RKey()}
	l.sent++
	l.outstanding++
	if err = e.postInline(l, h.put(e.small[:])); err == nil {
		err = e.wait(ctx, condition{what: untilParcel, parcel: p})
	}
	if err != nil && l.err == nil && !p.done {
		e.cut(l)
	}
	l.outstanding--
	e.sends.remove(id)
	if temp != nil {
		if closing := temp.Close(); err == nil {
			err = closing
		}
	}
	*p = parcel{next: e.parcels}
	e.parcels = p
	return err
}

// cut fails a link whose peer may still read memory that its owner takes back.
// The peer is told when that takes no waiting; otherwise it finds out by reading.
func (e *Engine) cut(l *link) {
	if e.credits(l) > 0 && e.room(l) > 0 {
		h := header{kind: gone}
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

// Drain waits until all that was posted has left the send queues.
func (e *Engine) Drain(ctx context.Context) error {
	for i := range e.links {
		if l := &e.links[i]; l.qp != nil && l.err == nil && l.posted != l.retired {
			e.probe(l)
		}
	}
	return e.wait(ctx, condition{what: untilDrained})
}
