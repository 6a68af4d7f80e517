package wait

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A lock is turns by a mutex.
type lock struct {
	sync.Mutex
	slept int
}

func (l *lock) Leave() { l.Unlock() }

func (l *lock) Alone() bool { return false }

func (l *lock) Enter(slept bool) {
	l.Lock()
	if slept {
		l.slept++
	}
}

// Whoever is alone keeps its turn and sleeps; another one that comes gets in at once.
func TestWaitAloneInTurns(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	l := &loneLock{asleep: make(chan struct{}), woken: make(chan struct{})}
	w := New(Config{Scheduler: true, IdleAfter: time.Nanosecond, Turns: l, Sleeper: l})
	f, other := new(flag), make(chan struct{})
	l.Lock()
	go func() {
		defer close(other)
		<-l.asleep // for ever, unless it is woken
		if l.TryLock() {
			t.Error("a call that was alone has left its turn")
			l.Unlock()
		}
		l.others.Store(1)
		close(l.woken)
		l.Lock()
		f.set = true
		l.others.Store(0)
		l.Unlock()
	}()
	if err := w.Wait(ctx, f); err != nil || !f.set {
		t.Errorf("got %v, ready %v", err, f.set)
	}
	<-other
	if sleeps := w.Counts().Sleeps; sleeps != 1 {
		t.Errorf("%d sleeps, want 1", sleeps)
	}
	l.Unlock()
}

// A loneLock knows who else is there, and sleeps until it is woken.
type loneLock struct {
	sync.Mutex
	others        atomic.Int32
	asleep, woken chan struct{}
	once          sync.Once
}

func (l *loneLock) Leave()      { l.Unlock() }
func (l *loneLock) Enter(bool)  { l.Lock() }
func (l *loneLock) Alone() bool { return l.others.Load() == 0 }
func (l *loneLock) Prepare()    {}
func (l *loneLock) Cancel()     {}

func (l *loneLock) Sleep(int64) bool {
	l.once.Do(func() { close(l.asleep) })
	<-l.woken
	return true
}

// A flag is plain memory: the race detector sees a poll out of turn.
type flag struct{ set bool }

func (f *flag) Ready() bool { return f.set }

// A goroutine that waits lets another one in, which ends the wait, soon or after naps; and the end
// of a context leaves it its turn.
func TestWaitInTurns(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		naps bool
	}{
		{"a CPU each", Config{}, false},
		{"more ranks than CPUs", Config{Oversubscribed: true}, false},
		{"goroutines", Config{Scheduler: true}, false},
		{"for long", Config{IdleAfter: time.Nanosecond}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, time.Minute)
			l := new(lock)
			c.cfg.Turns = l
			w := New(c.cfg)
			f, other := new(flag), make(chan struct{})
			l.Lock()
			go func() {
				defer close(other)
				for {
					l.Lock()
					over := !c.naps || l.slept > 0
					f.set = over
					l.Unlock()
					if over {
						return
					}
				}
			}()
			if err := w.Wait(ctx, f); err != nil || !f.set {
				t.Errorf("got %v, ready %v", err, f.set)
			}
			<-other
			f.set = false
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := w.Wait(ended, f); !errors.Is(err, context.Canceled) {
				t.Errorf("after the context's end: %v", err)
			}
			if l.TryLock() {
				t.Error("Wait has returned without its turn")
			}
			l.Unlock()
		})
	}
}
