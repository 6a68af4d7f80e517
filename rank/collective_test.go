package rank_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

var (
	sizes  = []int{1, 2, 3, 4, 5, 6, 7, 8}
	counts = []int{0, 1, 3, 64, 1000, 5000}
)

// fill gives each rank, element and round its own small value.
func fill[T rank.Number](s []T, who, round int) []T {
	for i := range s {
		s[i] = T((who*31+i*7+round*13)%50) + 1
	}
	return s
}

func diff[T comparable](what string, got, want []T) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// make1 gives ordinary or registered memory by turns.
func make1[T rank.Number](c *rank.Comm, n, round int) ([]T, error) {
	if round%2 == 0 {
		return make([]T, n), nil
	}
	return rank.Alloc[T](c, n)
}

func combine[T rank.Number](op rank.Op, a, b T) T {
	switch op {
	case rank.Sum:
		return a + b
	case rank.Prod:
		return a * b
	case rank.Min:
		return min(a, b)
	}
	return max(a, b)
}

// reduced is the plain loop: element i of all ranks' vectors combined.
func reduced[T rank.Number](op rank.Op, size, n, round int) []T {
	want := fill(make([]T, n), 0, round)
	for who := 1; who < size; who++ {
		for i, v := range fill(make([]T, n), who, round) {
			want[i] = combine(op, want[i], v)
		}
	}
	return want
}

// exact keeps products of floats exact: 8 factors up to 50 stay below 2^53, and
// float32 takes sums only.
func exact[T rank.Number](op rank.Op) bool {
	half := T(1)
	half /= 2
	if half == 0 {
		return true // integers wrap around alike in any order
	}
	tiny := T(1)
	for range 40 {
		tiny /= 2
	}
	return op != rank.Prod || 1+tiny != 1
}

func collectives[T rank.Number](ctx context.Context, c *rank.Comm) error {
	for round, n := range counts {
		if err := moves[T](ctx, c, n, round); err != nil {
			return fmt.Errorf("count %d: %w", n, err)
		}
		for _, op := range []rank.Op{rank.Sum, rank.Prod, rank.Min, rank.Max} {
			if !exact[T](op) {
				continue
			}
			if err := reductions[T](ctx, c, op, n, round); err != nil {
				return fmt.Errorf("%v, count %d: %w", op, n, err)
			}
		}
	}
	return rank.Barrier(ctx, c)
}

func moves[T rank.Number](ctx context.Context, c *rank.Comm, n, round int) error {
	size, me := c.Size(), c.Rank()
	send, err := make1[T](c, size*n, round)
	if err != nil {
		return err
	}
	recv, err := make1[T](c, size*n, round/2)
	if err != nil {
		return err
	}
	want := make([]T, size*n)
	all := make([]T, size*n)
	for who := range size {
		fill(all, who, round)
		copy(want[who*n:(who+1)*n], all[me*n:])
	}
	for _, algorithm := range []coll.Algorithm{coll.Auto, coll.Direct, coll.Bruck} {
		clear(recv)
		if err := rank.AlltoallWith(ctx, c, fill(send, me, round), recv, algorithm); err != nil {
			return err
		}
		if err := diff("alltoall "+algorithm.String(), recv, want); err != nil {
			return err
		}
	}
	copy(recv, fill(send, me, round))
	if err := rank.Alltoall(ctx, c, nil, recv); err != nil {
		return err
	}
	if err := diff("alltoall in place", recv, want); err != nil {
		return err
	}

	for who := range size {
		fill(want[who*n:(who+1)*n], who, round)
	}
	clear(recv)
	own := fill(send[:n], me, round)
	if err := rank.Allgather(ctx, c, own, recv); err != nil {
		return err
	}
	if err := diff("allgather", recv, want); err != nil {
		return err
	}
	clear(recv)
	copy(recv[me*n:], own)
	if err := rank.Allgather(ctx, c, nil, recv); err != nil {
		return err
	}
	if err := diff("allgather in place", recv, want); err != nil {
		return err
	}
	for root := range size {
		clear(recv)
		if err := rank.Gather(ctx, c, own, recv, root); err != nil {
			return err
		}
		if me == root {
			if err := diff("gather", recv, want); err != nil {
				return err
			}
		}
		buf := recv[:n]
		clear(buf)
		if me == root {
			copy(buf, own)
		}
		if err := rank.Bcast(ctx, c, buf, root); err != nil {
			return err
		}
		if err := diff("bcast", buf, want[root*n:(root+1)*n]); err != nil {
			return err
		}
	}
	return nil
}

