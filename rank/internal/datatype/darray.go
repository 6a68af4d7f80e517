package datatype

import "fmt"

// A Distribution says how the indices of a dimension are dealt out.
type Distribution struct {
	Kind Dealing
	N    int // indices at a time; 0: as few as the kind can do with
}

// A Dealing is a kind of distribution.
type Dealing uint8

// The kinds.
const (
	Whole  Dealing = iota + 1 // every rank has all, of which there is one
	Blocks                    // a block each
	Cyclic                    // in turn
)

// String is the name, with what it deals out at a time.
func (d Distribution) String() string {
	switch d.Kind {
	case Whole:
		return "whole"
	case Blocks:
		return fmt.Sprintf("blocks(%d)", d.N)
	case Cyclic:
		return fmt.Sprintf("cyclic(%d)", d.N)
	}
	return "no distribution"
}

// deal gives the indices of a dimension of n that belong to the process at coord of procs, as blocks.
func (d Distribution) deal(n, coord, procs int) (lengths, starts []int, err error) {
	step := d.N
	switch {
	case d.Kind < Whole || d.Kind > Cyclic:
		return nil, nil, fmt.Errorf("%v", d)
	case step < 0:
		return nil, nil, fmt.Errorf("%v: expected a block of 1 index or more", d)
	case d.Kind == Whole && procs != 1:
		return nil, nil, fmt.Errorf("%d ranks in a dimension that is not distributed", procs)
	case d.Kind == Whole:
		step = n
	case d.Kind == Blocks && step == 0:
		step = (n + procs - 1) / procs
	case d.Kind == Blocks && step < (n+procs-1)/procs:
		return nil, nil, fmt.Errorf("%v: %d such blocks do not cover %d indices", d, procs, n)
	case step == 0:
		step = 1
	}
	for at := coord * min(step, n); at < n; at += procs * min(step, n) {
		lengths, starts = append(lengths, min(step, n-at)), append(starts, at)
		if d.Kind != Cyclic {
			break
		}
	}
	return lengths, starts, nil
}

// A Deal is an array that is dealt out to a grid of Size ranks, which is by rows. The last index
// runs fastest, with Columns the first.
type Deal struct {
	Size, Rank int
	Sizes      []int
	How        []Distribution
	Grid       []int
	Columns    bool
}

// Of is the part of an array of items that Rank has (MPI_Type_create_darray). Its extent is that
// of the whole array.
func (a Deal) Of(t *Type) (*Type, error) {
	size, rank, sizes, how, grid := a.Size, a.Rank, a.Sizes, a.How, a.Grid
	n := len(sizes)
	if n == 0 || len(how) != n || len(grid) != n {
		return nil, fmt.Errorf("%d sizes, %d distributions and %d grid dimensions: expected as many of each", n, len(how), len(grid))
	}
	ranks := 1
	for d, p := range grid {
		if p < 1 || p > size || sizes[d] < 1 {
			return nil, fmt.Errorf("dimension %d: %d indices for %d of %d ranks", d, sizes[d], p, size)
		}
		ranks *= p
		if ranks > size {
			break
		}
	}
	if ranks != size || rank < 0 || rank >= size {
		return nil, fmt.Errorf("rank %d of %d in a grid %v", rank, size, grid)
	}
	coords := make([]int, n)
	for d, rest := n-1, rank; d >= 0; d-- {
		coords[d], rest = rest%grid[d], rest/grid[d]
	}
	stride := t.ub - t.lb
	part := t
	for i := range n {
		d := n - 1 - i // the fastest first
		if a.Columns {
			d = i
		}
		lengths, starts, err := how[d].deal(sizes[d], coords[d], grid[d])
		if err != nil {
			return nil, fmt.Errorf("dimension %d: %w", d, err)
		}
		// The indices of this dimension are one stride apart, whatever lies there.
		apart, err := Resized(part, part.lb, stride)
		if err != nil {
			return nil, err
		}
		if part, err = indexed("", lengths, starts, stride, apart); err != nil {
			return nil, err
		}
		var ok bool
		if stride, ok = mul(stride, sizes[d]); !ok {
			return nil, ErrTooLarge
		}
	}
	whole, err := Resized(part, t.lb, stride)
	if err == nil {
		whole.name = fmt.Sprintf("darray(rank %d of %d, %v dealt out as %v to %v, %s)", rank, size, sizes, how, grid, inner(t))
	}
	return whole, err
}
