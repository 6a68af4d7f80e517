package rank_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// Accesses that are in line, while a progress thread moves a collective or is none: both are right.
func TestWindowBesideCollectives(t *testing.T) {
	testenv.NoLeaks(t)
	for _, mode := range []rank.Progress{rank.ProgressOff, rank.ProgressOn} {
		err := rank.RunConfig{Config: rank.Config{Progress: mode}}.Run(t.Context(), 3, func(ctx context.Context, c *rank.Comm) error {
			const rounds, n = 20, 16 << 10
			w, err := rank.WinAllocate[int64](ctx, c, 3)
			if err != nil {
				return err
			}
			if err := w.LockAll(ctx, 0); err != nil {
				return err
			}
			in, out, mine := make([]float64, n), make([]float64, n), make([]int64, 1)
			for i := range in {
				in[i] = float64(i)
			}
			right := (c.Rank() + 1) % c.Size()
			for range rounds {
				q, err := rank.Iallreduce(c, in, out, rank.Sum)
				if err != nil {
					return err
				}
				for range 50 {
					mine[0]++
					_, failed := w.FetchAndOp(1, 0, 0, rank.Sum)
					if err := errors.Join(failed, w.Put(mine, right, 1), w.Accumulate(mine, right, 2, rank.Max), w.Flush(ctx, right)); err != nil {
						return err
					}
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				if out[n-1] != float64(c.Size()*(n-1)) {
					return fmt.Errorf("the sum is %g", out[n-1])
				}
			}
			if err := errors.Join(w.UnlockAll(ctx), rank.Barrier(ctx, c)); err != nil {
				return err
			}
			if b := w.Base(); b[1] != 50*rounds || b[2] != 50*rounds || c.Rank() == 0 && b[0] != int64(50*rounds*c.Size()) {
				return fmt.Errorf("rank %d has %v", c.Rank(), b)
			}
			return w.Free(ctx)
		})
		if err != nil {
			t.Errorf("progress %v: %v", mode, err)
		}
	}
}

// An access while another goroutine is in a call is refused, as any second call is.
func TestWindowConcurrentAccess(t *testing.T) {
	testenv.NoLeaks(t)
	for _, mode := range []rank.Progress{rank.ProgressOff, rank.ProgressOn} {
		refused := make(chan struct{})
		err := rank.RunConfig{Config: rank.Config{Progress: mode}}.Run(t.Context(), 2, func(ctx context.Context, c *rank.Comm) error {
			w, err := rank.WinAllocate[int64](ctx, c, 2)
			if err != nil {
				return err
			}
			if err := w.LockAll(ctx, 0); err != nil {
				return err
			}
			one := []int64{1}
			if c.Rank() == 1 {
				select {
				case <-refused:
				case <-ctx.Done():
					return ctx.Err()
				}
				err = rank.Send(ctx, c, one, 0, 0)
			} else {
				received := make(chan error, 1)
				go func() {
					err := rank.ErrConcurrent
					for errors.Is(err, rank.ErrConcurrent) { // Sync is inside
						_, err = rank.Recv(ctx, c, make([]int64, 1), 1, 0)
					}
					received <- err
				}()
				for err == nil { // until the receive is inside
					err = w.Sync()
					runtime.Gosched()
				}
				_, fetched := w.FetchAndOp(1, 1, 0, rank.Sum)
				_, swapped := w.CompareAndSwap(1, 1, 1, 0)
				for i, err := range []error{err, w.Put(one, 1, 0), w.Get(one, 1, 0), w.Accumulate(one, 1, 0, rank.Sum), w.Flush(ctx, 1), fetched, swapped} {
					if !errors.Is(err, rank.ErrConcurrent) {
						t.Errorf("progress %v, access %d: %v, want %v", mode, i, err, rank.ErrConcurrent)
					}
				}
				close(refused)
				err = <-received
			}
			return errors.Join(err, w.UnlockAll(ctx), w.Free(ctx))
		})
		if err != nil {
			t.Errorf("progress %v: %v", mode, err)
		}
	}
}
