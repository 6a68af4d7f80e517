package rank

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
)

const (
	// besideFrom is the length in bytes from which a started operation is the progress
	// thread's. A shorter one takes less time than waking the thread, 2-5 us, so the call
	// that starts it goes as far as it can; what is left of it the thread finds by itself.
	besideFrom = 64 << 10
	// hotTime is how long the thread looks for work before it sleeps. A program that
	// starts one operation after the other finds it awake.
	hotTime = 50 * time.Microsecond
	// hotClock is how many looks there are to one at the clock.
	hotClock = 8
	// hotThorough is how many looks there are to a thorough one.
	hotThorough = 32
	// The sleeps of the thread last from sleepOpen on, each twice as long as the one before
	// it, up to sleepMost: it finds by itself what nobody has told it of. Where peers cannot
	// wake it, they last from napLeast on, and up to sleepOpen while it has operations.
	sleepOpen, sleepMost = time.Millisecond, 10 * time.Millisecond
)

// A beside is the progress thread of a rank: it moves started collectives, messages and
// windows while the program computes or sleeps. It is an OS thread of its own, or a
// goroutine that yields where the ranks are goroutines.
//
// World.inside says who is inside the engine. A call of the program takes it for as long as
// the call lasts, and moves everything itself meanwhile. The thread takes it for one look
// at a time, and not while a call asks for it:
//
//	hot       looks, until nothing has come for hotTime
//	listens   asleep; peers that bring something wake it. Only while operations are open
//	          and the program makes no calls: a call that begins hushes the bell, so that
//	          peers of a program that makes one call after the other pay for no wake-up,
//	          and wakes the thread when it ends
//	dozes     asleep; the rank's own start of a long operation wakes it, and while
//	          operations are open the end of a call that it has found inside. After a
//	          call it dozes for a millisecond before it listens again
//
// It begins with the rank's first request or window, and Finalize ends it.
type beside struct {
	w       *World
	bell    *shm.Bell
	apart   *shm.Segment // made for the bell; nil: the bell is the place's
	cpu     bool         // there is a CPU for it: it spins
	none    bool         // there is no thread: others call Request.Step
	env     *Environment
	deaf    bool // peers do not ring
	running bool // the program's goroutine alone reads it
	ended   chan struct{}
	allowed int          // GOMAXPROCS with the thread's own processor; 0: it is a goroutine
	home    *wait.Home   // nil: a CPU is kept for it, or it is a goroutine
	called  bool         // a call has been inside since the thread was; of the one who is inside
	outside *wait.Waiter // for Config.Deferred: how the program waits; nil without
	stepped stepped

	kicks  atomic.Uint32 // started operations
	wanted atomic.Bool   // a call waits for the thread to get out
	owed   atomic.Bool   // the end of the call that is inside wakes the thread
	stop   atomic.Bool
	failed atomic.Pointer[error] // the thread has died of it
}

// openBeside makes the progress thread where the configuration asks for one.
func (w *World) openBeside(cfg *Config) error {
	p := w.place
	spare := cfg.Environment.ProgressPinned || p.cpus >= 2*cmp.Or(p.sharers, p.size)
	asked := cmp.Or(cfg.Progress, cfg.Environment.Progress)
	none := false
	switch mode := cmp.Or(asked, ProgressAuto); {
	case w.size == 1 && !cfg.Deferred:
		return nil
	case cfg.Deferred && cfg.Concurrent:
		return errors.New("found Config.Deferred beside Concurrent, expected one of them at most")
	case cfg.Deferred && mode == ProgressOff:
		none = true
	case mode == ProgressOn || mode == ProgressAuto && (spare || cfg.Deferred):
	case asked == ProgressAuto && w.narrator != nil:
		w.narrator.say("no progress thread: there are not two CPUs for each rank")
		return nil
	default:
		return nil
	}
	if w.narrator != nil && !none {
		w.narrator.say(fmt.Sprintf("a progress thread moves started operations, those of %d KiB or more from the first byte on", besideFrom>>10))
	}
	b := &beside{w: w, cpu: spare, none: none, env: cfg.Environment, deaf: w.watch.sleeper == nil, ended: make(chan struct{})}
	if p.segment != nil {
		b.bell = p.segment.Beside(p.local)
	} else {
		var err error
		if b.apart, err = shm.NewLocal(shm.DefaultGeometry(1, shm.Limit())); err != nil {
			return fmt.Errorf("progress thread: %w", err)
		}
		b.bell, b.deaf = b.apart.Beside(0), true
	}
	if cfg.Deferred {
		b.outside = wait.New(wait.Config{Oversubscribed: true, Scheduler: w.waiter.Scheduled(), CPU: p.seat})
	}
	w.beside = b
	return nil
}

