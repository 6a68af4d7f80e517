package dpa

import (
	"context"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
)

// crowdedIdle is how long a thread polls before it sleeps where others need its CPU.
const crowdedIdle = 100 * time.Microsecond

// A waiter waits on one goroutine at a time. It has two ways: for what this process publishes it
// sleeps on a bell, for what a peer publishes it naps, because nobody would ring.
type waiter struct {
	woken, naps *wait.Waiter
	sleep       sleeper
	progress    rdma.Progresser // nil: the device progresses by itself
	cond        condition
	stepping    stepping
}

// newWaiter makes a waiter for a thread whose home is the cpu-th CPU of the process.
func newWaiter(c *Context, pinned bool, cpu int) *waiter {
	w := &waiter{}
	cfg := wait.Config{Oversubscribed: !pinned, CPU: cpu, Sleeper: &w.sleep}
	if !pinned {
		cfg.IdleAfter = crowdedIdle
	}
	w.woken = wait.New(cfg)
	cfg.Sleeper, cfg.IdleAfter = nil, 0
	w.naps = wait.New(cfg)
	w.progress, _ = c.device.(rdma.Progresser)
	return w
}

// A condition is what a waiter waits for: event above a number, or news of a group.
type condition struct {
	w      *waiter
	by     *wait.Waiter
	event  *SyncEvent
	above  uint64
	group  *ThreadGroup // where event is nil
	launch *launch      // the wait ends when it is over; nil: the program waits
}

func (c *condition) Ready() bool {
	if c.event == nil {
		return c.group.published.Load() != c.above || c.group.ended.Load()
	}
	if ready, err := c.event.reached(c.above); ready || err != nil {
		return true
	}
	if c.launch != nil && c.launch.over.Load() != nil {
		return true
	}
	if c.w.progress != nil && c.by.Thorough() {
		c.w.progress.Progress()
	}
	return false
}

// waitGt waits for an event, until the launch is over or ctx has ended.
func (w *waiter) waitGt(ctx context.Context, e *SyncEvent, above uint64, l *launch) error {
	by := w.woken
	if e.publisher == RemoteNet {
		by = w.naps
	}
	w.sleep.on, w.sleep.patient = &e.bell, false
	w.cond = condition{w: w, by: by, event: e, above: above, launch: l}
	err := by.Wait(ctx, &w.cond)
	ready, failed := e.reached(above)
	switch {
	case failed != nil:
		return failed
	case ready:
		return nil
	case err != nil:
		return err
	}
	return l.reason()
}

// waitGroup waits until a group has published another launch than the last, or has ended.
func (w *waiter) waitGroup(g *ThreadGroup, last uint64) {
	w.sleep.on, w.sleep.patient = &g.bell, true
	w.cond = condition{w: w, by: w.woken, group: g, above: last}
	_ = w.woken.Wait(context.Background(), &w.cond) // this context does not end
}
