package coll

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/wait"
)

// A Pending is a started call that progresses in [Team.Progress]. The caller of Start
// owns it until Done has reported that the call is complete; then the team reuses it.
//
// Started calls run one after the other, in the order of their start, which is the same in
// all members. They have the same arguments and run the same machine as blocking calls.
//
//	idle -- Start --> queued -- Progress, or a blocking call --> over -- Done --> idle
type Pending struct {
	invocation
	state    atomic.Uint32
	deferred bool  // started by Defer
	err      error // of one that is over
}

// The states of a Pending.
const (
	pendingIdle uint32 = iota
	pendingQueued
	pendingOver
)

// Over reports whether the call is complete, on any thread. It makes no progress.
func (p *Pending) Over() bool { return p.state.Load() == pendingOver }

// Done reports whether the call is complete, and its error. It makes no
// progress. After it has returned true the Pending must not be used.
func (p *Pending) Done() (done bool, err error) {
	if p.state.Load() != pendingOver {
		return false, nil
	}
	err, p.err = p.err, nil
	p.state.Store(pendingIdle)
	return true, err
}

// A backlog is the calls of a team that were started and are not over, first the
// one that began first.
type backlog struct {
	all   []*Pending // that the team ever made
	spare int        // where in all the search for an idle one begins
	queue []*Pending
	first int  // of the queue
	begun bool // the first has been bound to the machine
	// deferred is how many of queue were started by Defer.
	deferred int
	count    atomic.Int32 // len(queue) - first, for those who only look
}

// idle is a Pending that nobody uses.
func (b *backlog) idle() *Pending {
	for range b.all {
		p := b.all[b.spare%len(b.all)]
		b.spare++
		if p.state.Load() == pendingIdle {
			return p
		}
	}
	p := new(Pending)
	b.all = append(b.all, p)
	return p
}

func (b *backlog) push(p *Pending) {
	if b.first > 0 && len(b.queue) == cap(b.queue) {
		n := copy(b.queue, b.queue[b.first:])
		clear(b.queue[n:])
		b.queue, b.first = b.queue[:n], 0
	}
	p.state.Store(pendingQueued)
	if p.deferred {
		b.deferred++
	}
	b.queue = append(b.queue, p)
	b.count.Add(1)
}

func (b *backlog) empty() bool { return b.first == len(b.queue) }

// callsProgram tells whether the first call's reduction is a function of the program.
func (b *backlog) callsProgram() bool { return b.queue[b.first].reduction.ID >= kernel.UserID }

// pop ends the first call.
func (b *backlog) pop(err error) {
	p := b.queue[b.first]
	b.queue[b.first] = nil
	b.first++
	b.begun = false
	b.count.Add(-1)
	if p.deferred {
		b.deferred--
	}
	p.err = err
	p.state.Store(pendingOver) // from here on it may be idle
}

// The busy word says who uses the team. A call or a Close excludes all others;
// what only moves started calls on is over soon, and is waited for.
const (
	busyNot uint32 = iota
	busyCall
	busyMoving
)

// occupy makes the caller the team's only user; false while a call runs.
func (t *Team) occupy(as uint32) bool {
	for !atomic.CompareAndSwapUint32(&t.busy, busyNot, as) {
		if atomic.LoadUint32(&t.busy) == busyCall {
			return false
		}
		runtime.Gosched()
	}
	return true
}

// vacate ends that. What was written to the team becomes visible before it.
func (t *Team) vacate() { arch.StoreRelease32(&t.busy, busyNot) }

// Start starts a collective call and does not wait for it. The slices of a,
// including the operands, belong to the call until it is complete; *a is copied.
// An invalid argument is reported at once. It allocates nothing in steady state.
//
// It goes as far as it can without waiting, unless a call of [Team.Defer] is before it. Where
// the team has an Offload, a long call of registered memory is the daemon's from here on.
func (t *Team) Start(a *Args) (*Pending, error) { return t.start(a, false) }

// Defer is Start that takes no step and moves no data: the first [Team.Progress],
// [Team.Step] or later call of the team does. A reduction that calls a function
// of the program is started by Start nevertheless.
func (t *Team) Defer(a *Args) (*Pending, error) { return t.start(a, a.Reduction.ID < kernel.UserID) }

func (t *Team) start(a *Args, deferred bool) (*Pending, error) {
	if err := t.enter(a.Kind); err != nil {
		return nil, err
	}
	p := t.backlog.idle()
	if err := t.prepare(a, &p.invocation); err != nil {
		return nil, t.refuse(a.Kind, err)
	}
	p.lent = false
	p.deferred = t.offloading.lend(p) || deferred
	t.backlog.push(p)
	if t.backlog.deferred == 0 {
		t.advance(false)
	}
	t.vacate()
	return p, nil
}

// Progress advances started calls as far as they go without waiting, and reports
// whether one advanced. Without started calls it costs a load. It may be called at any
// time; while a call of the team runs it does nothing, because that call advances them.
func (t *Team) Progress() (advanced bool) { return t.move(false) }

// Step is Progress on another thread than the program's, and tells whether all started calls are
// over too: it leaves reductions that call a function of the program, and what was started after
// them, to Progress. It returns after 128 KiB, some 10 us, so that a call of the program need not
// wait for longer. Calls that it has run from their first step to their last are [Counters].Beside.
func (t *Team) Step() (moved, over bool) {
	moved = t.move(true)
	return moved, t.backlog.count.Load() == 0
}

var _ wait.Stepper = (*Team)(nil)

func (t *Team) move(beside bool) (advanced bool) {
	if t.backlog.count.Load() == 0 || !atomic.CompareAndSwapUint32(&t.busy, busyNot, busyMoving) {
		return false
	}
	if beside {
		t.most, t.beside = besideBytes, true
		defer t.backIn() // a panic there ends the thread, and not the team's other users
		return t.advance(true)
	}
	advanced = t.advance(false)
	t.vacate()
	return advanced
}

// backIn is the end of a Step.
func (t *Team) backIn() {
	t.most, t.beside = anyNumber, false
	t.vacate()
}

// besideBytes is how much Step moves.
const besideBytes = 128 << 10

// advance is Progress, or Step, by the team's only user.
func (t *Team) advance(beside bool) (advanced bool) {
	for !t.backlog.empty() && (!beside || !t.backlog.callsProgram()) && t.beginFirst() {
		if !t.waiting.poll(false) {
			return advanced
		}
		err, over := t.outcome()
		if over {
			t.over(err)
		}
		if advanced = true; !over || beside {
			return true
		}
	}
	return advanced
}

// beginFirst has the machine bound to the first started call; false if that broke
// the team. A call that cannot begin is over.
func (t *Team) beginFirst() bool {
	for !t.backlog.begun {
		if t.backlog.empty() {
			return false
		}
		t.call = &t.backlog.queue[t.backlog.first].invocation
		if t.call.lent {
			t.watch()
		} else if err := t.begin(); err != nil {
			t.over(err)
			continue
		}
		t.backlog.begun = true
	}
	return true
}

// over ends the first started call, and all of them when the team is broken.
func (t *Team) over(err error) {
	t.backlog.pop(err)
	if t.state != nil {
		t.abandon()
	}
}

// abandon ends all started calls with the team's own end.
func (t *Team) abandon() {
	for !t.backlog.empty() {
		t.backlog.pop(t.state)
	}
}

// drain waits for all started calls. An error is the team's end.
func (t *Team) drain(ctx context.Context) error {
	for !t.backlog.empty() && t.beginFirst() {
		t.over(t.complete(ctx))
	}
	return t.state
}
