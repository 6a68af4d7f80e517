package rank_test

import (
	"context"

	"github.com/gorun-mpi/gorun/rank"
)

// What each reduction should do.

// folded combines n items of some ranks, in their order, from an item on.
func (k *kit) folded(o operation, ids []int, from, n, round int) []value {
	list := make([]value, n)
	for i := range list {
		list[i] = k.keep(valueOf(ids[0], 0, from+i, round))
		for _, id := range ids[1:] {
			list[i] = k.keep(o.combine(list[i], k.keep(valueOf(id, 0, from+i, round))))
		}
	}
	return list
}

func (k *kit) reductions(o operation) {
	for _, here := range []bool{false, true} {
		if here && k.IsInter() {
			break
		}
		k.reduce(o, here)
		k.allreduce(o, here)
		k.reduceScatterBlock(o, here)
		k.reduceScatter(o, here)
		if !k.IsInter() {
			k.scan(o, here)
			k.exscan(o, here)
		}
	}
}

func (k *kit) reduce(o operation, here bool) {
	c, r, op, n := k.Comm, k.rooted(), o.op, k.k
	in, send, input := k.contribution(n, here && r.root || k.IsInter() && (r.root || r.bystander))
	var out *vec
	var before, after func(int) []value
	if r.root {
		out = k.vec(n)
		before = k.beforehand(n, here)
		after = func(round int) []value { return k.folded(o, k.far, 0, n, round) }
	}
	recv, ss, rs := bufOf(out), wordsOf(in), wordsOf(out)
	k.add(suffix("reduce", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Reduce(ctx, send, recv, op, r.arg) },
			func() (rank.Request, error) { return c.Ireduce(send, recv, op, r.arg) },
			func() (rank.Request, error) { return c.ReduceInit(send, recv, op, r.arg) }},
		calls{func(ctx context.Context) error { return rank.Reduce(ctx, c, ss, rs, op, r.arg) },
			func() (rank.Request, error) { return rank.Ireduce(c, ss, rs, op, r.arg) },
			func() (rank.Request, error) { return rank.ReduceInit(c, ss, rs, op, r.arg) }})...)
}

// beforehand is what an output of n items holds: the input, in place.
func (k *kit) beforehand(n int, here bool) func(int) []value {
	if here {
		return func(round int) []value { return k.values(k.id, 0, n, round) }
	}
	return func(int) []value { return k.junk(n) }
}

// everywhere are the operands of a reduction that all get something of.
func (k *kit) everywhere(sent, received int, here bool) (in, out *vec, send rank.Buffer, input, before func(int) []value) {
	in, send, input = k.contribution(sent, here)
	if here {
		received = sent
	}
	return in, k.vec(received), send, input, k.beforehand(received, here)
}

func (k *kit) allreduce(o operation, here bool) {
	c, op, n := k.Comm, o.op, k.k
	in, out, send, input, before := k.everywhere(n, n, here)
	after := func(round int) []value { return k.folded(o, k.far, 0, n, round) }
	recv, ss, rs := out.buf, wordsOf(in), out.words
	k.add(suffix("allreduce", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Allreduce(ctx, send, recv, op) },
			func() (rank.Request, error) { return c.Iallreduce(send, recv, op) },
			func() (rank.Request, error) { return c.AllreduceInit(send, recv, op) }},
		calls{func(ctx context.Context) error { return rank.Allreduce(ctx, c, ss, rs, op) },
			func() (rank.Request, error) { return rank.Iallreduce(c, ss, rs, op) },
			func() (rank.Request, error) { return rank.AllreduceInit(c, ss, rs, op) }})...)
}

// cutOff is the part of a rank of the reduced vector, and what in place leaves of
// the rest.
func (k *kit) cutOff(o operation, here bool, total, from, n int) func(int) []value {
	return func(round int) []value {
		mine := k.folded(o, k.far, from, n, round)
		if here {
			return append(mine, k.values(k.id, 0, total, round)[n:]...)
		}
		return mine
	}
}

