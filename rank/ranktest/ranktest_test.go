package ranktest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestEach(t *testing.T) {
	testenv.NoLeaks(t)
	var ranks atomic.Int32
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		ranks.Add(1)
		sum := []int{0}
		if err := rank.Allreduce(ctx, c, []int{1}, sum, rank.Sum); err != nil {
			return err
		}
		if sum[0] != c.Size() {
			return fmt.Errorf("sum of ones is %d, want %d", sum[0], c.Size())
		}
		return nil
	})
	devices := testenv.Fewer(3, 2)
	if got, want := ranks.Load(), int32(devices*(1+3)); got != want {
		t.Errorf("the function ran on %d ranks, want %d", got, want)
	}
}
