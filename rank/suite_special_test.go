package rank_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// What is only read may overlap itself: a window that slides over the data.
func TestOverlappingReads(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 5}, func(ctx context.Context, c *rank.Comm) error {
		slide, err := spaced(2, 1, 4)
		if err != nil {
			return err
		}
		n := c.Size()
		const k = 3
		mine := make([]uint32, n*k+1)
		for i := range mine {
			mine[i] = uint32(c.Rank()*1000 + i)
		}
		pairsOf := func(who, from, n int) (list []uint32) {
			for i := range n {
				list = append(list, uint32(who*1000+from+i), uint32(who*1000+from+i+1))
			}
			return list
		}
		var gathered, swapped []uint32
		for who := range n {
			gathered = append(gathered, pairsOf(who, 0, k)...)
			swapped = append(swapped, pairsOf(who, c.Rank()*k, k)...)
		}
		pair, err := spaced(2, 1, 8)
		if err != nil {
			return err
		}
		got := make([]uint32, 2*n*k)
		if err := c.Allgather(ctx, rank.Typed(mine, k, slide), rank.Typed(got, n*k, pair)); err != nil {
			return err
		}
		if err := diff("allgather", got, gathered); err != nil {
			return err
		}
		if err := c.Alltoall(ctx, rank.Typed(mine, n*k, slide), rank.Typed(got, n*k, pair)); err != nil {
			return err
		}
		if err := diff("alltoall", got, swapped); err != nil {
			return err
		}
		// A root only reads, the others would write.
		var buf rank.Buffer
		if c.Rank() == 0 {
			buf = rank.Typed(mine, k, slide)
		} else {
			buf = rank.Typed(got, k, pair)
		}
		if err := c.Bcast(ctx, buf, 0); err != nil {
			return err
		}
		if c.Rank() > 0 {
			if err := diff("bcast", got[:2*k], pairsOf(0, 0, k)); err != nil {
				return err
			}
		}
		err = c.Allgather(ctx, rank.Typed(mine, 1, slide), rank.Typed(make([]uint32, 10*n), n+1-n%2, slide))
		if n > 1 && !errors.Is(err, rank.ErrArgument) {
			return fmt.Errorf("receive into items that overlap: %v, want %v", err, rank.ErrArgument)
		}
		if n == 1 && err != nil {
			return err
		}
		return rank.Barrier(ctx, c)
	})
}

// A user's function gets whole elements of its type, also of items that are several
// of them with gaps between; others are refused.
func TestOpFuncOfDatatypes(t *testing.T) {
	testenv.NoLeaks(t)
	op := rank.OpFunc("after", false, func(dst, a, b []value) {
		for i := range dst {
			dst[i] = after(a[i], b[i])
		}
	})
	ofPadded := rank.OpFunc("padded", true, func(dst, a, b []padded) {
		for i := range dst {
			dst[i] = padOf(plus(a[i].value(), b[i].value()))
		}
	})
	ranktest.Each(t, []int{1, 3, 4}, func(ctx context.Context, c *rank.Comm) error {
		spread, err := spaced(4, 2, 32) // two elements an item
		if err != nil {
			return err
		}
		const n = 50
		in, out := make([]uint32, 8*n), make([]uint32, 8*n)
		want := make([]uint32, 8*n)
		for item := range 2 * n {
			v := valueOf(0, 0, item, 0)
			for who := 1; who < c.Size(); who++ {
				v = after(v, valueOf(who, 0, item, 0))
			}
			mine := valueOf(c.Rank(), 0, item, 0)
			in[4*item], in[4*item+2] = mine[0], mine[1]
			want[4*item], want[4*item+2] = v[0], v[1]
		}
		if err := c.Allreduce(ctx, rank.Typed(in, n, spread), rank.Typed(out, n, spread), op); err != nil {
			return err
		}
		if err := diff("allreduce", out, want); err != nil {
			return err
		}
		whole, err := rank.TypeFor[padded]()
		if err != nil {
			return err
		}
		one := []padded{padOf(value{1, uint32(c.Rank())})}
		if err := c.Allreduce(ctx, rank.InPlace, rank.Typed(one, 1, whole), ofPadded); err != nil {
			return err
		}
		if want := (value{uint32(c.Size()), uint32(c.Size() * (c.Size() - 1) / 2)}); one[0].value() != want {
			return fmt.Errorf("sum of structs is %v, want %v", one[0].value(), want)
		}
		pair, err := rank.TypeFor[rank.Pair[float64]]()
		if err != nil {
			return err
		}
		best := []rank.Pair[float64]{{Value: -float64(c.Rank()), Index: int32(c.Rank())}}
		if err := c.Allreduce(ctx, rank.InPlace, rank.Typed(best, 1, pair), rank.MinLoc); err != nil {
			return err
		}
		if best[0].Index != int32(c.Size()-1) {
			return fmt.Errorf("minloc found rank %d, want %d", best[0].Index, c.Size()-1)
		}
		odd, err := spaced(3, 2, 32)
		if err != nil {
			return err
		}
		for name, err := range map[string]error{
			"one and a half elements an item": c.Allreduce(ctx, rank.InPlace, rank.Typed(out, n, odd), op),
			"another type":                    rank.Allreduce(ctx, c, nil, make([]uint64, 4), op),
			"a pair too short":                c.Allreduce(ctx, rank.InPlace, rank.Typed(make([]byte, 12), 1, pair), rank.MinLoc),
		} {
			if !errors.Is(err, rank.ErrArgument) {
				return fmt.Errorf("%s: %v, want %v", name, err, rank.ErrArgument)
			}
		}
		return nil
	})
}

