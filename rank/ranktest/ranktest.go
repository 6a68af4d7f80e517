// Package ranktest runs test functions on ranks that are goroutines of the test's process, on a
// plain software device and on devices that misbehave in every way that the rules of RDMA permit.
//
//	func TestRing(t *testing.T) {
//		ranktest.Each(t, []int{1, 2, 3, 8}, func(ctx context.Context, c *rank.Comm) error {
//			...
//		})
//	}
//
// Nothing is left after a call has returned. After [Limit] the contexts of the
// ranks end: the calls that wait return errors that say what they waited for.
package ranktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

// Limit is the maximum time for one run.
const Limit = 5 * time.Minute

// Seeds are the adversaries that Each runs besides the plain device.
var seeds = [...]uint64{1, 2}

// Run runs f on n ranks and fails the test when one of them fails.
func Run(t testing.TB, n int, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	RunSeed(t, n, 0, f)
}

// RunSeed is Run on a device that misbehaves reproducibly, as determined by seed; 0 is a plain device.
func RunSeed(t testing.TB, n int, seed uint64, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	if err := (rank.RunConfig{Seed: seed}).Run(ctx, n, f); err != nil {
		t.Fatalf("%d ranks, seed %d: %v", n, seed, err)
	}
}

// Each runs f as subtests, for each number of ranks, on a plain device and on misbehaving devices, with go test -short on one of
// these.
func Each(t *testing.T, sizes []int, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { Run(t, n, f) })
		for i, seed := range seeds {
			if i > 0 && testing.Short() {
				break
			}
			t.Run(fmt.Sprintf("n=%d/seed=%d", n, seed), func(t *testing.T) { RunSeed(t, n, seed, f) })
		}
	}
}
