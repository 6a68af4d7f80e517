//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// neighbours are how many ranks a neighbourhood's collective receives from, and sends to.
func (c *comm) neighbours(f *frame) (in, out int) {
	switch c.Topology() {
	case rank.Cartesian:
		dims, _, _, err := c.CartGet()
		f.failed(err)
		return 2 * len(dims), 2 * len(dims)
	case rank.Graph:
		list, err := c.GraphNeighbors(c.Rank())
		f.failed(err)
		return len(list), len(list)
	case rank.DistGraph:
		from, _, to, _, err := c.DistGraphNeighbors()
		f.failed(err)
		return len(from), len(to)
	}
	f.bad(wrong(c_ERR_TOPOLOGY, "the communicator has no topology"))
	return 0, 0
}

// sources are how many ranks a neighbourhood's collective receives from, destinations how many it sends to.
func (c *comm) sources(f *frame) int {
	in, _ := c.neighbours(f)
	return in
}

func (c *comm) destinations(f *frame) int {
	_, out := c.neighbours(f)
	return out
}

func bools(at ptr, n int) (list []bool) {
	for _, v := range intsAt(at, n) {
		list = append(list, v != 0)
	}
	return list
}

// putInts stores at most room numbers.
func putInts(at ptr, room int, list []int) {
	to := intsAt(at, min(max(room, 0), len(list)))
	for i := range to {
		to[i] = int32(list[i])
	}
}

func putBools(at ptr, room int, list []bool) {
	to := intsAt(at, min(max(room, 0), len(list)))
	for i := range to {
		to[i] = 0
		if list[i] {
			to[i] = 1
		}
	}
}

func mpiTopoTest(f *frame, c *comm, to ptr) error {
	f.put(to, map[rank.TopologyKind]int{rank.NoTopology: c_UNDEFINED, rank.Cartesian: c_CART, rank.Graph: c_GRAPH, rank.DistGraph: c_DIST_GRAPH}[c.Topology()])
	return nil
}

func mpiDimsCreate(_ *frame, nodes, n int, at ptr) error {
	list := ints(at, n)
	if err := checkList(list, n, c_ERR_DIMS); err != nil {
		return err
	}
	if err := rank.DimsCreate(nodes, list); err != nil {
		return err
	}
	putInts(at, n, list)
	return nil
}

// grid are the lists of a grid to be made.
func grid(n int, dims, periods ptr) ([]int, []bool, error) {
	list, wrap := ints(dims, n), bools(periods, n)
	switch {
	case n < 0:
		return nil, nil, wrong(c_ERR_DIMS, "%d dimensions", n)
	case n > 0 && (list == nil || wrap == nil):
		return nil, nil, wrong(c_ERR_ARG, "the dimensions or the periods are NULL")
	}
	for i, d := range list {
		if d <= 0 {
			return nil, nil, wrong(c_ERR_DIMS, "dimension %d has the size %d", i, d)
		}
	}
	return list, wrap, nil
}

func mpiCartCreate(f *frame, c *comm, n int, dims, periods ptr, reorder int, to ptr) error {
	list, wrap, err := grid(n, dims, periods)
	if err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	d, err := c.CartCreate(never, list, wrap, reorder != 0)
	return f.enterComm(to, c, d, err)
}

func mpiCartdimGet(f *frame, c *comm, to ptr) error {
	dims, _, _, err := c.CartGet()
	if err == nil {
		f.put(to, len(dims))
	}
	return err
}

func mpiCartGet(_ *frame, c *comm, room int, dims, periods, coords ptr) error {
	d, p, at, err := c.CartGet()
	if err != nil {
		return err
	}
	if room < len(d) {
		return wrong(c_ERR_DIMS, "the grid has %d dimensions, and there is room for %d", len(d), room)
	}
	putInts(dims, room, d)
	putBools(periods, room, p)
	putInts(coords, room, at)
	return nil
}

func mpiCartRank(f *frame, c *comm, coords, to ptr) error {
	dims, _, _, err := c.CartGet()
	if err != nil {
		return err
	}
	list := ints(coords, len(dims))
	if len(dims) > 0 && list == nil {
		return errNull
	}
	r, err := c.CartRank(list)
	if err == nil {
		f.put(to, r)
	}
	return err
}

func mpiCartCoords(f *frame, c *comm, r, room int, coords ptr) error {
	if r < 0 {
		return wrong(c_ERR_RANK, "%d is no rank", r)
	}
	list, err := c.CartCoords(r)
	if err != nil {
		return err
	}
	if room < len(list) {
		return wrong(c_ERR_DIMS, "the grid has %d dimensions, and there is room for %d", len(list), room)
	}
	putInts(coords, room, list)
	return nil
}

func mpiCartShift(f *frame, c *comm, dim, steps int, source, dest ptr) error {
	if dim < 0 {
		return wrong(c_ERR_DIMS, "the dimension is %d", dim)
	}
	from, to, err := c.CartShift(dim, steps)
	if err != nil {
		return err
	}
	f.put(source, nobody(from))
	f.put(dest, nobody(to))
	return nil
}

// nobody is a rank of package rank in C's terms.
func nobody(r int) int {
	if r == rank.ProcNull {
		return c_PROC_NULL
	}
	return r
}

func mpiCartSub(f *frame, c *comm, keep, to ptr) error {
	dims, _, _, err := c.CartGet()
	if err != nil {
		return err
	}
	list := bools(keep, len(dims))
	if len(dims) > 0 && list == nil || to == nil {
		return errNull
	}
	d, err := c.CartSub(never, list)
	return f.enterComm(to, c, d, err)
}

