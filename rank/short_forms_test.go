package rank_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestCollectivesOfOneValue(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 5}, func(ctx context.Context, c *rank.Comm) error {
		n, me := c.Size(), c.Rank()
		var all []int
		for r := range n {
			all = append(all, 10*r)
		}
		at := func(root int, v int) int {
			if me == root {
				return v
			}
			return 0
		}
		for _, tt := range []struct {
			name string
			call func() (any, error)
			want any
		}{
			{"bcast", func() (any, error) { return rank.BcastOne(ctx, c, me+7, n-1) }, n + 6},
			{"reduce", func() (any, error) { return rank.ReduceOne(ctx, c, me+1, rank.Sum, n-1) }, at(n-1, n*(n+1)/2)},
			{"allreduce", func() (any, error) { return rank.AllreduceOne(ctx, c, float64(me), rank.Max) }, float64(n - 1)},
			{"scan", func() (any, error) { return rank.ScanOne(ctx, c, me+1, rank.Sum) }, (me + 1) * (me + 2) / 2},
			{"exscan", func() (any, error) { return rank.ExscanOne(ctx, c, me+1, rank.Sum) }, me * (me + 1) / 2},
			{"allgather", func() (any, error) { return rank.AllgatherOne(ctx, c, 10*me) }, all},
		} {
			got, err := tt.call()
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				return fmt.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
			}
		}
		got, err := rank.GatherOne(ctx, c, 10*me, n-1)
		if me != n-1 {
			all = nil
		}
		if err != nil || !slices.Equal(got, all) {
			return fmt.Errorf("gather: %v, %v, want %v", got, err, all)
		}
		return nil
	})
}

func TestRecvSliceOfAnyLength(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		for i, n := range []int{0, 1, 100, 100000} {
			if c.Rank() == 0 {
				if err := rank.Send(ctx, c, slices.Repeat([]float64{float64(i)}, n), 1, i); err != nil {
					return err
				}
				continue
			}
			got, st, err := rank.RecvSlice[float64](ctx, c, rank.AnySource, rank.AnyTag)
			if err != nil || len(got) != n || st.Tag != i || rank.CountOf[float64](st) != n || rank.CountOf[int16](st) != 4*n {
				return fmt.Errorf("message %d: %d of %d elements, %+v, %v", i, len(got), n, st, err)
			}
			if n > 0 && got[n-1] != float64(i) {
				return fmt.Errorf("message %d ends with %v", i, got[n-1])
			}
		}
		if c.Rank() == 0 {
			return rank.Send(ctx, c, make([]byte, 5), 1, 9)
		}
		got, st, err := rank.RecvSlice[int32](ctx, c, 0, 9)
		if err != nil || len(got) != 2 || st.Count != rank.Undefined {
			return fmt.Errorf("5 bytes as int32: %v, %+v, %v", got, st, err)
		}
		if got, _, err := rank.RecvSlice[int](ctx, c, rank.ProcNull, 0); err != nil || len(got) != 0 {
			return fmt.Errorf("from no rank: %v, %v", got, err)
		}
		return nil
	})
}

func TestAnyValueTravels(t *testing.T) {
	testenv.NoLeaks(t)
	type cell struct {
		Name string
		At   map[string][]float64
		Next *cell
	}
	want := cell{"a", map[string][]float64{"x": {1, 2}}, &cell{Name: strings.Repeat("b", 100000)}}
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			err := rank.SendAny(ctx, c, make(chan int), 1, 0)
			if e, ok := errors.AsType[*rank.Error](err); !ok || e.Op != "send_any" {
				return fmt.Errorf("a channel: %v", err)
			}
			if err := rank.SendAny(ctx, c, want, 1, 0); err != nil {
				return err
			}
			if err := rank.SendAny(ctx, c, "text", 1, 1); err != nil {
				return err
			}
			return rank.Send(ctx, c, []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, 1, 2)
		}
		got, _, err := rank.RecvAny[cell](ctx, c, 0, 0)
		if err != nil || !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%.100v, %v", got, err)
		}
		for tag := 1; tag <= 2; tag++ { // another type, and damage
			if _, st, err := rank.RecvAny[cell](ctx, c, 0, tag); rank.ClassOf(err) != rank.ClassType || st.Source != 0 {
				return fmt.Errorf("message %d: %+v, %v", tag, st, err)
			}
		}
		return nil
	})
}

