package rank_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// Ranks that start different things learn so, in bounded time, whoever they are and
// in whatever form they wait.
func TestStartedMismatch(t *testing.T) {
	testenv.NoLeaks(t)
	word := func(c *rank.Comm, n int) ([]int32, []int32) {
		return make([]int32, n*c.Size()), make([]int32, n*c.Size())
	}
	for name, start := range map[string]func(c *rank.Comm, odd bool) (rank.Request, error){
		"counts": func(c *rank.Comm, odd bool) (rank.Request, error) {
			n := 4
			if odd {
				n = 5
			}
			a, b := word(c, n)
			return rank.Ialltoall(c, a, b)
		},
		"long counts": func(c *rank.Comm, odd bool) (rank.Request, error) {
			n := 40000
			if odd {
				n = 50000
			}
			a, b := word(c, n)
			return rank.Iallreduce(c, a, b, rank.Sum)
		},
		"types": func(c *rank.Comm, odd bool) (rank.Request, error) {
			if odd {
				return rank.Iallreduce(c, nil, []float32{1}, rank.Sum)
			}
			return rank.Iallreduce(c, nil, []int32{1}, rank.Sum)
		},
		"operations": func(c *rank.Comm, odd bool) (rank.Request, error) {
			op := rank.Sum
			if odd {
				op = rank.Max
			}
			return rank.Iallreduce(c, nil, []int32{1}, op)
		},
		"kinds": func(c *rank.Comm, odd bool) (rank.Request, error) {
			if odd {
				return rank.Ibarrier(c)
			}
			return rank.Iallreduce(c, nil, []int32{1}, rank.Sum)
		},
		"v counts": func(c *rank.Comm, odd bool) (rank.Request, error) {
			counts := make([]int, c.Size())
			for i := range counts {
				counts[i] = 3
			}
			send := make([]int32, 3)
			if odd { // says that it gives more than the others expect
				counts[c.Rank()], send = 4, make([]int32, 4)
			}
			return rank.Iallgatherv(c, send, make([]int32, 3*c.Size()+1), counts, nil)
		},
		"roots": func(c *rank.Comm, odd bool) (rank.Request, error) {
			root := 0
			if odd {
				root = c.Rank()
			}
			return rank.Ibcast(c, make([]int32, 20000), root)
		},
	} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/n=%d", name, n), func(t *testing.T) {
				ranktest.Run(t, n, func(ctx context.Context, c *rank.Comm) error {
					d, err := c.Dup(ctx)
					if err != nil {
						return err
					}
					q, err := start(d, d.Rank() == n-1)
					if err == nil {
						err = rank.WaitAll(ctx, []rank.Request{q}, nil)
					}
					for err == nil { // whose part was done without the others learns it now
						err = rank.Barrier(ctx, d)
					}
					if e, ok := errors.AsType[*rank.Error](err); !ok || e.Comm != d.Name() || ctx.Err() != nil ||
						!errors.Is(err, coll.ErrMismatch) && !errors.Is(err, rank.ErrRevoked) {
						return fmt.Errorf("error %v, want %v on %s", err, coll.ErrMismatch, d.Name())
					}
					_ = d.Free(ctx)
					return rank.Barrier(ctx, c) // others are not harmed
				})
			})
		}
	}
}

// When the context of a wait ends, the started call goes on, and can be waited for
// again.
func TestWaitContextLeavesCollective(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		sum := make([]int, 5000)
		if c.Rank() == 0 {
			q, err := rank.Iallreduce(d, []int{4999: 1}, sum, rank.Sum)
			if err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			_, err = q.Wait(short)
			if e, ok := errors.AsType[*rank.Error](err); !ok || !errors.Is(err, context.DeadlineExceeded) || e.Comm != d.Name() {
				return fmt.Errorf("wait: %v, want %v on %s", err, context.DeadlineExceeded, d.Name())
			}
			if err := rank.Barrier(ctx, c); err != nil { // now the others start
				return err
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
		} else {
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
			if err := rank.Allreduce(ctx, d, []int{4999: 1}, sum, rank.Sum); err != nil {
				return err
			}
		}
		if sum[4999] != c.Size() {
			return fmt.Errorf("sum %d, want %d", sum[4999], c.Size())
		}
		return rank.Barrier(ctx, d)
	})
}

// Freeing a communicator lets what was started on it end first.
func TestFreeWhileStarted(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 5}, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		const n = 3000
		var reqs [3]rank.Request
		var all [3][]int
		for i := range reqs {
			all[i] = make([]int, n*c.Size())
			if reqs[i], err = rank.Iallgather(d, fill(make([]int, n), c.Rank(), i), all[i]); err != nil {
				return err
			}
		}
		if c.Rank() == 0 { // it need not be all of them
			if _, err := reqs[1].Wait(ctx); err != nil {
				return err
			}
		}
		kept, err := rank.BarrierInit(d)
		if err != nil {
			return err
		}
		if err := d.Free(ctx); err != nil {
			return err
		}
		if err := rank.WaitAll(ctx, reqs[:], nil); err != nil {
			return err
		}
		for i := range all {
			for r := range c.Size() {
				if err := diff("allgather", all[i][r*n:(r+1)*n], fill(make([]int, n), r, i)); err != nil {
					return err
				}
			}
		}
		if err := kept.Start(); !errors.Is(err, rank.ErrFreed) {
			return fmt.Errorf("start on a freed communicator: %v, want %v", err, rank.ErrFreed)
		}
		return kept.Free()
	})
}
