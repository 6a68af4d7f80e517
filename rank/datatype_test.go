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

// typeOf is TypeFor of a type that is good.
func typeOf[T rank.Element]() *rank.Datatype {
	t, err := rank.TypeFor[T]()
	if err != nil {
		panic(err)
	}
	return t
}

// must is for constructors whose arguments are good.
func must(t *rank.Datatype, err error) *rank.Datatype {
	if err != nil {
		panic(err)
	}
	return t
}

func TestTypeFor(t *testing.T) {
	type nested struct {
		A int8
		P particle
		B [3]struct {
			X uint16
			Y complex64
		}
	}
	for _, tt := range []struct {
		t            *rank.Datatype
		size, extent int
	}{
		{typeOf[bool](), 1, 1}, {typeOf[uint16](), 2, 2}, {typeOf[rank.Float16](), 2, 2}, {typeOf[int](), 8, 8}, {typeOf[complex128](), 16, 16},
		{typeOf[[5]float32](), 20, 20},
		{typeOf[particle](), 4 + 24 + 1, 40},
		{typeOf[nested](), 1 + 29 + 3*10, 8 + 40 + 3*12 + 4},
	} {
		lb, extent := tt.t.Extent()
		if tt.t.Size() != tt.size || lb != 0 || extent != tt.extent {
			t.Errorf("%v: size %d, extent %d %d; want %d, 0 %d", tt.t, tt.t.Size(), lb, extent, tt.size, tt.extent)
		}
	}
	if _, err := rank.TypeFor[named](); !errors.Is(err, rank.ClassType) || !strings.Contains(err.Error(), "rank_test.named.Tags[0].Text is a string") {
		t.Errorf("a struct with a string: %v", err)
	}
	if _, err := rank.Vector(1, 1, 1, nil); !errors.Is(err, rank.ClassType) {
		t.Errorf("vector of no type: %v", err)
	}
	if _, err := rank.Contiguous(-1, typeOf[int]()); !errors.Is(err, rank.ErrArgument) {
		t.Errorf("negative count: %v", err)
	}
}

// Structs travel without their padding, which stays as it is.
func TestStructMessages(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, manySizes, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for _, n := range []int{0, 1, 50, 3000} {
			cloud := func(who int) []particle {
				s := make([]particle, n)
				for i := range s {
					s[i] = particle{ID: int32(who*1000 + i), Position: [3]float64{float64(i), float64(who), -1}, Alive: i%3 == who%3}
				}
				return s
			}
			in := make([]particle, n)
			flags := make([]bool, n)
			var alive []bool
			for _, p := range cloud(c.Rank()) {
				alive = append(alive, p.Alive)
			}
			a, err := rank.Irecv(c, in, before, 1)
			if err != nil {
				return err
			}
			b, err := rank.Irecv(c, flags, before, 2)
			if err != nil {
				return err
			}
			if err := rank.Send(ctx, c, cloud(c.Rank()), next, 1); err != nil && n < 100 {
				return err
			}
			if err := rank.Send(ctx, c, alive, next, 2); err != nil {
				return err
			}
			var statuses [2]rank.Status
			if err := rank.WaitAll(ctx, []rank.Request{a, b}, statuses[:]); err != nil {
				return err
			}
			if statuses[0].Count != n || statuses[0].Bytes != 29*n || statuses[1].Count != n {
				return fmt.Errorf("statuses %+v", statuses)
			}
			if want := cloud(before); !slices.Equal(in, want) {
				return fmt.Errorf("particles %v, want %v", in, want)
			}
			for i, p := range in {
				if flags[i] != p.Alive {
					return fmt.Errorf("flag %d is %v", i, flags[i])
				}
			}
		}
		return nil
	})
}