func mpiCartMap(f *frame, c *comm, n int, dims, periods, to ptr) error {
	list, wrap, err := grid(n, dims, periods)
	if err != nil {
		return err
	}
	r, err := c.CartMap(list, wrap)
	if err == nil {
		f.put(to, undefined(r))
	}
	return err
}

// graph are the lists of a graph to be made: the last index says how many edges there are.
func graph(n int, index, edges ptr) ([]int, []int, error) {
	list := ints(index, n)
	if err := checkList(list, n, c_ERR_ARG); err != nil {
		return nil, nil, err
	}
	for i := 1; i < len(list); i++ {
		if list[i] < list[i-1] {
			return nil, nil, wrong(c_ERR_ARG, "index %d is smaller than the one before", i)
		}
	}
	count := 0
	if n > 0 {
		count = list[n-1]
	}
	to := ints(edges, count)
	return list, to, checkList(to, count, c_ERR_ARG)
}

func mpiGraphCreate(f *frame, c *comm, n int, index, edges ptr, reorder int, to ptr) error {
	a, b, err := graph(n, index, edges)
	if err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	d, err := c.GraphCreate(never, a, b, reorder != 0)
	return f.enterComm(to, c, d, err)
}

func mpiGraphMap(f *frame, c *comm, n int, index, edges, to ptr) error {
	a, b, err := graph(n, index, edges)
	if err != nil {
		return err
	}
	r, err := c.GraphMap(a, b)
	if err == nil {
		f.put(to, undefined(r))
	}
	return err
}

func mpiGraphdimsGet(f *frame, c *comm, nodes, edges ptr) error {
	a, b, err := c.GraphGet()
	if err == nil {
		f.put(nodes, len(a))
		f.put(edges, len(b))
	}
	return err
}

func mpiGraphGet(_ *frame, c *comm, roomIndex, roomEdges int, index, edges ptr) error {
	a, b, err := c.GraphGet()
	if err != nil {
		return err
	}
	putInts(index, roomIndex, a)
	putInts(edges, roomEdges, b)
	return nil
}

func mpiGraphNeighborsCount(f *frame, c *comm, r int, to ptr) error {
	if r < 0 {
		return wrong(c_ERR_RANK, "%d is no rank", r)
	}
	list, err := c.GraphNeighbors(r)
	if err == nil {
		f.put(to, len(list))
	}
	return err
}

func mpiGraphNeighbors(_ *frame, c *comm, r, room int, to ptr) error {
	if r < 0 {
		return wrong(c_ERR_RANK, "%d is no rank", r)
	}
	list, err := c.GraphNeighbors(r)
	if err == nil {
		putInts(to, room, list)
	}
	return err
}

// weights are those of n edges; nil for MPI_UNWEIGHTED.
func weights(at ptr, n int) ([]int, error) {
	switch address(at) {
	case c_UNWEIGHTED:
		return nil, nil
	case c_WEIGHTS_EMPTY:
		return []int{}, nil
	}
	list := ints(at, n)
	return list, checkList(list, n, c_ERR_ARG)
}

func mpiDistGraphCreateAdjacent(f *frame, c *comm, in int, sources, inWeights ptr, out int, dests, outWeights ptr, _ *info, reorder int, to ptr) error {
	from, into := ints(sources, in), ints(dests, out)
	if err := checkList(from, in, c_ERR_ARG); err != nil {
		return err
	}
	if err := checkList(into, out, c_ERR_ARG); err != nil {
		return err
	}
	a, err := weights(inWeights, in)
	if err != nil {
		return err
	}
	b, err := weights(outWeights, out)
	if err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	d, err := c.DistGraphCreateAdjacent(never, from, a, into, b, reorder != 0)
	return f.enterGraph(to, c, d, err, address(inWeights) != c_UNWEIGHTED)
}

func mpiDistGraphCreate(f *frame, c *comm, n int, sources, degrees, dests, weightsAt ptr, _ *info, reorder int, to ptr) error {
	from, counts := ints(sources, n), ints(degrees, n)
	if err := listed(n, counts, from); err != nil {
		return err
	}
	edges := 0
	for _, k := range counts {
		edges += k
	}
	into := ints(dests, edges)
	if err := checkList(into, edges, c_ERR_ARG); err != nil {
		return err
	}
	w, err := weights(weightsAt, edges)
	if err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	d, err := c.DistGraphCreate(never, from, counts, into, w, reorder != 0)
	return f.enterGraph(to, c, d, err, address(weightsAt) != c_UNWEIGHTED)
}

// enterGraph is enterComm for a graph with or without weights.
func (f *frame) enterGraph(to ptr, from *comm, d *rank.Comm, err error, weighted bool) error {
	if err = f.enterComm(to, from, d, err); err == nil && d != nil {
		commOf(f.handleAt(to)).weighted = weighted
	}
	return err
}

func mpiDistGraphNeighborsCount(f *frame, c *comm, in, out, weighted ptr) error {
	from, _, to, _, err := c.DistGraphNeighbors()
	if err != nil {
		return err
	}
	f.put(in, len(from))
	f.put(out, len(to))
	f.putBool(weighted, c.weighted)
	return nil
}

func mpiDistGraphNeighbors(_ *frame, c *comm, roomIn int, sources, inWeights ptr, roomOut int, dests, outWeights ptr) error {
	from, a, to, b, err := c.DistGraphNeighbors()
	if err != nil {
		return err
	}
	putInts(sources, roomIn, from)
	putInts(dests, roomOut, to)
	if a != nil && address(inWeights) != c_UNWEIGHTED {
		putInts(inWeights, roomIn, a)
	}
	if b != nil && address(outWeights) != c_UNWEIGHTED {
		putInts(outWeights, roomOut, b)
	}
	return nil
}
