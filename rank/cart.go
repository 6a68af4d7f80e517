package rank

import (
	"context"
	"slices"

	"github.com/gorun-mpi/gorun/rank/internal/topology"
)

// DimsCreate fills the zeros of dims so that their product is nodes (MPI_Dims_create).
// The values that it chooses are as close to each other as possible, in falling order.
// It is an error when the given values do not divide nodes.
func DimsCreate(nodes int, dims []int) error {
	if err := topology.Dims(nodes, dims); err != nil {
		return &Error{Op: "dims_create", Peer: -1, Err: badClass(ClassDims, "%v", err)}
	}
	return nil
}

// CartCreate makes a communicator whose ranks form a grid (MPI_Cart_create) in row-major order: the last
// coordinate changes fastest. In a periodic dimension the last rank's neighbour is the first. All ranks
// give the same arguments. Ranks that do not fit into the grid get nil. reorder permits a new order of
// ranks; at present the order stays the same, because gorun places neighbouring ranks on one host.
func (c *Comm) CartCreate(ctx context.Context, dims []int, periods []bool, reorder bool) (*Comm, error) {
	grid, points, err := topology.New(slices.Clone(dims), slices.Clone(periods))
	if err != nil {
		err = badClass(ClassDims, "%v", err)
	}
	flags := make([]int, len(periods))
	for i, p := range periods {
		if p {
			flags[i] = 1
		}
	}
	d, err := c.layOut(ctx, "cart_create", points, hashed(hashed(hashInit, dims), flags), 0, err)
	if d != nil {
		d.setGrid(grid)
	}
	return d, err
}

// setGrid makes the communicator's topology a grid.
func (c *Comm) setGrid(grid topology.Grid) {
	l := &layout{kind: Cartesian, grid: grid}
	n := &l.neighbours
	for dim := range grid.Dims {
		below, above := grid.Shift(c.rank, dim, 1)
		n.sources = append(n.sources, below, above)
		n.arrival = append(n.arrival, 2*dim+1, 2*dim)
	}
	n.destinations = n.sources
	c.layout = l
}

// CartMap is the rank that [Comm.CartCreate] with reorder would give to the caller, or
// Undefined if the grid has no room for it (MPI_Cart_map). It does not communicate.
func (c *Comm) CartMap(dims []int, periods []bool) (int, error) {
	_, points, err := topology.New(slices.Clone(dims), slices.Clone(periods))
	if err != nil {
		err = badClass(ClassDims, "%v", err)
	}
	return c.placed("cart_map", points, err)
}

// GraphMap is [Comm.CartMap] for [Comm.GraphCreate] (MPI_Graph_map).
func (c *Comm) GraphMap(index, edges []int) (int, error) {
	return c.placed("graph_map", len(index), checkGraph(index, edges))
}

// placed is the caller's rank among so many, which keep their order.
func (c *Comm) placed(op string, points int, err error) (int, error) {
	if err == nil {
		err = c.exists()
	}
	switch {
	case err != nil:
	case c.inter:
		err = badClass(ClassComm, "an intercommunicator cannot have a topology")
	case points > c.size:
		err = badClass(ClassDims, "a topology of %d ranks does not fit into a communicator of %d ranks", points, c.size)
	}
	switch {
	case err != nil:
		return 0, c.fail(op, -1, err)
	case c.rank >= points:
		return Undefined, nil
	}
	return c.rank, nil
}

// CartSub divides the grid into subgrids of the dimensions to keep, and makes
// a communicator of each (MPI_Cart_sub). All ranks give the same argument.
func (c *Comm) CartSub(ctx context.Context, keep []bool) (*Comm, error) {
	const op = "cart_sub"
	l, err := c.laidOut(op, Cartesian)
	if err != nil {
		return nil, err
	}
	var sub topology.Grid
	own := choice{}
	var bad error
	if len(keep) != len(l.grid.Dims) {
		bad = badClass(ClassDims, "keep has %d entries, but the grid has %d dimensions", len(keep), len(l.grid.Dims))
	} else {
		var which, index int
		sub, which, index = l.grid.Sub(keep, c.rank)
		own.color, own.key, own.alike = int64(which), int64(index), hashInit
		for _, k := range keep {
			flag := 0
			if k {
				flag = 1
			}
			own.alike = hashed(own.alike, []int{flag})
		}
	}
	d, err := c.derive(ctx, op, own, bad)
	if d != nil {
		d.setGrid(sub)
	}
	return d, err
}

// CartGet returns the grid and this rank's coordinates (MPI_Cart_get;
// the lengths are those of MPI_Cartdim_get).
func (c *Comm) CartGet() (dims []int, periods []bool, coords []int, err error) {
	l, err := c.laidOut("cart_get", Cartesian)
	if err != nil {
		return nil, nil, nil, err
	}
	coords = make([]int, len(l.grid.Dims))
	l.grid.Coords(c.rank, coords)
	return slices.Clone(l.grid.Dims), slices.Clone(l.grid.Periods), coords, nil
}

// CartCoords returns the coordinates of a rank in the grid (MPI_Cart_coords).
func (c *Comm) CartCoords(rank int) ([]int, error) {
	const op = "cart_coords"
	l, err := c.laidOut(op, Cartesian)
	if err != nil {
		return nil, err
	}
	if err := ranksIn("a", []int{rank}, c.size); err != nil {
		return nil, c.fail(op, -1, err)
	}
	coords := make([]int, len(l.grid.Dims))
	l.grid.Coords(rank, coords)
	return coords, nil
}

// CartRank is the rank at coords (MPI_Cart_rank). In a periodic
// dimension a coordinate outside of the grid is wrapped.
func (c *Comm) CartRank(coords []int) (int, error) {
	const op = "cart_rank"
	l, err := c.laidOut(op, Cartesian)
	if err != nil {
		return 0, err
	}
	rank, err := l.grid.Point(coords)
	if err != nil {
		return 0, c.fail(op, -1, badArgument("%v", err))
	}
	return rank, nil
}

// CartShift returns the peers for a shift by steps along one dimension (MPI_Cart_shift): this rank
// receives from source and sends to dest. Beyond a border that is not periodic the peer is [ProcNull].
func (c *Comm) CartShift(dim, steps int) (source, dest int, err error) {
	const op = "cart_shift"
	l, err := c.laidOut(op, Cartesian)
	if err != nil {
		return 0, 0, err
	}
	if dim < 0 || dim >= len(l.grid.Dims) {
		return 0, 0, c.fail(op, -1, badClass(ClassDims, "dimension %d in a grid of %d dimensions", dim, len(l.grid.Dims)))
	}
	source, dest = l.grid.Shift(c.rank, dim, steps)
	return source, dest, nil
}