// A matrix is sent by rows and received by columns, which transposes it; by all
// kinds of calls.
func TestTranspose(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 4}, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for round, n := range []int{1, 3, 20, 90} {
			float := typeOf[float64]()
			column := must(rank.Resized(must(rank.Vector(n, 1, n, float)), 0, 8))
			out, err := make1[float64](c, n*n, round)
			if err != nil {
				return err
			}
			for i := range out {
				out[i] = float64(1000*c.Rank() + i)
			}
			in := make([]float64, n*n)
			check := func(what string, st rank.Status, err error) error {
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				if want := (rank.Status{Source: before, Tag: 4, Count: n, Bytes: 8 * n * n}); st != want {
					return fmt.Errorf("%s: status %+v, want %+v", what, st, want)
				}
				if st.GetCount(float) != n*n || st.GetElements(column) != n*n {
					return fmt.Errorf("%s: %d numbers, %d elements", what, st.GetCount(float), st.GetElements(column))
				}
				for i := range n {
					for j := range n {
						if got, want := in[j*n+i], float64(1000*before+i*n+j); got != want {
							return fmt.Errorf("%s: element %d,%d is %v, want %v", what, j, i, got, want)
						}
					}
				}
				clear(in)
				return nil
			}
			rows, columns := rank.Of(out), rank.Typed(in, n, column)
			st, err := c.Sendrecv(ctx, rows, next, 4, columns, before, 4)
			if err := check("sendrecv", st, err); err != nil {
				return err
			}
			q, err := c.Irecv(columns, before, 4)
			if err != nil {
				return err
			}
			s, err := c.Issend(rows, next, 4)
			if err != nil {
				return err
			}
			statuses := make([]rank.Status, 2)
			err = rank.WaitAll(ctx, []rank.Request{q, s}, statuses)
			if err := check("irecv", statuses[0], err); err != nil {
				return err
			}
			// The other way round: columns are sent, and rows received.
			if s, err = c.Isend(rank.Typed(out, n, column), next, 4); err != nil {
				return err
			}
			m, _, err := c.Mprobe(ctx, before, 4)
			if err != nil {
				return err
			}
			st, err = rank.Mrecv(ctx, m, in)
			st.Count /= n
			if err := check("mrecv", st, err); err != nil {
				return err
			}
			if _, err := s.Wait(ctx); err != nil {
				return err
			}
			// Twice in place is nothing, round the ring.
			if _, err := c.SendrecvReplace(ctx, rank.Typed(out, n, column), next, 4, before, 4); err != nil {
				return err
			}
			if _, err := c.SendrecvReplace(ctx, rank.Typed(out, n, column), before, 4, next, 4); err != nil {
				return err
			}
			for i := range out {
				if out[i] != float64(1000*c.Rank()+i) {
					return fmt.Errorf("element %d is %v after two replacements", i, out[i])
				}
			}
		}
		return nil
	})
}

// A short message leaves the rest of the items alone and is counted in numbers.
func TestPartOfAnItem(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		peer := c.Size() - 1 - c.Rank()
		float := typeOf[float64]()
		pair := must(rank.StructOf([]int{1, 1}, []int{0, 8}, []*rank.Datatype{typeOf[int32](), float}))
		in := make([]float64, 6)
		for i := range in {
			in[i] = -1
		}
		q, err := c.Irecv(rank.Typed(in, 2, must(rank.Vector(2, 1, 2, float))), peer, 0)
		if err != nil {
			return err
		}
		if err := rank.Send(ctx, c, []float64{5, 6, 7}, peer, 0); err != nil {
			return err
		}
		st, err := q.Wait(ctx)
		if err != nil {
			return err
		}
		if !slices.Equal(in, []float64{5, -1, 6, 7, -1, -1}) || st.Count != rank.Undefined || st.Bytes != 24 {
			return fmt.Errorf("received %v, %+v", in, st)
		}
		for _, tt := range []struct {
			t               *rank.Datatype
			count, elements int
		}{{float, 3, 3}, {pair, 2, 4}, {must(rank.Contiguous(2, float)), rank.Undefined, 3}, {typeOf[[7]int16](), rank.Undefined, 12}, {typeOf[complex128](), rank.Undefined, rank.Undefined}, {nil, rank.Undefined, rank.Undefined}} {
			if n, e := st.GetCount(tt.t), st.GetElements(tt.t); n != tt.count || e != tt.elements {
				return fmt.Errorf("%v: count %d, elements %d; want %d, %d", tt.t, n, e, tt.count, tt.elements)
			}
		}
		return nil
	})
}

