package wait

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
)

const (
	// spins and spinTime bound the polls before a rank first yields. The time
	// is a few steps of a collective: a poll may cost more than a load, and
	// where something else runs on the CPU of the rank that is waited for,
	// every hand-over costs the whole spin.
	spins    = 1000
	spinTime = 10 * time.Microsecond
	// clockEvery is how many polls of the spin there are to one look at the
	// clock. The first look starts it, so that a short wait pays for none.
	clockEvery = 32
	// thoroughEvery is how many polls of the spin there are to a thorough one, a
	// microsecond or two.
	thoroughEvery = 32
	// A rank that spins in vain, and whose first yields bring what it waits
	// for, shares its CPU with the one that made it: vainWaits times in a row
	// and it moves, but not more often than moveEvery. Yields that bring a part
	// of it only took as long as the other's spin: an idle CPU's take a third
	// of a microsecond each.
	vainYields, vainWaits = 3, 8
	vainTime              = spinTime / 2
	// A spin that ends before so many polls says nothing: the caller may have had
	// something left to do by itself.
	soonPolls = 4
	moveEvery = time.Millisecond
	// fewYields are those of a crowded rank's Spin, and longEvery is how many Spins
	// there are to one that goes on to Wait at once.
	fewYields, longEvery = 8, 32
	// safeEvery is how many yields there are to one that the Go scheduler sees.
	safeEvery = 64
	// lookEvery is how many yields there are to one look at clock and context.
	lookEvery = 8
	// idleYields is how many yields precede parking, however long they took:
	// where hundreds of ranks share a CPU, one yield takes a millisecond,
	// and a rank that parks then has hardly polled. A rank that was woken, or
	// whose Sleeper returned early, yields as often before it parks again.
	idleYields = 64
	// idleDefault is IdleAfter's default.
	idleDefault = time.Millisecond
	// The sleeps of a wait that goes on become longer with it, from sleepLeast on: an eighth
	// (napDivisor) of the time waited, so that hundreds of ranks that wait cost little. They last
	// sleepMost at most, since nobody wakes the rank when a context ends.
	sleepLeast, sleepMost = 10 * time.Millisecond, 100 * time.Millisecond
	// napLeast and napMost bound the timer sleeps where there is no Sleeper.
	// A timer sleep costs 25-75 us of CPU in a Go program, so at a steady
	// millisecond an idle rank would use several percent of a CPU.
	napLeast, napMost = 50 * time.Microsecond, 10 * time.Millisecond
	// napDivisor is how many times longer a rank has waited than it naps, or sleeps: waiting by
	// naps takes at most 1/napDivisor longer than waiting.
	napDivisor = 8
)

// A Condition is what a rank waits for.
type Condition interface {
	// Ready tells whether the wait is over. It is called at every poll, and
	// may make progress. Where [Waiter.Thorough] says so it looks at all that
	// may end the wait, or move it on.
	Ready() bool
}

// A Sleeper lets a rank sleep until a peer wakes it: the method set of
// rdma.Sleeper and of *shm.Bell. A peer that makes the Condition true after
// Prepare ends the Sleep.
type Sleeper interface {
	Prepare()
	Sleep(nanoseconds int64) (woken bool)
	Cancel()
}

// Config says where and with which others a rank waits. The zero value is a process
// with a CPU of its own and nobody to wake it.
type Config struct {
	// Oversubscribed: more ranks than CPUs, so yield at each miss.
	Oversubscribed bool
	// Scheduler: the ranks are goroutines of one process.
	Scheduler bool
	// Sleeper is used by one Waiter at a time. nil: timer sleeps.
	Sleeper Sleeper
	// CPU is the rank's place among those of its host. Ranks that have a CPU
	// each may come to share one, where the kernel leaves them; then they go
	// apart, each to the CPU of its place. Oversubscribed ranks, which the
	// kernel gathers on one CPU as they hand over to each other, return to it
	// from time to time.
	CPU int
	// IdleAfter is how long a wait lasts before the rank parks; 0 means 1 ms.
	IdleAfter time.Duration
	// SleepMost is how long a sleep lasts at most; 0 means 100 ms.
	SleepMost time.Duration
	// Turns lets several goroutines wait at the same time. nil: one does.
	Turns Turns
}

// A Waiter waits for one goroutine at a time, or for several that take turns.
type Waiter struct {
	spins   int
	yields  int // idleYields, less in tests that want to park
	yield   func()
	enter   func() // a yield that the scheduler sees
	sleeper Sleeper
	idle    time.Duration
	longest time.Duration // of a sleep

	scheduler bool // Config.Scheduler

	home  *Home // Config.CPU
	vain  int   // waits in a row that ended as if the CPU were shared
	moved time.Time
	now   func() time.Time

	thorough bool // of the poll under way
	counts   Counts

	since time.Time // of the long wait that goes on, or was the last

	crowded bool // Config.Oversubscribed
	spun    uint // calls of Spin
	turns   Turns
	kept    bool // the waits of the caller keep their turn
	lonely  lonely
}

