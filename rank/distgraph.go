package rank

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// DistGraphCreateAdjacent makes a communicator with a graph of which each rank gives its own
// edges (MPI_Dist_graph_create_adjacent): the ranks it receives from, and the ranks it sends to.
// Both ends must name an edge the same number of times; otherwise the collectives of neighbours are errors on all ranks.
// Weights have one entry per edge, or are nil on all ranks that give edges (MPI_UNWEIGHTED). All
// ranks call it. reorder permits a new order of ranks; at present the order stays the same.
func (c *Comm) DistGraphCreateAdjacent(ctx context.Context, sources, sourceWeights, destinations, destinationWeights []int, reorder bool) (*Comm, error) {
	const op = "dist_graph_create_adjacent"
	weighted := sourceWeights != nil || destinationWeights != nil
	n, self := c.extent()
	bad := ranksIn("source", sources, n)
	if bad == nil {
		bad = ranksIn("destination", destinations, n)
	}
	if bad == nil && weighted && (len(sourceWeights) != len(sources) || len(destinationWeights) != len(destinations)) {
		bad = badArgument("%d and %d weights for %d sources and %d destinations, expected one for each", len(sourceWeights), len(destinationWeights), len(sources), len(destinations))
	}
	// Over all ranks the edges' hashes cancel out when both ends name them.
	balance := uint64(0)
	for _, to := range destinations {
		balance += hashed(hashInit, []int{self, to})
	}
	for _, from := range sources {
		balance -= hashed(hashInit, []int{from, self})
	}
	d, err := c.layOut(ctx, op, n, alikeWeighted(weighted, len(sources)+len(destinations)), balance, bad)
	if d != nil {
		d.setEdges(slices.Clone(sources), slices.Clone(destinations), weights{slices.Clone(sourceWeights), slices.Clone(destinationWeights)})
	}
	return d, err
}

// alikeWeighted is what all ranks that give edges must give alike: weights or none.
func alikeWeighted(weighted bool, edges int) uint64 {
	switch {
	case edges == 0:
		return 0
	case weighted:
		return hashed(hashInit, []int{1})
	}
	return hashed(hashInit, []int{0})
}

// extent is the number of ranks and the own one, of nothing where c is nil.
func (c *Comm) extent() (n, self int) {
	if c == nil {
		return 0, 0
	}
	return c.size, c.rank
}

// unevenLayout is a topology to begin with where the edges of the ranks are not those of each other, nil elsewhere.
func unevenLayout(choices []choice) *layout {
	sum := uint64(0)
	for i := range choices {
		sum += choices[i].balance
	}
	if sum == 0 {
		return nil
	}
	return &layout{uneven: true}
}

// setEdges makes the communicator's topology a graph.
func (c *Comm) setEdges(sources, destinations []int, w weights) {
	c.layout = &layout{kind: DistGraph, weights: w, uneven: c.layout != nil,
		neighbours: neighbourhood{sources: sources, destinations: destinations, arrival: upTo(len(sources))}}
}

// DistGraphNeighbors returns this rank's edges (MPI_Dist_graph_neighbors; the
// lengths are those of MPI_Dist_graph_neighbors_count), in the order of the
// blocks of neighbour collectives. The weights are nil if the graph has none.
func (c *Comm) DistGraphNeighbors() (sources, sourceWeights, destinations, destinationWeights []int, err error) {
	l, err := c.laidOut("dist_graph_neighbors", DistGraph)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	n := &l.neighbours
	return slices.Clone(n.sources), slices.Clone(l.weights.sources), slices.Clone(n.destinations), slices.Clone(l.weights.destinations), nil
}

// edgeLen is the length of an edge as it is told to one of its ends: what it is, the
// other end, the weight.
const edgeLen = 24

// What an edge is.
const (
	incoming uint64 = 1 << iota // the rank that is told is the destination
	weighing                    // it has a weight
)

