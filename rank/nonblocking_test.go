package rank_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// Several started collectives of different kinds are under way at once, are waited
// for in any order, and blocking ones may come between.
func TestStartedCollectives(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 3, 5, 8}, func(ctx context.Context, c *rank.Comm) error {
		n, me := c.Size(), c.Rank()
		for round := range 3 {
			sum, all, from := make([]int, 3), make([]int, n), make([]int, 2)
			if me == round%n {
				from = []int{round, -round}
			}
			var reqs [4]rank.Request
			var err error
			if reqs[0], err = rank.Iallreduce(c, []int{me, 1, round}, sum, rank.Sum); err != nil {
				return err
			}
			if reqs[1], err = rank.Iallgather(c, []int{me * round}, all); err != nil {
				return err
			}
			if reqs[2], err = rank.Ibcast(c, from, round%n); err != nil {
				return err
			}
			top := []int{0}
			if err = rank.Allreduce(ctx, c, []int{me}, top, rank.Max); err != nil {
				return err
			}
			if reqs[3], err = rank.Ibarrier(c); err != nil {
				return err
			}
			if round == 1 {
				slices.Reverse(reqs[:])
			}
			if err := rank.WaitAll(ctx, reqs[:], nil); err != nil {
				return err
			}
			want := []int{n * (n - 1) / 2, n, n * round}
			if !slices.Equal(sum, want) || top[0] != n-1 || from[0] != round || from[1] != -round {
				return fmt.Errorf("round %d: sum %v, want %v; top %v; from %v", round, sum, want, top, from)
			}
			for i, v := range all {
				if v != i*round {
					return fmt.Errorf("round %d: all[%d] = %d, want %d", round, i, v, i*round)
				}
			}
		}
		return nil
	})
}

// A persistent collective is started again and again, and sees what its buffers hold
// at each start.
func TestPersistentCollective(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 4, 7}, func(ctx context.Context, c *rank.Comm) error {
		in, out := make([]float32, 5), make([]float32, 5)
		q, err := rank.AllreduceInit(c, in, out, rank.Max)
		if err != nil {
			return err
		}
		for round := range 4 {
			for i := range in {
				in[i] = float32(c.Rank()*10 + i + round)
			}
			if err := q.Start(); err != nil {
				return err
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
			for i, v := range out {
				if want := float32((c.Size()-1)*10 + i + round); v != want {
					return fmt.Errorf("round %d: out[%d] = %v, want %v", round, i, v, want)
				}
			}
		}
		return q.Free()
	})
}

// A collective that a rank has started and never asks for again is over on the others
// all the same, while the rank waits for messages: what its queue pairs have put off is
// done by whatever polls. Its own request is over long before, as often as not.
func TestStartedCollectiveThenMessages(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3, 5}, func(ctx context.Context, c *rank.Comm) error {
		n, me := c.Size(), c.Rank()
		for round := range 60 {
			sum := []int{0}
			q, err := rank.Iallreduce(c, []int{me + round}, sum, rank.Sum)
			if err != nil {
				return err
			}
			if me != round%n {
				// Until this comes the rank is in Recv alone.
				if _, err := rank.Recv(ctx, c, make([]int, 1), round%n, round); err != nil {
					return err
				}
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
			if me == round%n {
				for peer := range n {
					if peer != me {
						if err := rank.Send(ctx, c, []int{round}, peer, round); err != nil {
							return err
						}
					}
				}
			}
			if want := n*(n-1)/2 + n*round; sum[0] != want {
				return fmt.Errorf("round %d: the sum is %d, want %d", round, sum[0], want)
			}
		}
		return nil
	})
}
