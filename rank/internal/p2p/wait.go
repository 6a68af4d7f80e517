package p2p

import (
	"context"
	"errors"
	"time"
)

// What a call of the engine waits for.
type what uint8

const (
	untilRoom what = iota // credit, room in the send queue, and a send slot where one is needed
	untilParcel
	untilReceipt
	untilDrained
)

// A condition is what the engine's one running call waits for. Its Ready is
// called at every poll.
type condition struct {
	engine  *Engine
	what    what
	slot    bool // untilRoom: a send slot
	long    bool // untilRoom: a place for an announcement
	link    *link
	parcel  *parcel
	receipt *receipt
	group   []int32
	err     error
}

// probeEvery is how often an idle wait makes sure of a peer on another host.
const probeEvery = int64(500 * time.Millisecond)

func (e *Engine) wait(ctx context.Context, c condition) error {
	c.engine = e
	outer := e.cond // a wait within a wait does not happen, but costs nothing
	e.cond = c
	err := e.waiter.Wait(ctx, &e.cond)
	if err == nil {
		err = e.cond.err
	}
	e.cond = outer
	return err
}

// Ready tells whether the wait is over, by success or by failure.
func (c *condition) Ready() bool {
	e := c.engine
	e.Progress()
	if c.satisfied() {
		return true
	}
	if e.err != nil {
		c.err = e.err
		return true
	}
	if *e.idle != e.seenIdle {
		e.seenIdle = *e.idle
		e.lookAfter(c)
	}
	if e.failed > 0 {
		c.err = c.failure()
	}
	return c.err != nil
}

func (c *condition) satisfied() bool {
	e, l := c.engine, c.link
	switch c.what {
	case untilRoom:
		return l.err == nil && e.credits(l) > 0 && e.room(l) > 0 && (!c.slot || len(e.slots) > 0) && (!c.long || l.outstanding < rendezvousMax)
	case untilParcel:
		if c.parcel.done {
			c.err = c.parcel.err
		}
		return c.parcel.done
	case untilReceipt:
		return c.receipt.done // which holds its own error
	case untilDrained:
		for i := range e.links {
			if l := &e.links[i]; l.qp != nil && l.err == nil && (l.posted != l.retired || len(l.todo) > 0) {
				e.probe(l)
				return false
			}
		}
	}
	return true
}

// failure is why the condition cannot come true any more, nil while it can.
func (c *condition) failure() error {
	e := c.engine
	switch c.what {
	case untilRoom:
		return c.link.err
	case untilReceipt:
		if !c.receipt.Posted() {
			return nil // its reads fail with the link
		}
		if source := c.receipt.Source; source >= 0 {
			return e.links[source].err
		}
		var err error
		e.among(c.group, func(l *link) {
			if err == nil {
				err = l.err
			}
		})
		return err
	}
	return nil
}

// among calls f for the links of a group, of all for nil.
func (e *Engine) among(group []int32, f func(*link)) {
	if group == nil {
		for i := range e.links {
			f(&e.links[i])
		}
		return
	}
	for _, peer := range group {
		f(&e.links[peer])
	}
}

// lookAfter makes sure of the peers that c waits for. What is wrong with one
// stays with its link, where the condition finds it.
func (e *Engine) lookAfter(c *condition) {
	switch c.what {
	case untilRoom:
		_ = e.Check(int(c.link.peer))
	case untilParcel:
		_ = e.Check(int(c.parcel.link.peer))
	case untilReceipt:
		if c.receipt.link != nil {
			_ = e.Check(int(c.receipt.link.peer))
		} else if c.receipt.Source >= 0 {
			_ = e.Check(int(c.receipt.Source))
		} else {
			e.among(c.group, func(l *link) { _ = e.Check(int(l.peer)) })
		}
	case untilDrained:
		e.among(nil, func(l *link) { _ = e.Check(int(l.peer)) })
	}
}

// Check makes sure of a peer: the error says that it has died or cannot be
// reached. It is meant for a rank that has waited for a while. A link that was
// cut because a long send was given up says nothing about its peer.
func (e *Engine) Check(peer int) error {
	if peer == e.rank {
		return nil
	}
	l := &e.links[peer]
	if l.err != nil && !errors.Is(l.err, ErrCut) {
		return l.err
	}
	if e.dead != nil {
		if err := e.dead(peer); err != nil {
			e.fail(l, err)
			return &PeerError{Peer: peer, Err: err}
		}
	}
	if e.remote != nil && e.remote(peer) {
		if now := time.Now().UnixNano(); now-l.lastProbe >= probeEvery {
			l.lastProbe = now
			e.probe(l)
		}
	}
	return nil
}
