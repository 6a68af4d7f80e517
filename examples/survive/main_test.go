package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestSolve(t *testing.T) {
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		x, _, err := solve(ctx, c, func(int) {})
		for i := 1; i+1 < len(x); i++ {
			if math.Abs(4*x[i]-x[i-1]-x[i+1]-1) > 1e-9 {
				return fmt.Errorf("equation %d: %v", i, x)
			}
		}
		return err
	})
}

var errDead = errors.New("dies on purpose")

// Each of three ranks in turn dies at its step, and those that are left have the solution.
func TestSolveGoesOn(t *testing.T) {
	for victim := range 3 {
		for _, at := range []int{0, 1, 30, 59} {
			sizes := make([]int, 3)
			err := rank.RunConfig{Continuous: true}.Run(t.Context(), 3, func(ctx context.Context, world *rank.Comm) error {
				x, c, err := solve(ctx, world, func(step int) {
					if step == at && world.Rank() == victim {
						panic(errDead)
					}
				})
				if err == nil {
					sizes[world.Rank()] = c.Size()
					if math.Abs(x[10]-0.5) > 1e-3 {
						err = fmt.Errorf("%v in the middle, want 0.5", x[10])
					}
				}
				return err
			})
			want := []int{2, 2, 2}
			want[victim] = 0
			if !errors.Is(err, errDead) || fmt.Sprint(sizes) != fmt.Sprint(want) {
				t.Errorf("rank %d dies at step %d: sizes %v, want %v: %v", victim, at, sizes, want, err)
			}
		}
	}
}
