package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestSampleSortSortsAllKeys(t *testing.T) {
	ranktest.Each(t, []int{1, 2, 5}, func(ctx context.Context, c *rank.Comm) error {
		const each = 500
		random := rand.New(rand.NewPCG(1, uint64(c.Rank())))
		keys := make([]int64, each)
		for i := range keys {
			keys[i] = random.Int64N(10000)
		}
		all := make([]int64, each*c.Size())
		if err := rank.Allgather(ctx, c, keys, all); err != nil {
			return err
		}
		slices.Sort(all)
		got, err := sampleSort(ctx, c, keys)
		if err != nil {
			return err
		}
		before, err := rank.ExscanOne(ctx, c, len(got), rank.Sum)
		if err == nil && !slices.Equal(got, all[before:before+len(got)]) {
			err = fmt.Errorf("%d keys behind %d others are not theirs in order", len(got), before)
		}
		return err
	})
}