func TestGridGivesNeighbours(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{6}, func(ctx context.Context, c *rank.Comm) error {
		g, err := rank.NewGrid(ctx, c, []int{0, 2}, []bool{false, true})
		if err != nil {
			return err
		}
		me := c.Rank()
		above, below := me+2, me-2
		if above >= 6 {
			above = rank.ProcNull
		}
		if below < 0 {
			below = rank.ProcNull
		}
		got := [][]int{g.Dims, g.Coords, g.Below, g.Above}
		if want := [][]int{{3, 2}, {me / 2, me % 2}, {below, me ^ 1}, {above, me ^ 1}}; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("dims, coords, below and above: %v, want %v", got, want)
		}
		from := []int{-1}
		st, err := rank.Swap[int]{Send: []int{me}, To: g.Above[0], Recv: from, From: g.Below[0], Tag: 3}.Do(ctx, g.Comm)
		if want := max(below, -1); err != nil || from[0] != want || st.Source != below {
			return fmt.Errorf("swap: %v, %+v, %v, want %d", from, st, err, want)
		}
		if _, err := rank.NewGrid(ctx, c, []int{4, 0}, nil); rank.ClassOf(err) != rank.ClassDims {
			return fmt.Errorf("6 ranks in 4 rows: %v", err)
		}
		return nil
	})
}

func TestColumnsOfAMatrix(t *testing.T) {
	testenv.NoLeaks(t)
	const rows, columns = 3, 4
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		two, err := rank.Column(rows, columns, rank.TypeInt32)
		if err != nil {
			return err
		}
		m := make([]int32, rows*columns)
		if c.Rank() == 0 {
			for i := range m {
				m[i] = int32(i)
			}
			return c.Send(ctx, rank.Typed(m[1:], 2, two), 1, 0)
		}
		if _, err := c.Recv(ctx, rank.Typed(m[2:], 2, two), 0, 0); err != nil {
			return err
		}
		if want := []int32{0, 0, 1, 2, 0, 0, 5, 6, 0, 0, 9, 10}; !slices.Equal(m, want) {
			return fmt.Errorf("%v, want %v", m, want)
		}
		return nil
	})
	for _, tt := range []struct{ rows, columns int }{{-1, 2}} {
		if _, err := rank.Column(tt.rows, tt.columns, rank.TypeInt8); err == nil {
			t.Errorf("Column(%d, %d) is no error", tt.rows, tt.columns)
		}
	}
	if _, err := rank.Column(1, 1, nil); err == nil {
		t.Error("a column of no type is no error")
	}
}

func TestBasicDatatypes(t *testing.T) {
	f, err := rank.TypeFor[float64]()
	if err != nil || rank.TypeFloat64 != f || rank.TypeFloat16.Size() != 2 || rank.TypeComplex128.Size() != 16 {
		t.Errorf("TypeFor[float64] is %v, %v, and TypeFloat64 %v", f, err, rank.TypeFloat64)
	}
}

func TestPoolGivesResultsInOrder(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		var tasks, want []string
		if c.Rank() == 0 {
			for i := range 20 {
				tasks, want = append(tasks, fmt.Sprint(i)), append(want, fmt.Sprint(i, i))
			}
		}
		for range 2 {
			got, err := rank.Pool(ctx, c, tasks, func(_ context.Context, s string) (string, error) { return s + " " + s, nil })
			if err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%v, %v, want %v", got, err, want)
			}
		}
		none, err := rank.Pool(ctx, c, nil, func(_ context.Context, s string) (int, error) { return 0, errors.New("called") })
		if err != nil || len(none) != 0 {
			return fmt.Errorf("no tasks: %v, %v", none, err)
		}
		_, err = rank.Pool(ctx, c, tasks, func(_ context.Context, s string) (int, error) {
			if s == "7" {
				return 0, errors.New("seven")
			}
			return 1, nil
		})
		if failed := err != nil && strings.HasPrefix(err.Error(), "task 7, on rank ") && strings.HasSuffix(err.Error(), ": seven"); failed != (c.Rank() == 0) {
			return fmt.Errorf("a task that fails: %v", err)
		}
		_, err = rank.Pool(ctx, c, tasks, func(context.Context, string) (any, error) { return func() {}, nil })
		if failed := err != nil; failed != (c.Rank() == 0 && c.Size() > 1) {
			return fmt.Errorf("results that cannot travel: %v", err)
		}
		return nil
	})
}
