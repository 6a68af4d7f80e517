package rank_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// The arithmetic itself is tested in internal/group; here stands what groups of
// communicators add.
func TestGroups(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 5, func(ctx context.Context, c *rank.Comm) error {
		all := c.Group()
		if all.Size() != 5 || all.Rank() != c.Rank() || all.Compare(c.World().Group()) != rank.Ident {
			return fmt.Errorf("the world's group has %d members and rank %d", all.Size(), all.Rank())
		}
		backwards, err := all.RangeIncl([]rank.Range{{First: 4, Last: 0, Stride: -1}})
		if err != nil {
			return err
		}
		if got := backwards.Compare(all); got != rank.Similar || backwards.Rank() != 4-c.Rank() {
			return fmt.Errorf("backwards: %v, rank %d; want %v, rank %d", got, backwards.Rank(), rank.Similar, 4-c.Rank())
		}
		odd, err := all.Incl([]int{3, 1})
		if err != nil {
			return err
		}
		even := all.Difference(odd)
		want := rank.Undefined
		if i := slices.Index([]int{0, 2, 4}, c.Rank()); i >= 0 {
			want = i
		}
		if even.Size() != 3 || even.Rank() != want || even.Compare(odd) != rank.Unequal {
			return fmt.Errorf("even ranks: %d, rank %d, want rank %d", even.Size(), even.Rank(), want)
		}
		to, err := backwards.Translate([]int{0, rank.ProcNull, 1, 4}, odd)
		if err != nil {
			return err
		}
		if want := []int{rank.Undefined, rank.ProcNull, 0, rank.Undefined}; !slices.Equal(to, want) {
			return fmt.Errorf("translated to %v, want %v", to, want)
		}
		if _, err := rank.Irecv(c, []int{0}, to[0], 0); !errors.Is(err, rank.ClassRank) {
			return fmt.Errorf("a receive from rank %d, which is undefined: %v", to[0], err)
		}
		if g := odd.Union(even); g.Compare(all) != rank.Similar || g.Intersection(odd).Compare(odd) != rank.Ident {
			return fmt.Errorf("union of odd and even: %v", g)
		}
		var empty rank.Group
		if empty.Size() != 0 || empty.Rank() != rank.Undefined || empty.Union(odd).Rank() != odd.Rank() || odd.Intersection(even).Compare(empty) != rank.Ident {
			return fmt.Errorf("the empty group: %d members, rank %d", empty.Size(), empty.Rank())
		}
		for name, call := range map[string]func() error{
			"incl":       func() error { _, err := odd.Incl([]int{2}); return err },
			"excl":       func() error { _, err := odd.Excl([]int{0, 0}); return err },
			"range_incl": func() error { _, err := all.RangeIncl([]rank.Range{{First: 0, Last: 9, Stride: 3}}); return err },
			"range_excl": func() error { _, err := all.RangeExcl([]rank.Range{{First: 0, Last: 4}}); return err },
			"translate":  func() error { _, err := odd.Translate([]int{2}, all); return err },
		} {
			err := call()
			if e, ok := errors.AsType[*rank.Error](err); !ok || e.Op != "group_"+name || e.Rank != c.Rank() || !errors.Is(err, rank.ClassRank) {
				return fmt.Errorf("%s of bad ranks: %v", name, err)
			}
		}
		return nil
	})
}

func TestCompareCommunicators(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 3, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		r, err := c.Split(ctx, 0, -c.Rank())
		if err != nil {
			return err
		}
		s, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		for _, tt := range []struct {
			a, b *rank.Comm
			want rank.Comparison
		}{{c, c, rank.Ident}, {c, d, rank.Congruent}, {d, r, rank.Similar}, {c, s, rank.Unequal}, {c, nil, rank.Unequal}} {
			if got := rank.Compare(tt.a, tt.b); got != tt.want {
				return fmt.Errorf("%s: %v, want %v", tt.a.Name(), got, tt.want)
			}
		}
		d.SetName("mine")
		if d.Name() != "mine" {
			return fmt.Errorf("the name is %q", d.Name())
		}
		return nil
	})
}
