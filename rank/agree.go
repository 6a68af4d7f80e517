package rank

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/rank/internal/agree"
	"github.com/gorun-mpi/gorun/rank/internal/group"
)

// An agreement is a rank's part in those of one communicator. Other ranks may need it after the communicator is
// freed here, for one that dies may have told only some what was decided: so it lasts as long as the world, unless
// Free has met all members.
type agreement struct {
	machine *agree.Machine
	members group.Set
	early   []heard // before the communicator is made here
	number  uint64  // of the latest that this rank has entered
	seen    uint32  // sleeps of the rank when it looked after the others last
	busy    bool    // a call is in it, which may be between two agreements
	// rest is what a Shrink whose context has ended leaves to later calls, once the agreement is over.
	rest func(agree.Value)
}

// agreementOf is the agreement of a communicator, with what came before it was there.
func (c *Comm) agreementOf() *agreement {
	w := c.world
	a := w.news.agreement(c.context)
	if a.machine == nil {
		a.members = c.members
		context := c.context
		a.machine = agree.New(c.members.Size(), c.members.Index(w.rank), func(to int, message []byte) {
			w.say(a.members.Rank(to), tagAgree, context, message)
		})
		early := a.early
		a.early = nil
		for _, h := range early {
			a.take(h)
		}
	}
	return a
}

// agreement is the one of a context, whose communicator may not be made here yet.
func (n *news) agreement(context uint32) *agreement {
	a := n.agreements[context]
	if a == nil {
		if n.agreements == nil {
			n.agreements = make(map[uint32]*agreement)
		}
		a = new(agreement)
		n.agreements[context] = a
	}
	return a
}

// agreeing handles a message of an agreement.
func (w *World) agreeing(c *Comm, context uint32, h heard) {
	a := w.news.agreements[context]
	switch {
	case c != nil:
		a = c.agreementOf()
	case a == nil && !w.messages.Purged(contexts*context): // the communicator is to come
		a = w.news.agreement(context)
	}
	switch {
	case a == nil:
	case a.machine == nil:
		a.early = append(a.early, h)
	default:
		a.take(h)
	}
}

func (a *agreement) take(h heard) {
	if from := a.members.Index(h.from); from != group.None {
		_ = a.machine.Receive(from, h.data[4:]) // one that makes no sense changes nothing
		a.goOn()
	}
}

// goOn does the rest of a Shrink that was left before the agreement was over.
func (a *agreement) goOn() {
	if a.rest == nil {
		return
	}
	if v, over, err := a.machine.Decided(a.number); over {
		rest := a.rest
		a.rest = nil
		if err == nil {
			rest(v)
		}
	}
}

// An awaited is the condition that an agreement is over.
type awaited struct {
	*agreement
	world  *World
	number uint64
	value  agree.Value
	err    error
	missed bool // the wait has ended for World.missed
}

// Ready looks after those that the agreement waits for when the rank has slept meanwhile.
func (a *awaited) Ready() bool {
	if sleeps := a.world.watch.sleeps; sleeps != a.seen {
		a.seen = sleeps
		a.lookAfter(a.world)
		a.missed = a.world.missed()
	}
	return a.over() || a.missed
}

func (a *awaited) over() (over bool) {
	a.value, over, a.err = a.machine.Decided(a.number)
	return over
}

// lookAfter tells the machine of the deaths that concern it now.
func (a *agreement) lookAfter(w *World) {
	var down []int
	a.machine.Awaits(func(member int) {
		if rank := a.members.Rank(member); w.messages.Check(rank) != nil || w.messages.Unreachable(rank) {
			down = append(down, member)
		}
	})
	for _, member := range down {
		a.machine.Down(member)
	}
}

// catchUp waits for the end of an earlier agreement whose context had ended.
func (a *agreement) catchUp(ctx context.Context, w *World) error {
	for a.machine.Running() {
		if err := w.waitFor(ctx, &awaited{agreement: a, world: w, number: a.number}); err != nil {
			return err
		}
		a.goOn()
	}
	return nil
}