// DistGraphCreate makes a communicator with a graph of which each rank may give any edges
// (MPI_Dist_graph_create): degrees[i] edges lead from rank sources[i] to the next entries of
// destinations. edgeWeights has one entry per destination, or is nil on all ranks that give
// edges (MPI_UNWEIGHTED). All ranks call it. Each rank's edges are ordered by the rank that
// gave them. reorder permits a new order of ranks; at present the order stays the same.
func (c *Comm) DistGraphCreate(ctx context.Context, sources, degrees, destinations, edgeWeights []int, reorder bool) (*Comm, error) {
	const op = "dist_graph_create"
	weighted := edgeWeights != nil
	n, _ := c.extent()
	bad := ranksIn("source", sources, n)
	if bad == nil {
		bad = ranksIn("destination", destinations, n)
	}
	if bad == nil && len(degrees) != len(sources) {
		bad = badArgument("%d degrees for %d sources, expected one for each", len(degrees), len(sources))
	}
	total := 0
	for _, d := range degrees {
		if bad == nil && (d < 0 || d > len(destinations)-total) {
			bad = badArgument("degree %d, but only %d destinations are left", d, len(destinations)-total)
		}
		total += d
	}
	if bad == nil && (total != len(destinations) || weighted && len(edgeWeights) != total) {
		bad = badArgument("%d destinations and %d weights, but the degrees add up to %d", len(destinations), len(edgeWeights), total)
	}
	d, err := c.layOut(ctx, op, n, alikeWeighted(weighted, len(destinations)), 0, bad)
	if d == nil {
		return nil, err
	}
	tell := make([][]byte, n)
	add := func(to int, what uint64, other, weight int) {
		tell[to] = binary.LittleEndian.AppendUint64(tell[to], what)
		tell[to] = binary.LittleEndian.AppendUint64(tell[to], uint64(other))
		tell[to] = binary.LittleEndian.AppendUint64(tell[to], uint64(weight))
	}
	at := 0
	for i, from := range sources {
		for range degrees[i] {
			to, what, weight := destinations[at], uint64(0), 0
			if weighted {
				what, weight = weighing, edgeWeights[at]
			}
			add(from, what, to, weight)
			add(to, what|incoming, from, weight)
			at++
		}
	}
	told, err := d.tellEdges(ctx, tell)
	if err != nil {
		return nil, err
	}
	var in, out []int
	var w weights
	weighted = false            // others may have given what this rank has
	for _, list := range told { // by the rank that told them
		for ; len(list) > 0; list = list[edgeLen:] {
			what, other := binary.LittleEndian.Uint64(list), int(binary.LittleEndian.Uint64(list[8:]))
			weight := int(binary.LittleEndian.Uint64(list[16:]))
			if what&incoming != 0 {
				in, w.sources = append(in, other), append(w.sources, weight)
			} else {
				out, w.destinations = append(out, other), append(w.destinations, weight)
			}
			weighted = what&weighing != 0
		}
	}
	if !weighted {
		w = weights{}
	}
	d.setEdges(in, out, w)
	return d, nil
}

// tellEdges gives each rank what is for it, and what others had for this one: the
// lengths by an all-to-all, then messages between those that have something.
func (c *Comm) tellEdges(ctx context.Context, tell [][]byte) ([][]byte, error) {
	const op = "dist_graph_create"
	if err := c.enterCollective(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	w := c.world
	defer w.leave()
	lengths, theirs := make([]byte, 8*c.size), make([]byte, 8*c.size)
	for to, b := range tell {
		binary.LittleEndian.PutUint64(lengths[8*to:], uint64(len(b)))
	}
	if err := c.team.Run(ctx, &coll.Args{Kind: coll.AllToAll, Send: coll.Buffer{Mem: lengths}, Recv: coll.Buffer{Mem: theirs}, Bytes: 8}); err != nil {
		return nil, c.failCollective(op, err)
	}
	told := make([][]byte, c.size)
	told[c.rank] = tell[c.rank]
	for step := 1; step < c.size; step++ {
		to, from := (c.rank+step)%c.size, (c.rank-step+c.size)%c.size
		told[from] = make([]byte, binary.LittleEndian.Uint64(theirs[8*from:]))
		env := match.Envelope{Context: c.makingContext(), Source: int32(w.rank)}
		want := match.Envelope{Context: c.makingContext(), Source: int32(c.worldRank(from))}
		var err error
		switch send, recv := tell[to], told[from]; {
		case len(send) > 0 && len(recv) > 0:
			_, err = w.messages.Exchange(ctx, &p2p.Sending{Buf: send, Envelope: env, Peer: c.worldRank(to)}, &p2p.Receiving{Buf: recv, Want: want})
		case len(send) > 0:
			err = w.messages.Send(ctx, send, nil, env, c.worldRank(to))
		case len(recv) > 0:
			_, err = w.messages.Recv(ctx, recv, nil, want, nil)
		}
		if err != nil {
			return nil, c.revoke(op, c.fail(op, -1, err))
		}
	}
	return told, nil
}