func TestBadBuffers(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) error {
		float := typeOf[float64]()
		b := make([]float64, 10)
		below := must(rank.Hindexed([]int{1}, []int{-8}, float))
		twice := must(rank.Hvector(2, 1, 4, float))
		recv := func(b rank.Buffer) error { _, err := c.Irecv(b, 0, 0); return err }
		_, both := c.Sendrecv(ctx, rank.Of(b[:6]), 0, 0, rank.Of(b[5:]), 0, 0)
		_, pack := rank.Pack(c, make([]byte, 79), 0, rank.Of(b))
		_, position := rank.Unpack(c, make([]byte, 80), 1, rank.Of(b))
		_, packSize := rank.PackSize(-1, float)
		for _, tt := range []struct {
			err   error
			class rank.Class
			want  string
		}{
			{c.Send(ctx, rank.Typed(b, 11, float), 0, 0), rank.ClassBuffer, "to 88 of a slice of 80 bytes"},
			{c.Send(ctx, rank.Typed(b, -1, float), 0, 0), rank.ClassCount, "-1 items"},
			{c.Send(ctx, rank.Typed(b, 1, nil), 0, 0), rank.ClassType, "nil"},
			{c.Send(ctx, rank.Typed(b[5:], 1, below), 0, 0), rank.ClassBuffer, "from byte -8"},
			{c.Send(ctx, rank.InPlace, 0, 0), rank.ClassBuffer, "InPlace"},
			{c.Send(ctx, rank.Typed([]string{""}, 1, float), 0, 0), rank.ClassType, "string"},
			{recv(rank.Typed(b, 1, twice)), rank.ClassBuffer, "overlap"},
			{recv(rank.Typed(b, 2, must(rank.Resized(float, 0, 4)))), rank.ClassBuffer, "overlap"},
			{c.Send(ctx, rank.Typed(b, 1<<60, must(rank.Resized(float, 0, 0))), 0, 0), rank.ClassCount, "do not fit into memory"},
			{recv(rank.Typed(b, 1<<60+1, must(rank.Resized(float, 0, 0)))), rank.ClassCount, "do not fit into memory"},
			{both, rank.ClassBuffer, "overlap"},
			{pack, rank.ClassArg, "80 bytes of data at position 0 do not fit into 79"},
			{position, rank.ClassArg, "at position 1"},
			{packSize, rank.ClassType, "negative"},
		} {
			if !errors.Is(tt.err, tt.class) || !strings.Contains(fmt.Sprint(tt.err), tt.want) {
				return fmt.Errorf("error %v, want one of %v that says %q", tt.err, tt.class, tt.want)
			}
		}
		// Overlapping data can be sent, and nothing can be sent and received.
		if err := c.Send(ctx, rank.Typed(b, 1, twice), 0, 0); err != nil {
			return err
		}
		if err := c.Send(ctx, rank.Buffer{}, 0, 1); err != nil {
			return err
		}
		if st, err := c.Recv(ctx, rank.Buffer{}, 0, 1); err != nil || st.Count != 0 {
			return fmt.Errorf("the zero buffer: %+v, %v", st, err)
		}
		_, err := rank.Recv(ctx, c, b, 0, 0)
		return err
	})
}

// What is packed in several calls is received as it would have been sent at once.
func TestPack(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		peer := 1 - c.Rank()
		size, err := rank.PackSize(3, typeOf[particle]())
		if err != nil || size != 87 {
			return fmt.Errorf("pack size %d, %v", size, err)
		}
		want := []particle{{1, [3]float64{2, 3, 4}, true}, {5, [3]float64{6, 7, 8}, false}, {9, [3]float64{}, true}}
		packed, position := make([]byte, size+4), 0
		for _, b := range []rank.Buffer{rank.Of(want[:1]), rank.Of(want[1:]), rank.Of([]int32{77})} {
			if position, err = rank.Pack(c, packed, position, b); err != nil {
				return err
			}
		}
		if position != len(packed) {
			return fmt.Errorf("position %d", position)
		}
		in := make([]byte, len(packed))
		if _, err := rank.Sendrecv(ctx, c, packed, peer, 0, in, peer, 0); err != nil {
			return err
		}
		got, number := make([]particle, 3), make([]int32, 1)
		if position, err = rank.Unpack(c, in, 0, rank.Of(got)); err != nil {
			return err
		}
		if position, err = rank.Unpack(c, in, position, rank.Of(number)); err != nil {
			return err
		}
		if !slices.Equal(got, want) || number[0] != 77 || position != len(in) {
			return fmt.Errorf("unpacked %v, %v", got, number)
		}
		return nil
	})
}

