//go:build !race

package rank_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// Accesses and what completes them allocate nothing, in mapped memory and by
// requests.
func TestWindowNoAllocations(t *testing.T) {
	for _, fl := range flavours {
		t.Run(fl.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
				const n = 1000
				w, _, err := fl.open(ctx, c, n)
				if err != nil {
					return err
				}
				if c.Rank() == 0 {
					err = windowAllocations(ctx, t, w, make([]int64, n))
				}
				return errors.Join(err, rank.Barrier(ctx, c), w.Free(ctx))
			})
		})
	}
}

func windowAllocations(ctx context.Context, t *testing.T, w *rank.Win[int64], buf []int64) error {
	var failed error
	locked := func(name string, call func() error) {
		for range 100 { // to the steady state
			failed = errors.Join(failed, call())
		}
		if got := testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				failed = err
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations a call, want 0", name, got)
		}
	}
	if err := w.Lock(ctx, rank.LockShared, 1, 0); err != nil {
		return err
	}
	for _, n := range []int{1, len(buf)} {
		locked("put and flush", func() error {
			if err := w.Put(buf[:n], 1, 0); err != nil {
				return err
			}
			return w.Flush(ctx, 1)
		})
		locked("get and flush", func() error {
			if err := w.Get(buf[:n], 1, 0); err != nil {
				return err
			}
			return w.FlushAll(ctx)
		})
		locked("accumulate", func() error { return w.Accumulate(buf[:n], 1, 0, rank.Sum) })
		locked("rput and wait", func() error {
			q, err := w.Rput(buf[:n], 1, 0)
			if err == nil {
				_, err = q.Wait(ctx)
			}
			return err
		})
	}
	number, err := rank.TypeFor[int64]()
	if err != nil {
		return err
	}
	every, err := rank.Vector(20, 1, 3, number)
	if err != nil {
		return err
	}
	locked("typed put, get and accumulate", func() error {
		b := rank.Typed(buf, 1, every)
		return errors.Join(w.PutTyped(b, 1, 0, 1, every), w.GetTyped(b, 1, 0, 1, every), w.AccumulateTyped(b, 1, 0, 1, every, rank.Sum), w.Flush(ctx, 1))
	})
	locked("fetch and op", func() error {
		_, err := w.FetchAndOp(1, 1, 0, rank.Sum)
		return err
	})
	locked("compare and swap", func() error {
		_, err := w.CompareAndSwap(1, 2, 1, 0)
		return err
	})
	if err := w.Unlock(ctx, 1); err != nil {
		return err
	}
	locked("lock and unlock", func() error {
		if err := w.Lock(ctx, rank.LockExclusive, 1, 0); err != nil {
			return err
		}
		return w.Unlock(ctx, 1)
	})
	return failed
}

// Accesses to mapped memory post no request, in whatever memory the origin's buffers lie.
func TestWindowMappedPostsNothing(t *testing.T) {
	for _, fl := range flavours[1:] {
		t.Run(fl.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
				w, _, err := fl.open(ctx, c, 128)
				if err != nil {
					return err
				}
				if err := w.LockAll(ctx, 0); err != nil {
					return err
				}
				buf, before := make([]int64, 128), c.World().Counters().Device
				for i := range 100 {
					_, fetched := w.FetchAndOp(1, 1, i, rank.Sum)
					_, swapped := w.CompareAndSwap(1, 0, 1, i)
					err = errors.Join(err, w.Put(buf[:1], 1, i), w.Put(buf, 1, 0), w.Get(buf[:1], 1, i), w.Get(buf, 1, 0),
						w.Accumulate(buf, 1, 0, rank.Sum), w.GetAccumulate(buf, buf, 1, 0, rank.Max), fetched, swapped, w.Flush(ctx, 1))
				}
				if after := c.World().Counters().Device; after != before {
					t.Errorf("rank %d: the accesses changed the device's counters from %+v to %+v", c.Rank(), before, after)
				}
				return errors.Join(err, w.UnlockAll(ctx), w.Free(ctx))
			})
		})
	}
}
