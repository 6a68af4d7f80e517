package rank_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
)

// TestOpOn: an operation on items with a gap, which is the lower rank's where it is not commutative.
func TestOpOn(t *testing.T) {
	item := must(rank.Resized(must(rank.Hvector(2, 1, 8, rank.TypeInt32)), 0, 16))
	first, err := rank.OpOn("first", false, item, func(dst, a, _ []byte) { copy(dst, a) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rank.OpOn("bad", true, must(rank.Hindexed([]int{1}, []int{-4}, rank.TypeInt32)), nil); rank.ClassOf(err) != rank.ClassType {
		t.Errorf("items before their origin: %v, want %v", err, rank.ClassType)
	}
	err = rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		in, out := make([]int32, 8), make([]int32, 8)
		for i := range in {
			in[i] = int32(10*c.Rank() + i)
		}
		if err := c.Allreduce(ctx, rank.Typed(in, 2, item), rank.Typed(out, 2, item), first); err != nil {
			return err
		}
		if out[0] != 0 || out[2] != 2 || out[4] != 4 || out[6] != 6 {
			return fmt.Errorf("got %v, want rank 0's 0, 2, 4 and 6", out)
		}
		err := c.Allreduce(ctx, rank.Of(in), rank.Of(out), first)
		if rank.ClassOf(err) != rank.ClassOp {
			return fmt.Errorf("another type: %w, want %v", err, rank.ClassOp)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