// Negative strides: a type that reaches back from its origin, moved forward.
// TestRuns: the runs of any part of items' data are where Pack takes it from, in order.
func TestRuns(t *testing.T) {
	i32, u8 := typeOf[int32](), typeOf[uint8]()
	const items = 3
	for _, typ := range []*rank.Datatype{
		i32, must(rank.Contiguous(4, i32)), must(rank.Vector(3, 2, 5, i32)), must(rank.Resized(i32, 0, 12)),
		must(rank.Indexed([]int{2, 1, 3}, []int{7, 0, 3}, u8)),
		must(rank.StructOf([]int{1, 2}, []int{0, 8}, []*rank.Datatype{i32, must(rank.Vector(2, 1, 3, u8))})),
		must(rank.Subarray([]int{4, 5}, []int{2, 3}, []int{1, 1}, u8)),
	} {
		lb, extent := typ.Extent()
		at, span := typ.TrueExtent()
		mem := make([]byte, (items-1)*extent+max(lb+extent, at+span))
		for i := range mem {
			mem[i] = byte(i)
		}
		data := make([]byte, items*typ.Size())
		ranktest.Run(t, 1, func(_ context.Context, c *rank.Comm) error {
			_, err := rank.Pack(c, data, 0, rank.Typed(mem, items, typ))
			return err
		})
		for from := range len(data) {
			for n := range len(data) - from {
				var got []byte
				if err := typ.Runs(from, n, func(off, k int) error {
					got = append(got, mem[off:off+k]...)
					return nil
				}); err != nil || string(got) != string(data[from:from+n]) {
					t.Fatalf("%v: %d bytes from %d on: %v, %v, want %v", typ, n, from, got, err, data[from:from+n])
				}
			}
		}
	}
	stop := errors.New("stop")
	calls := 0
	if err := must(rank.Vector(3, 1, 2, i32)).Runs(0, 12, func(int, int) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("%v after %d calls, want the first error after 1", err, calls)
	}
}

func TestBackwards(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) error {
		back := must(rank.Vector(4, 1, -2, typeOf[int]()))
		lb, _ := back.TrueExtent()
		forward := must(rank.HindexedBlock(1, []int{-lb}, back))
		if _, err := c.Irecv(rank.Typed(make([]int, 7), 1, back), 0, 0); !errors.Is(err, rank.ClassBuffer) {
			return fmt.Errorf("a type that reaches back: %v", err)
		}
		if err := c.Send(ctx, rank.Typed([]int{10, 11, 12, 13, 14, 15, 16}, 1, forward), 0, 0); err != nil {
			return err
		}
		got := make([]int, 4)
		if _, err := rank.Recv(ctx, c, got, 0, 0); err != nil || !slices.Equal(got, []int{16, 14, 12, 10}) {
			return fmt.Errorf("backwards: %v, %v", got, err)
		}
		return nil
	})
}

// What is cut out of an array is what the indices say, and nothing else is written.
func TestPartsOfArrays(t *testing.T) {
	testenv.NoLeaks(t)
	array := make([]int32, 4*5)
	for i := range array {
		array[i] = int32(100 + i)
	}
	number := typeOf[int32]()
	for _, tt := range []struct {
		name  string
		t     *rank.Datatype
		parts []int // indices in array, in order
	}{
		{"subarray", must(rank.Subarray([]int{4, 5}, []int{2, 3}, []int{1, 2}, number)), []int{7, 8, 9, 12, 13, 14}},
		{"indexed block", must(rank.IndexedBlock(2, []int{9, 0, 4}, number)), []int{9, 10, 0, 1, 4, 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ranktest.Run(t, 1, func(_ context.Context, c *rank.Comm) error {
				packed := make([]byte, tt.t.Size())
				if n, err := rank.Pack(c, packed, 0, rank.Typed(array, 1, tt.t)); err != nil || n != 4*len(tt.parts) {
					return fmt.Errorf("pack: %d bytes, %w", n, err)
				}
				got, want := make([]int32, len(array)), make([]int32, len(array))
				for _, i := range tt.parts {
					want[i] = array[i]
				}
				if _, err := rank.Unpack(c, packed, 0, rank.Typed(got, 1, tt.t)); err != nil {
					return err
				}
				row := make([]int32, len(tt.parts))
				if _, err := rank.Unpack(c, packed, 0, rank.Of(row)); err != nil {
					return err
				}
				for k, i := range tt.parts {
					if row[k] != array[i] {
						return fmt.Errorf("packed %v, number %d should be %d", row, k, array[i])
					}
				}
				if !slices.Equal(got, want) {
					return fmt.Errorf("unpacked %v, want %v", got, want)
				}
				return nil
			})
		})
	}
}

