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
	for i := range e.links {
		l := &e.links[i]
		if i == e.rank || l.err != nil {
			continue
		}
		if l.posted != l.retired {
			e.probeLink(l)
			return false
		}
		if len(l.todo) > 0 || l.queue.head != nil || l.outstanding > 0 {
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
		return e.links[want.Source].err
	}
	someone := false
	e.among(group, func(l *link) {
		switch {
		case int(l.peer) == e.rank:
		case l.err == nil:
			someone = true
		case !l.wasCut():
			err = l.err
		}
	})
	if err != nil || someone {
		return err
	}
	e.among(group, func(l *link) {
		if l.err != nil {
			err = l.err
		}
	})
	return err
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

// lookAfter makes sure of the peers that anything waits for. What is wrong with
// one ends the operations that concern it.
func (e *Engine) lookAfter(c *condition) {
	if e.mapping {
		e.lookAtClaims()
	}
	for i := range e.links {
		l := &e.links[i]
		if l.queue.head != nil || l.outstanding > 0 || l.reading > 0 || e.matches.Awaits(i) || c.what == untilDrained {
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
	e.among(group, func(l *link) { _ = e.Check(int(l.peer)) })
}

// Check makes sure of a peer: the error says that it has died or cannot be
// reached. It is meant for a rank that has waited for a while. A link that was
// cut because a long send was given up says nothing about its peer.
func (e *Engine) Check(peer int) error {
	if peer == e.rank {
		return nil
	}
	l := &e.links[peer]
	if l.err != nil && !l.wasCut() {
		return l.err
	}
	if e.dead != nil {
		if err := e.dead(peer); err != nil {
			e.fail(l, err)
			return &PeerError{Peer: peer, Err: err}
		}
	}
	if l.qp == nil {
		if err := e.set.Failed(peer); err != nil {
			e.fail(l, err)
			return l.err
		}
	}
	if e.remote != nil && e.remote(peer) {
		now := time.Now().UnixNano()
		switch since := now - l.lastProbe; {
		case l.qp != nil && since >= probeEvery:
			l.lastProbe = now
			e.probeLink(l)
		case l.qp == nil && since >= mailEvery:
			l.lastProbe = now
			e.set.Probe(peer)
		}
	}
	return nil
}

func (l *link) wasCut() bool { return errors.Is(l.err, ErrCut) || errors.Is(l.err, ErrStill) }
