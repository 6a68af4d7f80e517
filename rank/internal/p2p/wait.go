package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// waits is the call that waits, the only one unless calls take turns, and how it ends when it must not wait any longer.
type waits struct {
	progress
	forever  context.Context
	remote   func(peer int) bool // Config.Remote
	other    func()              // Config.Progress
	idle     *uint32             // Config.Idle
	seenIdle uint32
	cond     condition
}

// A condition is what the engine's one running call waits for. Its Ready is
// called at every poll.
type condition struct {
	waits *waits
	what  what
	op    *Op
	outer wait.Condition
	want  match.Envelope
	group []int32
	err   error
}

// probeEvery is how often an idle wait makes sure of a peer on another host.
const probeEvery = int64(500 * time.Millisecond)

// mailEvery is probeEvery for a peer that is not connected: there may be many.
const mailEvery = int64(time.Second)

func (w *waits) wait(ctx context.Context, c condition) error {
	c.waits = w
	if w.progress.waiter.InTurns() {
		return w.waitInTurns(ctx, c)
	}
	outer := w.cond // giveUp waits where a wait has failed
	w.cond = c
	err := w.progress.waiter.Wait(ctx, &w.cond)
	if err == nil {
		err = w.cond.err
	}
	w.cond = outer
	return err
}

// waitInTurns is wait beside other goroutines that wait.
func (w *waits) waitInTurns(ctx context.Context, c condition) error {
	own := new(condition)
	*own = c
	if err := w.progress.waiter.Wait(ctx, own); err != nil {
		return err
	}
	return own.err
}

// Wait waits until o is done, which a failure of its peer brings about too; o
// holds its own error. When ctx ends before, or the engine fails, the error says
// so, and the operation goes on.
func (e *Engine) Wait(ctx context.Context, o *Op) error {
	if o.state == done {
		return nil
	}
	return e.waits.wait(ctx, condition{what: untilDone, op: o})
}

// WaitFor waits until c is ready and makes progress meanwhile. Operations whose
// peers fail become done, so a condition made of operations ends in bounded time.
func (e *Engine) WaitFor(ctx context.Context, c wait.Condition) error {
	return e.waits.wait(ctx, condition{what: untilReady, outer: c})
}

// Drain waits until all that was sent has left and was answered, and the send
// queues are empty.
func (e *Engine) Drain(ctx context.Context) error {
	return e.waits.wait(ctx, condition{what: untilDrained})
}

// Ready tells whether the wait is over, by success or by failure.
func (c *condition) Ready() bool {
	w := c.waits
	w.move()
	if w.other != nil {
		w.other()
	}
	if c.satisfied() {
		return true
	}
	if w.lines.err != nil {
		c.err = w.lines.err
		return true
	}
	if *w.idle != w.seenIdle {
		w.seenIdle = *w.idle
		w.lookAfter(c)
		if c.satisfied() {
			return true
		}
	}
	if c.what == untilMessage {
		c.err = w.traffic.lost(c.want, c.group)
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
		return c.waits.traffic.peek(c.want) != nil
	}
	return c.waits.drained()
}

func (w *waits) drained() bool {
	for i := range w.self.peers {
		p := &w.self.peers[i]
		if i == w.self.rank || p.Err() != nil {
			continue
		}
		if p.Flying() > 0 {
			w.wire.probePeer(p)
			return false
		}
		if len(p.todo) > 0 || p.queue.head != nil || p.outstanding > 0 {
			return false
		}
	}
	return true
}

// lookAfter makes sure of the peers that anything waits for. What is wrong with
// one ends the operations that concern it.
func (w *waits) lookAfter(c *condition) {
	if w.self.mapping {
		w.progress.lookAtClaims()
	}
	for i := range w.self.peers {
		p := &w.self.peers[i]
		if p.queue.head != nil || p.outstanding > 0 || p.reading > 0 || w.self.matches.Awaits(i) || c.what == untilDrained {
			_ = w.check(i)
		}
	}
	w.self.matches.Posted(match.Any, func(r *match.Receive[*Op]) { w.checkGroup(r.Value.group) })
	if c.what == untilMessage {
		if c.want.Source >= 0 {
			_ = w.check(int(c.want.Source))
		} else {
			w.checkGroup(c.group)
		}
	}
}

func (w *waits) checkGroup(group []int32) {
	w.lines.among(group, func(p *peer) { _ = w.check(int(p.rank)) })
}

// check is Engine.Check.
func (w *waits) check(peer int) error {
	if err := w.known(peer); err != nil || peer == w.self.rank {
		return err
	}
	p := &w.self.peers[peer]
	if w.remote != nil && w.remote(peer) {
		now := time.Now().UnixNano()
		switch since := now - p.lastProbe; {
		case p.QP != nil && since >= probeEvery:
			p.lastProbe = now
			w.wire.probePeer(p)
		case p.QP == nil && since >= mailEvery:
			p.lastProbe = now
			w.self.set.Probe(peer)
		}
	}
	return nil
}

// known is Engine.Known.
func (w *waits) known(peer int) error {
	if peer == w.self.rank {
		return nil
	}
	p := &w.self.peers[peer]
	if p.Err() != nil && !p.wasCut() {
		return p.Err()
	}
	if w.lines.dead != nil {
		if err := w.lines.dead(peer); err != nil {
			_ = w.self.set.Mourn(peer)
			w.lines.fail(p, err)
			return &PeerError{Peer: peer, Err: err, lost: true}
		}
	}
	if p.QP == nil {
		if err := w.self.set.Failed(peer); err != nil {
			w.lines.fail(p, err)
			return p.Err()
		}
	}
	return nil
}