// Counts count what a Waiter did.
type Counts struct {
	// Sleeps is how often it has parked. Overslept is how many of these sleeps ended by
	// their time alone and found the Condition ready: a source of it was neither looked
	// at before the sleep nor woke the rank.
	Sleeps, Overslept uint64
}

// Counts reads the counts, on the goroutine that waits.
func (w *Waiter) Counts() Counts { return w.counts }

// New makes a Waiter.
func New(c Config) *Waiter {
	w := &Waiter{spins: spins, yields: idleYields, yield: arch.Yield, enter: arch.YieldSafe, sleeper: c.Sleeper, idle: c.IdleAfter, scheduler: c.Scheduler, turns: c.Turns}
	switch {
	case c.Scheduler:
		w.yield, w.enter = runtime.Gosched, runtime.Gosched
	case runtime.GOMAXPROCS(0) == 1:
		// All else in this process, a collection and the context's timer
		// among it, needs the one processor that this goroutine holds, and
		// would get it for 10 ms out of 20. With more processors Gosched
		// wakes one of them each time, to look for work on a CPU of another
		// rank.
		w.enter = yieldBoth
	}
	w.home, w.now = NewHome(c.CPU), time.Now
	if c.Oversubscribed {
		w.spins, w.crowded = 0, true
	}
	if c.Scheduler {
		w.home.cpu = -1
	}
	w.longest = cmp.Or(c.SleepMost, sleepMost)
	if w.idle <= 0 {
		w.idle = idleDefault
	}
	return w
}

// yieldBoth yields the processor to other goroutines and the CPU to other
// threads.
func yieldBoth() {
	runtime.Gosched()
	arch.YieldSafe()
}

// Thorough tells whether the poll under way, or one outside of any wait, has to look
// at every source of the Condition. A Condition may pass over what costs more than a
// load in other polls. All layers below it ask here instead of counting
// polls, so that their budgets do not multiply. Thorough are one poll of
// thoroughEvery while the rank spins, each poll behind a yield or a switch, which
// costs more than any look, and above all the one between Prepare and Sleep: what
// came before Prepare wakes nobody.
func (w *Waiter) Thorough() bool { return w.thorough || w.crowded || w.scheduler }

// SetThorough says whether polls outside of any wait are thorough ones, for a caller that
// polls by itself. Wait begins and ends with polls that are not.
func (w *Waiter) SetThorough(on bool) { w.thorough = on }

// Crowded tells whether there are more ranks than CPUs.
func (w *Waiter) Crowded() bool { return w.crowded }

// InTurns tells whether several goroutines may wait at the same time, now.
func (w *Waiter) InTurns() bool { return w.turns != nil && !w.kept }

// KeepTurn has the caller keep its turn in its waits from now on, as the only one that waits, or not any
// more. It gives what was so before, which the caller sets again at the latest when its turn ends.
func (w *Waiter) KeepTurn(on bool) (before bool) {
	before, w.kept = w.kept, on
	return before
}

// Scheduled tells whether ranks are goroutines of one process.
func (w *Waiter) Scheduled() bool { return w.scheduler }

// Since is when the wait began in which the Sleeper sleeps.
func (w *Waiter) Since() time.Time { return w.since }

// Pass is for a rank that has looked in vain and will look again, instead of waiting:
// where ranks share their CPUs it lets another run.
func (w *Waiter) Pass() {
	if w.spins == 0 || w.scheduler {
		w.yield()
	}
}

// Spin polls one word of memory until the bits of mask are want, at most polls times
// and not for longer than Wait spins, and gives what it read last; a crowded rank yields
// a few times instead. It is for a rank that expects the word at once, and waits as long as it
// takes by Wait: Spin never looks at a clock, nor does it return to the rank's place.
func (w *Waiter) Spin(word *uint64, mask, want uint64, polls int) (last uint64) {
	if w.crowded {
		return w.spinCrowded(word, mask, want)
	}
	for range min(polls, w.spins) {
		arch.Pause()
		if last = atomic.LoadUint64(word); last&mask == want {
			w.vain = 0
			return last
		}
	}
	return atomic.LoadUint64(word)
}

