package rank_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorun-mpi/gorun/rank"
)

// Every rank has one value, and all get the sum.
func ExampleAllreduceOne() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		sum, err := rank.AllreduceOne(ctx, c, float64(c.Rank()), rank.Sum)
		if c.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 6
}

// A struct with a map in it goes to another rank.
func ExampleSendAny() {
	type report struct {
		Name   string
		Counts map[string]int
	}
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			return rank.SendAny(ctx, c, report{"first", map[string]int{"errors": 3}}, 1, 0)
		}
		r, _, err := rank.RecvAny[report](ctx, c, 0, 0)
		fmt.Println(r.Name, r.Counts["errors"])
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: first 3
}

// Rank 0 has tasks, and the other ranks work on them.
func ExamplePool() {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		squares, err := rank.Pool(ctx, c, []int{1, 2, 3, 4, 5}, func(_ context.Context, n int) (int, error) { return n * n, nil })
		if c.Rank() == 0 {
			fmt.Println(squares)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [1 4 9 16 25]
}

// Each rank of a row passes its value to the next; the ends have no neighbour.
func ExampleNewGrid() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		g, err := rank.NewGrid(ctx, c, []int{4}, nil)
		if err != nil {
			return err
		}
		got := []int{-1}
		if _, err := (rank.Swap[int]{Send: g.Coords, To: g.Above[0], Recv: got, From: g.Below[0]}).Do(ctx, g.Comm); err != nil {
			return err
		}
		all, err := rank.GatherOne(ctx, c, got[0], 0)
		if c.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [-1 0 1 2]
}
