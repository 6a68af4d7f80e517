package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// A scattering is n numbers at places of their own, as a type and as a list of places
// from the origin on. low is how far before its origin it reaches.
type scattering struct {
	t           *rank.Datatype
	places      []int
	low, length int
}

// scatterings are made by a few constructors, which leave gaps, go backwards and jump.
func scatter(rnd *rand.Rand, n int) (s scattering, err error) {
	number, err := rank.TypeFor[int64]()
	if err != nil {
		return s, err
	}
	switch kind := rnd.IntN(5); {
	case kind == 0:
		s.t, err = rank.Contiguous(n, number)
		for i := range n {
			s.places = append(s.places, i)
		}
	case kind == 1:
		stride := 1 + rnd.IntN(3)
		s.t, err = rank.Vector(n, 1, stride, number)
		for i := range n {
			s.places = append(s.places, i*stride)
		}
	case kind == 2:
		s.t, err = rank.Vector(n, 1, -2, number)
		for i := range n {
			s.places = append(s.places, -2*i)
		}
	case kind == 3 && n > 0: // blocks with holes, from somewhere on
		var lengths, displs []int
		for at := 3; len(s.places) < n; {
			k := min(1+rnd.IntN(4), n-len(s.places))
			lengths, displs = append(lengths, k), append(displs, at)
			for i := range k {
				s.places = append(s.places, at+i)
			}
			at += k + rnd.IntN(3)
		}
		s.t, err = rank.Indexed(lengths, displs, number)
	default: // anywhere
		s.places = rnd.Perm(2*n + 1)[:n]
		s.t, err = rank.IndexedBlock(1, s.places, number)
	}
	for _, p := range s.places {
		s.low, s.length = max(s.low, -p), max(s.length, p+1)
	}
	return s, err
}

// The same random puts, gets and accumulates with types on all ranks, against a model;
// each origin has a part of each rank's memory.
func TestWindowTyped(t *testing.T) {
	eachFlavour(t, []int{1, 2, 3}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		const part, rounds = 400, 60
		size, me := c.Size(), c.Rank()
		w, mem, err := open(size * part)
		if err != nil {
			return err
		}
		for i := range mem {
			mem[i] = int64(i)
		}
		model := make([][]int64, size) // the own part of each rank's memory
		for r := range model {
			model[r] = make([]int64, part)
			for i := range model[r] {
				model[r][i] = int64(me*part + i)
			}
		}
		if err := errors.Join(rank.Barrier(ctx, c), w.LockAll(ctx, 0)); err != nil {
			return err
		}
		rnd := rand.New(rand.NewPCG(uint64(me), 11))
		for round := range rounds {
			target, n := rnd.IntN(size), rnd.IntN(60)
			far, err := scatter(rnd, n)
			if err != nil {
				return err
			}
			near, err := scatter(rnd, n)
			if err != nil {
				return err
			}
			if near.low > 0 { // a Buffer begins at its origin
				near.places = slices.Clone(near.places)
				for i := range near.places {
					near.places[i] += near.low
				}
				if near.t, err = rank.Indexed([]int{1}, []int{0}, near.t); err == nil {
					near.t, err = rank.HindexedBlock(1, []int{8 * near.low}, near.t)
				}
				if err != nil {
					return err
				}
				near.length += near.low
			}
			at := far.low + rnd.IntN(part-far.low-far.length+1)
			disp := me*part + at
			own := make([]int64, near.length+2)
			for i := range own {
				own[i] = rnd.Int64N(1 << 40)
			}
			want, mine := slices.Clone(own), model[target]
			buf := rank.Typed(own, 1, near.t)
			request := round%3 == 0
			var q rank.Request
			switch kind := rnd.IntN(4); kind {
			case 0:
				for i, p := range far.places {
					mine[at+p] = own[near.places[i]]
				}
				if request {
					q, err = w.RputTyped(buf, target, disp, 1, far.t)
				} else {
					err = w.PutTyped(buf, target, disp, 1, far.t)
				}
			case 1:
				for i, p := range far.places {
					want[near.places[i]] = mine[at+p]
				}
				if request {
					q, err = w.RgetTyped(buf, target, disp, 1, far.t)
				} else {
					err = w.GetTyped(buf, target, disp, 1, far.t)
				}
			case 2:
				for i, p := range far.places {
					mine[at+p] += own[near.places[i]]
				}
				if request {
					q, err = w.RaccumulateTyped(buf, target, disp, 1, far.t, rank.Sum)
				} else {
					err = w.AccumulateTyped(buf, target, disp, 1, far.t, rank.Sum)
				}
			default:
				src, op := make([]int64, n), rank.Max
				for i := range src {
					src[i] = rnd.Int64N(1 << 41)
				}
				for i, p := range far.places {
					want[near.places[i]] = mine[at+p]
					mine[at+p] = max(mine[at+p], src[i])
				}
				if request {
					q, err = w.RgetAccumulateTyped(rank.Of(src), buf, target, disp, 1, far.t, op)
				} else {
					err = w.GetAccumulateTyped(rank.Of(src), buf, target, disp, 1, far.t, op)
				}
			}
			if err == nil && request {
				_, err = q.Wait(ctx)
			}
			if err := errors.Join(err, w.Flush(ctx, target)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if !slices.Equal(own, want) {
				return fmt.Errorf("round %d: %v of rank %d from %v into %v: %v, want %v", round, far.t, target, far.places, near.places, own, want)
			}
			got := make([]int64, part)
			if err := errors.Join(w.Get(got, target, me*part), w.Flush(ctx, target)); err != nil {
				return err
			}
			if !slices.Equal(got, mine) {
				return fmt.Errorf("round %d: rank %d has %v, want %v", round, target, got, mine)
			}
		}
		return errors.Join(w.UnlockAll(ctx), rank.Barrier(ctx, c), w.Free(ctx))
	})
}