// agreeOn has all members that live agree on what they contribute. When ctx ends the contribution stands: the others
// go on, with this rank's help in its later calls.
func (c *Comm) agreeOn(ctx context.Context, own agree.Value) (agree.Value, error) {
	w, n := c.world, c.members.Size()
	a := c.agreementOf()
	if err := a.catchUp(ctx, w); err != nil {
		return agree.Value{}, err
	}
	for index := range n {
		if rank := c.members.Rank(index); rank != w.rank && w.messages.Unreachable(rank) {
			own.Failed = own.Failed.With(index, n)
			a.machine.Down(index)
		}
	}
	own.Acked = slices.Clone(c.acked) // AckFailed changes it in place
	a.number = a.machine.Begin(own)
	return c.decision(ctx, a)
}

// decision waits for the end of the agreement under way.
func (c *Comm) decision(ctx context.Context, a *agreement) (agree.Value, error) {
	wait := &awaited{agreement: a, world: c.world, number: a.number}
	err := c.world.waitFor(ctx, wait)
	for err == nil && wait.missed && !wait.over() {
		wait.missed = false // or the next wait would end at once, having heard nothing
		if err = c.world.meetMissed(ctx); err == nil {
			err = c.world.waitFor(ctx, wait)
		}
	}
	if err == nil {
		err = wait.err
	}
	if err != nil {
		return agree.Value{}, err
	}
	for index := range c.members.Size() {
		if wait.value.Failed.Has(index) {
			a.machine.Down(index)
		}
	}
	return wait.value, nil
}

// Agree gives all members that live the same flag: the bits that all of them have set (MPIX_Comm_agree). It
// works on a revoked communicator, whatever dies meanwhile; what ranks have returned that die afterwards is the same
// too. When a member has failed whose failure not all that live have acknowledged ([Comm.AckFailed]), all get
// ErrProcFailed with the flag, and know the same [Comm.Failed]. Any other error is this rank's alone. When ctx ends,
// the others go on with the flag that this rank gave. A rank that cannot reach another one, as after a long Send
// to it whose context ended, takes it for failed; when a rank that lives is put out so, it gets ErrOutcast.
//
// All members that live call it, as often as the others. A rank that Agree waits for must be in a call of the package.
func (c *Comm) Agree(ctx context.Context, flag int) (int, error) {
	const op = "agree"
	if err := c.enterAnyway(); err != nil {
		return 0, c.fail(op, -1, err)
	}
	defer c.world.leave()
	a := c.agreementOf()
	if a.busy {
		return 0, c.fail(op, -1, ErrConcurrent)
	}
	a.busy = true
	defer func() { a.busy = false }()
	v, err := c.agreeOn(ctx, agree.Value{And: uint64(flag)})
	if err != nil {
		return 0, c.fail(op, -1, err)
	}
	for index := range c.members.Size() {
		if v.Failed.Has(index) && !v.Acked.Has(index) {
			return int(v.And), c.fail(op, -1, ErrProcFailed)
		}
	}
	return int(v.And), nil
}

// The bits of And in the second agreement of a Shrink.
const (
	shrunk  = 1 << iota // the communicator is made
	shrinks             // none gives up
)

// Shrink makes a communicator of the members that live, in the same order (MPIX_Comm_shrink), also of one that is
// revoked. All that live call it. A rank that dies meanwhile is not in it, or, if it dies as the last of the others
// is done, it is, and calls of the new communicator fail with ErrProcFailed. When the context of one
// member ends, Shrink fails in all: those that wait for that member learn so in its later calls. A context that ends
// while members tell each other that they have the communicator does not end Shrink: the others come there, or die. Of
// an intercommunicator with a group that has no rank left there is nothing to make. A rank that the others have put
// out gets ErrOutcast, as in [Comm.Agree].
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	const op = "shrink"
	if err := c.enterAnyway(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.leave()
	if err := c.world.makings.begin(true); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.makings.end()
	a := c.agreementOf()
	if a.busy {
		return nil, c.fail(op, -1, ErrConcurrent)
	}
	a.busy = true
	defer func() { a.busy = false }()
	for {
		d, err := c.shrinkOnce(ctx)
		switch {
		case err != nil:
			return nil, c.fail(op, -1, err)
		case d != nil:
			return d, nil
		}
	}
}

