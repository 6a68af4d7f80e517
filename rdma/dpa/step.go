package dpa

import (
	"context"
	"errors"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
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

// A StepThread is a device thread that does the work of one owner, a [Stepper] at a time. It has a device context with
// a protection domain of its own.
type StepThread struct {
	*Context
	pd     rdma.PD
	group  *ThreadGroup
	done   *SyncEvent
	kernel Kernel
	work   Stepper
	seq    uint64 // of the launch
}

// NewStepThread makes the thread, of the process that is number place of the processes on this host.
func NewStepThread(device rdma.Context, place, processes int) (*StepThread, error) {
	t := &StepThread{}
	t.kernel = func(thread *Thread) error { return thread.Step(t.work) }
	var err error
	if t.pd, err = device.AllocPD(); err != nil {
		return nil, err
	}
	if t.Context, err = New(t.pd, Config{Threads: 1, Place: place, Processes: processes}); err == nil {
		if t.group, err = t.NewThreadGroup(1); err == nil {
			t.done, err = t.NewSyncEvent(Device, CPU)
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Run has the thread step s to its end, and waits for that.
func (t *StepThread) Run(ctx context.Context, name string, s Stepper) error {
	t.work = s
	t.seq++
	if err := t.group.Launch(Launch{Name: name, Kernel: t.kernel, Complete: t.done, Value: t.seq}); err != nil {
		return err
	}
	return t.done.WaitGt(ctx, t.seq-1)
}

// Close ends the thread. After a [StuckError] it may still step what it was given.
func (t *StepThread) Close() error {
	if t.Context != nil {
		if err := t.Context.Close(); err != nil {
			return err
		}
	}
	return t.pd.Close()
}
