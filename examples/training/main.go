// Command training fits a line through points by gradient descent. Each rank has a
// part of the points; the ranks add their gradients, so that all have the same model.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {
	rank.Main(func(ctx context.Context, c *rank.Comm) error {
		model, loss, err := train(ctx, c, points(c.Rank(), 10000), 200)
		if err == nil && c.Rank() == 0 {
			fmt.Printf("y = %.3f x + %.3f, loss %.5f\n", model[0], model[1], loss)
		}
		return err
	})
}

// points are n points of y = 3x + 2, with noise, of their own for each rank.
func points(rank, n int) [][2]float64 {
	random := rand.New(rand.NewPCG(7, uint64(rank)))
	p := make([][2]float64, n)
	for i := range p {
		x := 2*random.Float64() - 1
		p[i] = [2]float64{x, 3*x + 2 + random.NormFloat64()/10}
	}
	return p
}

// train gives the model, slope and height, and its mean loss after so many steps.
func train(ctx context.Context, c *rank.Comm, part [][2]float64, steps int) (model [2]float64, loss float64, err error) {
	total, err := rank.AllreduceOne(ctx, c, float64(len(part)), rank.Sum)
	if err != nil {
		return model, 0, err
	}
	model, err = rank.BcastOne(ctx, c, [2]float64{rand.Float64(), rand.Float64()}, 0)
	if err != nil {
		return model, 0, err
	}
	sums := make([]float64, 3) // of the gradient's two parts, and of the loss
	for range steps {
		clear(sums)
		for _, p := range part {
			wrong := model[0]*p[0] + model[1] - p[1]
			sums[0] += 2 * wrong * p[0]
			sums[1] += 2 * wrong
			sums[2] += wrong * wrong
		}
		if err := rank.Allreduce(ctx, c, nil, sums, rank.Sum); err != nil {
			return model, 0, err
		}
		model[0] -= 0.3 * sums[0] / total
		model[1] -= 0.3 * sums[1] / total
	}
	return model, sums[2] / total, nil
}
