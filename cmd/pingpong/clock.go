package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
)

// A clock waits for things to come, and gives up when nothing has come for a
// while.
type clock struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	waiter *wait.Waiter
	came   atomic.Uint64
	gone   chan struct{} // closed when the watchdog is
}

// A condition is what a clock waits for.
type condition func() bool

func (c condition) Ready() bool { return c() }

func newClock(parent context.Context, patience time.Duration) *clock {
	ctx, cancel := context.WithCancelCause(parent)
	w := &clock{ctx: ctx, cancel: cancel, waiter: wait.New(wait.Config{}), gone: make(chan struct{})}
	go w.watch(patience)
	return w
}

// watch ends the clock's context when nothing has come for patience.
func (w *clock) watch(patience time.Duration) {
	defer close(w.gone)
	t := time.NewTicker(max(patience/8, time.Millisecond))
	defer t.Stop()
	last, since := w.came.Load(), time.Now()
	for {
		select {
		case <-w.ctx.Done():
			return
		case now := <-t.C:
			if n := w.came.Load(); n != last {
				last, since = n, now
			} else if now.Sub(since) >= patience {
				w.cancel(fmt.Errorf("nothing has come from the peer for %v (--timeout)", patience))
				return
			}
		}
	}
}

// until waits for ready.
func (w *clock) until(ready condition) error {
	if err := w.waiter.Wait(w.ctx, ready); err != nil {
		return context.Cause(w.ctx)
	}
	w.came.Add(1)
	return nil
}

func (w *clock) stop() {
	w.cancel(nil)
	<-w.gone
}