func TestVersions(t *testing.T) {
	if v, sub := rank.Version(); v != 4 || sub != 0 {
		t.Errorf("the standard is %d.%d, want 4.0", v, sub)
	}
	if v := rank.LibraryVersion(); !strings.HasPrefix(v, "gorun") {
		t.Errorf("the library calls itself %q", v)
	}
}

// A matrix that rank 0 deals out, by rows and by columns, and gets back: everybody
// finds the numbers of its part, in their order.
func TestDealtOut(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 6}, func(ctx context.Context, c *rank.Comm) error {
		const rows, columns = 7, 10
		number, err := rank.TypeFor[int32]()
		if err != nil {
			return err
		}
		grid := make([]int, 2)
		if err := rank.DimsCreate(c.Size(), grid); err != nil {
			return err
		}
		for _, byColumns := range []bool{false, true} {
			build := rank.Darray
			if byColumns {
				build = rank.DarrayColumns
			}
			part := func(r int) (*rank.Datatype, error) {
				return build(c.Size(), r, []int{rows, columns}, []rank.Distribution{rank.Cyclic(2), rank.Blocks(0)}, grid, number)
			}
			own, err := part(c.Rank())
			if err != nil {
				return err
			}
			mine := make([]int32, own.Size()/4)
			var reqs []rank.Request
			if c.Rank() == 0 {
				all := make([]int32, rows*columns)
				for i := range all {
					all[i] = int32(i)
				}
				for r := range c.Size() {
					t, err := part(r)
					if err != nil {
						return err
					}
					q, err := c.Isend(rank.Typed(all, 1, t), r, 0)
					if err != nil {
						return err
					}
					reqs = append(reqs, q)
				}
			}
			if _, err := rank.Recv(ctx, c, mine, 0, 0); err != nil {
				return err
			}
			if err := rank.WaitAll(ctx, reqs, nil); err != nil {
				return err
			}
			var want []int32
			for e := range rows * columns {
				row, column := e/columns, e%columns
				if byColumns {
					row, column = e%rows, e/rows
				}
				width := (columns + grid[1] - 1) / grid[1]
				if row/2%grid[0]*grid[1]+column/width == c.Rank() {
					want = append(want, int32(e))
				}
			}
			if !slices.Equal(mine, want) {
				return fmt.Errorf("by columns: %v: %v, want %v", byColumns, mine, want)
			}
		}
		rowsFirst, err := rank.Subarray([]int{3, 5}, []int{2, 4}, []int{1, 0}, number)
		if err != nil {
			return err
		}
		columnsFirst, err := rank.SubarrayColumns([]int{5, 3}, []int{4, 2}, []int{0, 1}, number)
		if err != nil {
			return err
		}
		a, b := make([]byte, 32), make([]byte, 32)
		array := make([]int32, 15)
		for i := range array {
			array[i] = int32(i)
		}
		if _, err := rank.Pack(c, a, 0, rank.Typed(array, 1, rowsFirst)); err != nil {
			return err
		}
		if _, err := rank.Pack(c, b, 0, rank.Typed(array, 1, columnsFirst)); err != nil || !slices.Equal(a, b) {
			return fmt.Errorf("by columns %v, %w, want %v", b, err, a)
		}
		if _, err := rank.Darray(2, 0, []int{4}, []rank.Distribution{rank.NotDistributed()}, []int{2}, number); !errors.Is(err, rank.ClassType) {
			return fmt.Errorf("two ranks for what is not dealt out: %v", err)
		}
		return nil
	})
}
