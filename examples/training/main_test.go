package main

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestTrainingFindsTheLineOnAllRanks(t *testing.T) {
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		model, loss, err := train(ctx, c, points(c.Rank(), 1000), 200)
		if err != nil {
			return err
		}
		if math.Abs(model[0]-3) > 0.05 || math.Abs(model[1]-2) > 0.05 || loss > 0.02 {
			return fmt.Errorf("the model is %v, with a loss of %v", model, loss)
		}
		all, err := rank.AllgatherOne(ctx, c, model)
		for r, other := range all {
			if other != model {
				return fmt.Errorf("rank %d has %v, and this one %v", r, other, model)
			}
		}
		return err
	})
}
