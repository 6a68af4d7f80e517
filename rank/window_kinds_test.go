package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// The memory of a shared window is one piece, and each rank stores into all of it.
func TestWindowShared(t *testing.T) {
	testenv.NoLeaks(t)
	for _, size := range []int{1, 2, 3, 8} {
		ranktest.Run(t, size, func(ctx context.Context, c *rank.Comm) error {
			n := 3*c.Rank() + c.Rank()%2 // none on rank 0
			w, err := rank.WinAllocateShared[int32](ctx, c, n)
			if err != nil {
				return err
			}
			if len(w.Base()) != n || w.Size() != 4*n || w.DispUnit() != 4 || w.Flavor() != rank.FlavorShared || w.Model() != rank.Unified {
				return fmt.Errorf("base %d, size %d, unit %d, flavour %d, model %d", len(w.Base()), w.Size(), w.DispUnit(), w.Flavor(), w.Model())
			}
			if err := w.Fence(ctx, 0); err != nil {
				return err
			}
			// Each rank writes its own residue class of everybody's elements, by
			// stores and by puts.
			for r := range c.Size() {
				mem, err := w.Query(r)
				if err != nil {
					return err
				}
				if want := 3*r + r%2; len(mem) != want {
					return fmt.Errorf("rank %d has %d elements, want %d", r, len(mem), want)
				}
				for i := range mem {
					if i%c.Size() != c.Rank() {
						continue
					}
					if i%2 == 0 {
						mem[i] = int32(1000*r + i)
					} else if err := w.Put([]int32{int32(1000*r + i)}, r, i); err != nil {
						return err
					}
				}
			}
			if err := w.Fence(ctx, rank.ModeNoSucceed); err != nil {
				return err
			}
			next := 0
			for r := range c.Size() {
				mem, _ := w.Query(r)
				for i, v := range mem {
					if v != int32(1000*r+i) {
						return fmt.Errorf("element %d of rank %d is %d", i, r, v)
					}
				}
				if len(mem) == 0 {
					continue
				}
				if at := rank.Address(mem); next != 0 && at != next {
					return fmt.Errorf("the memory of rank %d is not behind that of the last", r)
				}
				next = rank.Address(mem) + 4*len(mem)
			}
			first, err := w.Query(rank.ProcNull)
			if err != nil || c.Size() > 1 && len(first) != 4 {
				return fmt.Errorf("the first memory has %d elements, %v", len(first), err)
			}
			if err := w.LockAll(ctx, 0); err != nil {
				return err
			}
			return errors.Join(w.Sync(), w.UnlockAll(ctx), w.Free(ctx))
		})
	}
}

// Where memory is not shared all ranks say so.
func TestWindowSharedNowhere(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.RunSeed(t, 3, 1, func(ctx context.Context, c *rank.Comm) error {
		if _, err := rank.WinAllocateShared[byte](ctx, c, 10); !errors.Is(err, rank.ClassWin) {
			return fmt.Errorf("a shared window: %v, want an error of class %v", err, rank.ClassWin)
		}
		return rank.Barrier(ctx, c)
	})
}

