package main

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestHeatIsTheSameOnAnyRanks(t *testing.T) {
	var want float64
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) (err error) {
		want, err = heat(ctx, c, 24, 100)
		return err
	})
	ranktest.Each(t, []int{2, 4, 6}, func(ctx context.Context, c *rank.Comm) error {
		got, err := heat(ctx, c, 24, 100)
		if err == nil && math.Abs(got-want) > 1e-12 {
			err = fmt.Errorf("mean %v, want %v", got, want)
		}
		return err
	})
	if want < 0.1 || want > 0.2 {
		t.Errorf("mean %v, want a sixth or so", want)
	}
}