// spinCrowded leaves every longEvery-th wait to Wait, so that the rank looks where it
// is. Each call is a safe point.
func (w *Waiter) spinCrowded(word *uint64, mask, want uint64) (last uint64) {
	if w.spun++; w.spun%longEvery != 0 {
		for range fewYields {
			w.yield()
			if last = atomic.LoadUint64(word); last&mask == want {
				return last
			}
		}
	}
	return atomic.LoadUint64(word)
}

// Wait returns nil when c is ready, even if ctx has ended, and ctx.Err() when ctx
// ends before. It notices the end of ctx within sleepMost and allocates nothing.
func (w *Waiter) Wait(ctx context.Context, c Condition) error {
	if c.Ready() {
		return nil
	}
	if w.InTurns() {
		return w.waitInTurns(ctx, c)
	}
	if w.spin(c) {
		return nil
	}
	w.thorough = true
	err := w.waitLong(ctx, c)
	w.thorough = false
	return err
}

// spin polls with PAUSE in between.
func (w *Waiter) spin(c Condition) (ready bool) {
	var start time.Time
	for n := 1; n <= w.spins; n++ {
		arch.Pause()
		w.thorough = n%thoroughEvery == 0
		if poll(c) {
			if n >= soonPolls {
				w.vain = 0
			}
			w.thorough = false
			return true
		}
		switch {
		case n == clockEvery:
			start = time.Now()
		case n%clockEvery == 0 && time.Since(start) >= spinTime:
			return false
		}
	}
	return false
}

// waitLong is Wait after the spin.
func (w *Waiter) waitLong(ctx context.Context, c Condition) error {
	start := w.now()
	w.since = start
	switch {
	case w.home.cpu < 0:
	case w.crowded:
		w.home.Look(start)
	default:
		ready := w.yieldFew(c)
		if now := w.now(); ready || now.Sub(start) >= vainTime {
			w.apart(now)
		} else {
			w.vain = 0
		}
		if ready {
			return nil
		}
	}
	ready, err := w.yieldFor(ctx, c, w.idle, w.yields)
	for !ready && err == nil {
		// The last chance of goroutines that share the processor.
		w.enter()
		if w.sleeper == nil {
			time.Sleep(min(max(time.Since(start)/napDivisor, napLeast), napMost))
			ready, err = w.yieldFor(ctx, c, 0, 1)
			continue
		}
		ready, err = w.park(ctx, c, start)
		if !ready && err == nil {
			ready, err = w.yieldFor(ctx, c, 0, w.yields)
		}
	}
	return err
}

// yieldFew is the first few polls of a wait that has spun in vain.
func (w *Waiter) yieldFew(c Condition) (ready bool) {
	for range vainYields {
		w.yield()
		if poll(c) {
			return true
		}
	}
	return false
}

// apart counts a wait that ended as if the rank shared its CPU with the one it
// waited for, and moves it away when there are too many.
func (w *Waiter) apart(now time.Time) {
	if w.vain++; w.vain < vainWaits || now.Sub(w.moved) < moveEvery {
		return
	}
	w.vain, w.moved = 0, now
	if !w.home.move(w.home.cpu) {
		w.home.cpu = -1
	}
}

// yieldFor polls with yields in between, for at least the given time and number
// of yields.
func (w *Waiter) yieldFor(ctx context.Context, c Condition, atLeast time.Duration, yields int) (ready bool, err error) {
	start := time.Now()
	for n := 1; ; n++ {
		if poll(c) {
			return true, nil
		}
		if n%safeEvery == 0 {
			w.enter()
		} else {
			w.yield()
		}
		if n%lookEvery != 0 && n != yields {
			continue
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if n >= yields && time.Since(start) >= atLeast {
			return false, nil
		}
	}
}

// park sleeps until a peer wakes the rank, again and again while the sleeps run
// to their end; false and nil: it was woken, and nothing is ready yet.
func (w *Waiter) park(ctx context.Context, c Condition, start time.Time) (ready bool, err error) {
	for {
		w.sleeper.Prepare()
		if c.Ready() {
			w.sleeper.Cancel()
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			w.sleeper.Cancel()
			return false, err
		}
		woken := w.sleeper.Sleep(int64(min(max(w.now().Sub(start)/napDivisor, sleepLeast), w.longest)))
		w.counts.Sleeps++
		if c.Ready() {
			if !woken && !w.sleeper.Sleep(0) { // nor has anybody rung since
				w.counts.Overslept++
			}
			return true, nil
		}
		if woken {
			return false, nil
		}
	}
}

// poll is c.Ready and a safe point: as a function with a frame of its own that
// is not inlined, it begins with the stack check by which the runtime stops a
// goroutine. The loops around it spend their time in assembly and in raw system
// calls, where the runtime cannot.
//
//go:noinline
func poll(c Condition) bool { return c.Ready() }