// start begins the thread, once.
func (b *beside) start() {
	if b.running || b.none {
		return
	}
	b.running = true
	if b.scheduled() {
		go b.run()
		return
	}
	arch.AddProcessors(1) // or the thread would wait for goroutines that compute
	b.allowed = runtime.GOMAXPROCS(0)
	arch.GoThread(b.run)
}

// hasProcessor tells whether the thread still has start's processor, which the program may have taken away. Where
// it has, a sleep that kept one would hold up goroutines that compute.
func (b *beside) hasProcessor() bool { return b.allowed > 0 && runtime.GOMAXPROCS(0) >= b.allowed }

// scheduled tells whether ranks are goroutines, so that the thread is one.
func (b *beside) scheduled() bool { return b.w.waiter.Scheduled() }

// close ends the thread, if there is one, and waits for its end. The caller is inside, or no call is left.
func (b *beside) close() error {
	if b == nil {
		return nil
	}
	if b.running {
		b.stop.Store(true)
		b.bell.Wake()
		<-b.ended
		if !b.scheduled() {
			arch.AddProcessors(-1)
		}
	}
	if b.apart != nil {
		return b.apart.Close()
	}
	return nil
}

// endBeside ends the progress thread of a world.
func (w *World) endBeside() error {
	err := w.beside.close()
	w.beside = nil
	return err
}

// moves tells whether an operation of so many bytes is left to the progress thread; nil has none.
func (b *beside) moves(bytes int) bool { return b != nil && !b.none && bytes >= besideFrom }

// defers tells whether started collectives are left to others, however short (Config.Deferred).
func (b *beside) defers() bool { return b != nil && b.outside != nil }

// tellOf wakes the progress thread where a started operation is long.
func (b *beside) tellOf(bytes int) {
	if b.moves(bytes) {
		b.tell()
	}
}

// tell wakes the thread, if there is one.
func (b *beside) tell() {
	b.start()
	b.kicks.Add(1) // and the barrier that Wake asks for
	b.bell.Wake()
}

// takeOver waits until the thread is out, and enters; false if another call is inside.
func (b *beside) takeOver() bool {
	if b == nil {
		return false
	}
	by := &b.w.inside.by
	b.wanted.Store(true)
	defer b.wanted.Store(false)
	for n := 1; ; n++ {
		if atomic.CompareAndSwapUint32(by, busyNot, busyCall) {
			return true
		}
		if atomic.LoadUint32(by) == busyCall {
			return false
		}
		b.pause(n)
	}
}

// entered begins a call beside the thread.
func (b *beside) entered() {
	b.called = true
	if b.bell.Hush() {
		b.owed.Store(true)
	}
}

// pause is between two looks, of the thread at its work or of a call at the thread.
func (b *beside) pause(n int) {
	switch {
	case b.scheduled():
		runtime.Gosched()
	case n%hotThorough == 0:
		arch.YieldSafe() // one that the Go scheduler sees
	case b.cpu:
		arch.Pause()
	default:
		arch.Yield()
	}
}

// besideAt is the place of a thread among the CPUs of a rank: behind those of the ranks where
// there is one, else the rank's own. Threads that work at the same time wake at the same
// time too, and the kernel would leave them on one CPU.
func besideAt(seat, ranks int, spare bool) int {
	if spare {
		return ranks + seat
	}
	return seat
}