// Memory comes and goes in a dynamic window, of the heap and of Alloc.
func TestWindowDynamic(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		w, err := rank.WinCreateDynamic[uint16](ctx, c)
		if err != nil {
			return err
		}
		size, me := c.Size(), c.Rank()
		for round := range 4 {
			heap := make([]uint16, 100+size)
			alloc, err := rank.Alloc[uint16](c, 60+size)
			if err != nil {
				return err
			}
			if err := errors.Join(w.Attach(heap), w.Attach(alloc)); err != nil {
				return err
			}
			if err := w.Attach(heap[5:6]); !errors.Is(err, rank.ClassWin) {
				return fmt.Errorf("attaching twice: %v", err)
			}
			where := make([]int, 2*size)
			if err := rank.Allgather(ctx, c, []int{rank.Address(heap), rank.Address(alloc)}, where); err != nil {
				return err
			}
			if err := w.LockAll(ctx, 0); err != nil {
				return err
			}
			for i, at := range where {
				v := uint16(round<<12 | i<<6 | me)
				if err := w.Put([]uint16{v}, i/2, at+2*(50+me)); err != nil {
					return err
				}
				if err := w.Accumulate([]uint16{1, 2}, i/2, at, rank.Sum); err != nil {
					return err
				}
				if err := w.Flush(ctx, i/2); err != nil {
					return err
				}
				got := make([]uint16, 1)
				if err := errors.Join(w.Get(got, i/2, at+2*(50+me)), w.Flush(ctx, i/2)); err != nil || got[0] != v {
					return fmt.Errorf("rank %d has %#x, %v, want %#x", i/2, got[0], err, v)
				}
				end := at + 2*(100+size)
				if i%2 == 1 {
					end = at + 2*(60+size)
				}
				for _, bad := range []int{at - 2, end - 1, end, 0, 8} {
					if err := w.Get(got, i/2, bad); !errors.Is(err, rank.ClassRMARange) {
						return fmt.Errorf("get at %#x, where %#x is attached: %v, want an error of class %v", bad, at, err, rank.ClassRMARange)
					}
				}
			}
			if err := errors.Join(w.UnlockAll(ctx), rank.Barrier(ctx, c)); err != nil {
				return err
			}
			for i, mem := range [][]uint16{heap, alloc} {
				if mem[0] != uint16(size) || mem[1] != uint16(2*size) {
					return fmt.Errorf("the sums are %d", mem[:2])
				}
				for r := range size {
					if want := uint16(round<<12 | (2*me+i)<<6 | r); mem[50+r] != want {
						return fmt.Errorf("from rank %d there is %#x, want %#x", r, mem[50+r], want)
					}
				}
			}
			if err := errors.Join(w.Detach(heap), w.Detach(alloc), rank.Free(c, alloc), rank.Barrier(ctx, c)); err != nil {
				return err
			}
			if err := w.Detach(heap); !errors.Is(err, rank.ClassWin) {
				return fmt.Errorf("detaching twice: %v", err)
			}
			if err := w.Lock(ctx, rank.LockShared, 0, 0); err != nil {
				return err
			}
			if err := w.Put(heap[:1], 0, where[0]); !errors.Is(err, rank.ClassRMARange) {
				return fmt.Errorf("put to what is detached: %v", err)
			}
			if err := errors.Join(w.Unlock(ctx, 0), rank.Barrier(ctx, c)); err != nil {
				return err
			}
		}
		return w.Free(ctx)
	})
}

// operate checks every operation that kernel has for T, on all ranks at once under
// exclusive locks: the result of each is what kernel makes of the last.
func operate[T comparable](ctx context.Context, c *rank.Comm, random func(*rand.Rand) T) error {
	const n = 9
	w, err := rank.WinAllocate[T](ctx, c, n)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(uint64(c.Rank()), 3))
	vector := func() []T {
		v := make([]T, n)
		for i := range v {
			v[i] = random(rnd)
		}
		return v
	}
	typ, _ := kernel.TypeFor[T]()
	for i, by := range []rank.Op{rank.Sum, rank.Prod, rank.Min, rank.Max, rank.LAnd, rank.LOr, rank.LXor, rank.BAnd, rank.BOr, rank.BXor,
		rank.MinLoc, rank.MaxLoc, rank.Replace, rank.NoOp} {
		op := kernel.Op(i)
		for target := range c.Size() {
			src, before, again, after := vector(), make([]T, n), make([]T, n), make([]T, n)
			if err := w.Lock(ctx, rank.LockExclusive, target, 0); err != nil {
				return err
			}
			err := errors.Join(w.GetAccumulate(nil, before, target, 0, rank.NoOp), w.GetAccumulate(src, again, target, 0, by))
			r, known := kernel.For(typ, op)
			if !known {
				if !errors.Is(err, rank.ClassOp) {
					return fmt.Errorf("%v of %v: %v, want an error of class %v", op, typ, err, rank.ClassOp)
				}
				if err := w.Unlock(ctx, target); err != nil {
					return err
				}
				continue
			}
			one, err2 := w.FetchAndOp(src[0], target, n-1, by)
			if err := errors.Join(err, err2, w.Get(after, target, 0), w.Unlock(ctx, target)); err != nil {
				return err
			}
			want := make([]byte, n*r.Elem)
			r.Func(want, raw(before), raw(src))
			if !slices.Equal(before, again) {
				return fmt.Errorf("%v: before it there are %v, and then %v", r, before, again)
			}
			last := want[(n-1)*r.Elem:]
			if string(raw([]T{one})) != string(last) {
				return fmt.Errorf("%v: FetchAndOp gives %v before it", r, one)
			}
			r.Func(last, slices.Clone(last), raw(src[:1]))
			if string(raw(after)) != string(want) {
				return fmt.Errorf("%v of %v and %v gives %v", r, before, src, after)
			}
		}
	}
	return w.Free(ctx)
}