// Unreachable tells whether a peer is known to have failed, or where only the connection with it has. Ask Check
// first to make sure.
func (e *Engine) Unreachable(peer int) bool {
	return e.Known(peer) != nil || peer != e.self.rank && e.self.peers[peer].Err() != nil
}

func (p *peer) wasCut() bool { return errors.Is(p.Err(), ErrCut) || errors.Is(p.Err(), ErrStill) }

// giveUp ends an operation, whatever has become of it, and gives its outcome:
// cause, unless it was done in the meantime. Its memory is the caller's again.
// It takes bounded time.
func (w *waits) giveUp(o *Op, cause error) (Status, error) {
	if w.quit(o, cause); o.detached {
		return Status{}, cause
	}
	return w.self.finish(o)
}

// quit is giveUp without the outcome. The operation is done, or detached.
func (w *waits) quit(o *Op, cause error) {
	switch o.state {
	case queued:
		o.peer.remove(o)
		w.self.complete(o, cause)
	case posted:
		w.self.matches.Cancel(&o.Receive)
		w.self.complete(o, cause)
	case sent:
		if o.peer == nil || o.long() {
			w.withdraw(o, cause)
			break
		}
		// The message has left; the answer to it is nobody's.
		o.detached, o.buf = true, nil
	case moving:
		w.arrive(o, cause)
	}
}

// arrive waits for a message that is being moved, which ends in bounded time, for better
// or worse: the device sees to a peer that does not answer, and here a peer that
// helps and stands still loses the connection.
func (w *waits) arrive(o *Op, cause error) {
	if w.traffic.unread(o) {
		w.self.complete(o, cause)
		return
	}
	ctx := w.forever
	if o.split.of != nil {
		short, cancel := context.WithTimeout(ctx, stillLimit)
		defer cancel()
		ctx = short
	}
	err := w.wait(ctx, condition{what: untilDone, op: o})
	switch {
	case o.state == done:
	case o.split.of != nil && err == ctx.Err():
		p := o.peer
		w.breakOff(p)
		o.err = &PeerError{Peer: int(p.rank), Err: fmt.Errorf("%w, and %w", cause, ErrStill)}
	default:
		w.self.complete(o, err)
	}
}

// Settle waits until a receive is done, as far as ctx allows, and then gives it up. It is
// done in any case.
func (e *Engine) Settle(ctx context.Context, o *Op) {
	if o.state != done {
		if err := e.Wait(ctx, o); err != nil {
			e.waits.quit(o, err)
		}
	}
}

// withdraw takes back a long message that was announced.
func (w *waits) withdraw(o *Op, cause error) {
	p := o.peer
	if p == nil { // to the rank itself
		for m := w.self.matches.Peek(o.Envelope); m != nil; m = w.self.matches.Next(m) {
			if m.Value.op == o {
				w.self.matches.Drop(m)
				m.Value.op = nil
				w.traffic.release(m)
				break
			}
		}
		w.self.complete(o, cause)
		return
	}
	if p.far != nil {
		w.withdrawMapped(o, cause)
		return
	}
	w.cut(p)
	o.err = cause
}

// withdrawMapped takes back a long message that was announced to a mapped peer. If
// that reads it already, it is waited for.
func (w *waits) withdrawMapped(o *Op, cause error) {
	t := &w.lines.tickets[o.ticket-1]
	if w.lines.takeBack(o) {
		w.disown(o)
		if err := o.drop(); err != nil {
			cause = errors.Join(cause, err)
		}
		w.self.complete(o, cause)
		return
	}
	short, cancel := context.WithTimeout(w.forever, stillLimit+helpLimit)
	defer cancel()
	err := w.wait(short, condition{what: untilDone, op: o})
	if o.state == done {
		return
	}
	atomic.StoreUint64(&t.state, ticketWord(o.generation, ticketWithdrawn)) // the process that copies finds out
	if err == short.Err() {
		w.breakOff(o.peer)
	} else {
		w.lines.fail(o.peer, err)
	}
}

// breakOff fails a peer that stands still, with all operations that concern it,
// and tells it for when it goes on. A ring has room for that.
func (w *waits) breakOff(p *peer) {
	_ = w.lines.put(p, gone, 0, 0, nil)
	w.lines.fail(p, ErrStill)
}

// cut fails a peer that may still read memory that its owner takes back.
// The peer is told when that takes no waiting; otherwise it finds out by reading.
func (w *waits) cut(p *peer) {
	if p.QP != nil && w.self.credits(p) > 0 && p.Room() > 0 {
		h := header{kind: gone, source: uint32(w.self.rank)}
		p.sent++
		w.wire.postInline(p, h.put(w.wire.small[:])) // a failure fails the peer
	}
	w.lines.fail(p, ErrCut)
}

// Abandon gives an operation up, whatever has become of it: its memory is the
// caller's again, and the operation is the engine's. A long send that was
// announced takes its connection down (ErrCut). It takes bounded time.
func (e *Engine) Abandon(o *Op) { _, _ = e.waits.giveUp(o, ErrCancelled) }
