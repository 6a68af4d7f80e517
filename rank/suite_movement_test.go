package rank_test

import (
	"context"

	"github.com/gorun-mpi/gorun/rank"
)

// What each collective that moves data should do.

func bufOf(v *vec) rank.Buffer {
	if v == nil {
		return rank.Buffer{}
	}
	return v.buf
}

func wordsOf(v *vec) []uint32 {
	if v == nil {
		return nil
	}
	return v.words
}

// plain tells whether the functions over slices can take the operands too.
func (k *kit) plain() bool { return k.layout.name == word.name }

func (k *kit) forms(method calls, function calls) []calls {
	if k.plain() {
		return []calls{method, function}
	}
	return []calls{method}
}

func (k *kit) movements() {
	k.barrier()
	k.bcast()
	k.gather(false)
	k.gatherv(false)
	k.scatter(false)
	k.scatterv(false)
	k.allgather(false)
	k.allgatherv(false)
	k.alltoall(false)
	k.alltoallv(false)
	k.alltoallw(false)
	if !k.IsInter() {
		k.gather(true)
		k.gatherv(true)
		k.scatter(true)
		k.scatterv(true)
		k.allgather(true)
		k.allgatherv(true)
		k.alltoall(true)
		k.alltoallv(true)
		k.alltoallw(true)
	}
	if k.in != nil {
		k.neighbors()
	}
}

func (k *kit) barrier() {
	c := k.Comm
	k.add("barrier", nil, nil, nil, nil, nil,
		calls{c.Barrier, c.Ibarrier, c.BarrierInit},
		calls{func(ctx context.Context) error { return rank.Barrier(ctx, c) },
			func() (rank.Request, error) { return rank.Ibarrier(c) },
			func() (rank.Request, error) { return rank.BarrierInit(c) }})
}

func (k *kit) bcast() {
	c, r, v := k.Comm, k.rooted(), k.vec(k.k)
	data := func(round int) []value { return k.values(r.id, 0, k.k, round) }
	wait := func(int) []value { return k.junk(k.k) }
	before, after := wait, data
	if r.root {
		before = data
	} else if r.bystander {
		after = wait
	}
	b, s := v.buf, v.words
	k.add("bcast", nil, v, nil, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Bcast(ctx, b, r.arg) },
			func() (rank.Request, error) { return c.Ibcast(b, r.arg) },
			func() (rank.Request, error) { return c.BcastInit(b, r.arg) }},
		calls{func(ctx context.Context) error { return rank.Bcast(ctx, c, s, r.arg) },
			func() (rank.Request, error) { return rank.Ibcast(c, s, r.arg) },
			func() (rank.Request, error) { return rank.BcastInit(c, s, r.arg) }})...)
}

// collected are the blocks of all that messages name; in place, the own one only.
func (k *kit) collected(b blocks, here bool) (before, after func(int) []value) {
	before = func(round int) []value {
		return k.fillBlocks(b, round, func(i int) (int, int, bool) { return k.far[i], 0, here && i == k.Rank() })
	}
	after = func(round int) []value {
		return k.fillBlocks(b, round, func(i int) (int, int, bool) { return k.far[i], 0, true })
	}
	return before, after
}

// suffix names a trial.
func suffix(name string, here bool) string {
	if here {
		return name + " in place"
	}
	return name
}

// contribution is what a rank gives all, nothing in place; operand is what it says
// then.
func (k *kit) contribution(n int, none bool) (v *vec, operand rank.Buffer, input func(int) []value) {
	if none {
		return nil, rank.InPlace, nil
	}
	v = k.vec(n)
	return v, v.buf, func(round int) []value { return k.values(k.id, 0, n, round) }
}

func (k *kit) gather(here bool) {
	c, r := k.Comm, k.rooted()
	in, send, input := k.contribution(k.k, here && r.root || k.IsInter() && (r.root || r.bystander))
	var out *vec
	var before, after func(int) []value
	if r.root {
		b := k.equal(len(k.far))
		out = k.vec(b.total)
		before, after = k.collected(b, here)
	}
	recv := bufOf(out)
	ss, rs := wordsOf(in), wordsOf(out)
	k.add(suffix("gather", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Gather(ctx, send, recv, r.arg) },
			func() (rank.Request, error) { return c.Igather(send, recv, r.arg) },
			func() (rank.Request, error) { return c.GatherInit(send, recv, r.arg) }},
		calls{func(ctx context.Context) error { return rank.Gather(ctx, c, ss, rs, r.arg) },
			func() (rank.Request, error) { return rank.Igather(c, ss, rs, r.arg) },
			func() (rank.Request, error) { return rank.GatherInit(c, ss, rs, r.arg) }})...)
}

