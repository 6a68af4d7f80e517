package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// A flavour makes windows of n elements on each rank, and says what displacement
// the first element of a rank has.
type flavour struct {
	name string
	open func(ctx context.Context, c *rank.Comm, n int) (w *rank.Win[int64], mem []int64, err error)
}

var flavours = []flavour{
	{"create", func(ctx context.Context, c *rank.Comm, n int) (*rank.Win[int64], []int64, error) {
		mem := make([]int64, n)
		w, err := rank.WinCreate(ctx, c, mem)
		return w, mem, err
	}},
	{"create of alloc", func(ctx context.Context, c *rank.Comm, n int) (*rank.Win[int64], []int64, error) {
		mem, err := rank.Alloc[int64](c, n+3)
		if err != nil {
			return nil, nil, err
		}
		w, err := rank.WinCreate(ctx, c, mem[3:])
		return w, mem[3:], err
	}},
	{"allocate", func(ctx context.Context, c *rank.Comm, n int) (*rank.Win[int64], []int64, error) {
		w, err := rank.WinAllocate[int64](ctx, c, n)
		if err != nil {
			return nil, nil, err
		}
		return w, w.Base(), nil
	}},
}

// eachFlavour runs f for every way to make a window.
func eachFlavour(t *testing.T, sizes []int, f func(ctx context.Context, c *rank.Comm, open func(n int) (*rank.Win[int64], []int64, error)) error) {
	for _, fl := range flavours {
		t.Run(fl.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ranktest.Each(t, sizes, func(ctx context.Context, c *rank.Comm) error {
				return f(ctx, c, func(n int) (*rank.Win[int64], []int64, error) { return fl.open(ctx, c, n) })
			})
		})
	}
}

// Random epochs between fences, against a model that every rank works out. In each
// epoch a block of a rank belongs to one origin for puts and gets, and the last
// block takes everybody's sums.
func TestWindowFence(t *testing.T) {
	eachFlavour(t, []int{1, 2, 3, 5, 8}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const block, epochs = 40, 12
		size, me := c.Size(), c.Rank()
		w, mem, err := open((size + 1) * block)
		if err != nil {
			return err
		}
		model := make([][]int64, size)
		for r := range model {
			model[r] = make([]int64, (size+1)*block)
			for i := range model[r] {
				model[r][i] = int64(1000*r + i)
			}
		}
		copy(mem, model[me])
		rnd := rand.New(rand.NewPCG(uint64(size), 7))
		if err := w.Fence(ctx, rank.ModeNoPrecede); err != nil {
			return err
		}
		for e := range epochs {
			type got struct{ have, want []int64 }
			var gets []got
			before := make([][]int64, size)
			for r := range before {
				before[r] = slices.Clone(model[r])
			}
			for origin := range size {
				for target := range size {
					owned := (origin + e) % size * block
					at, n := owned+rnd.IntN(block/2), rnd.IntN(block/2)
					src := make([]int64, n)
					for i := range src {
						src[i] = rnd.Int64()
					}
					sums := make([]int64, rnd.IntN(block))
					for i := range sums {
						sums[i] = rnd.Int64N(1000)
					}
					get := rnd.IntN(2) == 0
					if get {
						if origin == me {
							dst := make([]int64, n)
							if err := w.Get(dst, target, at); err != nil {
								return err
							}
							gets = append(gets, got{dst, before[target][at : at+n]})
						}
					} else {
						copy(model[target][at:], src)
						if origin == me {
							if err := w.Put(src, target, at); err != nil {
								return err
							}
						}
					}
					for i, v := range sums {
						model[target][size*block+i] += v
					}
					if origin == me {
						if err := w.Accumulate(sums, target, size*block, rank.Sum); err != nil {
							return err
						}
					}
				}
			}
			if err := w.Fence(ctx, 0); err != nil {
				return err
			}
			for i, g := range gets {
				if !slices.Equal(g.have, g.want) {
					return fmt.Errorf("epoch %d: get %d brought %v, want %v", e, i, g.have, g.want)
				}
			}
			if !slices.Equal(mem, model[me]) {
				for i := range mem {
					if mem[i] != model[me][i] {
						return fmt.Errorf("epoch %d: element %d is %d, want %d", e, i, mem[i], model[me][i])
					}
				}
			}
			if err := w.Fence(ctx, 0); err != nil { // nobody puts before all have looked
				return err
			}
		}
		if err := w.Fence(ctx, rank.ModeNoSucceed); err != nil {
			return err
		}
		return w.Free(ctx)
	})
}

