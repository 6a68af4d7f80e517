package p2p

import (
	"context"
	"errors"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/match"
)

// What a call of the engine waits for.
type what uint8

const (
	untilDone    what = iota // op
	untilReady               // outer
	untilMessage             // one that fits want
	untilDrained             // all sends have left and are answered
)

// A condition is what the engine's one running call waits for. Its Ready is
// called at every poll.
type condition struct {
	engine *Engine
	what   what
	op     *Op
	outer  wait.Condition
	want   match.Envelope
	group  []int32
	err    error
}

// probeEvery is how often an idle wait makes sure of a peer on another host.
const probeEvery = int64(500 * time.Millisecond)

// mailEvery is probeEvery for a peer that is not connected: there may be many.
const mailEvery = int64(time.Second)

func (e *Engine) wait(ctx context.Context, c condition) error {
	c.engine = e
	outer := e.cond // giveUp waits where a wait has failed
	e.cond = c
	err := e.waiter.Wait(ctx, &e.cond)
	if err == nil {
		err = e.cond.err
	}
	e.cond = outer
	return err
}

// Wait waits until o is done, which a failure of its peer brings about too; o
// holds its own error. When ctx ends before, or the engine fails, the error says
// so, and the operation goes on.
func (e *Engine) Wait(ctx context.Context, o *Op) error {
	if o.state == done {
		return nil
	}
	return e.wait(ctx, condition{what: untilDone, op: o})
}

// WaitFor waits until c is ready and makes progress meanwhile. Operations whose
// peers fail become done, so a condition made of operations ends in bounded time.
func (e *Engine) WaitFor(ctx context.Context, c wait.Condition) error {
	return e.wait(ctx, condition{what: untilReady, outer: c})
}

// Drain waits until all that was sent has left and was answered, and the send
// queues are empty.
func (e *Engine) Drain(ctx context.Context) error {
	return e.wait(ctx, condition{what: untilDrained})
}

// Ready tells whether the wait is over, by success or by failure.
func (c *condition) Ready() bool {
	e := c.engine
	e.Progress()
	if e.other != nil {
		e.other()
	}
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
		if c.satisfied() {
			return true
		}
	}
	if e.failed > 0 && c.what == untilMessage {
		c.err = e.hopeless(c.want, c.group)
	}
	return c.err != nil
}

func (c *condition) satisfied() bool {
	switch c.what {
	case untilDone:
		return c.op.state == done
	case untilReady:
		return c.outer.Ready()
	case untilMessage:
		return c.engine.peek(c.want) != nil
	}
	return c.engine.drained()
}

func (e *Engine) drained() bool {
	for i := range e.peers {
		p := &e.peers[i]
		if i == e.rank || p.Err() != nil {
			continue
		}
		if p.Flying() > 0 {
			e.probePeer(p)
			return false
		}
		if len(p.todo) > 0 || p.queue.head != nil || p.outstanding > 0 {
			return false
		}
	}
	return true
}

// hopeless is why no message that fits want can come any more, nil while one
// can. A peer that has died ends a receive that it might have been meant for. One
// that only took its connection back (ErrCut) does when nobody else is left.
func (e *Engine) hopeless(want match.Envelope, group []int32) (err error) {
	if want.Source >= 0 {
		return e.peers[want.Source].Err()
	}
	someone := false
	e.among(group, func(p *peer) {
		switch {
		case int(p.rank) == e.rank:
		case p.Err() == nil:
			someone = true
		case !p.wasCut():
			err = p.Err()
		}
	})
	if err != nil || someone {
		return err
	}
	e.among(group, func(p *peer) {
		if p.Err() != nil {
			err = p.Err()
		}
	})
	return err
}

// among calls f for the peers of a group, of all for nil.
func (e *Engine) among(group []int32, f func(*peer)) {
	if group == nil {
		for i := range e.peers {
			f(&e.peers[i])
		}
		return
	}
	for _, peer := range group {
		f(&e.peers[peer])
	}
}

// lookAfter makes sure of the peers that anything waits for. What is wrong with
// one ends the operations that concern it.
func (e *Engine) lookAfter(c *condition) {
	if e.mapping {
		e.lookAtClaims()
	}
	for i := range e.peers {
		p := &e.peers[i]
		if p.queue.head != nil || p.outstanding > 0 || p.reading > 0 || e.matches.Awaits(i) || c.what == untilDrained {
			_ = e.Check(i)
		}
	}
	e.matches.Posted(match.Any, func(r *match.Receive[*Op]) { e.checkGroup(r.Value.group) })
	if c.what == untilMessage {
		if c.want.Source >= 0 {
			_ = e.Check(int(c.want.Source))
		} else {
			e.checkGroup(c.group)
		}
	}
}

func (e *Engine) checkGroup(group []int32) {
	e.among(group, func(p *peer) { _ = e.Check(int(p.rank)) })
}

// Check makes sure of a peer: the error says that it has died or cannot be
// reached. It is meant for a rank that has waited for a while. That it was cut
// because a long send was given up says nothing about it.
func (e *Engine) Check(peer int) error {
	if peer == e.rank {
		return nil
	}
	p := &e.peers[peer]
	if p.Err() != nil && !p.wasCut() {
		return p.Err()
	}
	if e.dead != nil {
		if err := e.dead(peer); err != nil {
			e.fail(p, err)
			return &PeerError{Peer: peer, Err: err}
		}
	}
	if p.QP == nil {
		if err := e.set.Failed(peer); err != nil {
			e.fail(p, err)
			return p.Err()
		}
	}
	if e.remote != nil && e.remote(peer) {
		now := time.Now().UnixNano()
		switch since := now - p.lastProbe; {
		case p.QP != nil && since >= probeEvery:
			p.lastProbe = now
			e.probePeer(p)
		case p.QP == nil && since >= mailEvery:
			p.lastProbe = now
			e.set.Probe(peer)
		}
	}
	return nil
}

func (p *peer) wasCut() bool { return errors.Is(p.Err(), ErrCut) || errors.Is(p.Err(), ErrStill) }
