package rank

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The second call with the same counts is remembered, by each rank for itself: when the root's counts change
// and with them one rank's, only these two make the whole call.
func TestVFormIsRememberedByEachRank(t *testing.T) {
	testenv.NoLeaks(t)
	const n = 4
	if err := Run(n, func(ctx context.Context, c *Comm) error {
		me := c.Rank()
		counts := []int{1, 2, 3, 4}
		call := func(remembered bool) error {
			send, recv := make([]int64, counts[me]), make([]int64, 20)
			for i := range send {
				send[i] = int64(10*me + i)
			}
			var s spread
			spreadOfSlices(&s, send, recv, 0)
			done, err := c.againGatherv(ctx, &s, counts, nil)
			if err == nil && !done {
				err = Gatherv(ctx, c, send, recv, counts, nil, 0)
			}
			if err != nil {
				return err
			}
			if done != remembered {
				return fmt.Errorf("counts %v: it is remembered: %v, want %v", counts, done, remembered)
			}
			for r, at := 0, 0; r < n && me == 0; r++ {
				for i := range counts[r] {
					if recv[at] != int64(10*r+i) {
						return fmt.Errorf("counts %v: got %v", counts, recv)
					}
					at++
				}
			}
			return nil
		}
		for _, remembered := range []bool{false, false, true, true} {
			if err := call(remembered); err != nil {
				return err
			}
		}
		for _, remembered := range []bool{false, false, true} {
			counts[2] = 5
			if err := call(remembered || me == 1 || me == 3); err != nil {
				return err
			}
		}
		counts[2] = 3 // as before
		return call(true)
	}); err != nil {
		t.Error(err)
	}
}

// Layouts in turn, more than are kept, do not drive each other out: half of the calls at least are short ones.
func TestVFormsInTurnStayRemembered(t *testing.T) {
	testenv.NoLeaks(t)
	if err := Run(1, func(ctx context.Context, c *Comm) error {
		const rounds, kept = 50, len(spreadHabits{}.of)
		send, recv := make([]byte, 2*kept), make([]byte, 2*kept)
		for _, layouts := range []int{1, kept, kept + kept/2} {
			short := 0
			for range rounds {
				for i := range layouts {
					counts := []int{i}
					var s spread
					spreadOfSlices(&s, send[:i], recv, 0)
					done, err := c.againAllgatherv(ctx, &s, counts, nil)
					if err == nil && !done {
						err = Allgatherv(ctx, c, send[:i], recv, counts, nil)
					}
					if err != nil {
						return err
					}
					if done {
						short++
					}
				}
			}
			if short < rounds*layouts/2 {
				t.Errorf("%d layouts in turn: %d of %d calls were short", layouts, short, rounds*layouts)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
