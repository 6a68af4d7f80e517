package datatype

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// dealt is the owner of an index, as MPI's text defines it.
func dealt(d Distribution, n, procs, index int) int {
	step := d.N
	switch d.Kind {
	case Whole:
		return 0
	case Blocks:
		if step == 0 {
			step = (n + procs - 1) / procs
		}
		return index / step
	}
	if step == 0 {
		step = 1
	}
	return index / step % procs
}

// The parts of all ranks together are the array, each element at its owner's, in the
// order of memory.
func TestDarray(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for trial := range 3000 {
		n := 1 + rnd.IntN(3)
		sizes, grid, how := make([]int, n), make([]int, n), make([]Distribution, n)
		ranks, elements := 1, 1
		for d := range n {
			sizes[d], grid[d] = 1+rnd.IntN(7), 1+rnd.IntN(3)
			switch least := (sizes[d] + grid[d] - 1) / grid[d]; rnd.IntN(4) {
			case 0:
				grid[d], how[d] = 1, Distribution{Kind: Whole}
			case 1:
				how[d] = Distribution{Blocks, 0}
			case 2:
				how[d] = Distribution{Blocks, least + rnd.IntN(3)}
			default:
				how[d] = Distribution{Cyclic, rnd.IntN(9)}
			}
			ranks *= grid[d]
			elements *= sizes[d]
		}
		columns := trial%2 == 0
		want := make([][]int, ranks)
		for e := range elements {
			index, rest := make([]int, n), e
			for i := range n {
				d := n - 1 - i
				if columns {
					d = i
				}
				index[d], rest = rest%sizes[d], rest/sizes[d]
			}
			owner := 0
			for d := range n {
				owner = owner*grid[d] + dealt(how[d], sizes[d], grid[d], index[d])
			}
			want[owner] = append(want[owner], e)
		}
		for rank := range ranks {
			o, err := Deal{ranks, rank, sizes, how, grid, columns}.Of(Of(Int16))
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			_ = o.Runs(0, o.Size(), func(off, n int) error {
				for i := 0; i < n; i += 2 {
					got = append(got, (off+i)/2)
				}
				return nil
			})
			if lb, extent := o.Extent(); lb != 0 || extent != 2*elements || !slices.Equal(got, want[rank]) {
				t.Fatalf("%v, columns %v: elements %v of %d bytes from %d, want %v of %d", o, columns, got, extent, lb, want[rank], 2*elements)
			}
		}
	}
}

func TestDarrayErrors(t *testing.T) {
	block, cyclic := Distribution{Blocks, 0}, Distribution{Cyclic, 0}
	for name, err := range map[string]error{
		"no dimension":     second(Deal{1, 0, nil, nil, nil, false}.Of(Of(Int8))),
		"lengths":          second(Deal{1, 0, []int{4}, []Distribution{block, block}, []int{1}, false}.Of(Of(Int8))),
		"grid too small":   second(Deal{4, 0, []int{4}, []Distribution{block}, []int{2}, false}.Of(Of(Int8))),
		"grid too large":   second(Deal{2, 0, []int{4, 4}, []Distribution{block, block}, []int{2, 2}, false}.Of(Of(Int8))),
		"huge grid":        second(Deal{1 << 40, 0, []int{4, 4, 4}, []Distribution{block, block, block}, []int{1 << 40, 1 << 40, 1 << 40}, false}.Of(Of(Int8))),
		"rank":             second(Deal{2, 2, []int{4}, []Distribution{block}, []int{2}, false}.Of(Of(Int8))),
		"whole for two":    second(Deal{2, 0, []int{4}, []Distribution{{Kind: Whole}}, []int{2}, false}.Of(Of(Int8))),
		"blocks too short": second(Deal{2, 0, []int{4}, []Distribution{{Blocks, 1}}, []int{2}, false}.Of(Of(Int8))),
		"negative":         second(Deal{2, 0, []int{4}, []Distribution{{Cyclic, -1}}, []int{2}, false}.Of(Of(Int8))),
		"unknown":          second(Deal{2, 0, []int{4}, []Distribution{{}}, []int{2}, false}.Of(Of(Int8))),
		"no index":         second(Deal{2, 0, []int{0}, []Distribution{cyclic}, []int{2}, false}.Of(Of(Int8))),
		"huge":             second(Deal{1, 0, []int{1 << 30, 1 << 30}, []Distribution{block, {Kind: Whole}}, []int{1, 1}, false}.Of(Of(Int64))),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second(_ *Type, err error) error { return err }
