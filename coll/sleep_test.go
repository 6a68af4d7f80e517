package coll

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
)

// A bedside is a Sleeper that knows when its rank is about to sleep.
type bedside struct {
	about  atomic.Bool
	sleeps atomic.Int32
}

func (b *bedside) Prepare() { b.about.Store(true) }
func (b *bedside) Cancel()  {}
func (b *bedside) Sleep(int64) (woken bool) {
	b.sleeps.Add(1)
	time.Sleep(time.Millisecond)
	return false
}

// What the last look before a sleep brings, as a letter brings a connection, is used
// before the rank sleeps.
func TestLookBeforeSleepIsFollowedByAStep(t *testing.T) {
	nw := network{n: 2}
	var bed bedside
	begin, sent := make(chan struct{}), make(chan struct{})
	brought := false
	nw.change = func(cfg *TeamConfig) {
		if cfg.Rank != 0 {
			return
		}
		cfg.Waiter = wait.New(wait.Config{CPU: -1, IdleAfter: time.Nanosecond, Sleeper: &bed})
		cfg.Progress = func() {
			if bed.about.Load() && !brought {
				brought = true
				close(begin)
				<-sent
			}
		}
	}
	nw.run(t, func(ctx context.Context, m *member) error {
		if m.rank == 0 {
			bed.about.Store(false)
			return m.team.Barrier(ctx)
		}
		defer close(sent)
		select {
		case <-begin:
		case <-ctx.Done():
			return ctx.Err()
		}
		return m.team.Barrier(ctx)
	})
	if n := bed.sleeps.Load(); n != 0 {
		t.Errorf("the rank slept %d times although its last look brought the message", n)
	}
}
