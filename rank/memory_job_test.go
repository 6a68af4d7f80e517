package rank_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["memory"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			for round, n := range []int{8, 4 << 10, 20 << 10} {
				if err := withAll(ctx, c, n, round); err != nil {
					return fmt.Errorf("messages of %d bytes: %w", n, err)
				}
			}
			for _, n := range []int{1, 20 << 10 / 8} {
				if err := collectivesOf(ctx, c, n); err != nil {
					return fmt.Errorf("%d elements: %w", n, err)
				}
			}
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
			if c.Rank() == 0 {
				var st unix.Stat_t
				if err := unix.Fstat(4, &st); err != nil { // the segment, as spawn says
					return err
				}
				fmt.Println(st.Blocks * 512)
			}
			return rank.Barrier(ctx, c) // nobody has left before
		})
	}
}

// withAll exchanges messages of n bytes with all others, several at once with each:
// more than one takes by surprise, and enough for a ring.
func withAll(ctx context.Context, c *rank.Comm, n, round int) error {
	const each = 12
	size, me := c.Size(), c.Rank()
	for step := 1; step < size; step++ {
		to, from := (me+step)%size, (me+size-step)%size
		var reqs []rank.Request
		in := make([][]byte, each)
		for i := range each {
			out := letter(make([]byte, n), me, round, i)
			in[i] = make([]byte, n)
			send, err := rank.Isend(c, out, to, round)
			if err != nil {
				return err
			}
			recv, err := rank.Irecv(c, in[i], from, round)
			if err != nil {
				return err
			}
			reqs = append(reqs, send, recv)
		}
		if err := rank.WaitAll(ctx, reqs, nil); err != nil {
			return err
		}
		for i := range in {
			if err := checkLetter(in[i], from, round, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectivesOf makes every collective call once, with n elements of each rank for
// each that it has to do with.
func collectivesOf(ctx context.Context, c *rank.Comm, n int) error {
	size, me := c.Size(), c.Rank()
	mine, got := fill(make([]float64, n), me, 0), make([]float64, n)
	wide, all := slices.Repeat(mine, size), make([]float64, size*n)
	counts, displs := slices.Repeat([]int{n}, size), make([]int, size)
	for i := range displs {
		displs[i] = i * n
	}
	ring, err := c.DistGraphCreateAdjacent(ctx, []int{(me + size - 1) % size}, nil, []int{(me + 1) % size}, nil, false)
	if err != nil {
		return err
	}
	for _, call := range []struct {
		name string
		f    func() error
	}{
		{"barrier", func() error { return rank.Barrier(ctx, c) }},
		{"bcast", func() error { return rank.Bcast(ctx, c, got, 1) }},
		{"gather", func() error { return rank.Gather(ctx, c, mine, all, 2) }},
		{"scatter", func() error { return rank.Scatter(ctx, c, wide, got, 3) }},
		{"allgather", func() error { return rank.Allgather(ctx, c, mine, all) }},
		{"alltoall", func() error { return rank.Alltoall(ctx, c, wide, all) }},
		{"gatherv", func() error { return rank.Gatherv(ctx, c, mine, all, counts, displs, 4) }},
		{"scatterv", func() error { return rank.Scatterv(ctx, c, wide, counts, displs, got, 5) }},
		{"allgatherv", func() error { return rank.Allgatherv(ctx, c, mine, all, counts, displs) }},
		{"alltoallv", func() error { return rank.Alltoallv(ctx, c, wide, counts, displs, all, counts, displs) }},
		{"reduce", func() error { return rank.Reduce(ctx, c, mine, got, rank.Sum, 6) }},
		{"reduce_scatter_block", func() error { return rank.ReduceScatterBlock(ctx, c, wide, got, rank.Sum) }},
		{"reduce_scatter", func() error { return rank.ReduceScatter(ctx, c, wide, got, counts, rank.Sum) }},
		{"scan", func() error { return rank.Scan(ctx, c, mine, got, rank.Sum) }},
		{"exscan", func() error { return rank.Exscan(ctx, c, mine, got, rank.Sum) }},
		{"neighbor_allgather", func() error { return rank.NeighborAllgather(ctx, ring, mine, got) }},
		{"neighbor_alltoall", func() error { return rank.NeighborAlltoall(ctx, ring, mine, got) }},
		{"allreduce", func() error { return rank.Allreduce(ctx, c, mine, got, rank.Sum) }},
	} {
		if err := call.f(); err != nil {
			return fmt.Errorf("%s: %w", call.name, err)
		}
	}
	return diff("allreduce", got, reduced[float64](rank.Sum, size, n, 0))
}

// What 64 ranks have of their host's memory in common, after messages between all of
// them and every collective call, is less than 1 MiB for each; with -short of 16.
func TestMemoryOfManyProcesses(t *testing.T) {
	if arch.RaceEnabled {
		return // 64 slow processes, between which the detector sees nothing
	}
	testenv.NoLeaks(t)
	const most = 1 << 20
	n := testenv.Fewer(int64(64), 16)
	j := &job{program: "memory", hosts: []int{int(n)}}
	j.start(t)
	var bytes int64
	if _, err := fmt.Sscan(j.done(t), &bytes); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB of shared memory for each of %d ranks", bytes/n>>10, n)
	if bytes == 0 || bytes/n >= most {
		t.Errorf("%d KiB of shared memory for each of %d ranks, want less than %d", bytes/n>>10, n, most>>10)
	}
}
