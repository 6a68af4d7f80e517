// Command histogram counts how values that are spread over the ranks are distributed.
// The ranks agree on the range, each counts its own values, and rank 0 gets the sums.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {
	rank.Main(func(ctx context.Context, c *rank.Comm) error {
		values := make([]float64, 100000)
		random := rand.New(rand.NewPCG(3, uint64(c.Rank())))
		for i := range values {
			values[i] = random.NormFloat64()
		}
		low, width, counts, err := histogram(ctx, c, values, 20)
		if err != nil {
			return err
		}
		for i, n := range counts {
			fmt.Printf("%7.2f %8d %s\n", low+float64(i)*width, n, strings.Repeat("#", int(60*n/slices.Max(counts))))
		}
		return nil
	})
}

// histogram gives the least value of all ranks and the width of a bin, and rank 0 how
// many values are in each of so many bins. Each rank has a value at least.
func histogram(ctx context.Context, c *rank.Comm, values []float64, bins int) (low, width float64, counts []int64, err error) {
	if low, err = rank.AllreduceOne(ctx, c, slices.Min(values), rank.Min); err != nil {
		return 0, 0, nil, err
	}
	high, err := rank.AllreduceOne(ctx, c, slices.Max(values), rank.Max)
	if err != nil {
		return 0, 0, nil, err
	}
	if width = (high - low) / float64(bins); width == 0 {
		width = 1 // all values are the same
	}
	own := make([]int64, bins)
	for _, v := range values {
		own[min(int((v-low)/width), bins-1)]++
	}
	if c.Rank() == 0 {
		counts = make([]int64, bins)
	}
	err = rank.Reduce(ctx, c, own, counts, rank.Sum, 0)
	return low, width, counts, err
}