// Structs without their padding, more than one piece of them, and pairs.
func TestWindowTypedStructs(t *testing.T) {
	testenv.NoLeaks(t)
	type record struct {
		Tag   int8
		Value float64
	}
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		const n = 6000
		next := (c.Rank() + 1) % c.Size()
		own, err := rank.TypeFor[record]()
		if err != nil {
			return err
		}
		w, err := rank.WinAllocate[record](ctx, c, n)
		if err != nil {
			return err
		}
		src, dst := make([]record, n), make([]record, n)
		for i := range src {
			src[i] = record{int8(i), float64(c.Rank()*n + i)}
		}
		if err := w.Lock(ctx, rank.LockExclusive, next, 0); err != nil {
			return err
		}
		if err := errors.Join(w.PutTyped(rank.Of(src), next, 0, n, own), w.Flush(ctx, next), w.GetTyped(rank.Of(dst), next, 0, n, own), w.Unlock(ctx, next)); err != nil {
			return err
		}
		if !slices.Equal(src, dst) {
			return errors.New("what comes back is not what was put")
		}
		pairs, err := rank.WinAllocate[rank.Pair[float64]](ctx, c, 3)
		if err != nil {
			return err
		}
		pair, err := rank.TypeFor[rank.Pair[float64]]()
		if err != nil {
			return err
		}
		v, before := []rank.Pair[float64]{{Value: 3, Index: 4}, {Value: -1, Index: 5}}, make([]rank.Pair[float64], 2)
		if err := pairs.Lock(ctx, rank.LockExclusive, next, 0); err != nil {
			return err
		}
		err = errors.Join(pairs.AccumulateTyped(rank.Of(v), next, 1, 2, pair, rank.MaxLoc),
			pairs.GetAccumulateTyped(rank.Buffer{}, rank.Of(before), next, 1, 2, pair, rank.NoOp), pairs.Unlock(ctx, next))
		if err != nil || before[0] != v[0] || before[1].Value != 0 {
			return fmt.Errorf("pairs: %v, %w", before, err)
		}
		return errors.Join(rank.Barrier(ctx, c), pairs.Free(ctx), w.Free(ctx))
	})
}

// Each rank's displacements count in its own unit.
func TestWindowUnits(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		const n = 20
		unit := 4 * (c.Rank() + 1)
		w, err := rank.WinAllocate[int32](ctx, c, n, rank.WinInfo{DispUnit: unit})
		if err != nil {
			return err
		}
		if w.DispUnit() != unit {
			return fmt.Errorf("the unit is %d, want %d", w.DispUnit(), unit)
		}
		if err := w.Fence(ctx, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			for target := range c.Size() {
				if err := errors.Join(w.Put([]int32{7}, target, 2), w.Accumulate([]int32{5}, target, 1, rank.Sum)); err != nil {
					return err
				}
				if err := w.Put([]int32{1}, target, n); target > 0 != errors.Is(err, rank.ClassRMARange) && target > 0 {
					return fmt.Errorf("displacement %d of rank %d: %v", n, target, err)
				}
			}
		}
		if err := w.Fence(ctx, rank.ModeNoSucceed); err != nil {
			return err
		}
		for i, v := range w.Base() {
			want := int32(0)
			switch i {
			case 2 * unit / 4:
				want = 7
			case unit / 4:
				want = 5
			}
			if v != want {
				return fmt.Errorf("element %d is %d, want %d", i, v, want)
			}
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
		if _, err := rank.WinAllocate[int32](ctx, c, n, rank.WinInfo{DispUnit: -c.Rank()}); c.Size() > 1 && err == nil ||
			c.Rank() > 0 && !errors.Is(err, rank.ClassDisp) {
			return fmt.Errorf("a negative unit: %v", err)
		} else if err == nil && c.Size() > 1 {
			return errors.New("a negative unit of another rank makes no error")
		}
		return nil
	})
}

