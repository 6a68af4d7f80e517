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

// Ranks leave two communicators in another order each, wait for each other between, and have a reduction and a message
// under way in one of them, which complete.
func TestLeave(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for round := range 100 {
			a, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			b, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			sum, got := []int{0}, []int{-1}
			all, err := rank.Iallreduce(a, []int{c.Rank()}, sum, rank.Sum)
			if err != nil {
				return err
			}
			in, err := rank.Irecv(a, got, before, 1)
			if err != nil {
				return err
			}
			out, err := rank.Isend(a, []int{c.Rank()}, next, 1)
			if err != nil {
				return err
			}
			first, second := a, b
			if c.Rank()%2 == 1 {
				first, second = b, a
			}
			if err := errors.Join(first.Leave(), rank.Barrier(ctx, c), second.Leave()); err != nil {
				return err
			}
			if err := rank.WaitAll(ctx, []rank.Request{all, in, out}, nil); err != nil {
				return err
			}
			if want := c.Size() * (c.Size() - 1) / 2; sum[0] != want || got[0] != before {
				return fmt.Errorf("round %d: the sum is %d, want %d; received %d, want %d", round, sum[0], want, got[0], before)
			}
			if err := a.Leave(); !errors.Is(err, rank.ErrFreed) {
				return fmt.Errorf("Leave of one that was left: %w", err)
			}
		}
		// One that the others never leave ends with the world.
		d, err := c.Dup(ctx)
		if err == nil && c.Rank() == 0 {
			err = d.Leave()
		}
		return err
	})
}
