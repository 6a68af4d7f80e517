package rank_test

import (
	"context"

	"github.com/gorun-mpi/gorun/rank"
)

// What the collectives of neighbours should do.

func (k *kit) neighbors() {
	c := k.Comm
	edges := func(list []edge, n func(e edge) int) []int {
		counts := make([]int, len(list))
		for i, e := range list {
			if !e.none { // at a border a block may have any length
				counts[i] = n(e)
			}
		}
		return counts
	}
	toAll := func(e edge) int { return k.length(e.from, 0) }
	toOne := func(e edge) int { return k.length(e.from, e.block) }

	received := func(b blocks, toOne bool) (before, after func(int) []value) {
		return func(int) []value { return k.junk(b.total) }, func(round int) []value {
			return k.fillBlocks(b, round, func(i int) (int, int, bool) {
				e := k.in[i]
				if !toOne {
					return e.from, 0, !e.none
				}
				return e.from, e.block + 1, !e.none
			})
		}
	}
	sent := func(b blocks) func(int) []value {
		return func(round int) []value {
			return k.fillBlocks(b, round, func(i int) (int, int, bool) { return k.id, k.place.out[i].block + 1, true })
		}
	}

	{
		b := k.equal(len(k.in))
		in, send, input := k.contribution(k.k, false)
		out := k.vec(b.total)
		before, after := received(b, false)
		recv, ss, rs := out.buf, in.words, out.words
		k.add("neighbor_allgather", in, out, input, before, after, k.forms(
			calls{func(ctx context.Context) error { return c.NeighborAllgather(ctx, send, recv) },
				func() (rank.Request, error) { return c.IneighborAllgather(send, recv) },
				func() (rank.Request, error) { return c.NeighborAllgatherInit(send, recv) }},
			calls{func(ctx context.Context) error { return rank.NeighborAllgather(ctx, c, ss, rs) },
				func() (rank.Request, error) { return rank.IneighborAllgather(c, ss, rs) },
				func() (rank.Request, error) { return rank.NeighborAllgatherInit(c, ss, rs) }})...)
	}
	{
		b := k.spread(edges(k.in, toAll))
		in, send, input := k.contribution(k.length(k.id, 0), false)
		out := k.vec(b.total)
		before, after := received(b, false)
		recv, ss, rs := out.buf, in.words, out.words
		k.add("neighbor_allgatherv", in, out, input, before, after, k.forms(
			calls{func(ctx context.Context) error { return c.NeighborAllgatherv(ctx, send, recv, b.counts, b.displs) },
				func() (rank.Request, error) { return c.IneighborAllgatherv(send, recv, b.counts, b.displs) },
				func() (rank.Request, error) { return c.NeighborAllgathervInit(send, recv, b.counts, b.displs) }},
			calls{func(ctx context.Context) error {
				return rank.NeighborAllgatherv(ctx, c, ss, rs, b.counts, b.displs)
			},
				func() (rank.Request, error) { return rank.IneighborAllgatherv(c, ss, rs, b.counts, b.displs) },
				func() (rank.Request, error) { return rank.NeighborAllgathervInit(c, ss, rs, b.counts, b.displs) }})...)
	}
	{
		g, b := k.equal(len(k.place.out)), k.equal(len(k.in))
		in, out := k.vec(g.total), k.vec(b.total)
		before, after := received(b, true)
		send, recv, ss, rs := in.buf, out.buf, in.words, out.words
		k.add("neighbor_alltoall", in, out, sent(g), before, after, k.forms(
			calls{func(ctx context.Context) error { return c.NeighborAlltoall(ctx, send, recv) },
				func() (rank.Request, error) { return c.IneighborAlltoall(send, recv) },
				func() (rank.Request, error) { return c.NeighborAlltoallInit(send, recv) }},
			calls{func(ctx context.Context) error { return rank.NeighborAlltoall(ctx, c, ss, rs) },
				func() (rank.Request, error) { return rank.IneighborAlltoall(c, ss, rs) },
				func() (rank.Request, error) { return rank.NeighborAlltoallInit(c, ss, rs) }})...)
	}
	{
		g, b := k.spread(edges(k.place.out, toOne)), k.spread(edges(k.in, toOne))
		in, out := k.vec(g.total), k.vec(b.total)
		before, after := received(b, true)
		send, recv, ss, rs := in.buf, out.buf, in.words, out.words
		k.add("neighbor_alltoallv", in, out, sent(g), before, after, k.forms(
			calls{func(ctx context.Context) error {
				return c.NeighborAlltoallv(ctx, send, g.counts, g.displs, recv, b.counts, b.displs)
			},
				func() (rank.Request, error) {
					return c.IneighborAlltoallv(send, g.counts, g.displs, recv, b.counts, b.displs)
				},
				func() (rank.Request, error) {
					return c.NeighborAlltoallvInit(send, g.counts, g.displs, recv, b.counts, b.displs)
				}},
			calls{func(ctx context.Context) error {
				return rank.NeighborAlltoallv(ctx, c, ss, g.counts, g.displs, rs, b.counts, b.displs)
			},
				func() (rank.Request, error) {
					return rank.IneighborAlltoallv(c, ss, g.counts, g.displs, rs, b.counts, b.displs)
				},
				func() (rank.Request, error) {
					return rank.NeighborAlltoallvInit(c, ss, g.counts, g.displs, rs, b.counts, b.displs)
				}})...)
	}
	{
		t := &trial{name: "neighbor_alltoallw"}
		var send, recv []rank.Buffer
		give, take := edges(k.place.out, toOne), edges(k.in, toOne)
		for _, n := range give {
			v := k.vec(n)
			t.in, send = append(t.in, v), append(send, v.buf)
		}
		for _, n := range take {
			v := k.vec(n)
			t.out, recv = append(t.out, v), append(recv, v.buf)
		}
		t.input = func(round int) (all [][]value) {
			for i, e := range k.place.out {
				all = append(all, k.values(k.id, e.block+1, give[i], round))
			}
			return all
		}
		t.before = func(int) (all [][]value) {
			for _, n := range take {
				all = append(all, k.junk(n))
			}
			return all
		}
		t.after = func(round int) (all [][]value) {
			for i, e := range k.in {
				all = append(all, k.values(e.from, e.block+1, take[i], round))
			}
			return all
		}
		t.calls = []calls{{func(ctx context.Context) error { return c.NeighborAlltoallw(ctx, send, recv) },
			func() (rank.Request, error) { return c.IneighborAlltoallw(send, recv) },
			func() (rank.Request, error) { return c.NeighborAlltoallwInit(send, recv) }}}
		k.trials = append(k.trials, t)
	}
}