func reductions[T rank.Number](ctx context.Context, c *rank.Comm, op rank.Op, n, round int) error {
	size, me := c.Size(), c.Rank()
	send, recv := fill(make([]T, size*n), me, round), make([]T, size*n)
	want := reduced[T](op, size, size*n, round)
	if err := rank.Allreduce(ctx, c, send, recv, op); err != nil {
		return err
	}
	if err := diff("allreduce", recv, want); err != nil {
		return err
	}
	copy(recv, send)
	if err := rank.Allreduce(ctx, c, nil, recv, op); err != nil {
		return err
	}
	if err := diff("allreduce in place", recv, want); err != nil {
		return err
	}
	block := make([]T, n)
	if err := rank.ReduceScatterBlock(ctx, c, send, block, op); err != nil {
		return err
	}
	if err := diff("reduce_scatter_block", block, want[me*n:(me+1)*n]); err != nil {
		return err
	}
	root := round % size
	clear(recv)
	if err := rank.Reduce(ctx, c, send, recv, op, root); err != nil {
		return err
	}
	if me == root {
		return diff("reduce", recv, want)
	}
	return diff("reduce elsewhere", recv, make([]T, size*n))
}

// Every number of ranks with one type, and every type with some numbers of ranks.
func TestCollectives(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { ranktest.Run(t, n, collectives[int32]) })
	}
	for name, f := range map[string]func(context.Context, *rank.Comm) error{
		"int": collectives[int], "int8": collectives[int8], "int16": collectives[int16], "int64": collectives[int64],
		"uint": collectives[uint], "uint8": collectives[uint8], "uint16": collectives[uint16], "uint32": collectives[uint32], "uint64": collectives[uint64],
		"float32": collectives[float32], "float64": collectives[float64], "named": collectives[celsius],
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{2, 3} {
				ranktest.Run(t, n, f)
			}
		})
	}
}

type celsius float64

func TestCollectivesOnAdversary(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{2, 3, 5} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("n=%d/seed=%d", n, seed+1), func(t *testing.T) { ranktest.RunSeed(t, n, seed+1, collectives[int32]) })
		}
	}
}

func TestComplex(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 5}, func(ctx context.Context, c *rank.Comm) error {
		mine := []complex128{complex(float64(c.Rank()+1), 1)}
		sum, prod := make([]complex128, 1), make([]complex128, 1)
		if err := rank.Allreduce(ctx, c, mine, sum, rank.Sum); err != nil {
			return err
		}
		if err := rank.Allreduce(ctx, c, mine, prod, rank.Prod); err != nil {
			return err
		}
		wantSum, wantProd := complex128(0), complex128(1)
		for r := range c.Size() {
			wantSum += complex(float64(r+1), 1)
			wantProd *= complex(float64(r+1), 1)
		}
		if err := diff("sum", sum, []complex128{wantSum}); err != nil {
			return err
		}
		return diff("prod", prod, []complex128{wantProd})
	})
}

// Collectives of random kinds, sizes and roots follow each other, so that each
// meets what the one before has left.
func TestCollectivesInARow(t *testing.T) {
	testenv.NoLeaks(t)
	for seed := range uint64(6) {
		n := 2 + int(seed)%3
		ranktest.RunSeed(t, n, seed/2, func(ctx context.Context, c *rank.Comm) error {
			rnd := rand.New(rand.NewPCG(seed, 5)) // the same on all ranks
			for round := range 60 {
				n := []int{0, 1, 7, 300, 4000}[rnd.IntN(5)]
				var err error
				switch rnd.IntN(3) {
				case 0:
					err = moves[int32](ctx, c, n, round)
				case 1:
					err = reductions[int64](ctx, c, rank.Sum, n, round)
				case 2:
					err = rank.Barrier(ctx, c)
				}
				if err != nil {
					return fmt.Errorf("round %d, count %d: %w", round, n, err)
				}
			}
			return nil
		})
	}
}

// All ranks get the same bits, whatever the order in which they come.
func TestFloatSumIsTheSameEverywhere(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{3, 5, 8}, func(ctx context.Context, c *rank.Comm) error {
		rnd := rand.New(rand.NewPCG(uint64(c.Rank()), 9))
		for _, n := range []int{1, 100, 20000} {
			mine, sum := make([]float32, n), make([]float32, n)
			for i := range mine {
				mine[i] = rnd.Float32() * 1e6
			}
			if err := rank.Allreduce(ctx, c, mine, sum, rank.Sum); err != nil {
				return err
			}
			first := slices.Clone(sum)
			if err := rank.Bcast(ctx, c, first, 0); err != nil {
				return err
			}
			if err := diff("sum of rank 0 and here", sum, first); err != nil {
				return err
			}
		}
		return nil
	})
}
