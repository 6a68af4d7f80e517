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
// World.busy says who is inside the engine. A call of the program takes it for as long as
// the call lasts, and moves everything itself meanwhile. The thread takes it for one look
// at a time, and not while a call asks for it:
//
//	hot       looks, until nothing has come for hotTime
//	listens   asleep; peers that bring something wake it. Only while the program is in
//	          no call: a call that begins hushes the bell, so that peers of a program
//	          that makes one call after the other pay for no wake-up
//	dozes     asleep; only the rank's own start of a long operation wakes it
//
// It begins with the rank's first request or window, and Finalize ends it.
type beside struct {
	w       *World
	bell    *shm.Bell
	apart   *shm.Segment // made for the bell; nil: the bell is the place's
	cpu     bool         // there is a CPU for it: it spins
	env     *Environment
	deaf    bool // peers do not ring
	running bool // the program's goroutine alone reads it
	ended   chan struct{}

	kicks  atomic.Uint32 // started operations
	wanted atomic.Bool   // a call waits for the thread to get out
	stop   atomic.Bool
	failed atomic.Pointer[error] // the thread has died of it
}

// openBeside makes the progress thread where the configuration asks for one.
func (w *World) openBeside(cfg *Config) error {
	p := w.place
	spare := cfg.Environment.ProgressPinned || p.cpus >= 2*cmp.Or(p.sharers, p.size)
	switch mode := cmp.Or(cfg.Progress, cfg.Environment.Progress); {
	case w.size == 1:
		return nil
	case mode == ProgressOn || mode == ProgressAuto && spare:
	case mode == ProgressAuto && w.narrator != nil:
		w.narrator.say("no progress thread: there are not two CPUs for each rank")
		return nil
	default:
		return nil
	}
	if w.narrator != nil {
		w.narrator.say(fmt.Sprintf("a progress thread moves started operations, those of %d KiB or more from the first byte on", besideFrom>>10))
	}
	b := &beside{w: w, cpu: spare, env: cfg.Environment, deaf: w.watch.sleeper == nil, ended: make(chan struct{})}
	if p.segment != nil {
		b.bell = p.segment.Beside(p.local)
	} else {
		var err error
		if b.apart, err = shm.NewLocal(shm.DefaultGeometry(1, shm.Limit())); err != nil {
			return fmt.Errorf("progress thread: %w", err)
		}
		b.bell, b.deaf = b.apart.Beside(0), true
	}
	w.beside = b
	return nil
}

// start begins the thread, once.
func (b *beside) start() {
	if b.running {
		return
	}
	b.running = true
	if !b.scheduled() {
		arch.AddProcessors(1) // or the thread would wait for goroutines that compute
	}
	go b.run()
}

// scheduled tells whether ranks are goroutines, so that the thread is one.
func (b *beside) scheduled() bool { return b.w.waiter.Scheduled() }

// close ends the thread and waits for its end. The caller is inside, or no call is left.
func (b *beside) close() error {
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

// endBeside ends the progress thread, if there is one.
func (w *World) endBeside() error {
	if w.beside == nil {
		return nil
	}
	err := w.beside.close()
	w.beside = nil
	return err
}

// besideMoves tells whether an operation of so many bytes is left to the progress thread.
func (w *World) besideMoves(bytes int) bool { return w.beside != nil && bytes >= besideFrom }

// tellBeside wakes the progress thread where a started operation is long.
func (w *World) tellBeside(bytes int) {
	if w.besideMoves(bytes) {
		w.beside.start()
		w.beside.kicks.Add(1) // and the barrier that Wake asks for
		w.beside.bell.Wake()
	}
}

// takeOver waits until the thread is out, and enters; false if another call is inside.
func (w *World) takeOver() bool {
	b := w.beside
	if b == nil {
		return false
	}
	b.wanted.Store(true)
	defer b.wanted.Store(false)
	for n := 1; ; n++ {
		if atomic.CompareAndSwapUint32(&w.busy, busyNot, busyCall) {
			return true
		}
		if atomic.LoadUint32(&w.busy) == busyCall {
			return false
		}
		b.pause(n)
	}
}

// besideEntered begins a call beside the thread.
func (w *World) besideEntered() error {
	w.beside.bell.Hush()
	if err := w.beside.failed.Load(); err != nil {
		w.leave()
		return *err
	}
	return nil
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
	if !b.scheduled() {
		runtime.LockOSThread() // to its end, with which the thread ends
		if b.env.ProgressPinned {
			_ = arch.Pin(b.env.ProgressCPU) // refused: it runs where the rank may
		}
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
	atomic.CompareAndSwapUint32(&b.w.busy, busyThread, busyNot)
}

// A look is what the thread found inside.
type look struct {
	in    bool // it was inside: no call was
	moved bool
	open  bool // something is under way
}

// look moves on what is under way, unless a call is inside or wants to be.
func (b *beside) look(thorough bool) (l look) {
	w := b.w
	if b.wanted.Load() || atomic.LoadUint32(&w.busy) != busyNot || !atomic.CompareAndSwapUint32(&w.busy, busyNot, busyThread) {
		return l
	}
	if !w.final {
		w.waiter.SetThorough(thorough)
		l.moved = w.progressBeside()
		w.waiter.SetThorough(false)
		l.in, l.open = true, w.used > 0 || len(w.active) > 0
	}
	w.leave()
	return l
}

// hot looks until nothing has come for hotTime.
func (b *beside) hot() {
	seen, since, idle := b.kicks.Load(), time.Now(), false
	for n := 1; !b.stop.Load(); n++ {
		kicks := b.kicks.Load()
		if kicks != seen {
			seen, since, idle = kicks, time.Now(), false
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
	for d := b.shortest(); !b.stop.Load(); {
		seen := b.kicks.Load()
		l := b.look(true)
		if l.open {
			// What came before Prepare has rung nobody: look once more.
			b.bell.Prepare()
			if l = b.look(true); l.moved {
				b.bell.Cancel()
			}
		}
		if l.moved {
			return
		}
		if !l.open {
			b.bell.Doze()
		} else if b.deaf {
			d = min(d, sleepOpen)
		}
		// A start and its Wake may have come before the bell was ready for it.
		if b.kicks.Load() != seen || b.stop.Load() {
			b.bell.Cancel()
			return
		}
		if b.bell.Sleep(int64(d)) {
			return
		}
		if d = min(2*d, sleepMost); l.open && b.bell.Hushed() {
			d = b.shortest() // the program has made calls, and may compute again
		}
	}
}

// shortest is the first of several sleeps.
func (b *beside) shortest() time.Duration {
	if b.deaf {
		return napLeast
	}
	return sleepOpen
}