func TestWindowOperations(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		return errors.Join(
			operate(ctx, c, func(r *rand.Rand) int8 { return int8(r.Uint32()) }),
			operate(ctx, c, func(r *rand.Rand) bool { return r.IntN(2) == 0 }),
			operate(ctx, c, func(r *rand.Rand) uint16 { return uint16(r.Uint32()) }),
			operate(ctx, c, (*rand.Rand).Int32),
			operate(ctx, c, (*rand.Rand).Uint64),
			operate(ctx, c, (*rand.Rand).Float32),
			operate(ctx, c, (*rand.Rand).NormFloat64),
			operate(ctx, c, func(r *rand.Rand) complex128 { return complex(r.Float64(), r.Float64()) }),
			operate(ctx, c, func(r *rand.Rand) kernel.BF16 { return kernel.ToBF16(r.Float32()) }),
			operate(ctx, c, func(r *rand.Rand) kernel.Pair[int64] {
				return kernel.Pair[int64]{Value: r.Int64N(3), Index: r.Int32N(5)}
			}),
		)
	})
}

// Values that are no numbers can be put, replaced, compared and swapped.
func TestWindowOfStructs(t *testing.T) {
	testenv.NoLeaks(t)
	type point struct {
		X, Y, Z float32
		N       int32
	}
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		w, err := rank.WinAllocate[point](ctx, c, 100000/16*c.Rank()+100)
		if err != nil {
			return err
		}
		last := (c.Rank() + 1) % c.Size()
		p, q := point{1, 2, 3, int32(c.Rank())}, point{}
		if err := w.Lock(ctx, rank.LockExclusive, last, 0); err != nil {
			return err
		}
		big := make([]point, 100000/16*last+50) // more than one piece by requests
		for i := range big {
			big[i] = point{N: int32(i)}
		}
		got := make([]point, len(big))
		err = errors.Join(w.Accumulate(big, last, 50, rank.Replace), w.Get(got, last, 50))
		before, err2 := w.CompareAndSwap(p, q, last, 7)
		after, err3 := w.CompareAndSwap(q, q, last, 7)
		err4 := w.Accumulate([]point{p}, last, 0, rank.Sum)
		if err := errors.Join(err, err2, err3, w.Unlock(ctx, last)); err != nil {
			return err
		}
		if before != q || after != p || !slices.Equal(got, big) {
			return fmt.Errorf("swapped %v, then %v", before, after)
		}
		if !errors.Is(err4, rank.ClassOp) {
			return fmt.Errorf("the sum of structs: %v, want an error of class %v", err4, rank.ClassOp)
		}
		return w.Free(ctx)
	})
}

// The forms with requests, many at a time, waited for in several ways.
func TestWindowRequests(t *testing.T) {
	eachFlavour(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const n = 300
		size, me := c.Size(), c.Rank()
		w, mem, err := open(size*n + 2)
		if err != nil {
			return err
		}
		if err := w.LockAll(ctx, 0); err != nil {
			return err
		}
		for round := range 3 {
			var reqs []rank.Request
			keep := func(q rank.Request, e error) { reqs, err = append(reqs, q), errors.Join(err, e) }
			src, back := make([]int64, size*n), make([]int64, size*n)
			for i := range src {
				src[i] = int64(round<<40 | me<<20 | i)
			}
			for target := range size {
				for i := 0; i < n; i += 30 {
					keep(w.Rput(src[target*n+i:target*n+i+30], target, me*n+i))
				}
				keep(w.Raccumulate([]int64{1}, target, size*n, rank.Sum))
			}
			if err := errors.Join(err, rank.WaitAll(ctx, reqs, nil), w.FlushAll(ctx)); err != nil {
				return err
			}
			reqs = reqs[:0]
			before := make([]int64, size)
			for target := range size {
				keep(w.Rget(back[target*n:(target+1)*n], target, me*n))
				keep(w.RgetAccumulate([]int64{1}, before[target:target+1], target, size*n+1, rank.Sum))
			}
			for len(reqs) > 0 {
				i, _, e := rank.WaitAny(ctx, reqs)
				if err = errors.Join(err, e); err != nil {
					return err
				}
				reqs = slices.Delete(reqs, i, i+1)
			}
			if !slices.Equal(back, src) {
				return fmt.Errorf("round %d: what comes back is not what was put", round)
			}
			for target, v := range before {
				if v < int64(round) || v > int64(3*(size-1)+round) { // others may be through
					return fmt.Errorf("round %d: rank %d has counted %d before", round, target, v)
				}
			}
		}
		if err := errors.Join(w.UnlockAll(ctx), rank.Barrier(ctx, c)); err != nil {
			return err
		}
		if want := int64(3 * size); mem[size*n] != want || mem[size*n+1] != want {
			return fmt.Errorf("the counters are %v, want %d", mem[size*n:], want)
		}
		return w.Free(ctx)
	})
}

