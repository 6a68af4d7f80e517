package rank_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["windows"] = func() { rank.Main(windows) }
}

// windows does a little of everything in processes: what the tests in one process
// check in depth.
func windows(ctx context.Context, c *rank.Comm) error {
	size, me := c.Size(), c.Rank()
	right := (me + 1) % size
	for _, fl := range flavours {
		w, mem, err := fl.open(ctx, c, 3)
		if err != nil {
			return err
		}
		from, err1 := w.Group().Incl([]int{(me + size - 1) % size})
		to, err2 := w.Group().Incl([]int{right})
		if err := errors.Join(err1, err2, w.Fence(ctx, 0), w.Put([]int64{int64(me)}, right, 0), w.Fence(ctx, rank.ModeNoSucceed)); err != nil {
			return err
		}
		if want := int64((me + size - 1) % size); mem[0] != want {
			return fmt.Errorf("%s: a fence brought %d, want %d", fl.name, mem[0], want)
		}
		for i := range 50 {
			if err := errors.Join(w.Post(from, 0), w.Start(ctx, to, 0), w.Put([]int64{int64(1000*i + me)}, right, 0), w.Complete(ctx), w.Wait(ctx)); err != nil {
				return err
			}
			if want := int64(1000*i + (me+size-1)%size); mem[0] != want {
				return fmt.Errorf("%s, round %d: post and wait brought %d, want %d", fl.name, i, mem[0], want)
			}
		}
		for i := range 50 {
			target := (me + i) % size
			var v [1]int64
			if err := errors.Join(w.Lock(ctx, rank.LockExclusive, target, 0), w.Get(v[:], target, 1), w.Flush(ctx, target)); err != nil {
				return err
			}
			v[0]++
			if err := errors.Join(w.Put(v[:], target, 1), w.Unlock(ctx, target)); err != nil {
				return err
			}
			if err := errors.Join(w.LockAll(ctx, 0), w.Accumulate([]int64{1}, 0, 2, rank.Sum), w.UnlockAll(ctx)); err != nil {
				return err
			}
		}
		var counted int64
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		sum := make([]int64, 1)
		if err := rank.Allreduce(ctx, c, mem[1:2], sum, rank.Sum); err != nil {
			return err
		}
		if counted = sum[0]; counted != int64(50*size) || me == 0 && mem[2] != int64(50*size) {
			return fmt.Errorf("%s: %d and %d are counted, want %d", fl.name, counted, mem[2], 50*size)
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestWindowProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		name    string
		hosts   []int
		foreign bool
	}{
		{"one", []int{1}, false},
		{"four", []int{4}, false},
		{"two hosts", []int{2, 1}, false},
		{"three hosts", []int{1, 2, 1}, false},
		{"foreign launcher", []int{3}, true},
	} {
		if arch.RaceEnabled && len(tt.hosts) > 1 {
			// As in TestProcesses: what TCP brings is written by another
			// goroutine, and the order comes about through mapped words.
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			j := &job{program: "windows", hosts: tt.hosts, foreign: tt.foreign}
			j.start(t)
			j.done(t)
		})
	}
}

// mournWindow has rank 1 die: what it does before, and what the others do then,
// whose error is judged.
func mournWindow(name string, open func(context.Context, *rank.Comm) (*rank.Win[int64], error), before, after func(context.Context, *rank.Comm, *rank.Win[int64]) error) {
	programs["death in windows "+name] = func() {
		var w *rank.Win[int64]
		mourn(func(ctx context.Context, c *rank.Comm) (err error) {
			if w, err = open(ctx, c); err == nil {
				err = before(ctx, c, w)
			}
			return errors.Join(err, rank.Barrier(ctx, c))
		}, func(ctx context.Context, c *rank.Comm) error { return after(ctx, c, w) })
	}
}

func init() {
	allocate := func(ctx context.Context, c *rank.Comm) (*rank.Win[int64], error) {
		return rank.WinAllocate[int64](ctx, c, 10)
	}
	create := func(ctx context.Context, c *rank.Comm) (*rank.Win[int64], error) {
		return rank.WinCreate(ctx, c, make([]int64, 10))
	}
	nothing := func(context.Context, *rank.Comm, *rank.Win[int64]) error { return nil }
	// exclusively gets the lock of rank 0, which rank 1 held.
	exclusively := func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
		return errors.Join(w.Lock(ctx, rank.LockExclusive, 0, 0), w.Put([]int64{1}, 0, 0), w.Unlock(ctx, 0))
	}
	lock := func(kind rank.LockType) func(context.Context, *rank.Comm, *rank.Win[int64]) error {
		return func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
			if c.Rank() != 1 {
				return nil
			}
			return w.Lock(ctx, kind, 0, 0)
		}
	}
	one := func(w *rank.Win[int64]) rank.Group {
		g, err := w.Group().Incl([]int{1})
		if err != nil {
			panic(err)
		}
		return g
	}
	mournWindow("locked, then start", allocate, lock(rank.LockExclusive), func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
		if err := exclusively(ctx, c, w); err != nil {
			return fmt.Errorf("the lock of the dead: %w", err)
		}
		return w.Start(ctx, one(w), 0)
	})
	mournWindow("read, then fence", create, lock(rank.LockShared), func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
		if err := exclusively(ctx, c, w); err != nil {
			return fmt.Errorf("the lock of the dead: %w", err)
		}
		return w.Fence(ctx, 0)
	})
	mournWindow("wait", allocate, nothing, func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
		return errors.Join(w.Post(one(w), 0), w.Wait(ctx))
	})
	mournWindow("test", create, nothing, func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
		if err := w.Post(one(w), 0); err != nil {
			return err
		}
		for {
			if done, err := w.Test(); done || err != nil {
				return err
			}
		}
	})
	mournWindow("free", allocate, nothing, func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error { return w.Free(ctx) })
	for name, open := range map[string]func(context.Context, *rank.Comm) (*rank.Win[int64], error){"allocate": allocate, "create": create} {
		mournWindow(name+", accesses", open, nothing, func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
			for {
				if err := w.Lock(ctx, rank.LockShared, 1, 0); err != nil {
					return err
				}
				err := w.Put([]int64{1}, 1, c.Rank())
				if err = cmp.Or(err, w.Unlock(ctx, 1)); err != nil {
					return err
				}
			}
		})
		mournWindow(name+", flushes", open, nothing, func(ctx context.Context, c *rank.Comm, w *rank.Win[int64]) error {
			if err := w.LockAll(ctx, 0); err != nil {
				return err
			}
			for {
				if _, err := w.FetchAndOp(1, 1, 0, rank.Sum); err != nil {
					return err
				}
				if err := w.Flush(ctx, 1); err != nil {
					return err
				}
			}
		})
	}
}
