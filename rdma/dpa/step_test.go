package dpa

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// countdown is work of so many steps, of which every other one finds nothing to do.
type countdown struct {
	steps, left atomic.Int64
}

func (c *countdown) Step() (moved, over bool) {
	if c.steps.Add(1)%2 == 0 {
		return false, c.left.Load() <= 0
	}
	return true, c.left.Add(-1) <= 0
}

// One thread of a group steps the work until it is over, and then the completion event is set.
func TestStepsRunsToTheEnd(t *testing.T) {
	testenv.NoLeaks(t)
	g := group(t, open(t, Config{Threads: 3}), 3)
	for range 3 {
		var work countdown
		work.left.Store(100)
		if err := finished(t, launched(t, g, Launch{Kernel: Steps(&work)})); err != nil {
			t.Fatal(err)
		}
		if steps := work.steps.Load(); work.left.Load() != 0 || steps != 199 {
			t.Errorf("%d steps, %d left, want 199 and none", steps, work.left.Load())
		}
	}
	if c := g.ctx.Counters(); c != (Counters{Launches: 3, Runs: 9}) {
		t.Errorf("counters %+v, want 3 launches and 9 runs", c)
	}
}

// Work that does not end is over with its launch.
func TestStepsEndsWithItsLaunch(t *testing.T) {
	testenv.NoLeaks(t)
	for name, work := range map[string]Stepper{"moves": stepperFunc(func() (bool, bool) { return true, false }), "is stuck": stepperFunc(func() (bool, bool) { return false, false })} {
		g := group(t, open(t, Config{Threads: 1}), 1)
		err := finished(t, launched(t, g, Launch{Kernel: Steps(work), Deadline: 20 * time.Millisecond}))
		if failed := (*KernelError)(nil); !errors.As(err, &failed) || !errors.Is(err, ErrDeadline) || len(failed.GivenUp) > 0 {
			t.Errorf("work that %s: got %v, want its deadline, and no thread given up", name, err)
		}
	}
}

type stepperFunc func() (moved, over bool)

func (f stepperFunc) Step() (moved, over bool) { return f() }

// A StepThread does one work after the other, each to its end, and gives back what it had.
func TestStepThread(t *testing.T) {
	testenv.NoLeaks(t)
	thread := must[*StepThread](t)(NewStepThread(domains(t, 1, fabric{})[0].Context(), 0, 1))
	for range 3 {
		var work countdown
		work.left.Store(100)
		if err := thread.Run(testenv.Deadline(t, time.Minute), "a count", &work); err != nil || work.left.Load() != 0 {
			t.Errorf("%v, %d left, want none", err, work.left.Load())
		}
	}
	if c := thread.Counters(); c != (Counters{Launches: 3, Runs: 3}) {
		t.Errorf("counters %+v, want 3 launches and 3 runs", c)
	}
	if err := thread.Close(); err != nil {
		t.Error(err)
	}
}
