package rank_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank"
)

func TestExplain(t *testing.T) {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		if got := c.Explain(coll.AllReduce, 8); !strings.HasPrefix(got, "allreduce of 8 bytes on 3 ranks: ") {
			return fmt.Errorf("allreduce: %q", got)
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := d.Free(ctx); err != nil {
			return err
		}
		if got := d.Explain(coll.AllReduce, 8); got != "" {
			return fmt.Errorf("freed: %q", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
