package rank_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// Every operation on every type that it has, and an error on the others.

// integer is what the bit operations take.
type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type ordered interface {
	integer | ~float32 | ~float64
}

// A rule is an operation of a type, and the loop that it stands for; nil: the type
// does not have it.
type rule[T any] struct {
	op rank.Op
	do func(a, b T) T
}

func truth[T integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

func integers[T integer]() []rule[T] {
	return append(orders[T](),
		rule[T]{rank.LAnd, func(a, b T) T { return truth[T](a != 0 && b != 0) }},
		rule[T]{rank.LOr, func(a, b T) T { return truth[T](a != 0 || b != 0) }},
		rule[T]{rank.LXor, func(a, b T) T { return truth[T]((a != 0) != (b != 0)) }},
		rule[T]{rank.BAnd, func(a, b T) T { return a & b }},
		rule[T]{rank.BOr, func(a, b T) T { return a | b }},
		rule[T]{rank.BXor, func(a, b T) T { return a ^ b }},
		rule[T]{rank.MinLoc, nil})
}

func orders[T ordered]() []rule[T] {
	return []rule[T]{
		{rank.Sum, func(a, b T) T { return a + b }},
		{rank.Prod, func(a, b T) T { return a * b }},
		{rank.Min, func(a, b T) T { return min(a, b) }},
		{rank.Max, func(a, b T) T { return max(a, b) }},
		{rank.Replace, func(_, b T) T { return b }},
		{rank.NoOp, func(a, _ T) T { return a }},
		{rank.MaxLoc, nil},
	}
}

func floats[T ~float32 | ~float64]() []rule[T] {
	return append(orders[T](), rule[T]{rank.BAnd, nil}, rule[T]{rank.LOr, nil})
}

func complexes[T ~complex64 | ~complex128]() []rule[T] {
	return []rule[T]{
		{rank.Sum, func(a, b T) T { return a + b }},
		{rank.Prod, func(a, b T) T { return a * b }},
		{rank.Min, nil}, {rank.Max, nil}, {rank.BXor, nil}, {rank.MinLoc, nil},
	}
}

var bools = []rule[bool]{
	{rank.LAnd, func(a, b bool) bool { return a && b }},
	{rank.LOr, func(a, b bool) bool { return a || b }},
	{rank.LXor, func(a, b bool) bool { return a != b }},
	{rank.Sum, nil}, {rank.Max, nil},
}

func pairs[V int16 | int32 | int64 | float32 | float64]() []rule[rank.Pair[V]] {
	pick := func(better func(a, b V) bool) func(a, b rank.Pair[V]) rank.Pair[V] {
		return func(a, b rank.Pair[V]) rank.Pair[V] {
			switch {
			case better(a.Value, b.Value):
				return a
			case better(b.Value, a.Value):
				return b
			}
			return rank.Pair[V]{Value: a.Value, Index: min(a.Index, b.Index)}
		}
	}
	return []rule[rank.Pair[V]]{
		{rank.MinLoc, pick(func(a, b V) bool { return a < b })},
		{rank.MaxLoc, pick(func(a, b V) bool { return a > b })},
		{rank.Sum, nil}, {rank.BOr, nil},
	}
}

// A half is a number of 16 bits.
type half interface {
	rank.Float16 | rank.BFloat16
	Float32() float32
}

func halves[T half](from func(float32) T) []rule[T] {
	lift := func(f func(a, b float32) float32) func(a, b T) T {
		return func(a, b T) T { return from(f(a.Float32(), b.Float32())) }
	}
	return []rule[T]{
		{rank.Sum, lift(func(a, b float32) float32 { return a + b })},
		{rank.Min, lift(func(a, b float32) float32 { return min(a, b) })},
		{rank.Max, lift(func(a, b float32) float32 { return max(a, b) })},
		{rank.BAnd, nil},
	}
}

// ruled checks all rules of a type, in the collectives that combine.
func ruled[T comparable](name string, rules []rule[T], item func(who, i int) T) func(context.Context, *rank.Comm) error {
	return func(ctx context.Context, c *rank.Comm) error {
		for _, r := range rules {
			for _, n := range []int{1, 37, 2500} {
				if r.do == nil {
					err := rank.Allreduce(ctx, c, nil, make([]T, n), r.op)
					if rank.ClassOf(err) != rank.ClassOp {
						return fmt.Errorf("%v of %s: %v, want an error of class %v", r.op, name, err, rank.ClassOp)
					}
					continue
				}
				if err := combined(ctx, c, r, n, item); err != nil {
					return fmt.Errorf("%v of %d %s: %w", r.op, n, name, err)
				}
			}
		}
		return nil
	}
}

func combined[T comparable](ctx context.Context, c *rank.Comm, r rule[T], n int, item func(who, i int) T) error {
	me, size := c.Rank(), c.Size()
	in, out := make([]T, n), make([]T, n)
	prefix, total := make([]T, n), make([]T, n)
	for i := range in {
		in[i] = item(me, i)
		acc := item(0, i)
		for who := range size {
			if who > 0 {
				acc = r.do(acc, item(who, i))
			}
			if who == me {
				prefix[i] = acc
			}
		}
		total[i] = acc
	}
	if err := rank.Allreduce(ctx, c, in, out, r.op); err != nil {
		return err
	}
	if err := diff("allreduce", out, total); err != nil {
		return err
	}
	clear(out)
	root := n % size
	if err := rank.Reduce(ctx, c, in, out, r.op, root); err != nil {
		return err
	}
	if me == root {
		if err := diff("reduce", out, total); err != nil {
			return err
		}
	}
	if err := rank.Scan(ctx, c, in, out, r.op); err != nil {
		return err
	}
	if err := diff("scan", out, prefix); err != nil {
		return err
	}
	counts := make([]int, size)
	counts[size-1] = n - n/2
	counts[0] += n / 2
	own := make([]T, counts[me])
	if err := rank.ReduceScatter(ctx, c, in, own, counts, r.op); err != nil {
		return err
	}
	from := 0
	if me == size-1 {
		from = n - counts[me]
	}
	return diff("reduce_scatter", own, total[from:from+counts[me]])
}

// small are numbers whose sums and products all types hold exactly, zeros and ones
// among them.
func small(who, i int) int { return (who*5 + i*3 + who*i) % 3 }

func TestOperations(t *testing.T) {
	testenv.NoLeaks(t)
	type test = func(context.Context, *rank.Comm) error
	tests := map[string]test{
		"int":     ruled("int", integers[int](), func(w, i int) int { return w*1e6 + i*77 - 5 }),
		"int8":    ruled("int8", integers[int8](), func(w, i int) int8 { return int8(w*31 + i*7) }),
		"int16":   ruled("int16", integers[int16](), func(w, i int) int16 { return int16(w*3001 + i*7 - 9) }),
		"int32":   ruled("int32", integers[int32](), func(w, i int) int32 { return int32(w*30010 + i*7 - 9) }),
		"int64":   ruled("int64", integers[int64](), func(w, i int) int64 { return int64(small(w, i)) - 1 }),
		"uint":    ruled("uint", integers[uint](), func(w, i int) uint { return uint(w*31 + i*7) }),
		"uint8":   ruled("uint8", integers[uint8](), func(w, i int) uint8 { return uint8(w*31 + i*7) }),
		"uint16":  ruled("uint16", integers[uint16](), func(w, i int) uint16 { return uint16(w*31 + i*7) }),
		"uint32":  ruled("uint32", integers[uint32](), func(w, i int) uint32 { return uint32(w*31+i*7) << 20 }),
		"uint64":  ruled("uint64", integers[uint64](), func(w, i int) uint64 { return uint64(w*31+i*7) << 50 }),
		"uintptr": ruled("uintptr", integers[uintptr](), func(w, i int) uintptr { return uintptr(w*31 + i*7) }),
		"float32": ruled("float32", floats[float32](), func(w, i int) float32 { return float32(small(w, i)) - 0.5 }),
		"float64": ruled("float64", floats[float64](), func(w, i int) float64 { return float64(small(w, i)) - 0.5 }),
		"complex64": ruled("complex64", complexes[complex64](), func(w, i int) complex64 {
			return complex(float32(small(w, i)), 1)
		}),
		"complex128": ruled("complex128", complexes[complex128](), func(w, i int) complex128 {
			return complex(float64(small(w, i)), -1)
		}),
		"bool":     ruled("bool", bools, func(w, i int) bool { return small(w, i) > 0 }),
		"float16":  ruled("float16", halves(kernel.ToF16), func(w, i int) rank.Float16 { return kernel.ToF16(float32(small(w, i)) - 1) }),
		"bfloat16": ruled("bfloat16", halves(kernel.ToBF16), func(w, i int) rank.BFloat16 { return kernel.ToBF16(float32(small(w, i)) - 1) }),
		"pair of int16": ruled("pair of int16", pairs[int16](), func(w, i int) rank.Pair[int16] {
			return rank.Pair[int16]{Value: int16(small(w, i)), Index: int32(w)}
		}),
		"pair of int32": ruled("pair of int32", pairs[int32](), func(w, i int) rank.Pair[int32] {
			return rank.Pair[int32]{Value: int32(small(w, i)), Index: int32(w)}
		}),
		"pair of int64": ruled("pair of int64", pairs[int64](), func(w, i int) rank.Pair[int64] {
			return rank.Pair[int64]{Value: int64(small(w, i)), Index: int32(100 - w)}
		}),
		"pair of float32": ruled("pair of float32", pairs[float32](), func(w, i int) rank.Pair[float32] {
			return rank.Pair[float32]{Value: float32(small(w, i)), Index: int32(w)}
		}),
		"pair of float64": ruled("pair of float64", pairs[float64](), func(w, i int) rank.Pair[float64] {
			return rank.Pair[float64]{Value: float64(small(w, i)) * math.Pi, Index: int32(w)}
		}),
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 2, 5} {
				ranktest.Run(t, n, f)
			}
		})
	}
}
