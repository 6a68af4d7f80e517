package rank_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
)

// makers are the calls that make communicators of one of at least three ranks, as many as there are ways to agree on a number.
var makers = []func(ctx context.Context, c *rank.Comm, round int) (*rank.Comm, error){
	func(ctx context.Context, c *rank.Comm, _ int) (*rank.Comm, error) { return c.Dup(ctx) },
	func(ctx context.Context, c *rank.Comm, _ int) (*rank.Comm, error) { return c.Split(ctx, 0, -c.Rank()) },
	func(ctx context.Context, c *rank.Comm, round int) (*rank.Comm, error) {
		return c.CreateGroup(ctx, c.Group(), round)
	},
	func(ctx context.Context, c *rank.Comm, round int) (*rank.Comm, error) {
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return nil, err
		}
		inter, err := rank.CreateIntercomm(ctx, half, 0, c, 1-c.Rank()%2, round)
		if err != nil {
			return nil, err
		}
		both, err := inter.Merge(ctx, c.Rank()%2 == 1)
		if err == nil {
			err = inter.Free(ctx)
		}
		if err == nil {
			err = half.Free(ctx)
		}
		return both, err
	},
	func(ctx context.Context, c *rank.Comm, _ int) (*rank.Comm, error) {
		d, q, err := c.Idup()
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return d, err
	},
}

// use fails where a communicator shares its number with another: a value that is its user's alone goes round. It frees the communicator.
func use(ctx context.Context, c *rank.Comm, whose int) error {
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	in := []int{-1}
	for range 3 {
		if _, err := rank.Sendrecv(ctx, c, []int{whose}, next, 0, in, before, 0); err != nil {
			return err
		}
		if in[0] != whose {
			return fmt.Errorf("the communicator of %d got a message of that of %d", whose, in[0])
		}
		sum, err := rank.AllreduceOne(ctx, c, whose, rank.Sum)
		if err != nil {
			return err
		}
		if sum != whose*c.Size() {
			return fmt.Errorf("the sum on the communicator of %d is %d, want %d", whose, sum, whose*c.Size())
		}
	}
	return c.Free(ctx)
}

// Goroutines that make communicators at the same time get numbers of their own for them, in whatever order they ask.
func TestCommunicatorsMadeAtTheSameTime(t *testing.T) {
	const several, rounds = 4, 5
	inTurns(t, 3, func(ctx context.Context, c *rank.Comm) error {
		own := []*rank.Comm{c.World().Self()} // whose goroutine need not wait for another rank
		for range several {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			own = append(own, d)
		}
		return concurrently(len(own), func(i int) error {
			for round := range rounds {
				maker := makers[0]
				if i > 0 {
					maker = makers[(i+round)%len(makers)]
				}
				d, err := maker(ctx, own[i], round)
				if err == nil {
					err = use(ctx, d, 100*i+round)
				}
				if err != nil {
					return fmt.Errorf("goroutine %d, round %d: %w", i, round, err)
				}
			}
			return nil
		})
	})
}

// A rank whose two goroutines make a communicator each serves one that makes them behind each other.
func TestCommunicatorsMadeInTurn(t *testing.T) {
	inTurns(t, 3, func(ctx context.Context, c *rank.Comm) error {
		for round := range 20 {
			var of, made [2]*rank.Comm
			for i := range of {
				var err error
				if of[i], err = c.Dup(ctx); err != nil {
					return err
				}
			}
			dup := func(i int) (err error) {
				made[i], err = of[i].Dup(ctx)
				return err
			}
			var err error
			if c.Rank() != 1 {
				err = concurrently(2, dup)
			} else if err = dup(round % 2); err == nil {
				err = dup(1 - round%2)
			}
			for i := range made {
				if err == nil {
					err = use(ctx, made[i], i)
				}
				if err == nil {
					err = use(ctx, of[i], i)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