// Everybody counts in every rank's memory under exclusive locks, with plain gets
// and puts: nothing gets lost.
func TestWindowLockExclusive(t *testing.T) {
	eachFlavour(t, []int{1, 2, 4, 8}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const rounds = 25
		w, mem, err := open(2)
		if err != nil {
			return err
		}
		for i := range rounds * c.Size() {
			target := (i + c.Rank()) % c.Size()
			if err := w.Lock(ctx, rank.LockExclusive, target, 0); err != nil {
				return err
			}
			var v [2]int64
			if err := w.Get(v[:], target, 0); err != nil {
				return err
			}
			if err := w.Flush(ctx, target); err != nil {
				return err
			}
			if v[0] != v[1] {
				return fmt.Errorf("round %d: under an exclusive lock there are %v", i, v)
			}
			if err := w.Put([]int64{v[0] + 1}, target, 0); err != nil {
				return err
			}
			if err := w.Put([]int64{v[1] + 1}, target, 1); err != nil {
				return err
			}
			if err := w.Unlock(ctx, target); err != nil {
				return err
			}
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		if want := int64(rounds * c.Size()); mem[0] != want || mem[1] != want {
			return fmt.Errorf("the counters are %d, want %d", mem, want)
		}
		return w.Free(ctx)
	})
}

// Readers see what a writer did under one exclusive lock whole or not at all.
func TestWindowReadersAndWriters(t *testing.T) {
	eachFlavour(t, []int{2, 3, 6}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const words = 8
		w, _, err := open(words)
		if err != nil {
			return err
		}
		for i := range 60 {
			buf := make([]int64, words)
			write := (i+c.Rank())%3 == 0
			kind := rank.LockShared
			if write {
				kind = rank.LockExclusive
				for k := range buf {
					buf[k] = int64(c.Rank()<<20 | i)
				}
			}
			if err := w.Lock(ctx, kind, 0, 0); err != nil {
				return err
			}
			if write {
				for k := range buf { // word by word, so that it takes its time
					err = errors.Join(err, w.Put(buf[k:k+1], 0, k))
				}
			} else {
				for k := range buf {
					err = errors.Join(err, w.Get(buf[k:k+1], 0, k))
				}
			}
			if err := errors.Join(err, w.Unlock(ctx, 0)); err != nil {
				return err
			}
			for _, v := range buf {
				if v != buf[0] {
					return fmt.Errorf("round %d: a reader saw %x", i, buf)
				}
			}
		}
		return w.Free(ctx)
	})
}

// FetchAndOp, CompareAndSwap and Accumulate of all ranks on the same elements.
func TestWindowAtomics(t *testing.T) {
	eachFlavour(t, []int{1, 2, 4, 8}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const rounds = 40
		w, mem, err := open(4)
		if err != nil {
			return err
		}
		if err := w.LockAll(ctx, 0); err != nil {
			return err
		}
		seen := make([]int64, 0, rounds)
		for i := range rounds {
			v, err := w.FetchAndOp(1, 0, 0, rank.Sum)
			if err != nil {
				return err
			}
			if len(seen) > 0 && v <= seen[len(seen)-1] {
				return fmt.Errorf("the counter went from %d to %d", seen[len(seen)-1], v)
			}
			seen = append(seen, v)
			for { // the same by compare and swap
				old, err := w.FetchAndOp(0, 0, 1, rank.NoOp)
				if err != nil {
					return err
				}
				if now, err := w.CompareAndSwap(old+1, old, 0, 1); err != nil {
					return err
				} else if now == old {
					break
				}
			}
			if err := w.Accumulate([]int64{1, int64(i)}, 0, 2, rank.Sum); err != nil {
				return err
			}
			var result [2]int64
			if err := w.GetAccumulate(nil, result[:], 0, 2, rank.NoOp); err != nil {
				return err
			}
			if result[0] < int64(i+1) {
				return fmt.Errorf("%d accumulates are done, and the sum is %d", i+1, result[0])
			}
		}
		if err := w.UnlockAll(ctx); err != nil {
			return err
		}
		all := make([]int64, rounds*c.Size())
		if err := rank.Allgather(ctx, c, seen, all); err != nil {
			return err
		}
		slices.Sort(all)
		for i, v := range all {
			if v != int64(i) {
				return fmt.Errorf("the numbers drawn are %v", all)
			}
		}
		n := int64(rounds * c.Size())
		if want := []int64{n, n, n, n * (rounds - 1) / 2}; c.Rank() == 0 && !slices.Equal(mem, want) {
			return fmt.Errorf("the elements are %v, want %v", mem, want)
		}
		return w.Free(ctx)
	})
}

