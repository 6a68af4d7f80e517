package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// v forms with few layouts, so that most calls repeat one before them, and of which now and then one rank's
// count changes: every rank gets what all give now, and no other element of its memory.
func TestVFormsThatAreRemembered(t *testing.T) {
	testenv.NoLeaks(t)
	const calls, layouts, most = 400, 12, 5
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		rnd := rand.New(rand.NewPCG(1, 2)) // the same in all ranks
		me, n := c.Rank(), c.Size()
		// counts[i][j] is what rank i sends rank j in an alltoallv, and counts[0][j] rank j's in the others.
		var counts [layouts][][]int
		for i := range counts {
			for range n {
				row := make([]int, n)
				for j := range row {
					row[j] = rnd.IntN(most)
				}
				counts[i] = append(counts[i], row)
			}
		}
		spread := func(counts []int, gap int) (displs []int, length int) {
			for _, k := range counts {
				displs = append(displs, length)
				length += k + gap
			}
			return displs, length
		}
		for call := range calls {
			l := rnd.IntN(3) // often these
			if rnd.IntN(4) == 0 {
				l = rnd.IntN(layouts)
			}
			if rnd.IntN(20) == 0 {
				counts[l][0][rnd.IntN(n)] = rnd.IntN(most)
			}
			form, root, gap, here := rnd.IntN(4), rnd.IntN(n), rnd.IntN(2), rnd.IntN(3) == 0
			value := func(from, to, k int) int32 { return int32(call<<16 | from<<12 | to<<8 | k) }
			mine, row := make([]int, n), counts[l][0]
			for j := range mine {
				mine[j] = counts[l][j][me]
			}
			if form == 3 { // alltoallv
				row = counts[l][me]
			} else {
				mine = row
			}
			at, length := spread(row, gap)
			from, incoming := spread(mine, gap)
			displs, fromDispls := at, from
			if gap == 0 && rnd.IntN(2) == 0 {
				displs, fromDispls = nil, nil
			}
			fill := func(s []int32) []int32 {
				for i := range s {
					s[i] = -1
				}
				return s
			}
			block := make([]int32, row[me])
			for k := range block {
				block[k] = value(me, 0, k)
			}
			all := func(me int) []int32 { // blocks of all, or for all
				s := fill(make([]int32, length))
				for r := range n {
					for k := range row[r] {
						s[at[r]+k] = value(r, 0, k)
					}
				}
				return s
			}
			var got, want []int32
			var err error
			switch form {
			case 0:
				got, want = fill(make([]int32, length)), fill(make([]int32, length))
				if me == root {
					want = all(me)
				} else if call%2 == 0 {
					displs = nil // ignored, as are the counts
				}
				if here && me == root {
					copy(got[at[me]:], block)
					block = nil
				}
				err = rank.Gatherv(ctx, c, block, got, row, displs, root)
			case 1:
				got, want = fill(make([]int32, row[me])), block
				if here && me == root {
					got, want = nil, nil
				}
				err = rank.Scatterv(ctx, c, all(me), row, displs, got, root)
			case 2:
				got, want = fill(make([]int32, length)), all(me)
				if here {
					copy(got[at[me]:], block)
					block = nil
				}
				if call%3 == 0 {
					err = c.Allgatherv(ctx, rank.Of(block), rank.Of(got), row, displs)
				} else {
					err = rank.Allgatherv(ctx, c, block, got, row, displs)
				}
			case 3:
				send := make([]int32, length)
				for r := range n {
					for k := range row[r] {
						send[at[r]+k] = value(me, r, k)
					}
				}
				got, want = fill(make([]int32, incoming)), fill(make([]int32, incoming))
				for r := range n {
					for k := range mine[r] {
						want[from[r]+k] = value(r, me, k)
					}
				}
				err = rank.Alltoallv(ctx, c, send, row, displs, got, mine, fromDispls)
			}
			if err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("call %d, form %d, root %d, counts %v: got %v, %v, want %v", call, form, root, row, got, err, want)
			}
		}
		return nil
	})
}

// Mistakes are found after calls that were right and are remembered: the caller's own before anything moves.
func TestMistakesInVFormsThatAreRemembered(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		in, out, counts, at := make([]int16, 4), make([]int16, 4), []int{2, 2}, []int{0, 2}
		for range 4 {
			if err := errors.Join(rank.Allgatherv(ctx, c, in[:2], out, counts, at), rank.Allgatherv(ctx, c, in[:2], out, counts, nil),
				rank.Alltoallv(ctx, c, in, counts, at, out, counts, at), rank.Scatterv(ctx, c, in, counts, at, out[:2], 0),
				rank.Gatherv(ctx, c, in[:2], out, counts, at, 0)); err != nil {
				return err
			}
		}
		for _, m := range []struct {
			name string
			err  error
		}{
			{"blocks that overlap", rank.Allgatherv(ctx, c, in[:2], out, counts, []int{0, 1})},
			{"a block out of memory", rank.Allgatherv(ctx, c, in[:2], out, counts, []int{0, 3})},
			{"displacements that are none", rank.Allgatherv(ctx, c, in[:2], out, counts, []int{})},
			{"too few counts", rank.Allgatherv(ctx, c, in[:2], out, counts[:1], at)},
			{"no counts", rank.Allgatherv(ctx, c, in[:2], out, nil, at)},
			{"another length than one's own count", rank.Allgatherv(ctx, c, in[:1], out, counts, at)},
			{"operands that overlap", rank.Alltoallv(ctx, c, out[:4], counts, at, out[:4:4], counts, at)},
			{"another root", rank.Scatterv(ctx, c, in, counts, at, out[:2], 2)},
			{"no communicator", rank.Gatherv(ctx, nil, in[:2], out, counts, at, 0)},
		} {
			if !errors.Is(m.err, rank.ErrArgument) {
				return fmt.Errorf("%s: got %v, want %v", m.name, m.err, rank.ErrArgument)
			}
		}
		return rank.Gatherv(ctx, c, in[:2], out, counts, at, 0)
	})
}

// A rank that goes on as before finds out that another one does not.
func TestVFormsThatAreRememberedMismatch(t *testing.T) {
	testenv.NoLeaks(t)
	var err error // rank 0's
	ended := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		in, out, counts := make([]int16, 2), make([]int16, 4), []int{2, 2}
		for range 5 {
			if err := rank.Gatherv(ctx, c, in, out, counts, nil, 0); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			return rank.Gatherv(ctx, c, in[:1], out, counts, nil, 0)
		}
		err = rank.Gatherv(ctx, c, in, out, counts, nil, 0)
		return err
	})
	if !errors.Is(err, coll.ErrMismatch) {
		t.Errorf("a block of 2 items that is 1: %v, %v, want %v", err, ended, coll.ErrMismatch)
	}
}