// Every mistake is an error that names the window, the call, the rank and the peer,
// and spoils nothing.
func TestWindowMistakes(t *testing.T) {
	eachFlavour(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		w, mem, err := open(10)
		if err != nil {
			return err
		}
		w.SetName("board")
		one, peer := make([]int64, 1), 1-c.Rank()%2
		var wrong []error
		want := func(class rank.Class, err error, words ...string) {
			e, ok := errors.AsType[*rank.Error](err)
			if !ok || e.Comm != "board" || e.Rank != c.Rank() || !errors.Is(err, class) {
				wrong = append(wrong, fmt.Errorf("%v (%v), want an error of class %v of the board", err, rank.ClassOf(err), class))
				return
			}
			for _, s := range words {
				if !strings.Contains(err.Error(), s) {
					wrong = append(wrong, fmt.Errorf("%q does not say %q", err, s))
				}
			}
		}
		all := w.Group()
		self, err := all.Incl([]int{c.Rank()})
		if err != nil {
			return err
		}
		want(rank.ClassRMASync, w.Put(one, peer, 0), "put", fmt.Sprintf("rank %d", peer), "no epoch")
		want(rank.ClassRMASync, w.Unlock(ctx, peer), "win_unlock", "holds no lock")
		want(rank.ClassRMASync, w.UnlockAll(ctx))
		want(rank.ClassRMASync, w.Flush(ctx, peer), "win_flush")
		want(rank.ClassRMASync, w.FlushAll(ctx))
		want(rank.ClassRMASync, w.Complete(ctx))
		want(rank.ClassRMASync, w.Wait(ctx))
		_, err = w.Test()
		want(rank.ClassRMASync, err)
		want(rank.ClassLockType, w.Lock(ctx, 7, peer, 0))
		want(rank.ClassRank, w.Lock(ctx, rank.LockShared, c.Size(), 0), fmt.Sprint(c.Size()))
		want(rank.ClassRank, w.Lock(ctx, rank.LockShared, -1, 0))
		_, err = w.Query(0)
		want(rank.ClassWin, err)
		want(rank.ClassWin, w.Attach(mem))

		if err := w.Fence(ctx, 0); err != nil {
			return err
		}
		for _, disp := range []int{-1, 10, 11, 1 << 60, 1<<63 - 1, -1 << 63} {
			want(rank.ClassRMARange, w.Put(one, peer, disp), "put")
			want(rank.ClassRMARange, w.Get(one, peer, disp), "get")
			want(rank.ClassRMARange, w.Accumulate(one, peer, disp, rank.Sum), "accumulate")
			_, err := w.CompareAndSwap(1, 0, peer, disp)
			want(rank.ClassRMARange, err, "compare_and_swap")
		}
		want(rank.ClassRMARange, w.Get(make([]int64, 3), peer, 8), "24 bytes (3 elements of 8) at 64 bytes (8 elements of 8)", "80 bytes (10 elements of 8)")
		want(rank.ClassRank, w.Put(one, c.Size(), 0))
		want(rank.ClassRank, w.Put(one, -1, 0))
		want(rank.ClassOp, w.Accumulate(one, peer, 0, rank.MinLoc))
		mine := rank.OpFunc("mine", true, func(dst, a, _ []int64) { copy(dst, a) })
		want(rank.ClassOp, w.Accumulate(one, peer, 0, mine), "mine")
		want(rank.ClassCount, w.GetAccumulate(one, make([]int64, 2), peer, 0, rank.Sum))
		_, err = w.Rput(one, peer, 0)
		want(rank.ClassRMASync, err, "Lock")
		if err := w.Put(one, rank.ProcNull, 99); err != nil {
			return fmt.Errorf("put to nobody: %w", err)
		}
		if err := w.Put([]int64{5}, peer, c.Rank()); err != nil {
			return err
		}
		want(rank.ClassRMASync, w.Lock(ctx, rank.LockShared, peer, 0), "Fence")
		want(rank.ClassRMASync, w.Start(ctx, all, 0))
		if err := w.Fence(ctx, 0); err != nil {
			return err
		}
		// Without accesses the epoch of a fence gives way.
		if err := w.Lock(ctx, rank.LockShared, peer, 0); err != nil {
			return err
		}
		want(rank.ClassRMASync, w.Lock(ctx, rank.LockShared, peer, 0), "already")
		want(rank.ClassRMASync, w.Put(one, c.Rank(), 0))
		want(rank.ClassRMASync, w.Fence(ctx, 0), "Unlock")
		want(rank.ClassRMASync, w.LockAll(ctx, 0))
		want(rank.ClassRMASync, w.Start(ctx, all, 0))
		want(rank.ClassRMASync, w.Free(ctx))
		if err := w.Unlock(ctx, peer); err != nil {
			return err
		}
		if err := errors.Join(w.Post(self, 0), w.Start(ctx, self, 0)); err != nil {
			return err
		}
		want(rank.ClassRMASync, w.Post(self, 0))
		want(rank.ClassRMASync, w.Put(one, peer, 0), "group of Start")
		want(rank.ClassRMASync, w.Fence(ctx, 0))
		if err := errors.Join(w.Complete(ctx), w.Wait(ctx)); err != nil {
			return err
		}
		if len(wrong) > 0 {
			return errors.Join(wrong...)
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
		want(rank.ClassWin, w.Put(one, peer, 0), "freed")
		want(rank.ClassWin, w.Fence(ctx, 0), "freed")
		return errors.Join(wrong...)
	})
}

