package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestFarmCountsAllPrimes(t *testing.T) {
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		primes, by, err := count(ctx, c, 10000, 20)
		if err != nil || c.Rank() > 0 {
			return err
		}
		done := 0
		for _, n := range by {
			done += n
		}
		if primes != 1229 || done != 20 || c.Size() > 1 && by[0] != 0 {
			return fmt.Errorf("%d primes below 10000 by %v, want 1229 in 20 tasks", primes, by)
		}
		return nil
	})
}
