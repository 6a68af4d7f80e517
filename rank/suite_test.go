package rank_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// The suite: every collective in every form on every kind of communicator, with
// operands of many layouts and lengths, against a model that knows what each rank
// has and says what all should get.

// A dose is how much of the suite is run.
type dose struct {
	layouts  []layout
	numerics []numeric
	counts   []int // items of a block
	whole    bool  // the first layout has all lengths; otherwise each has one
}

// large needs a descriptor in all layouts.
const large = 2101

// doseOf is all of the suite for few ranks, and a part of it, another one for each
// number, for many.
func doseOf(n int) dose {
	switch {
	case n <= 3 && !testing.Short():
		return dose{layouts, numerics, []int{0, 1, 7, large}, n == 2}
	case n <= 5 && !testing.Short():
		return dose{[]layout{word, layouts[1+n%5]}, []numeric{numerics[n%7], numerics[(n+4)%7]}, []int{3, 1, 200, large}, false}
	case n <= 8:
		return dose{[]layout{layouts[n%6]}, []numeric{numerics[n%7]}, []int{3, 200}, false}
	}
	return dose{[]layout{layouts[n%6]}, []numeric{numerics[n%7]}, []int{5}, false}
}

// leaves tells whether the layout i is not tried with the length j on kind at of
// communicators.
func (d dose) leaves(i, j, at int) bool {
	return (i > 0 || !d.whole) && (at+i)%len(d.counts) != j
}

// suite runs a dose on all communicators that the rank is in.
func suite(d dose, seed uint64) func(ctx context.Context, c *rank.Comm) error {
	return func(ctx context.Context, c *rank.Comm) error {
		all, err := places(ctx, c, rand.New(rand.NewPCG(seed, uint64(c.Size()))))
		if err != nil {
			return err
		}
		for _, p := range all {
			at := slices.Index(kinds, p.kind) // the same on all its ranks
			for j, count := range d.counts {
				for i, l := range d.layouts {
					if d.leaves(i, j, at) {
						continue
					}
					k := newKit(p, l, count, seed+uint64(i))
					k.movements()
					if err := k.try(ctx); err != nil {
						return fmt.Errorf("%s, %d items, %s: %w", p.name(), count, l.name, err)
					}
				}
				for i, l := range d.numerics {
					if d.leaves(i, j, at) {
						continue
					}
					k := newKit(p, l.layout, count, seed+100+uint64(i))
					k.reductions(l.operation)
					if err := k.try(ctx); err != nil {
						return fmt.Errorf("%s, %v of %d items, %s: %w", p.name(), l.op, count, l.name, err)
					}
				}
			}
			if at > 1 { // not the world's own
				if err := p.Free(ctx); err != nil {
					return fmt.Errorf("%s: %w", p.name(), err)
				}
			}
		}
		return nil
	}
}

func newKit(p *place, l layout, count int, seed uint64) *kit {
	return &kit{place: p, layout: l, k: count,
		shared: rand.New(rand.NewPCG(seed, uint64(count))), own: rand.New(rand.NewPCG(seed, uint64(1000*count+p.id)))}
}

// try makes all trials of a kit in all forms.
func (k *kit) try(ctx context.Context) error {
	if k.err != nil {
		return k.err
	}
	round := 0
	for _, t := range k.trials {
		for _, form := range t.calls {
			round++
			t.fill(round)
			if err := form.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if err := t.check(round); err != nil {
				return err
			}
		}
	}
	if err := k.tryStarted(ctx, round+1); err != nil {
		return fmt.Errorf("started: %w", err)
	}
	if err := k.tryPersistent(ctx, round+2); err != nil {
		return fmt.Errorf("persistent: %w", err)
	}
	return nil
}

// tryStarted has all trials under way at once, in one order on all ranks, with a
// blocking call among them.
func (k *kit) tryStarted(ctx context.Context, round int) error {
	reqs := make([]rank.Request, len(k.trials))
	blocking := k.shared.IntN(len(k.trials))
	for _, i := range k.shared.Perm(len(k.trials)) {
		t := k.trials[i]
		form := t.calls[k.shared.IntN(len(t.calls))]
		t.fill(round)
		var err error
		if i == blocking {
			err = form.run(ctx)
		} else {
			reqs[i], err = form.start()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if err := k.await(ctx, reqs); err != nil {
		return err
	}
	return k.checkAll(round)
}

// tryPersistent starts all trials three times, in another order each time.
func (k *kit) tryPersistent(ctx context.Context, round int) error {
	reqs := make([]rank.Request, len(k.trials))
	for i, t := range k.trials {
		var err error
		if reqs[i], err = t.calls[k.shared.IntN(len(t.calls))].init(); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	for range 3 {
		round++
		for _, i := range k.shared.Perm(len(reqs)) {
			k.trials[i].fill(round)
			if err := reqs[i].Start(); err != nil {
				return fmt.Errorf("start %s: %w", k.trials[i].name, err)
			}
		}
		if err := k.await(ctx, reqs); err != nil {
			return err
		}
		if err := k.checkAll(round); err != nil {
			return err
		}
	}
	for _, q := range reqs {
		if err := q.Free(); err != nil {
			return err
		}
	}
	return nil
}

func (k *kit) checkAll(round int) error {
	for _, t := range k.trials {
		if err := t.check(round); err != nil {
			return err
		}
	}
	return nil
}

// await waits for all requests in one of many ways, another one on each rank.
func (k *kit) await(ctx context.Context, reqs []rank.Request) error {
	switch k.own.IntN(5) {
	case 0:
		return rank.WaitAll(ctx, reqs, nil)
	case 1:
		for {
			i, _, err := rank.WaitAny(ctx, reqs)
			if err != nil || i < 0 {
				return err
			}
		}
	case 2:
		for {
			done, err := rank.TestAll(reqs, nil)
			if done || err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	case 3:
		indices := make([]int, len(reqs))
		for {
			n, err := rank.WaitSome(ctx, reqs, indices, nil)
			if n <= 0 || err != nil {
				return err
			}
		}
	}
	for _, i := range k.own.Perm(len(reqs)) { // the last ones first, maybe
		if _, err := reqs[i].Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestSuite(t *testing.T) {
	testenv.NoLeaks(t)
	for n := 1; n <= 16; n++ {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { ranktest.Run(t, n, suite(doseOf(n), uint64(n))) })
	}
}

// The same on devices that misbehave.
func TestSuiteOnAdversary(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{2, 3, 5} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("n=%d/seed=%d", n, seed+1), func(t *testing.T) {
				d := dose{[]layout{layouts[(n+int(seed))%6]}, []numeric{numerics[(n+3*int(seed))%7]}, []int{3, 1200}, false}
				ranktest.RunSeed(t, n, seed+1, suite(d, seed))
			})
		}
	}
}