// shrinkOnce makes the communicator unless another member dies on the way: then it is nil.
func (c *Comm) shrinkOnce(ctx context.Context) (*Comm, error) {
	w, a := c.world, c.agreementOf()
	if err := a.catchUp(ctx, w); err != nil {
		return nil, err
	}
	v, err := c.agreeOn(ctx, agree.Value{Max: uint64(w.makings.next)})
	if err != nil {
		if a.machine.Running() {
			a.rest = func(v agree.Value) { c.giveUp(a, v) }
		}
		return nil, err
	}
	d, err := c.survivors(v)
	if err != nil {
		return nil, err
	}
	w.makings.next = max(w.makings.next, d.context+1)
	made := w.enlist(ctx, d, d.introduceByMessages)
	vote := uint64(shrunk | shrinks)
	switch {
	case ctx.Err() != nil:
		vote = 0
	case made != nil:
		vote = shrinks
	}
	if v, err = c.agreeOn(ctx, agree.Value{And: vote}); err != nil && ctx.Err() != nil {
		// What this rank has voted counts. The others come here too, or die.
		v, err = c.decision(context.WithoutCancel(ctx), a)
	}
	if err == nil && v.And&shrunk != 0 {
		c.children++
		return d, nil
	}
	if made == nil {
		d.release()
	}
	switch {
	case err != nil:
		return nil, err
	case vote == 0:
		return nil, ctx.Err()
	case v.And&shrinks == 0:
		return nil, errGivenUp
	}
	return nil, nil
}

// survivors is the communicator that a Shrink makes after its first agreement, without its team.
func (c *Comm) survivors(v agree.Value) (*Comm, error) {
	if v.Max > lastContext {
		return nil, ErrContexts
	}
	local, remote := c.without(&c.local, v.Failed), (*group.Set)(nil)
	if c.inter {
		r := c.without(&c.peers, v.Failed)
		if remote = &r; r.Size() == 0 {
			return nil, fmt.Errorf("%w: all of the other group", ErrProcFailed)
		}
	}
	return c.child(fmt.Sprintf("%s.shrink%d", c.name, c.children+1), uint32(v.Max), local, remote), nil
}

// giveUp does the rest of a Shrink whose context had ended before its first agreement was over, on v: the others
// wait for this rank's intro, and for its vote. It waits for nothing.
func (c *Comm) giveUp(a *agreement, v agree.Value) {
	d, err := c.survivors(v)
	if err != nil {
		return // the others do not vote either
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = d.introduceByMessages(ended, nil)
	if w := c.world; d.context >= w.makings.next {
		if w.makings.calls == 0 { // no call has used the number, or is about to
			d.purge()
		}
		w.makings.next = d.context + 1
	}
	a.number = a.machine.Begin(agree.Value{Failed: slices.Clone(v.Failed), Acked: slices.Clone(c.acked)})
}

// errGivenUp is what a Shrink ends with that another member has given up.
var errGivenUp = errors.New("the context of another rank has ended")

// without are those of a group that have not failed.
func (c *Comm) without(of *group.Set, failed group.Bits) group.Set {
	var live []int
	for index := range of.Size() {
		if !failed.Has(c.members.Index(of.Rank(index))) {
			live = append(live, index)
		}
	}
	s, err := of.Incl(live)
	if err != nil {
		panic("rank: " + err.Error())
	}
	return s
}
