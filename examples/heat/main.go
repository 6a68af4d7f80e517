// Command heat computes how a square plate warms up whose upper edge is hot. Each
// rank has a block of the plate, and a frame around it for its neighbours' points.
package main

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {
	rank.Main(func(ctx context.Context, c *rank.Comm) error {
		mean, err := heat(ctx, c, 96, 1000)
		if err == nil && c.Rank() == 0 {
			fmt.Printf("mean temperature %.6f\n", mean)
		}
		return err
	})
}

// heat gives the mean temperature of a plate of n x n points after so many steps. The
// rows and columns of the grid of ranks must divide n.
func heat(ctx context.Context, c *rank.Comm, n, steps int) (float64, error) {
	g, err := rank.NewGrid(ctx, c, []int{0, 0}, nil)
	if err != nil {
		return 0, err
	}
	rows, columns := n/g.Dims[0], n/g.Dims[1]
	wide := columns + 2
	now, next := make([]float64, (rows+2)*wide), make([]float64, (rows+2)*wide)
	if g.Coords[0] == 0 {
		for j := range wide {
			now[j], next[j] = 1, 1
		}
	}
	column, err := rank.Column(rows, wide, rank.TypeFloat64)
	if err != nil {
		return 0, err
	}
	row, err := rank.Contiguous(columns, rank.TypeFloat64)
	if err != nil {
		return 0, err
	}
	for range steps {
		at := func(i, j int, t *rank.Datatype) rank.Buffer { return rank.Typed(now[i*wide+j:], 1, t) }
		for _, x := range []struct {
			send, recv rank.Buffer
			to, from   int
		}{
			{at(1, 1, row), at(rows+1, 1, row), g.Below[0], g.Above[0]},
			{at(rows, 1, row), at(0, 1, row), g.Above[0], g.Below[0]},
			{at(1, 1, column), at(1, columns+1, column), g.Below[1], g.Above[1]},
			{at(1, columns, column), at(1, 0, column), g.Above[1], g.Below[1]},
		} {
			if _, err := g.Comm.Sendrecv(ctx, x.send, x.to, 0, x.recv, x.from, 0); err != nil {
				return 0, err
			}
		}
		for i := 1; i <= rows; i++ {
			for p := i*wide + 1; p <= i*wide+columns; p++ {
				next[p] = (now[p-1] + now[p+1] + now[p-wide] + now[p+wide]) / 4
			}
		}
		now, next = next, now
	}
	sum := 0.0
	for i := 1; i <= rows; i++ {
		for _, v := range now[i*wide+1 : i*wide+columns+1] {
			sum += v
		}
	}
	sum, err = rank.AllreduceOne(ctx, c, sum, rank.Sum)
	return sum / float64(n*n), err
}
