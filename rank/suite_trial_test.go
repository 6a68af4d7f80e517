package rank_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rank"
)

// A trial is one collective on one communicator, with what its operands hold before
// and after, by round.
type trial struct {
	name string
	in   []*vec // are as they were afterwards
	out  []*vec // may hold input too

	input, before, after func(round int) [][]value
	calls                []calls // the method and, for slices, the function
}

// calls are the forms of a collective.
type calls struct {
	run   func(context.Context) error
	start func() (rank.Request, error)
	init  func() (rank.Request, error)
}

func (t *trial) fill(round int) {
	put := func(vecs []*vec, contents [][]value) {
		for j, v := range vecs {
			for i, x := range contents[j] {
				v.set(i, x)
			}
		}
	}
	put(t.out, t.before(round))
	put(t.in, t.input(round))
}

func (t *trial) check(round int) error {
	compare := func(what string, vecs []*vec, contents [][]value) error {
		for j, v := range vecs {
			for i, want := range contents[j] {
				if got := v.get(i); got != want {
					return fmt.Errorf("%s, round %d: item %d of %d of %s operand %d is %x, want %x", t.name, round, i, len(contents[j]), what, j, got, want)
				}
			}
			if v.gaps != nil {
				if err := v.gaps(); err != nil {
					return fmt.Errorf("%s, round %d: %s operand %d: %w", t.name, round, what, j, err)
				}
			}
		}
		return nil
	}
	if err := compare("receive", t.out, t.after(round)); err != nil {
		return err
	}
	return compare("send", t.in, t.input(round))
}

// A kit makes the trials of a communicator with one layout and one length of
// blocks. shared gives the same numbers on all its ranks.
type kit struct {
	*place
	layout
	k           int // items of a block
	shared, own *rand.Rand
	trials      []*trial
	err         error
}

// vec is an operand of n items.
func (k *kit) vec(n int) *vec {
	v, err := k.layout.make(k.Comm, n, k.own.IntN(2) == 0)
	if err != nil && k.err == nil {
		k.err = err
	}
	return v
}

// junk is what n items hold that wait for data.
func (k *kit) junk(n int) []value {
	list := make([]value, n)
	for i := range list {
		list[i] = k.keep(valueOf(-7, k.id, i, 0))
	}
	return list
}

// values are n items of rank who for somebody.
func (k *kit) values(who, block, n, round int) []value {
	list := make([]value, n)
	for i := range list {
		list[i] = k.keep(valueOf(who, block, i, round))
	}
	return list
}

// blocks are where the blocks of an operand are.
type blocks struct {
	counts, displs []int // displs nil: one behind the other
	total          int   // items of the operand
}

func (b blocks) at(i int) int {
	if b.displs != nil {
		return b.displs[i]
	}
	at := 0
	for _, n := range b.counts[:i] {
		at += n
	}
	return at
}

// spread places blocks in the operand: in order, or in any order with room between.
func (k *kit) spread(counts []int) blocks {
	b := blocks{counts: counts}
	if k.own.IntN(2) == 0 {
		for _, n := range counts {
			b.total += n
		}
		return b
	}
	b.displs = make([]int, len(counts))
	for _, i := range k.own.Perm(len(counts)) {
		b.total += k.own.IntN(3)
		b.displs[i] = b.total
		b.total += counts[i]
	}
	b.total += k.own.IntN(2)
	return b
}

// equal are n blocks of the kit's length.
func (k *kit) equal(n int) blocks {
	b := blocks{counts: make([]int, n), total: n * k.k}
	for i := range b.counts {
		b.counts[i] = k.k
	}
	return b
}

// fillBlocks is junk with blocks of values in it, where of says which; those it has
// none of stay.
func (k *kit) fillBlocks(b blocks, round int, of func(i int) (who, block int, there bool)) []value {
	list := k.junk(b.total)
	for i, n := range b.counts {
		if who, block, there := of(i); there {
			copy(list[b.at(i):], k.values(who, block, n, round))
		}
	}
	return list
}

// length is how much rank who gives in the v forms, to or from one or all.
func (k *kit) length(a, b int) int {
	if k.k == 0 {
		return 0
	}
	return max(0, k.k+(a+b)%4-2)
}

// all is what each of a list gives all.
func (k *kit) lengths(ids []int) []int {
	list := make([]int, len(ids))
	for i, id := range ids {
		list[i] = k.length(id, 0)
	}
	return list
}

// add makes a trial. The contents of operands that are nil are not asked for.
func (k *kit) add(name string, in, out *vec, input, before, after func(round int) []value, forms ...calls) {
	t := &trial{name: name, calls: forms}
	one := func(f func(int) []value) func(int) [][]value {
		return func(round int) [][]value {
			if f == nil {
				return nil
			}
			return [][]value{f(round)}
		}
	}
	if in != nil {
		t.in = []*vec{in}
	}
	if out != nil {
		t.out = []*vec{out}
	}
	t.input, t.before, t.after = one(input), one(before), one(after)
	k.trials = append(k.trials, t)
}

// A rooted is the rank's part in a rooted collective.
type rooted struct {
	arg       int // what it gives as root
	root      bool
	bystander bool // of the root's group, between groups
	id        int  // the root's
}

func (k *kit) rooted() rooted {
	if !k.IsInter() {
		r := k.shared.IntN(len(k.place.own))
		return rooted{arg: r, root: r == k.Rank(), id: k.place.own[r]}
	}
	first := k.place.own[0] == 0 // this is the first group
	here := k.shared.IntN(2) == 0 == first
	x := k.shared.IntN(1 << 20)
	if !here {
		r := x % len(k.far)
		return rooted{arg: r, id: k.far[r]}
	}
	r := x % len(k.place.own)
	switch {
	case r == k.Rank():
		return rooted{arg: rank.Root, root: true, id: k.id}
	default:
		return rooted{arg: rank.ProcNull, bystander: true, id: k.place.own[r]}
	}
}