// A ring of post, start, complete and wait: each rank gives its right neighbour a
// block in each round, and gets one from the left; now with Wait, now with Test.
func TestWindowRing(t *testing.T) {
	eachFlavour(t, []int{1, 2, 3, 8}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const n = 50
		w, mem, err := open(n)
		if err != nil {
			return err
		}
		size, me := c.Size(), c.Rank()
		left, err1 := w.Group().Incl([]int{(me + size - 1) % size})
		right, err2 := w.Group().Incl([]int{(me + 1) % size})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		src := make([]int64, n)
		for round := range 30 {
			for i := range src {
				src[i] = int64(me<<32 | round<<16 | i)
			}
			if err := w.Post(left, 0); err != nil {
				return err
			}
			if err := w.Start(ctx, right, 0); err != nil {
				return err
			}
			if err := w.Put(src, (me+1)%size, 0); err != nil {
				return err
			}
			if err := w.Complete(ctx); err != nil {
				return err
			}
			if round%2 == 0 {
				err = w.Wait(ctx)
			} else {
				for done := false; !done && err == nil; {
					runtime.Gosched()
					if done, err = w.Test(); err == nil {
						err = ctx.Err()
					}
				}
			}
			if err != nil {
				return err
			}
			for i, v := range mem {
				if want := int64((me+size-1)%size<<32 | round<<16 | i); v != want {
					return fmt.Errorf("round %d: element %d is %#x, want %#x", round, i, v, want)
				}
			}
		}
		return w.Free(ctx)
	})
}

// All to all by post and start of everybody with everybody, groups in any order.
func TestWindowManyOrigins(t *testing.T) {
	eachFlavour(t, []int{2, 5}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		size, me := c.Size(), c.Rank()
		w, mem, err := open(size)
		if err != nil {
			return err
		}
		order := rand.New(rand.NewPCG(uint64(me), 1)).Perm(size)
		g, err := w.Group().Incl(order)
		if err != nil {
			return err
		}
		for round := range 10 {
			if err := w.Post(g, 0); err != nil {
				return err
			}
			if err := w.Start(ctx, g, 0); err != nil {
				return err
			}
			for _, t := range order {
				if err := w.Put([]int64{int64(100*round + 10*me + t)}, t, me); err != nil {
					return err
				}
			}
			if err := errors.Join(w.Complete(ctx), w.Wait(ctx)); err != nil {
				return err
			}
			for i, v := range mem {
				if want := int64(100*round + 10*i + me); v != want {
					return fmt.Errorf("round %d: from rank %d there is %d, want %d", round, i, v, want)
				}
			}
		}
		return w.Free(ctx)
	})
}

// Messages and collectives take the memory of a window for registered, until the window is freed, which alone gives it back.
func TestWindowMemoryIsRegistered(t *testing.T) {
	testenv.NoLeaks(t)
	err := rank.RunConfig{}.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		for range 3 {
			win, err := rank.WinAllocate[int](ctx, c, 1000)
			if err != nil {
				return err
			}
			base := win.Base()
			base[999] = c.Rank() + 1
			if err := rank.Allreduce(ctx, c, nil, base, rank.Sum); err != nil || base[999] != 3 || !rank.Registered(c, base[:10]) {
				return fmt.Errorf("the sum is %d, want 3; registered: %v; %w", base[999], rank.Registered(c, base[:10]), err)
			}
			if err := rank.Free(c, base); err == nil || !strings.Contains(err.Error(), "not memory of Alloc") {
				return fmt.Errorf("Free of a window's memory: %w", err)
			}
			if err := win.Free(ctx); err != nil {
				return err
			}
			if rank.Registered(c, base[:10]) {
				return errors.New("the memory of a freed window is taken for registered")
			}
		}
		_, err := rank.WinAllocate[int](ctx, c, 10) // Finalize frees it
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
