package rank_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// Elements that are larger than what requests move at a time are replaced and
// swapped whole.
func TestWindowLargeElements(t *testing.T) {
	testenv.NoLeaks(t)
	type large [9000]int64 // 72000 bytes
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		w, err := rank.WinAllocate[large](ctx, c, 2)
		if err != nil {
			return err
		}
		if err := w.LockAll(ctx, 0); err != nil {
			return err
		}
		src := make([]large, 1)
		for round := range 5 {
			for i := range src[0] {
				src[0][i] = int64(c.Rank()<<20 | round)
			}
			got := make([]large, 1)
			if err := w.GetAccumulate(src, got, 0, 1, rank.Replace); err != nil {
				return err
			}
			for i, v := range got[0] {
				if v != got[0][0] {
					return fmt.Errorf("round %d: an element has %#x first and %#x at %d", round, got[0][0], v, i)
				}
			}
			for {
				old, err := w.FetchAndOp(large{}, 0, 0, rank.NoOp)
				if err != nil {
					return err
				}
				next := old
				for i := range next {
					next[i]++
				}
				if now, err := w.CompareAndSwap(next, old, 0, 0); err != nil {
					return err
				} else if now == old {
					break
				}
			}
		}
		if err := errors.Join(w.UnlockAll(ctx), rank.Barrier(ctx, c)); err != nil {
			return err
		}
		if c.Rank() == 0 {
			for i, v := range w.Base()[0] {
				if v != int64(5*c.Size()) {
					return fmt.Errorf("%d swaps are counted at %d, want %d", v, i, 5*c.Size())
				}
			}
		}
		return w.Free(ctx)
	})
}

// A freed window gives errors, not more.
func TestWindowFreed(t *testing.T) {
	eachFlavour(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		w, _, err := open(4)
		if err != nil {
			return err
		}
		if err := w.LockAll(ctx, 0); err != nil {
			return err
		}
		q, err := w.Rput([]int64{1}, c.Size()-1, c.Rank()) // each to a place of its own
		if err := errors.Join(err, w.UnlockAll(ctx), w.Free(ctx)); err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return fmt.Errorf("the request of an access that UnlockAll has completed: %w", err)
		}
		if w.Base() != nil || w.Size() != 0 || w.Group().Size() != c.Size() || w.Name() == "" {
			return fmt.Errorf("a freed window has %d elements, %d bytes", len(w.Base()), w.Size())
		}
		if err := w.Free(ctx); !errors.Is(err, rank.ClassWin) {
			return fmt.Errorf("freed twice: %v", err)
		}
		return nil
	})
}

// A window in use is not freed.
func TestWindowFreeExposed(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		w, err := rank.WinAllocate[int64](ctx, c, 1)
		if err != nil {
			return err
		}
		if err := w.Post(w.Group(), 0); err != nil {
			return err
		}
		if err := w.Free(ctx); !errors.Is(err, rank.ClassRMASync) {
			return fmt.Errorf("free with an exposure epoch: %v, want an error of class %v", err, rank.ClassRMASync)
		}
		if err := errors.Join(w.Start(ctx, w.Group(), 0), w.Complete(ctx), w.Wait(ctx)); err != nil {
			return err
		}
		return w.Free(ctx)
	})
}

// One rank's mistake in making a window is everybody's error, and the communicator
// stays good.
func TestWindowBadArguments(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		last := c.Rank() == c.Size()-1
		n := 4
		if last {
			n = -1
		}
		if _, err := rank.WinAllocate[int64](ctx, c, n); !errors.Is(err, rank.ClassArg) {
			return fmt.Errorf("-1 elements on one rank: %v, want an error of class %v", err, rank.ClassArg)
		}
		if last {
			n = 1 << 61
		}
		if _, err := rank.WinAllocate[int64](ctx, c, n); !errors.Is(err, rank.ClassArg) {
			return fmt.Errorf("2^64 bytes on one rank: %v, want an error of class %v", err, rank.ClassArg)
		}
		if c.Size() > 1 {
			var err error
			if last {
				_, err = rank.WinCreateDynamic[int64](ctx, c)
			} else {
				_, err = rank.WinAllocate[int64](ctx, c, 1)
			}
			if !errors.Is(err, rank.ClassArg) {
				return fmt.Errorf("windows of two flavours: %v", err)
			}
			if last {
				_, err = rank.WinAllocate[int32](ctx, c, 1)
			} else {
				_, err = rank.WinAllocate[int64](ctx, c, 1)
			}
			if !errors.Is(err, rank.ClassArg) {
				return fmt.Errorf("windows of two types: %v", err)
			}
		}
		w, err := rank.WinAllocate[int64](ctx, c, 1)
		if err != nil {
			return err
		}
		return w.Free(ctx)
	})
}

// A window has none of the attributes of the communicator it is made of.
func TestWindowWithoutAttributes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		calls := 0
		key := rank.NewKeyval(func(_ *rank.Comm, v int) (int, bool, error) { calls++; return v, true, nil },
			func(*rank.Comm, int) error { calls++; return nil })
		if err := key.Set(c, 1); err != nil {
			return err
		}
		w, err := rank.WinAllocate[int64](ctx, c, 1)
		if err != nil {
			return err
		}
		if err := w.Free(ctx); err != nil || calls != 0 {
			return fmt.Errorf("making and freeing a window calls back %d times, %v", calls, err)
		}
		return key.Delete(c)
	})
}
