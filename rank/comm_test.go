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

func TestSplit(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 5, 8}, func(ctx context.Context, c *rank.Comm) error {
		// Three colors, the third left out; ranks in reverse order.
		color := c.Rank() % 3
		if color == 2 {
			color = rank.Undefined
		}
		s, err := c.Split(ctx, color, -c.Rank())
		if err != nil {
			return err
		}
		if color == rank.Undefined {
			if s != nil {
				return fmt.Errorf("a rank without a color is in %s", s.Name())
			}
			return rank.Barrier(ctx, c)
		}
		var members []int // in the world
		for r := c.Size() - 1; r >= 0; r-- {
			if r%3 == color {
				members = append(members, r)
			}
		}
		if s.Size() != len(members) || members[s.Rank()] != c.Rank() {
			return fmt.Errorf("rank %d of %d in %s, want the place of %d in %v", s.Rank(), s.Size(), s.Name(), c.Rank(), members)
		}
		all := make([]int, s.Size())
		if err := rank.Allgather(ctx, s, []int{c.Rank()}, all); err != nil {
			return err
		}
		if err := diff("members", all, members); err != nil {
			return err
		}
		if err := collectives[int16](ctx, s); err != nil {
			return err
		}
		if err := s.Free(ctx); err != nil {
			return err
		}
		if err := rank.Barrier(ctx, s); !errors.Is(err, rank.ErrFreed) {
			return fmt.Errorf("a freed communicator says %v, want %v", err, rank.ErrFreed)
		}
		return rank.Barrier(ctx, c)
	})
}

// A message is received on the communicator on which it was sent, even where
// source and tag are open.
func TestDupIsolates(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 4}, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		dd, err := d.Dup(ctx)
		if err != nil {
			return err
		}
		comms := []*rank.Comm{c, d, dd}
		to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for i, x := range comms {
			if err := rank.Send(ctx, x, []int{i}, to, 7); err != nil {
				return err
			}
		}
		for i := len(comms) - 1; i >= 0; i-- {
			got := make([]int, 1)
			st, err := rank.Recv(ctx, comms[i], got, rank.AnySource, rank.AnyTag)
			if err != nil {
				return err
			}
			if got[0] != i || st.Source != from {
				return fmt.Errorf("on %s: message %d of rank %d, want %d of %d", comms[i].Name(), got[0], st.Source, i, from)
			}
		}
		// Freed with a message that nobody receives.
		if err := rank.Send(ctx, dd, []int{9}, to, 1); err != nil {
			return err
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		if err := dd.Free(ctx); err != nil {
			return err
		}
		e, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := rank.Send(ctx, e, []int{10}, to, 1); err != nil {
			return err
		}
		got := make([]int, 1)
		if _, err := rank.Recv(ctx, e, got, rank.AnySource, rank.AnyTag); err != nil {
			return err
		}
		if got[0] != 10 {
			return fmt.Errorf("a new communicator got %d, want 10", got[0])
		}
		return nil // the others are freed by Finalize
	})
}

// Contexts stay apart when only some ranks make communicators.
func TestContextsAfterUnequalSplits(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 4, func(ctx context.Context, c *rank.Comm) error {
		pair, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		if c.Rank() < 2 { // makes three more, which the others do not know of
			for range 3 {
				if _, err := pair.Dup(ctx); err != nil {
					return err
				}
			}
		}
		odd, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		for i, x := range []*rank.Comm{odd, pair, c} {
			if err := rank.Send(ctx, x, []int{100*i + x.Rank()}, (x.Rank()+1)%x.Size(), 0); err != nil {
				return err
			}
		}
		for i, x := range []*rank.Comm{odd, pair, c} {
			got := []int{0}
			if _, err := rank.Recv(ctx, x, got, rank.AnySource, rank.AnyTag); err != nil {
				return err
			}
			if want := 100*i + (x.Rank()+x.Size()-1)%x.Size(); got[0] != want {
				return fmt.Errorf("on %s: %d, want %d", x.Name(), got[0], want)
			}
		}
		return nil
	})
}
