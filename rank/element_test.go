package rank_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

type particle struct {
	ID       int32
	Position [3]float64
	Alive    bool
}

type named struct {
	ID   int32
	Tags [2]struct{ Text string }
}

// What holds a pointer is refused before anything moves, with the path to it.
func TestElementsWithPointersAreRefused(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) error {
		for range 2 { // found, and remembered
			for _, tt := range []struct {
				want string
				err  error
			}{
				{"Tags[0].Text is a string", rank.Send(ctx, c, []named{{}}, 0, 0)},
				{"[]uint8", rank.Send(ctx, c, [][]byte{{}}, 0, 0)},
				{"*int", rank.Bcast(ctx, c, []*int{nil}, 0)},
				{"map[int]int", rank.Bcast(ctx, c, []struct{ M map[int]int }{{}}, 0)},
				{"chan int", rank.Bcast(ctx, c, []chan int{nil}, 0)},
				{"func()", rank.Bcast(ctx, c, []func(){nil}, 0)},
				{"interface", rank.Bcast(ctx, c, []any{nil}, 0)},
				{"have size 0", rank.Bcast(ctx, c, []struct{}{{}}, 0)},
			} {
				if !errors.Is(tt.err, rank.ErrArgument) || !strings.Contains(tt.err.Error(), tt.want) {
					return fmt.Errorf("error %v, want one that says %q", tt.err, tt.want)
				}
			}
			if _, err := rank.Alloc[named](c, 1); !errors.Is(err, rank.ErrArgument) {
				return fmt.Errorf("alloc: %v", err)
			}
		}
		return nil
	})
}
