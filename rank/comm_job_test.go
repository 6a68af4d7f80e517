package rank_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// testUniverse is what the launcher of test jobs says of the job's size.
const testUniverse = 50

func init() {
	programs["split by host"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			if n, known, err := c.World().UniverseSize(ctx); err != nil || !known || n != testUniverse {
				return fmt.Errorf("universe of %d, %v, %v", n, known, err)
			}
			if n, known, err := c.World().AppNum(ctx); err != nil || !known || n != 0 {
				return fmt.Errorf("program %d, %v, %v", n, known, err)
			}
			// Backwards, so that ranks of a host do not stand together.
			r, err := c.Split(ctx, 0, c.Rank()%2*100-c.Rank())
			if err != nil {
				return err
			}
			shared, err := r.SplitType(ctx, rank.TypeShared, 0)
			if err != nil {
				return err
			}
			host, err := r.SplitType(ctx, rank.TypeHost, 0)
			if err != nil {
				return err
			}
			if got := rank.Compare(shared, host); got != rank.Congruent {
				return fmt.Errorf("by memory and by name: %v", got)
			}
			// The first rank of each host.
			color := rank.Undefined
			if shared.Rank() == 0 {
				color = 0
			}
			leaders, err := c.Split(ctx, color, 0)
			if err != nil {
				return err
			}
			if (leaders != nil) != (shared.Rank() == 0) {
				return fmt.Errorf("rank %d of its host: %v", shared.Rank(), leaders)
			}
			fmt.Printf("%d:%v ", c.Rank(), members(shared))
			return nil
		})
	}
}

func TestSplitByHost(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "split by host", hosts: []int{3, 1, 2}}
	j.start(t)
	// Even ranks first, each from the highest on.
	if got, want := j.done(t), "0:[2 0 1] 1:[2 0 1] 2:[2 0 1] 3:[3] 4:[4 5] 5:[4 5] "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