// What does not fit is an error, and nothing has moved.
func TestWindowTypedMistakes(t *testing.T) {
	eachFlavour(t, []int{2}, func(ctx context.Context, c *rank.Comm, open func(int) (*rank.Win[int64], []int64, error)) error {
		w, mem, err := open(10)
		if err != nil {
			return err
		}
		number, _ := rank.TypeFor[int64]()
		float, _ := rank.TypeFor[float64]()
		back, err := rank.Vector(3, 1, -1, number)
		if err != nil {
			return err
		}
		twice, err := rank.Hvector(2, 1, 0, number)
		if err != nil {
			return err
		}
		mixed, err := rank.StructOf([]int{1, 1}, []int{0, 8}, []*rank.Datatype{number, float})
		if err != nil {
			return err
		}
		peer, src := 1-c.Rank(), rank.Of([]int64{1, 2, 3})
		if err := w.Lock(ctx, rank.LockShared, peer, 0); err != nil {
			return err
		}
		type pair struct {
			A int64
			B float64
		}
		for _, tt := range []struct {
			class rank.Class
			err   error
		}{
			{rank.ClassRMARange, w.PutTyped(src, peer, 8, 3, number)},
			{rank.ClassRMARange, w.PutTyped(src, peer, 1, 1, back)},
			{rank.ClassRMARange, w.GetTyped(src, peer, 1<<62, 3, number)},
			{rank.ClassRMARange, w.AccumulateTyped(src, peer, 1, 1, back, rank.Sum)},
			{rank.ClassType, w.PutTyped(src, peer, 0, 2, number)},
			{rank.ClassType, w.PutTyped(src, peer, 0, 3, float)},
			{rank.ClassType, w.PutTyped(rank.Of([]int64{1, 2}), peer, 0, 1, twice)},
			{rank.ClassType, w.PutTyped(src, peer, 0, 3, nil)},
			{rank.ClassCount, w.PutTyped(src, peer, 0, -1, number)},
			{rank.ClassCount, w.PutTyped(src, peer, 0, 1<<60, number)},
			{rank.ClassBuffer, w.GetTyped(rank.Typed(make([]int64, 2), 3, number), peer, 0, 3, number)},
			{rank.ClassOp, w.AccumulateTyped(rank.Of([]pair{{1, 2}}), peer, 0, 1, mixed, rank.Sum)},
			{rank.ClassOp, w.AccumulateTyped(src, peer, 0, 3, number, rank.MinLoc)},
		} {
			if !errors.Is(tt.err, tt.class) {
				return fmt.Errorf("%v, want an error of class %v", tt.err, tt.class)
			}
		}
		if err := errors.Join(w.PutTyped(src, rank.ProcNull, 0, 3, number), w.Unlock(ctx, peer), rank.Barrier(ctx, c)); err != nil {
			return err
		}
		if slices.ContainsFunc(mem, func(v int64) bool { return v != 0 }) {
			return fmt.Errorf("an access that failed has left %v", mem)
		}
		return w.Free(ctx)
	})
}

// TestCompareAndSwapTyped: of all ranks one finds what it compares with; numbers alone are compared.
func TestCompareAndSwapTyped(t *testing.T) {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		w, err := rank.WinAllocate[byte](ctx, c, 16)
		if err != nil {
			return err
		}
		if err := w.Lock(ctx, rank.LockShared, 0, 0); err != nil {
			return err
		}
		value, compare, before := []int64{int64(c.Rank()) + 1}, []int64{0}, []int64{-1}
		if err := w.CompareAndSwapTyped(rank.Of(value), rank.Of(compare), rank.Of(before), 0, 8); err != nil {
			return err
		}
		two := make([]int64, 2)
		if err := w.CompareAndSwapTyped(rank.Of(two), rank.Of(two), rank.Of(two), 0, 0); rank.ClassOf(err) != rank.ClassType {
			return fmt.Errorf("two numbers: %w, want %v", err, rank.ClassType)
		}
		if err := w.Unlock(ctx, 0); err != nil {
			return err
		}
		won := 0
		if before[0] == 0 {
			won = 1
		}
		if n, err := rank.AllreduceOne(ctx, c, won, rank.Sum); err != nil || n != 1 {
			return fmt.Errorf("%d ranks found 0, want 1: %w", n, err)
		}
		return w.Free(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}