// A rank that cannot make its part fails all, and the next window is fine.
func TestWindowNotMade(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		n := 10
		if c.Rank() == 1 {
			n = 1 << 50 // bytes
		}
		if _, err := rank.WinAllocate[byte](ctx, c, n); err == nil {
			return errors.New("a window with a petabyte on rank 1")
		} else if e, ok := errors.AsType[*rank.Error](err); !ok || c.Rank() != 1 && e.Peer != 1 {
			return fmt.Errorf("%v: want an error that names rank 1", err)
		}
		w, err := rank.WinAllocate[byte](ctx, c, 10)
		if err != nil {
			return err
		}
		if err := w.Fence(ctx, 0); err != nil {
			return err
		}
		return w.Free(ctx)
	})
}

// Windows that are not freed go with the world, several of them at a time work
// beside each other, and a context ends a wait.
func TestWindowsLeftOver(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		odd, err := c.Split(ctx, c.Rank()%2, -c.Rank())
		if err != nil {
			return err
		}
		a, err1 := rank.WinAllocate[int32](ctx, c, 4)
		b, err2 := rank.WinCreate(ctx, odd, make([]int32, 4))
		d, err3 := rank.WinCreateDynamic[byte](ctx, c)
		if err := errors.Join(err1, err2, err3, d.Attach(make([]byte, 10))); err != nil {
			return err
		}
		if err := errors.Join(a.LockAll(ctx, 0), b.LockAll(ctx, 0)); err != nil {
			return err
		}
		if err := errors.Join(a.Put([]int32{1}, 0, c.Rank()), b.Put([]int32{2}, odd.Size()-1, odd.Rank()), a.UnlockAll(ctx), b.UnlockAll(ctx)); err != nil {
			return err
		}
		if c.Size() > 1 && c.Rank() == 0 {
			short, cancel := context.WithCancel(ctx)
			cancel()
			g, err := a.Group().Incl([]int{1})
			if err != nil {
				return err
			}
			if err := a.Start(short, g, 0); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("start without post: %v, want %v", err, context.Canceled)
			}
		}
		return rank.Barrier(ctx, c)
	})
}