func (k *kit) gatherv(here bool) {
	c, r := k.Comm, k.rooted()
	in, send, input := k.contribution(k.length(k.id, 0), here && r.root || k.IsInter() && (r.root || r.bystander))
	var out *vec
	var b blocks
	var before, after func(int) []value
	if r.root {
		b = k.spread(k.lengths(k.far))
		out = k.vec(b.total)
		before, after = k.collected(b, here)
	}
	recv := bufOf(out)
	ss, rs := wordsOf(in), wordsOf(out)
	k.add(suffix("gatherv", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Gatherv(ctx, send, recv, b.counts, b.displs, r.arg) },
			func() (rank.Request, error) { return c.Igatherv(send, recv, b.counts, b.displs, r.arg) },
			func() (rank.Request, error) { return c.GathervInit(send, recv, b.counts, b.displs, r.arg) }},
		calls{func(ctx context.Context) error { return rank.Gatherv(ctx, c, ss, rs, b.counts, b.displs, r.arg) },
			func() (rank.Request, error) { return rank.Igatherv(c, ss, rs, b.counts, b.displs, r.arg) },
			func() (rank.Request, error) { return rank.GathervInit(c, ss, rs, b.counts, b.displs, r.arg) }})...)
}

// given is what a root has for all, and got what a rank has of it.
func (k *kit) given(b blocks) func(int) []value {
	return func(round int) []value {
		return k.fillBlocks(b, round, func(i int) (int, int, bool) { return k.id, k.far[i] + 1, true })
	}
}

func (k *kit) scatter(here bool) {
	k.scattered("scatter", here, k.rooted(), k.equal(len(k.far)), k.k, func(r rooted, b blocks, send, recv rank.Buffer, ss, rs []uint32) []calls {
		c := k.Comm
		return k.forms(
			calls{func(ctx context.Context) error { return c.Scatter(ctx, send, recv, r.arg) },
				func() (rank.Request, error) { return c.Iscatter(send, recv, r.arg) },
				func() (rank.Request, error) { return c.ScatterInit(send, recv, r.arg) }},
			calls{func(ctx context.Context) error { return rank.Scatter(ctx, c, ss, rs, r.arg) },
				func() (rank.Request, error) { return rank.Iscatter(c, ss, rs, r.arg) },
				func() (rank.Request, error) { return rank.ScatterInit(c, ss, rs, r.arg) }})
	})
}

func (k *kit) scatterv(here bool) {
	k.scattered("scatterv", here, k.rooted(), k.spread(k.lengths(k.far)), k.length(k.id, 0), func(r rooted, b blocks, send, recv rank.Buffer, ss, rs []uint32) []calls {
		c := k.Comm
		return k.forms(
			calls{func(ctx context.Context) error { return c.Scatterv(ctx, send, b.counts, b.displs, recv, r.arg) },
				func() (rank.Request, error) { return c.Iscatterv(send, b.counts, b.displs, recv, r.arg) },
				func() (rank.Request, error) { return c.ScattervInit(send, b.counts, b.displs, recv, r.arg) }},
			calls{func(ctx context.Context) error { return rank.Scatterv(ctx, c, ss, b.counts, b.displs, rs, r.arg) },
				func() (rank.Request, error) { return rank.Iscatterv(c, ss, b.counts, b.displs, rs, r.arg) },
				func() (rank.Request, error) { return rank.ScattervInit(c, ss, b.counts, b.displs, rs, r.arg) }})
	})
}

func (k *kit) scattered(name string, here bool, r rooted, b blocks, n int, forms func(r rooted, b blocks, send, recv rank.Buffer, ss, rs []uint32) []calls) {
	var in, out *vec
	var input, before, after func(int) []value
	if r.root {
		in, input = k.vec(b.total), k.given(b)
	} else {
		b = blocks{} // ignored
	}
	recv := rank.InPlace
	if !(here && r.root) && !(k.IsInter() && (r.root || r.bystander)) {
		out = k.vec(n)
		recv = out.buf
		before = func(int) []value { return k.junk(n) }
		after = func(round int) []value { return k.values(r.id, k.id+1, n, round) }
	}
	k.add(suffix(name, here), in, out, input, before, after, forms(r, b, bufOf(in), recv, wordsOf(in), wordsOf(out))...)
}

func (k *kit) allgather(here bool) {
	c := k.Comm
	in, send, input := k.contribution(k.k, here)
	b := k.equal(len(k.far))
	out := k.vec(b.total)
	before, after := k.collected(b, here)
	recv := out.buf
	ss, rs := wordsOf(in), out.words
	k.add(suffix("allgather", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Allgather(ctx, send, recv) },
			func() (rank.Request, error) { return c.Iallgather(send, recv) },
			func() (rank.Request, error) { return c.AllgatherInit(send, recv) }},
		calls{func(ctx context.Context) error { return rank.Allgather(ctx, c, ss, rs) },
			func() (rank.Request, error) { return rank.Iallgather(c, ss, rs) },
			func() (rank.Request, error) { return rank.AllgatherInit(c, ss, rs) }})...)
}

