package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestHistogramCountsAllValues(t *testing.T) {
	ranktest.Each(t, []int{1, 4}, func(ctx context.Context, c *rank.Comm) error {
		n := float64(c.Size())
		var values []float64 // 0 to 10 n, of which each rank has a part
		for i := range 10 {
			values = append(values, float64(10*c.Rank()+i))
		}
		values = append(values, 10*n)
		low, width, counts, err := histogram(ctx, c, values, 10)
		if err != nil {
			return err
		}
		want := slices.Repeat([]int64{int64(c.Size())}, 10)
		want[9] += int64(c.Size()) // the largest is in the last
		if c.Rank() > 0 {
			want = nil
		}
		if low != 0 || width != n || !slices.Equal(counts, want) {
			return fmt.Errorf("from %v, %v wide: %v, want %v", low, width, counts, want)
		}
		return nil
	})
}
