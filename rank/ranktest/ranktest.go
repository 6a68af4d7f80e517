// Package ranktest runs test functions on ranks that are goroutines of the test's
// process, on a plain software device and on devices that misbehave in all the
// ways that the rules of RDMA allow.
//
//	func TestRing(t *testing.T) {
//		ranktest.Each(t, []int{1, 2, 3, 8}, func(ctx context.Context, c *rank.Comm) error {
//			...
//		})
//	}
//
// It owns nothing after a call has returned. A test that hangs is ended by a
// context of [Limit], which fails the ranks that wait and says what they waited
// for.
package ranktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

// Limit is how long the ranks of one run may take.
const Limit = time.Minute

// Seeds are the adversaries that Each runs besides the plain device.
var seeds = [...]uint64{1, 2}

// Run runs f on n ranks and fails the test when one of them fails.
func Run(t testing.TB, n int, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	RunSeed(t, n, 0, f)
}

// RunSeed is Run on a device that misbehaves as a function of seed; 0 is a plain
// device.
func RunSeed(t testing.TB, n int, seed uint64, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	if err := (rank.RunConfig{Seed: seed}).Run(ctx, n, f); err != nil {
		t.Fatalf("%d ranks, seed %d: %v", n, seed, err)
	}
}

// Each runs f on each number of ranks, on a plain device and on adversaries, as
// subtests.
func Each(t *testing.T, sizes []int, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { Run(t, n, f) })
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("n=%d/seed=%d", n, seed), func(t *testing.T) { RunSeed(t, n, seed, f) })
		}
	}
}