func (k *kit) allgatherv(here bool) {
	c := k.Comm
	in, send, input := k.contribution(k.length(k.id, 0), here)
	b := k.spread(k.lengths(k.far))
	out := k.vec(b.total)
	before, after := k.collected(b, here)
	recv := out.buf
	ss, rs := wordsOf(in), out.words
	k.add(suffix("allgatherv", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Allgatherv(ctx, send, recv, b.counts, b.displs) },
			func() (rank.Request, error) { return c.Iallgatherv(send, recv, b.counts, b.displs) },
			func() (rank.Request, error) { return c.AllgathervInit(send, recv, b.counts, b.displs) }},
		calls{func(ctx context.Context) error { return rank.Allgatherv(ctx, c, ss, rs, b.counts, b.displs) },
			func() (rank.Request, error) { return rank.Iallgatherv(c, ss, rs, b.counts, b.displs) },
			func() (rank.Request, error) { return rank.AllgathervInit(c, ss, rs, b.counts, b.displs) }})...)
}

// swapped are operands of an alltoall: a block for and of each.
func (k *kit) swapped(give, take blocks, here bool) (in, out *vec, send rank.Buffer, input, before, after func(int) []value) {
	mine := func(b blocks) func(int) []value { return k.given(b) }
	out, send = k.vec(take.total), rank.InPlace
	before = func(int) []value { return k.junk(take.total) }
	if here {
		before = mine(take)
	} else {
		in = k.vec(give.total)
		send, input = in.buf, mine(give)
	}
	after = func(round int) []value {
		return k.fillBlocks(take, round, func(i int) (int, int, bool) { return k.far[i], k.id + 1, true })
	}
	return in, out, send, input, before, after
}

func (k *kit) alltoall(here bool) {
	c, b := k.Comm, k.equal(len(k.far))
	in, out, send, input, before, after := k.swapped(b, b, here)
	recv := out.buf
	ss, rs := wordsOf(in), out.words
	k.add(suffix("alltoall", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error { return c.Alltoall(ctx, send, recv) },
			func() (rank.Request, error) { return c.Ialltoall(send, recv) },
			func() (rank.Request, error) { return c.AlltoallInit(send, recv) }},
		calls{func(ctx context.Context) error { return rank.Alltoall(ctx, c, ss, rs) },
			func() (rank.Request, error) { return rank.Ialltoall(c, ss, rs) },
			func() (rank.Request, error) { return rank.AlltoallInit(c, ss, rs) }})...)
}

func (k *kit) alltoallv(here bool) {
	c := k.Comm
	counts := make([]int, len(k.far)) // a+b, so that both sides agree
	for i, id := range k.far {
		counts[i] = k.length(k.id, id)
	}
	g, b := k.spread(counts), k.spread(counts)
	in, out, send, input, before, after := k.swapped(g, b, here)
	if here {
		g = blocks{} // ignored
	}
	recv := out.buf
	ss, rs := wordsOf(in), out.words
	k.add(suffix("alltoallv", here), in, out, input, before, after, k.forms(
		calls{func(ctx context.Context) error {
			return c.Alltoallv(ctx, send, g.counts, g.displs, recv, b.counts, b.displs)
		},
			func() (rank.Request, error) { return c.Ialltoallv(send, g.counts, g.displs, recv, b.counts, b.displs) },
			func() (rank.Request, error) {
				return c.AlltoallvInit(send, g.counts, g.displs, recv, b.counts, b.displs)
			}},
		calls{func(ctx context.Context) error {
			return rank.Alltoallv(ctx, c, ss, g.counts, g.displs, rs, b.counts, b.displs)
		},
			func() (rank.Request, error) {
				return rank.Ialltoallv(c, ss, g.counts, g.displs, rs, b.counts, b.displs)
			},
			func() (rank.Request, error) {
				return rank.AlltoallvInit(c, ss, g.counts, g.displs, rs, b.counts, b.displs)
			}})...)
}

// alltoallw has an operand for each rank.
func (k *kit) alltoallw(here bool) {
	c, n := k.Comm, len(k.far)
	t := &trial{name: suffix("alltoallw", here)}
	var send, recv []rank.Buffer
	for _, id := range k.far {
		v := k.vec(k.length(k.id, id))
		t.out, recv = append(t.out, v), append(recv, v.buf)
		if !here {
			v := k.vec(k.length(k.id, id))
			t.in, send = append(t.in, v), append(send, v.buf)
		}
	}
	each := func(f func(i int) []value) [][]value {
		list := make([][]value, n)
		for i := range list {
			list[i] = f(i)
		}
		return list
	}
	mine := func(round int) [][]value {
		return each(func(i int) []value { return k.values(k.id, k.far[i]+1, k.length(k.id, k.far[i]), round) })
	}
	t.input, t.before = mine, mine
	if !here {
		t.before = func(int) [][]value { return each(func(i int) []value { return k.junk(k.length(k.id, k.far[i])) }) }
	}
	t.after = func(round int) [][]value {
		return each(func(i int) []value { return k.values(k.far[i], k.id+1, k.length(k.id, k.far[i]), round) })
	}
	t.calls = []calls{{func(ctx context.Context) error { return c.Alltoallw(ctx, send, recv) },
		func() (rank.Request, error) { return c.Ialltoallw(send, recv) },
		func() (rank.Request, error) { return c.AlltoallwInit(send, recv) }}}
	k.trials = append(k.trials, t)
}