// run is the life of the thread.
func (b *beside) run() {
	defer close(b.ended)
	returned := false
	defer func() {
		if p := recover(); p != nil {
			b.die(&PanicError{Rank: b.w.rank, Value: p, Stack: panicStack(debug.Stack()), title: b.w.title() + "progress thread: "})
		} else if !returned {
			b.die(errors.New("the progress thread has ended"))
		}
	}()
	switch p := b.w.place; {
	case b.scheduled():
	case b.env.ProgressPinned:
		_ = arch.Pin(b.env.ProgressCPU) // refused: it runs where the rank may
	default:
		b.home = wait.NewHome(besideAt(p.seat, cmp.Or(p.sharers, p.size), b.cpu))
	}
	for !b.stop.Load() {
		b.hot()
		b.sleep()
	}
	returned = true
}

// die has all later calls of the rank fail.
func (b *beside) die(err error) {
	b.failed.Store(&err)
	atomic.CompareAndSwapUint32(&b.w.inside.by, busyThread, busyNot)
}

// A look is what the thread found inside.
type look struct {
	in     bool // it was inside: no call was
	moved  bool
	open   bool // something is under way
	called bool // a call was inside since the thread's last look
}

// look moves on what is under way, unless a call is inside or wants to be.
func (b *beside) look(thorough bool) (l look) {
	w := b.w
	if b.wanted.Load() || atomic.LoadUint32(&w.inside.by) != busyNot || !atomic.CompareAndSwapUint32(&w.inside.by, busyNot, busyThread) {
		return l
	}
	if !w.final {
		w.waiter.SetThorough(thorough)
		l.moved = w.progressBeside()
		w.waiter.SetThorough(false)
		l.in, l.open, l.called = true, w.requests.used > 0 || len(w.traffic.active) > 0, b.called
		b.called = false
	}
	arch.StoreRelease32(&w.inside.by, busyNot)
	return l
}

// hot looks until nothing has come for hotTime.
func (b *beside) hot() {
	seen, since, idle := b.kicks.Load(), time.Now(), false
	for n := 1; !b.stop.Load(); n++ {
		kicks := b.kicks.Load()
		if kicks != seen {
			seen, since, idle = kicks, time.Now(), false
			if b.home != nil {
				b.home.Look(since)
			}
		}
		if !idle { // else it is the next start that it waits for
			l := b.look(n%hotThorough == 0)
			if l.moved {
				since = time.Now()
				continue
			}
			idle = l.in && !l.open
		}
		if n%hotClock == 0 && time.Since(since) >= hotTime {
			return
		}
		b.pause(n)
	}
}

// sleep returns when there may be something to do.
func (b *beside) sleep() {
	for d, open := b.shortest(), false; !b.stop.Load(); d = min(2*d, sleepMost) {
		seen := b.kicks.Load()
		l := b.look(true)
		if l.in {
			open = l.open
		}
		if l.open && !l.called {
			// What came before Prepare has rung nobody: look once more.
			b.bell.Prepare()
			if l = b.look(true); l.moved {
				b.bell.Cancel()
			}
		}
		if l.moved {
			return
		}
		switch {
		case l.called:
			d = b.shortest() // there may be more calls
		case l.open && b.deaf:
			d = min(d, sleepOpen)
		}
		if !l.open || l.called {
			b.bell.Doze()
		}
		if !l.in && open && !b.awaitEnd() {
			continue
		}
		// A start and its Wake may have come before the bell was ready for it.
		if b.kicks.Load() != seen || b.stop.Load() {
			b.bell.Cancel()
			return
		}
		b.bell.KeepProcessor(b.hasProcessor())
		if b.bell.Sleep(int64(d)) {
			return
		}
	}
}

// awaitEnd has the end of the call that is inside wake the thread; false: it has ended. One that
// ends at this very moment may not see that, and the thread sleeps on for 10 ms at most.
func (b *beside) awaitEnd() bool {
	b.owed.Store(true)
	if atomic.LoadUint32(&b.w.inside.by) == busyNot {
		b.owed.Store(false)
		b.bell.Cancel()
		return false
	}
	return true
}

// left wakes the thread at the end of a call, if that is what it sleeps for.
func (b *beside) left() {
	if b.owed.Load() {
		b.owed.Store(false) // and the barrier that Wake asks for
		b.bell.Wake()
	}
}

// shortest is the first of several sleeps.
func (b *beside) shortest() time.Duration {
	if b.deaf {
		return napLeast
	}
	return sleepOpen
}