func (k *kit) reduceScatterBlock(o operation, here bool) {
	c, op, n := k.Comm, o.op, k.k
	if k.IsInter() {
		n *= len(k.far) // so that both groups can cut the same length
	}
	total := n * len(k.place.own)
	in, out, send, input, before := k.everywhere(total, n, here)
	after := k.cutOff(o, here, total, k.Rank()*n, n)
	recv, ss, rs := out.buf, wordsOf(in), out.words
	k.add(suffix("reduce_scatter_block", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.ReduceScatterBlock(ctx, send, recv, op) },
			func() (rank.Request, error) { return c.IreduceScatterBlock(send, recv, op) },
			func() (rank.Request, error) { return c.ReduceScatterBlockInit(send, recv, op) }},
		calls{func(ctx context.Context) error { return rank.ReduceScatterBlock(ctx, c, ss, rs, op) },
			func() (rank.Request, error) { return rank.IreduceScatterBlock(c, ss, rs, op) },
			func() (rank.Request, error) { return rank.ReduceScatterBlockInit(c, ss, rs, op) }})...)
}

func (k *kit) reduceScatter(o operation, here bool) {
	c, op := k.Comm, o.op
	own := k.place.own
	counts := k.lengths(own)
	if k.IsInter() {
		// The same length in both groups, most of it the first rank's.
		counts = make([]int, len(own))
		counts[len(own)-1] = k.k / 2
		counts[0] += k.k - k.k/2
	}
	total, from := 0, 0
	for r, n := range counts {
		if r < k.Rank() {
			from += n
		}
		total += n
	}
	n := counts[k.Rank()]
	in, out, send, input, before := k.everywhere(total, n, here)
	after := k.cutOff(o, here, total, from, n)
	recv, ss, rs := out.buf, wordsOf(in), out.words
	k.add(suffix("reduce_scatter", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.ReduceScatter(ctx, send, recv, counts, op) },
			func() (rank.Request, error) { return c.IreduceScatter(send, recv, counts, op) },
			func() (rank.Request, error) { return c.ReduceScatterInit(send, recv, counts, op) }},
		calls{func(ctx context.Context) error { return rank.ReduceScatter(ctx, c, ss, rs, counts, op) },
			func() (rank.Request, error) { return rank.IreduceScatter(c, ss, rs, counts, op) },
			func() (rank.Request, error) { return rank.ReduceScatterInit(c, ss, rs, counts, op) }})...)
}

func (k *kit) scan(o operation, here bool) {
	c, op, n := k.Comm, o.op, k.k
	in, out, send, input, before := k.everywhere(n, n, here)
	after := func(round int) []value { return k.folded(o, k.far[:k.Rank()+1], 0, n, round) }
	recv, ss, rs := out.buf, wordsOf(in), out.words
	k.add(suffix("scan", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Scan(ctx, send, recv, op) },
			func() (rank.Request, error) { return c.Iscan(send, recv, op) },
			func() (rank.Request, error) { return c.ScanInit(send, recv, op) }},
		calls{func(ctx context.Context) error { return rank.Scan(ctx, c, ss, rs, op) },
			func() (rank.Request, error) { return rank.Iscan(c, ss, rs, op) },
			func() (rank.Request, error) { return rank.ScanInit(c, ss, rs, op) }})...)
}

func (k *kit) exscan(o operation, here bool) {
	c, op, n := k.Comm, o.op, k.k
	in, out, send, input, before := k.everywhere(n, n, here)
	after := before // of rank 0
	if k.Rank() > 0 {
		after = func(round int) []value { return k.folded(o, k.far[:k.Rank()], 0, n, round) }
	}
	recv, ss, rs := out.buf, wordsOf(in), out.words
	k.add(suffix("exscan", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Exscan(ctx, send, recv, op) },
			func() (rank.Request, error) { return c.Iexscan(send, recv, op) },
			func() (rank.Request, error) { return c.ExscanInit(send, recv, op) }},
		calls{func(ctx context.Context) error { return rank.Exscan(ctx, c, ss, rs, op) },
			func() (rank.Request, error) { return rank.Iexscan(c, ss, rs, op) },
			func() (rank.Request, error) { return rank.ExscanInit(c, ss, rs, op) }})...)
}
