package rank_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// A call that is remembered is checked as the first one was: what differs from it is
// found out, and every kind goes on to do what it says, with other data at other places.
func TestCallsThatAreRemembered(t *testing.T) {
	const rounds = 6
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			ranktest.Run(t, n, func(ctx context.Context, c *rank.Comm) error {
				me, size := c.Rank(), c.Size()
				for round := range rounds {
					root := round / 3 % size
					v := func(r int) int64 { return int64(100*round + r) }
					all, below := int64(0), int64(0)
					for r := range size {
						if all += v(r); r < me {
							below += v(r)
						}
					}
					one, out, every := []int64{v(me)}, []int64{-1}, make([]int64, size)
					want := func(what string, got []int64, want ...int64) error {
						if !slices.Equal(got, want) {
							return fmt.Errorf("round %d: %s gives %v, want %v", round, what, got, want)
						}
						return nil
					}
					ranks, mine := make([]int64, size), make([]int64, size)
					for r := range size {
						ranks[r], mine[r] = v(r), v(me)
					}
					sole := func(at bool, yes, no int64) int64 {
						if at {
							return yes
						}
						return no
					}
					if err := errors.Join(
						rank.Barrier(ctx, c),
						rank.Allreduce(ctx, c, one, out, rank.Sum), want("allreduce", out, all),
						rank.Allreduce(ctx, c, one, out, rank.Max), want("allreduce max", out, v(size-1)),
						c.Allreduce(ctx, rank.Typed(one, 1, rank.TypeInt64), rank.Of(out), rank.Sum), want("allreduce of Buffers", out, all),
						c.Alltoall(ctx, rank.Typed(mine, size, rank.TypeInt64), rank.Typed(every, size, rank.TypeInt64)), want("alltoall of Buffers", every, ranks...),
						rank.Scan(ctx, c, one, out, rank.Sum), want("scan", out, below+v(me)),
						rank.Allgather(ctx, c, one, every), want("allgather", every, ranks...),
						rank.Alltoall(ctx, c, mine, every), want("alltoall", every, ranks...),
						rank.ReduceScatterBlock(ctx, c, mine, out, rank.Sum), want("reduce_scatter", out, all),
					); err != nil {
						return err
					}
					out[0] = -1
					if err := errors.Join(rank.Exscan(ctx, c, one, out, rank.Sum), want("exscan", out, sole(me == 0, -1, below))); err != nil {
						return err
					}
					out[0] = -1
					if err := errors.Join(rank.Reduce(ctx, c, one, out, rank.Sum, root), want("reduce", out, sole(me == root, all, -1))); err != nil {
						return err
					}
					every = make([]int64, size)
					gathered := slices.Clone(every)
					if me == root {
						gathered = ranks
					}
					buf := []int64{v(me)}
					if err := errors.Join(
						rank.Gather(ctx, c, one, every, root), want("gather", every, gathered...),
						rank.Scatter(ctx, c, ranks, out, root), want("scatter", out, v(me)),
						rank.Bcast(ctx, c, buf, root), want("bcast", buf, v(root)),
						c.Bcast(ctx, rank.Typed(buf, 1, rank.TypeInt64), root), want("bcast of a Buffer", buf, v(root)),
						c.Gather(ctx, rank.Typed(one, 1, rank.TypeInt64), rank.Of(every), root), want("gather of Buffers", every, gathered...),
						// In place, because send says so or is the same memory.
						rank.Allreduce(ctx, c, nil, one, rank.Sum), want("allreduce in place", one, all),
						rank.Allreduce(ctx, c, buf, buf, rank.Sum), want("allreduce of one slice", buf, int64(size)*v(root)),
					); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// Mistakes are found after calls of the same kind that were right.
func TestMistakesInCallsThatAreRemembered(t *testing.T) {
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) error {
		mem := make([]float64, 6)
		typed := func(s []float64, count int) rank.Buffer { return rank.Typed(s, count, rank.TypeFloat64) }
		right := func(c *rank.Comm) error {
			return errors.Join(rank.Allreduce(ctx, c, mem[:2], mem[2:4], rank.Sum), rank.Bcast(ctx, c, mem, 0), rank.Barrier(ctx, c),
				c.Allreduce(ctx, typed(mem[:2], 2), typed(mem[2:], 2), rank.Sum), c.Bcast(ctx, typed(mem, 0), 0), c.Bcast(ctx, typed(nil, 0), 0))
		}
		if err := errors.Join(right(c), right(c)); err != nil {
			return err
		}
		other, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(right(other), right(other), other.Free(ctx)); err != nil {
			return err
		}
		for _, m := range []struct {
			name string
			err  error
			want error
		}{
			{"operands that overlap", rank.Allreduce(ctx, c, mem[:2], mem[1:3], rank.Sum), rank.ErrArgument},
			{"other lengths", rank.Allreduce(ctx, c, mem[:2], mem[2:5], rank.Sum), rank.ErrArgument},
			{"an operation without this type", rank.Allreduce(ctx, c, mem[:2], mem[2:4], rank.BAnd), rank.ErrArgument},
			{"Buffers of too little memory", c.Allreduce(ctx, typed(mem[:2], 2), typed(mem[2:3], 2), rank.Sum), rank.ErrArgument},
			{"a Buffer of fewer than no items", c.Bcast(ctx, typed(mem, -1), 0), rank.ErrArgument},
			{"a Buffer without a type", c.Allreduce(ctx, typed(mem[:2], 2), rank.Typed(mem[2:4], 2, nil), rank.Sum), rank.ErrArgument},
			{"Buffers of another type", c.Allreduce(ctx, typed(mem[:2], 2), rank.Typed(mem[2:4], 2, rank.TypeInt64), rank.Sum), rank.ErrArgument},
			{"another root", rank.Bcast(ctx, c, mem, 1), rank.ErrArgument},
			{"a freed communicator", rank.Barrier(ctx, other), rank.ErrFreed},
			{"none", rank.Barrier(ctx, nil), rank.ErrArgument},
		} {
			if !errors.Is(m.err, m.want) {
				return fmt.Errorf("%s: got %v, want %v", m.name, m.err, m.want)
			}
		}
		return right(c)
	})
}

// A rank that calls while another call of it waits is told so, in a call that is
// remembered too.
func TestConcurrentCallsThatAreRemembered(t *testing.T) {
	begun := make(chan struct{})
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		for range 3 {
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			<-begun // its barrier ends the other's
			return rank.Barrier(ctx, c)
		}
		done := make(chan error)
		go func() {
			err := rank.ErrConcurrent
			for errors.Is(err, rank.ErrConcurrent) { // it may be the second one itself
				err = rank.Barrier(ctx, c)
			}
			done <- err
		}()
		var err error
		for err == nil && ctx.Err() == nil { // until the goroutine is in it
			_, err = rank.Sendrecv(ctx, c, []int{1}, 0, 3, make([]int, 1), 0, 3)
		}
		again := rank.Barrier(ctx, c)
		close(begun)
		if !errors.Is(err, rank.ErrConcurrent) || !errors.Is(again, rank.ErrConcurrent) {
			return fmt.Errorf("got %v and %v, want that another call is running", err, again)
		}
		return <-done
	})
}

// Buffers cost no allocation either, where the call is remembered.
func TestBuffersThatAreRememberedAllocateNothing(t *testing.T) {
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) error {
		var err error
		in, out := make([]int32, 4), make([]int32, 4)
		call := func() {
			if err == nil {
				err = c.Allreduce(ctx, rank.Typed(in, 4, rank.TypeInt32), rank.Of(out), rank.Sum)
			}
		}
		call()
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%v allocations a call, want 0", n)
		}
		return err
	})
}
