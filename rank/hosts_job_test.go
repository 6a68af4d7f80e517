package rank_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["two levels"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			// Backwards, odd ones first, so that ranks of a host do not stand together.
			turned, err := c.Split(ctx, 0, c.Rank()%2*100-c.Rank())
			if err != nil {
				return err
			}
			for _, c := range []*rank.Comm{c, turned} {
				for _, count := range []int{2, 20_000} {
					if err := sumEveryWay(ctx, c, count); err != nil {
						return fmt.Errorf("%s: %w", c.Explain(coll.AllReduce, 8*count), err)
					}
				}
				if err := tellFromAll(ctx, c); err != nil {
					return fmt.Errorf("%s: %w", c.Explain(coll.Bcast, 8), err)
				}
			}
			alone, err := c.SplitType(ctx, rank.TypeHost, 0)
			if err != nil {
				return err
			}
			fmt.Printf("%s/%s ", algorithmOf(turned), algorithmOf(alone))
			return nil
		})
	}
}

// algorithmOf is that of a short all-reduce.
func algorithmOf(c *rank.Comm) string {
	_, text, _ := strings.Cut(c.Explain(coll.AllReduce, 8), ": ")
	text, _, _ = strings.Cut(text, ",")
	return text
}

// sumEveryWay sums so many numbers blocking, again, in place, started and persistent.
func sumEveryWay(ctx context.Context, c *rank.Comm, count int) error {
	n := int64(c.Size())
	for k := range int64(4) {
		mine, sum := make([]int64, count), make([]int64, count)
		for i := range mine {
			mine[i] = k + int64(c.Rank()+i)
		}
		check := func(how string, got []int64) error {
			for i, got := range got {
				if want := n*(k+int64(i)) + n*(n-1)/2; got != want {
					return fmt.Errorf("%s, call %d: element %d of %d is %d, want %d", how, k, i, count, got, want)
				}
			}
			return nil
		}
		if err := rank.Allreduce(ctx, c, mine, sum, rank.Sum); err != nil {
			return err
		}
		if err := check("blocking", sum); err != nil {
			return err
		}
		started, err := rank.Iallreduce(c, mine, sum, rank.Sum)
		if err != nil {
			return err
		}
		if _, err := started.Wait(ctx); err != nil {
			return err
		}
		if err := check("started", sum); err != nil {
			return err
		}
		persistent, err := rank.AllreduceInit(c, mine, sum, rank.Sum)
		if err != nil {
			return err
		}
		for range 2 {
			clear(sum)
			if err := persistent.Start(); err != nil {
				return err
			}
			if _, err := persistent.Wait(ctx); err != nil {
				return err
			}
			if err := check("persistent", sum); err != nil {
				return err
			}
		}
		if err := persistent.Free(); err != nil {
			return err
		}
		if err := rank.Allreduce(ctx, c, nil, mine, rank.Sum); err != nil {
			return err
		}
		if err := check("in place", mine); err != nil {
			return err
		}
	}
	return nil
}

// tellFromAll has each rank broadcast short and long vectors, behind barriers.
func tellFromAll(ctx context.Context, c *rank.Comm) error {
	for _, n := range []int{1, 3000, 100_000} {
		for root := range c.Size() {
			vector := make([]int64, n)
			if c.Rank() == root {
				for i := range vector {
					vector[i] = int64(root + i)
				}
			}
			if err := rank.Bcast(ctx, c, vector, root); err != nil {
				return err
			}
			for i, got := range vector {
				if got != int64(root+i) {
					return fmt.Errorf("root %d of %d: element %d of %d is %d", root, c.Size(), i, n, got)
				}
			}
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ranks know which of them share a host, in any communicator, and go by it.
func TestTwoLevels(t *testing.T) {
	if arch.RaceEnabled {
		return // see TestProcesses
	}
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		name  string
		hosts []int
		want  string
	}{
		{"uneven", []int{3, 1, 2}, "two-level/direct two-level/direct two-level/direct two-level/direct two-level/direct two-level/direct "},
		{"one a host", []int{1, 1}, "direct/direct direct/direct "},
		{"one host", []int{3}, "direct/direct direct/direct direct/direct "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := &job{program: "two levels", hosts: tt.hosts}
			j.start(t)
			if got := j.done(t); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
