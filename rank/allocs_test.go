//go:build !race

// The race detector allocates on its own account.

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

// In steady state no call allocates, whatever memory it is given.
func TestNoAllocations(t *testing.T) {
	testenv.NoLeaks(t)
	const runs = 100
	for _, n := range []int{1, 100, 10000} { // elements: inline, eager, by announcement
		for _, registered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/registered=%v", n, registered), func(t *testing.T) {
				ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
					return allocations(ctx, t, c, n, registered, runs)
				})
			})
		}
	}
}

func allocations(ctx context.Context, t *testing.T, c *rank.Comm, n int, registered bool, runs int) error {
	size, peer := c.Size(), 1-c.Rank()
	round := 0
	if registered {
		round = 1
	}
	a, err := make1[int64](c, size*n, round)
	if err != nil {
		return err
	}
	b, err := make1[int64](c, size*n, round)
	if err != nil {
		return err
	}
	counts, few, layout := []int{n, n}, []int{0, 0}, 0
	for _, tt := range []struct {
		name string
		call func() error
	}{
		{"barrier", func() error { return rank.Barrier(ctx, c) }},
		{"alltoall", func() error { return rank.Alltoall(ctx, c, a, b) }},
		{"allreduce", func() error { return rank.Allreduce(ctx, c, a, b, rank.Sum) }},
		{"allreduce in place", func() error { return rank.Allreduce(ctx, c, nil, b, rank.Max) }},
		{"reduce", func() error { return rank.Reduce(ctx, c, a, b, rank.Sum, 0) }},
		{"reduce_scatter_block", func() error { return rank.ReduceScatterBlock(ctx, c, a, b[:n], rank.Sum) }},
		{"allgather", func() error { return rank.Allgather(ctx, c, a[:n], b) }},
		{"bcast", func() error { return rank.Bcast(ctx, c, a, 1) }},
		{"gather", func() error { return rank.Gather(ctx, c, a[:n], b, 0) }},
		{"v forms", func() error {
			return errors.Join(rank.Gatherv(ctx, c, a[:n], b, counts, nil, 0), rank.Scatterv(ctx, c, a, counts, nil, b[:n], 0),
				rank.Allgatherv(ctx, c, a[:n], b, counts, nil), rank.Allgatherv(ctx, c, nil, b, counts, nil),
				rank.Alltoallv(ctx, c, a, counts, nil, b, counts, nil))
		}},
		{"v forms of many layouts", func() error {
			layout = (layout + 1) % (n + 1) % 40
			few[0], few[1] = layout, n-layout
			return rank.Allgatherv(ctx, c, a[:few[c.Rank()]], b, few, nil)
		}},
		{"send and recv", func() error {
			if c.Rank() == 0 {
				if err := rank.Send(ctx, c, a, peer, 1); err != nil {
					return err
				}
			}
			if _, err := rank.Recv(ctx, c, b, rank.AnySource, rank.AnyTag); err != nil {
				return err
			}
			if c.Rank() == 1 {
				return rank.Send(ctx, c, a, peer, 1)
			}
			return nil
		}},
		{"sendrecv", func() error {
			_, err := rank.Sendrecv(ctx, c, a, peer, 1, b, peer, 1)
			return err
		}},
	} {
		for range 200 { // to the steady state
			if err := tt.call(); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			for range runs + 1 {
				if err := tt.call(); err != nil {
					return err
				}
			}
			continue
		}
		var failed error
		got := testing.AllocsPerRun(runs, func() {
			if failed == nil {
				failed = tt.call()
			}
		})
		if failed != nil {
			return failed
		}
		if got != 0 {
			t.Errorf("%s: %v allocations a call, want 0", tt.name, got)
		}
	}
	return nil
}
