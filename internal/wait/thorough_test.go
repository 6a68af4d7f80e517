package wait

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A throttled is a Condition that looks at its source in thorough polls only. The source
// rings nobody, as one does that became ready before the bell was prepared.
type throttled struct {
	w      *Waiter
	source atomic.Bool
	polls  int
	looks  int
}

func (c *throttled) Ready() bool {
	c.polls++
	if !c.w.Thorough() {
		return false
	}
	c.looks++
	return c.source.Load()
}

// A before is a Sleeper whose rank gets what it waits for in Prepare, or just before.
type before struct {
	c      *throttled
	sleeps int
}

func (b *before) Prepare()         { b.c.source.Store(true) }
func (b *before) Sleep(int64) bool { b.sleeps++; return false }
func (b *before) Cancel()          {}

// The poll between Prepare and Sleep is a thorough one: what came before it ends the
// wait, and no sleep does.
func TestPollBeforeSleepIsThorough(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"a CPU each", Config{CPU: -1}},
		{"more ranks than CPUs", Config{Oversubscribed: true, CPU: -1}},
		{"goroutines", Config{Scheduler: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cond, sleeper := &throttled{}, &before{}
			sleeper.c = cond
			c.cfg.Sleeper, c.cfg.IdleAfter = sleeper, time.Nanosecond
			w := New(c.cfg)
			w.home.cpu = -1
			cond.w = w
			if err := w.Wait(testenv.Deadline(t, time.Minute), cond); err != nil {
				t.Fatal(err)
			}
			if sleeper.sleeps != 0 || w.Counts() != (Counts{}) {
				t.Errorf("%d sleeps, counts %+v: want none", sleeper.sleeps, w.Counts())
			}
			if w.Thorough() != (w.crowded || w.scheduler) {
				t.Errorf("outside of a wait Thorough is %v", w.Thorough())
			}
		})
	}
}

// While a rank with a CPU of its own spins, one poll in thoroughEvery is thorough.
func TestSpinIsThoroughNowAndThen(t *testing.T) {
	c := &throttled{}
	w := New(Config{CPU: -1})
	w.spins = 10 * thoroughEvery
	c.w = w
	w.spin(c)
	if c.looks < 1 || c.looks != c.polls/thoroughEvery {
		t.Errorf("%d of %d polls were thorough, want one in %d", c.looks, c.polls, thoroughEvery)
	}
}

// A sleep that ends by its time and finds the Condition ready counts as overslept.
func TestOversleptIsCounted(t *testing.T) {
	for _, woken := range []bool{false, true} {
		c := &sourceless{}
		w := New(Config{CPU: -1, IdleAfter: time.Nanosecond, Sleeper: &late{c: c, woken: woken}})
		if err := w.Wait(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		want := Counts{Sleeps: 1, Overslept: 1}
		if woken {
			want.Overslept = 0
		}
		if w.Counts() != want {
			t.Errorf("woken %v: counts %+v, want %+v", woken, w.Counts(), want)
		}
	}
}

// A sourceless is ready when a late Sleeper has slept.
type sourceless struct{ ready bool }

func (c *sourceless) Ready() bool { return c.ready }

type late struct {
	c     *sourceless
	woken bool
}

func (l *late) Prepare()         {}
func (l *late) Sleep(int64) bool { l.c.ready = true; return l.woken }
func (l *late) Cancel()          {}
