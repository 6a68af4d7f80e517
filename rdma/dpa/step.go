package dpa

import (
	"context"

	"github.com/gorun-mpi/gorun/internal/wait"
)

// A Stepper is work in small pieces that another thread than its owner's may do: a started collective is one
// (rank.Request with rank.Config.Deferred). Step does a piece without waiting, and tells whether it did anything and
// whether all is over.
type Stepper = wait.Stepper

// Steps is a kernel that steps s until it is over. The first thread of the group does; the others return at once.
func Steps(s Stepper) Kernel {
	return func(t *Thread) error {
		if t.Rank() != 0 {
			return nil
		}
		return t.Step(s)
	}
}

// Step steps s until it is over, or the launch is, whose reason it returns. Where nothing moves the thread waits as it does for
// a peer: it polls for a millisecond and then naps.
func (t *Thread) Step(s Stepper) error {
	w := &t.d.waiter.stepping
	*w = stepping{t: t, s: s}
	_ = t.d.waiter.naps.Wait(context.Background(), w) // this context does not end
	if w.over {
		return nil
	}
	return t.launch.reason()
}

// stepping is the condition of Thread.Step.
type stepping struct {
	t    *Thread
	s    Stepper
	over bool
}

func (w *stepping) Ready() bool {
	for moved := true; moved && !w.over; {
		if w.t.launch.over.Load() != nil {
			return true
		}
		moved, w.over = w.s.Step()
	}
	return w.over || w.t.launch.over.Load() != nil
}
