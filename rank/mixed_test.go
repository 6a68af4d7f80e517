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

// A mixture is a rank's share of one random sequence of collectives, of which calls of
// one shape follow each other several times, so that they are remembered and take their
// short form: lengths on both sides of all limits, blocking ones behind started ones that
// are not over, on a communicator and on its copy.
type mixture struct {
	ctx    context.Context
	comms  [2]*rank.Comm
	me, n  int
	shared *rand.Rand // the same on all ranks
	own    *rand.Rand
	open   []opened // started, and not waited for, in the order of their start
}

// An opened is a call that was started.
type opened struct {
	request rank.Request
	check   func() error
}

// has is the item i of what a rank has for a call.
func has(call, r, i int) int64 { return int64(call)*1_000_003 + int64(r)*7919 + int64(i*(r+1)) }

func (m *mixture) fill(call, n int) []int64 {
	b := make([]int64, n)
	for i := range b {
		b[i] = has(call, m.me, i)
	}
	return b
}

// total is the sum of item i of the ranks below.
func total(call, below, i int) (sum int64) {
	for r := range below {
		sum += has(call, r, i)
	}
	return sum
}

// make one call in some form, and checks it, if it is started later.
func (m *mixture) make(call, kind, count, root int, c *rank.Comm, start bool) error {
	var (
		block   func() error
		begin   func() (rank.Request, error)
		out     []int64
		want    func(i int) int64
		present = true // out is significant here
		ctx     = m.ctx
	)
	switch kind {
	case 0:
		block = func() error { return rank.Barrier(ctx, c) }
		begin = func() (rank.Request, error) { return rank.Ibarrier(c) }
	case 1:
		if out = make([]int64, count); m.me == root {
			copy(out, m.fill(call, count))
		}
		want = func(i int) int64 { return has(call, root, i) }
		block = func() error { return rank.Bcast(ctx, c, out, root) }
		begin = func() (rank.Request, error) { return rank.Ibcast(c, out, root) }
	case 2, 3:
		in := m.fill(call, count)
		if out = make([]int64, count); kind == 3 {
			in, out = nil, in
		}
		want = func(i int) int64 { return total(call, m.n, i) }
		block = func() error { return rank.Allreduce(ctx, c, in, out, rank.Sum) }
		begin = func() (rank.Request, error) { return rank.Iallreduce(c, in, out, rank.Sum) }
	case 4:
		in := m.fill(call, count)
		out = make([]int64, count*m.n)
		want = func(i int) int64 { return has(call, i/count, i%count) }
		block = func() error { return rank.Allgather(ctx, c, in, out) }
		begin = func() (rank.Request, error) { return rank.Iallgather(c, in, out) }
	case 5:
		in := m.fill(call, count*m.n)
		out = make([]int64, count*m.n)
		want = func(i int) int64 { return has(call, i/count, m.me*count+i%count) }
		block = func() error { return rank.Alltoall(ctx, c, in, out) }
		begin = func() (rank.Request, error) { return rank.Ialltoall(c, in, out) }
	case 6:
		in := m.fill(call, count*m.n)
		out = make([]int64, count)
		want = func(i int) int64 { return total(call, m.n, m.me*count+i) }
		block = func() error { return rank.ReduceScatterBlock(ctx, c, in, out, rank.Sum) }
		begin = func() (rank.Request, error) { return rank.IreduceScatterBlock(c, in, out, rank.Sum) }
	case 7:
		in := m.fill(call, count)
		out = make([]int64, count)
		want = func(i int) int64 { return total(call, m.me+1, i) }
		block = func() error { return rank.Scan(ctx, c, in, out, rank.Sum) }
		begin = func() (rank.Request, error) { return rank.Iscan(c, in, out, rank.Sum) }
	case 8:
		in := m.fill(call, count)
		if present = m.me == root; present {
			out = make([]int64, count)
		}
		want = func(i int) int64 { return total(call, m.n, i) }
		block = func() error { return rank.Reduce(ctx, c, in, out, rank.Sum, root) }
		begin = func() (rank.Request, error) { return rank.Ireduce(c, in, out, rank.Sum, root) }
	case 9:
		in := m.fill(call, count)
		if present = m.me == root; present {
			out = make([]int64, count*m.n)
		}
		want = func(i int) int64 { return has(call, i/count, i%count) }
		block = func() error { return rank.Gather(ctx, c, in, out, root) }
		begin = func() (rank.Request, error) { return rank.Igather(c, in, out, root) }
	default:
		var in []int64
		if m.me == root {
			in = m.fill(call, count*m.n)
		}
		out = make([]int64, count)
		want = func(i int) int64 { return has(call, root, m.me*count+i) }
		block = func() error { return rank.Scatter(ctx, c, in, out, root) }
		begin = func() (rank.Request, error) { return rank.Iscatter(c, in, out, root) }
	}
	check := func() error {
		for i := range out {
			if present && out[i] != want(i) {
				return fmt.Errorf("call %d, kind %d of %d items, root %d, started: %v: item %d is %d, want %d", call, kind, count, root, start, i, out[i], want(i))
			}
		}
		return nil
	}
	if !start {
		if err := block(); err != nil {
			return err
		}
		return check()
	}
	q, err := begin()
	m.open = append(m.open, opened{q, check})
	return err
}

// close waits for one of the open calls.
func (m *mixture) close(i int) error {
	o := m.open[i]
	m.open = append(m.open[:i], m.open[i+1:]...)
	if _, err := o.request.Wait(m.ctx); err != nil {
		return err
	}
	return o.check()
}

func (m *mixture) run(shapes int) error {
	lengths := []int{1, 2, 9, 65, 700, 3001}
	for call := 0; shapes > 0; shapes-- {
		kind, count, root := m.shared.IntN(11), lengths[m.shared.IntN(len(lengths))], m.shared.IntN(m.n)
		if m.n > 8 && count > 65 {
			count = 65
		}
		for range 3 + m.shared.IntN(3) {
			c, start := m.comms[0], m.shared.IntN(4) == 0
			if m.shared.IntN(5) == 0 {
				c = m.comms[1]
			}
			call++
			if err := m.make(call, kind, count, root, c, start); err != nil {
				return err
			}
			if len(m.open) > 0 && m.own.IntN(3) == 0 {
				if err := m.close(m.own.IntN(len(m.open))); err != nil {
					return err
				}
			}
		}
	}
	for len(m.open) > 0 {
		if err := m.close(m.own.IntN(len(m.open))); err != nil {
			return err
		}
	}
	return nil
}

// Short and long forms of all kinds, blocking and started, in any order behind each
// other, on a plain device and on one that misbehaves.
func TestMixedForms(t *testing.T) {
	testenv.NoLeaks(t)
	shapes := testenv.Fewer(80, 20)
	for n := 1; n <= 16; n++ {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("n=%d/seed=%d", n, seed), func(t *testing.T) {
				ranktest.RunSeed(t, n, seed, func(ctx context.Context, c *rank.Comm) error {
					d, err := c.Dup(ctx)
					if err != nil {
						return err
					}
					m := &mixture{ctx: ctx, comms: [2]*rank.Comm{c, d}, me: c.Rank(), n: n,
						shared: rand.New(rand.NewPCG(seed, uint64(n))), own: rand.New(rand.NewPCG(seed, uint64(100+c.Rank())))}
					return m.run(max(2, shapes*2/(n+1)))
				})
			})
		}
	}
}
