package rank

import (
	"context"
	"slices"

	"github.com/gorun-mpi/gorun/rank/internal/topology"
)

// A TopologyKind is the kind of a communicator's topology (MPI_Topo_test).
type TopologyKind int

// The kinds.
const (
	NoTopology TopologyKind = iota // MPI_UNDEFINED
	Cartesian                      // MPI_CART: a grid, see [Comm.CartCreate]
	Graph                          // MPI_GRAPH: see [Comm.GraphCreate]
	DistGraph                      // MPI_DIST_GRAPH: see [Comm.DistGraphCreate]
)

// A layout is a communicator's topology. It is not changed once it is made, so
// that a dup shares it.
type layout struct {
	kind       TopologyKind
	grid       topology.Grid // Cartesian
	index      []int         // Graph: where the edges of each rank end
	edges      []int
	weights    weights // DistGraph
	neighbours neighbourhood
	uneven     bool // an edge of the graph is named at one end only
}

// weights are those of the edges, nil without any.
type weights struct{ sources, destinations []int }

// A neighbourhood is the ranks with which a rank exchanges blocks in the collectives of
// neighbours, by the places of the blocks in their buffers.
type neighbourhood struct {
	// sources and destinations are ranks of the communicator, or ProcNull,
	// whose block has its place and is not moved.
	sources, destinations []int
	// arrival are the indices of sources in the order in which several blocks
	// of one rank are received, when it sends them in the order of its
	// destinations. In a grid of 1 or 2 in a period a rank is a neighbour on
	// both sides: what it sends in the negative direction is for the positive
	// neighbour's place, and the other way round.
	arrival []int
}

// Topology is the kind of the communicator's topology (MPI_Topo_test).
func (c *Comm) Topology() TopologyKind {
	if c.layout == nil {
		return NoTopology
	}
	return c.layout.kind
}

// neighbours are the rank's own. They must not be changed.
func (c *Comm) neighbours() (*neighbourhood, error) {
	switch {
	case c.layout == nil:
		return nil, badClass(ClassTopology, "the communicator has no topology")
	case c.layout.uneven:
		return nil, badClass(ClassTopology, "an edge is named at one end only: a destination must name the rank as a source, and a source as a destination")
	}
	return &c.layout.neighbours, nil
}

// laidOut is the topology for a call of its kind that concerns this rank alone.
func (c *Comm) laidOut(op string, kind TopologyKind) (*layout, error) {
	err := c.exists()
	switch {
	case err != nil:
	case c.freed || c.making:
		err = c.unusable()
	case c.Topology() != kind:
		err = badClass(ClassTopology, "the communicator's topology is of another kind")
	}
	if err != nil {
		return nil, c.fail(op, -1, err)
	}
	return c.layout, nil
}

// layOut makes a communicator with a topology of the first n ranks, in their
// order; it is nil on the others. edges are those of a graph, for them to be
// compared with the others'; arguments what all ranks give alike.
func (c *Comm) layOut(ctx context.Context, op string, n int, arguments, edges uint64, bad error) (*Comm, error) {
	own := choice{alike: arguments, balance: edges}
	if c.exists() == nil {
		switch {
		case bad != nil:
		case c.inter:
			bad = badClass(ClassComm, "an intercommunicator cannot have a topology")
		case n > c.size:
			bad = badClass(ClassDims, "a topology of %d ranks does not fit into a communicator of %d ranks", n, c.size)
		}
		if c.rank >= n {
			own.color = Undefined
		}
	}
	return c.derive(ctx, op, own, bad)
}

// ranksIn tells whether all of list are ranks below n.
func ranksIn(what string, list []int, n int) error {
	for _, r := range list {
		if r < 0 || r >= n {
			return badClass(ClassRank, "%s rank %d in a communicator of %d ranks", what, r, n)
		}
	}
	return nil
}

// upTo is 0 to n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// GraphCreate makes a communicator with a graph that all ranks know (MPI_Graph_create).
// The neighbours of rank r are edges[index[r-1]:index[r]], or edges[:index[0]] for rank
// 0. All ranks give the same arguments. Ranks from len(index) on get nil. reorder
// permits a new order of ranks; at present the order stays the same.
func (c *Comm) GraphCreate(ctx context.Context, index, edges []int, reorder bool) (*Comm, error) {
	bad := checkGraph(index, edges)
	d, err := c.layOut(ctx, "graph_create", len(index), hashed(hashed(hashInit, index), edges), 0, bad)
	if d == nil {
		return nil, err
	}
	l := &layout{kind: Graph, index: slices.Clone(index), edges: slices.Clone(edges)}
	own := l.of(d.rank)
	l.neighbours = neighbourhood{sources: own, destinations: own, arrival: upTo(len(own))}
	d.layout = l
	return d, nil
}

// checkGraph tells what is wrong with the arguments of GraphCreate.
func checkGraph(index, edges []int) error {
	before := 0
	for r, end := range index {
		if end < before || end > len(edges) {
			return badArgument("the edges of rank %d end at %d, expected %d to %d", r, end, before, len(edges))
		}
		before = end
	}
	if before != len(edges) {
		return badArgument("%d edges, but those of the last rank end at %d", len(edges), before)
	}
	return ranksIn("neighbour", edges, len(index))
}

// of are the neighbours of a rank in a graph that all know.
func (l *layout) of(rank int) []int {
	begin := 0
	if rank > 0 {
		begin = l.index[rank-1]
	}
	return l.edges[begin:l.index[rank]]
}

// GraphGet returns the arguments of [Comm.GraphCreate] (MPI_Graph_get).
func (c *Comm) GraphGet() (index, edges []int, err error) {
	l, err := c.laidOut("graph_get", Graph)
	if err != nil {
		return nil, nil, err
	}
	return slices.Clone(l.index), slices.Clone(l.edges), nil
}

// GraphNeighbors returns the neighbours of a rank (MPI_Graph_neighbors).
func (c *Comm) GraphNeighbors(rank int) ([]int, error) {
	l, err := c.laidOut("graph_neighbors", Graph)
	if err == nil {
		if err = ranksIn("a", []int{rank}, c.size); err != nil {
			err = c.fail("graph_neighbors", -1, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(l.of(rank)), nil
}
