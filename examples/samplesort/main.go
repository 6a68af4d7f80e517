// Command samplesort sorts numbers that are spread over the ranks. Samples of all
// ranks cut the numbers into a range for each rank, to which they are sent.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {
	rank.Main(func(ctx context.Context, c *rank.Comm) error {
		keys := make([]int64, 1000000)
		random := rand.New(rand.NewPCG(1, uint64(c.Rank())))
		for i := range keys {
			keys[i] = random.Int64()
		}
		sorted, err := sampleSort(ctx, c, keys)
		if err == nil {
			fmt.Printf("rank %d has %d keys\n", c.Rank(), len(sorted))
		}
		return err
	})
}

// sampleSort sorts the keys of all ranks: each rank gets a range of them, in order.
// Each has a key at least, and keys are sorted afterwards.
func sampleSort(ctx context.Context, c *rank.Comm, keys []int64) ([]int64, error) {
	n := c.Size()
	slices.Sort(keys)
	samples := make([]int64, n)
	for i := range samples {
		samples[i] = keys[i*len(keys)/n]
	}
	all := make([]int64, n*n)
	if err := rank.Allgather(ctx, c, samples, all); err != nil {
		return nil, err
	}
	slices.Sort(all)
	// Where the range of each rank begins in keys, and how long it is.
	begins, counts := make([]int, n+1), make([]int, n)
	begins[n] = len(keys)
	for r := 1; r < n; r++ {
		begins[r] = sort.Search(len(keys), func(i int) bool { return keys[i] >= all[r*n] })
	}
	for r := range counts {
		counts[r] = begins[r+1] - begins[r]
	}
	recvCounts, recvBegins := make([]int, n), make([]int, n+1)
	if err := rank.Alltoall(ctx, c, counts, recvCounts); err != nil {
		return nil, err
	}
	for r, count := range recvCounts {
		recvBegins[r+1] = recvBegins[r] + count
	}
	sorted := make([]int64, recvBegins[n])
	err := rank.Alltoallv(ctx, c, keys, counts, begins[:n], sorted, recvCounts, recvBegins[:n])
	slices.Sort(sorted)
	return sorted, err
}
