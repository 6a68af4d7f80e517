//go:build !race

package rank_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// In steady state no collective allocates in any form: the calls of the suite, with
// data that lies as it travels and data that has to be packed.
func TestSuiteAllocatesNothing(t *testing.T) {
	testenv.NoLeaks(t)
	for _, count := range []int{1, large} {
		t.Run(fmt.Sprintf("%d items", count), func(t *testing.T) {
			ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
				rnd := rand.New(rand.NewPCG(7, 7))
				inter, err := between(ctx, c, 1)
				if err != nil {
					return err
				}
				near, err := graph(ctx, c, rnd)
				if err != nil {
					return err
				}
				for _, p := range []*place{intra("world", c), inter, near} {
					for i, l := range []layout{word, gaps, structs} {
						k := newKit(p, l, count, uint64(i))
						k.movements()
						if err := k.allocations(ctx, t); err != nil {
							return err
						}
					}
					for i, l := range numerics {
						if count == large && i%2 == 1 {
							continue
						}
						k := newKit(p, l.layout, count, uint64(i))
						k.reductions(l.operation)
						if err := k.allocations(ctx, t); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// allocations counts them in each form of each trial.
func (k *kit) allocations(ctx context.Context, t *testing.T) error {
	if k.err != nil {
		return k.err
	}
	warm, runs := 20, 20
	if k.k == large {
		warm, runs = 6, 6
	}
	reqs := make([]rank.Request, 2)
	for _, trial := range k.trials {
		trial.fill(0)
		for i, form := range trial.calls {
			kept, err := form.init()
			if err != nil {
				return err
			}
			for _, tt := range []struct {
				name string
				call func() error
			}{
				{"blocking", func() error { return form.run(ctx) }},
				{"started", func() (err error) {
					if reqs[0], err = form.start(); err != nil {
						return err
					}
					if reqs[1], err = form.start(); err != nil {
						return err
					}
					return rank.WaitAll(ctx, reqs, nil)
				}},
				{"persistent", func() error {
					if err := kept.Start(); err != nil {
						return err
					}
					_, err := kept.Wait(ctx)
					return err
				}},
			} {
				for range warm {
					if err := tt.call(); err != nil {
						return fmt.Errorf("%s of %s, %s: %w", tt.name, trial.name, k.place.name(), err)
					}
				}
				world, got := k.World().Comm(), 0.0
				// A rank that only sends may be ahead of the others by all its warm calls.
				if err := rank.Barrier(ctx, world); err != nil {
					return err
				}
				var failed error
				if world.Rank() == 0 {
					got = testing.AllocsPerRun(runs, func() {
						if failed == nil {
							failed = tt.call()
						}
					})
				} else {
					for i := 0; i < runs+1 && failed == nil; i++ {
						failed = tt.call()
					}
				}
				if failed == nil { // rank 1's allocations count too, so it stays
					failed = rank.Barrier(ctx, world)
				}
				if failed != nil {
					return failed
				}
				if got != 0 {
					t.Errorf("%s: %s of %s, form %d, %s: %v allocations a call, want 0", k.place.name(), tt.name, trial.name, i, k.layout.name, got)
				}
			}
			if err := kept.Free(); err != nil {
				return err
			}
		}
	}
	return nil
}