// Mistakes of one rank are told to it in all forms, before anything moves; the
// communicator is good afterwards.
func TestBadCollectiveArguments(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		b := make([]int32, 8)
		inter, err := between(ctx, c, 1)
		if err != nil {
			return err
		}
		far := inter.Comm
		gone, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := gone.Free(ctx); err != nil {
			return err
		}
		var none *rank.Comm
		for _, tt := range []struct {
			name string
			call func(k int) error // as blocking, started or persistent call
			says string
		}{
			{"gatherv counts", forms(calls{
				func(ctx context.Context) error { return rank.Gatherv(ctx, c, b[:1], b, []int{1}, nil, c.Rank()) },
				func() (rank.Request, error) { return rank.Igatherv(c, b[:1], b, []int{1}, nil, c.Rank()) },
				func() (rank.Request, error) { return rank.GathervInit(c, b[:1], b, []int{1}, nil, c.Rank()) }}),
				"1 receive counts, expected 2"},
			{"a negative count", forms(calls{
				func(ctx context.Context) error { return rank.Scatterv(ctx, c, b, []int{-1, 2}, nil, b, c.Rank()) },
				func() (rank.Request, error) { return rank.Iscatterv(c, b, []int{-1, 2}, nil, b, c.Rank()) },
				func() (rank.Request, error) { return rank.ScattervInit(c, b, []int{-1, 2}, nil, b, c.Rank()) }}),
				"a block of -1 items"},
			{"a block that is too far", forms(calls{
				func(ctx context.Context) error {
					return rank.Alltoallv(ctx, c, b, []int{1, 1}, []int{0, 8}, make([]int32, 2), []int{1, 1}, nil)
				},
				func() (rank.Request, error) {
					return rank.Ialltoallv(c, b, []int{1, 1}, []int{0, 8}, make([]int32, 2), []int{1, 1}, nil)
				},
				func() (rank.Request, error) {
					return rank.AlltoallvInit(c, b, []int{1, 1}, []int{0, 8}, make([]int32, 2), []int{1, 1}, nil)
				}}), "a block of 1 items at displacement 8 does not fit into a buffer of 8 items"},
			{"blocks that overlap", forms(calls{
				func(ctx context.Context) error {
					return rank.Allgatherv(ctx, c, make([]int32, 2), b, []int{2, 2}, []int{1, 0})
				},
				func() (rank.Request, error) {
					return rank.Iallgatherv(c, make([]int32, 2), b, []int{2, 2}, []int{1, 0})
				},
				func() (rank.Request, error) {
					return rank.AllgathervInit(c, make([]int32, 2), b, []int{2, 2}, []int{1, 0})
				}}), "overlap in recv"},
			{"send and receive overlap", forms(calls{
				func(ctx context.Context) error { return rank.Alltoall(ctx, c, b[:4], b[1:5]) },
				func() (rank.Request, error) { return rank.Ialltoall(c, b[:4], b[1:5]) }, nil}), "overlap"},
			{"a buffer too small", forms(calls{
				func(ctx context.Context) error { return rank.Gather(ctx, c, b[:5], make([]int32, 8), c.Rank()) },
				func() (rank.Request, error) { return rank.Igather(c, b[:5], make([]int32, 8), c.Rank()) },
				func() (rank.Request, error) { return rank.GatherInit(c, b[:5], make([]int32, 8), c.Rank()) }}),
				"send holds 20 bytes, expected 16"},
			{"in place where there is none", forms(calls{
				func(ctx context.Context) error { return far.Allreduce(ctx, rank.InPlace, rank.Of(b), rank.Sum) },
				func() (rank.Request, error) { return far.Iallreduce(rank.InPlace, rank.Of(b), rank.Sum) },
				func() (rank.Request, error) { return far.AllreduceInit(rank.InPlace, rank.Of(b), rank.Sum) }}), "in place"},
			{"in place of a receive", forms(calls{
				func(ctx context.Context) error { return c.Allgather(ctx, rank.Of(b), rank.InPlace) },
				func() (rank.Request, error) { return c.Iallgather(rank.Of(b), rank.InPlace) },
				func() (rank.Request, error) { return c.AllgatherInit(rank.Of(b), rank.InPlace) }}), "InPlace"},
			{"in place of a scatter's root", forms(calls{
				func(ctx context.Context) error { return c.Scatter(ctx, rank.InPlace, rank.InPlace, c.Rank()) },
				func() (rank.Request, error) { return c.Iscatter(rank.InPlace, rank.InPlace, c.Rank()) },
				func() (rank.Request, error) { return c.ScatterInit(rank.InPlace, rank.InPlace, c.Rank()) }}), "in place"},
			{"scan between groups", forms(calls{
				func(ctx context.Context) error { return rank.Scan(ctx, far, b, make([]int32, 8), rank.Sum) },
				func() (rank.Request, error) { return rank.Iscan(far, b, make([]int32, 8), rank.Sum) },
				func() (rank.Request, error) { return rank.ScanInit(far, b, make([]int32, 8), rank.Sum) }}), "intercommunicator"},
			{"no neighbours", forms(calls{
				func(ctx context.Context) error { return rank.NeighborAlltoall(ctx, c, b, b) },
				func() (rank.Request, error) { return rank.IneighborAlltoall(c, b, b) },
				func() (rank.Request, error) { return rank.NeighborAlltoallInit(c, b, b) }}), "no topology"},
			{"root of the other group", forms(calls{
				func(ctx context.Context) error { return rank.Bcast(ctx, far, b, 1) },
				func() (rank.Request, error) { return rank.Ibcast(far, b, 1) },
				func() (rank.Request, error) { return rank.BcastInit(far, b, 1) }}), "root 1 in a communicator of 1"},
			{"counts of a reduce_scatter", forms(calls{
				func(ctx context.Context) error { return rank.ReduceScatter(ctx, c, b, b[:4], []int{4, 5}, rank.Sum) },
				func() (rank.Request, error) { return rank.IreduceScatter(c, b, b[:4], []int{4, 5}, rank.Sum) },
				func() (rank.Request, error) { return rank.ReduceScatterInit(c, b, b[:4], []int{4, 5}, rank.Sum) }}),
				"send holds 8 items, but the counts add up to 9"},
			{"alltoallw of too few", forms(calls{
				func(ctx context.Context) error { return c.Alltoallw(ctx, nil, []rank.Buffer{rank.Of(b)}) },
				func() (rank.Request, error) { return c.Ialltoallw(nil, []rank.Buffer{rank.Of(b)}) },
				func() (rank.Request, error) { return c.AlltoallwInit(nil, []rank.Buffer{rank.Of(b)}) }}), "1 receive buffers, expected 2"},
			{"a nil communicator", forms(calls{
				func(ctx context.Context) error { return rank.Alltoallv(ctx, none, nil, nil, nil, b, []int{4, 4}, nil) },
				func() (rank.Request, error) { return rank.Ialltoallv(none, nil, nil, nil, b, []int{4, 4}, nil) },
				func() (rank.Request, error) { return rank.AlltoallvInit(none, nil, nil, nil, b, []int{4, 4}, nil) }}), "nil"},
			{"a nil communicator of neighbours", forms(calls{
				func(ctx context.Context) error { return none.NeighborAlltoallw(ctx, nil, nil) },
				func() (rank.Request, error) { return none.IneighborAlltoallw(nil, nil) },
				func() (rank.Request, error) { return none.NeighborAlltoallwInit(nil, nil) }}), "nil"},
			{"a nil communicator, in place", forms(calls{
				func(ctx context.Context) error { return none.Alltoallw(ctx, nil, []rank.Buffer{{}}) },
				func() (rank.Request, error) { return none.Ialltoallw(nil, []rank.Buffer{{}}) },
				func() (rank.Request, error) { return none.AlltoallwInit(nil, []rank.Buffer{{}}) }}), "nil"},
			{"a freed communicator", forms(calls{
				func(ctx context.Context) error { return rank.Allreduce(ctx, gone, nil, b, rank.Sum) },
				func() (rank.Request, error) { return rank.Iallreduce(gone, nil, b, rank.Sum) },
				func() (rank.Request, error) { return rank.AllreduceInit(gone, nil, b, rank.Sum) }}), "freed"},
		} {
			for form := range 3 {
				err := tt.call(form)
				e, ok := errors.AsType[*rank.Error](err)
				if !ok || !strings.Contains(err.Error(), tt.says) {
					return fmt.Errorf("%s, form %d: error %v, want one that says %q", tt.name, form, err, tt.says)
				}
				if e.Comm == "" && !strings.Contains(tt.name, "nil") {
					return fmt.Errorf("%s, form %d: %+v names no communicator", tt.name, form, e)
				}
			}
		}
		for _, d := range []*rank.Comm{c, far} {
			q, err := rank.Ibarrier(d)
			if err != nil {
				return err
			}
			if err := rank.Barrier(ctx, d); err != nil {
				return err
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// forms calls one of the forms; that of a persistent call is started too, for some
// mistakes are found only then.
func forms(f calls) func(form int) error {
	return func(form int) error {
		switch form {
		case 0:
			return f.run(context.Background())
		case 1:
			_, err := f.start()
			return err
		}
		if f.init == nil {
			return f.run(context.Background())
		}
		q, err := f.init()
		if err != nil {
			return err
		}
		return errors.Join(q.Start(), q.Free())
	}
}

// Sums of floats have the same bits on all ranks, in all runs, and in all forms.
func TestFloatsAreTheSameInAllForms(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{2, 3, 5, 8} {
		var kept [2][]float64
		for run := range kept {
			ranktest.RunSeed(t, n, uint64(run), func(ctx context.Context, c *rank.Comm) error {
				in := make([]float64, 3000)
				for i := range in {
					v := valueOf(c.Rank(), 0, i, 0)
					in[i] = float64(v[0]) / float64(v[1]|1)
				}
				var outs [3][]float64
				for i := range outs {
					outs[i] = make([]float64, len(in))
				}
				if err := rank.Allreduce(ctx, c, in, outs[0], rank.Sum); err != nil {
					return err
				}
				q, err := rank.Iallreduce(c, in, outs[1], rank.Sum)
				if err != nil {
					return err
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				if q, err = rank.AllreduceInit(c, in, outs[2], rank.Sum); err != nil {
					return err
				}
				if err := q.Start(); err != nil {
					return err
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				if err := q.Free(); err != nil {
					return err
				}
				all := make([]float64, len(in)*c.Size())
				if err := rank.Allgather(ctx, c, outs[0], all); err != nil {
					return err
				}
				for r := range c.Size() {
					if err := diff(fmt.Sprintf("rank %d's", r), all[r*len(in):(r+1)*len(in)], outs[0]); err != nil {
						return err
					}
				}
				for i := range outs {
					if err := diff(fmt.Sprintf("form %d", i), outs[i], outs[0]); err != nil {
						return err
					}
				}
				if c.Rank() == 0 {
					kept[run] = outs[0]
				}
				return nil
			})
		}
		if !slices.Equal(kept[0], kept[1]) {
			t.Errorf("%d ranks: two runs differ", n)
		}
	}
}
