package rank

import "context"

// A Grid tells where this rank is among ranks that form a grid, and who its neighbours are.
type Grid struct {
	Comm   *Comm // of the ranks of the grid
	Dims   []int // ranks in each dimension
	Coords []int // of this rank
	// Below and Above are the neighbours in each dimension, with the next smaller and the next
	// larger coordinate. Beyond a border that is not periodic the neighbour is [ProcNull].
	Below, Above []int
}

// NewGrid arranges all ranks of c in a grid: [DimsCreate] fills the zeros
// of dims, and [Comm.CartCreate] makes the communicator. All ranks call it.
// periods has an entry for each dimension; nil: no dimension is periodic.
func NewGrid(ctx context.Context, c *Comm, dims []int, periods []bool) (*Grid, error) {
	g := &Grid{Dims: append([]int(nil), dims...)}
	if periods == nil {
		periods = make([]bool, len(dims))
	}
	if err := DimsCreate(c.Size(), g.Dims); err != nil {
		return nil, err
	}
	var err error
	if g.Comm, err = c.CartCreate(ctx, g.Dims, periods, false); err != nil {
		return nil, err
	}
	if _, _, g.Coords, err = g.Comm.CartGet(); err != nil {
		return nil, err
	}
	g.Below, g.Above = make([]int, len(dims)), make([]int, len(dims))
	for dim := range dims {
		if g.Below[dim], g.Above[dim], err = g.Comm.CartShift(dim, 1); err != nil {
			return nil, err
		}
	}
	return g, nil
}
