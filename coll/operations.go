package coll

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// A Kind is a collective operation.
type Kind uint8

// The collectives.
const (
	Barrier Kind = iota + 1
	Bcast
	Reduce
	AllReduce
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	Scan
	ExScan
	ReduceScatterV
	Exchange
	Fold
	farewell // a team's last words, see Team.Free
	kinds
)

// An Algorithm is a way to carry out a collective.
type Algorithm uint8

// The algorithms. Auto leaves the choice to the package.
const (
	Auto Algorithm = iota
	Direct
	Bruck
	Ring
	Dissemination
	Binomial
	RecursiveDoubling
	ReduceScatterGather // reduce-scatter, then gather or all-gather
	ScatterAllGather    // scatter, then all-gather
	Chain               // from rank to rank, in pieces
	Pull                // each rank reads the data that it needs from its owner's memory
	Central             // through rank 0
	TwoLevel            // one member of each host talks with the other hosts
	HostChain           // from host to host and back, in pieces; each member of a host carries a portion
	algorithms
)

var algorithmNames = [algorithms]string{"auto",
	"direct", "bruck", "ring", "dissemination", "binomial", "recursive-doubling",
	"reduce-scatter-gather", "scatter-allgather", "chain", "pull", "central", "two-level", "host-chain"}

// operations is the package's one table: what each kind of collective is called, what
// its calls have, and the algorithms that do it, each with the function that makes its plan and
// its cost. The check of arguments, selection, compile, the tests, gorun-bench --tune
// and docs/collectives.md read it. A test fails on a hole in a row.
//
// To add an algorithm, write its function in the file of its operation, name it above, and give
// it a line here; the tests take it up. It is selected where a rule in tuned.go says so.
var operations = [kinds]operation{
	Barrier: {name: "barrier",
		crowded: []group{{1, []Rule{{0, Direct}}}, {3, []Rule{{0, Central}}}},
		ways: []way{
			{Dissemination, barrierDissemination, logN, zero},
			{Direct, barrierDirect, one, zero},
			{Central, barrierCentral, two, zero},
			{TwoLevel, barrierTwoLevel, hostRounds, zero},
		}},
	Bcast: {name: "bcast", rooted: true, recv: block,
		// A long one's time is that of its bytes.
		far: []group{{1, []Rule{{0, Binomial}}}, {3, []Rule{{0, Binomial}, {64 << 10, ScatterAllGather}}}},
		ways: []way{
			{Binomial, bcastBinomial, logN, logN},
			{Direct, bcastDirect, one, others},
			{ScatterAllGather, bcastScatter, three, one},
			{Chain, bcastChain, others, one},
			{Pull, bcastPull, two, one},
			{TwoLevel, bcastTwoLevel, hostTree, hostTreeDown},
		}},
	Reduce: {name: "reduce", rooted: true, reduces: true, send: block, recv: blockAtRoot,
		ways: []way{
			{Binomial, reduceBinomial, logN, one},
			{Direct, reduceDirect, one, one},
			{ReduceScatterGather, reduceScatterGather, three, one},
		}},
	AllReduce: {name: "allreduce", reduces: true, send: block, recv: block, leader: allVectors,
		ways: []way{
			{RecursiveDoubling, allReduceDoubling, doubling, doubled},
			{Direct, allReduceDirect, one, others},
			{ReduceScatterGather, reduceScatterGather, three, twoPortions},
			{Ring, allReduceRing, twiceOthers, twoPortions},
			{Binomial, allReduceBinomial, twiceLogN, logN},
			{TwoLevel, allReduceTwoLevel, three, toHosts},
			{HostChain, allReduceHostChain, alongHosts, throughCarriers},
		}},
	AllGather: {name: "allgather", send: block, recv: blocks, leader: allBlocks,
		far: always(Direct),
		ways: []way{
			{Direct, allGatherDirect, one, others},
			{Bruck, allGatherBruck, logN, others},
			{Ring, allGatherRing, others, others},
			{Pull, allGatherPull, two, others},
			{TwoLevel, allGatherTwoLevel, three, toHostsAll},
		}},
	ReduceScatter: {name: "reducescatter", reduces: true, send: blocks, recv: block, leader: vectorsOfHosts,
		ways: []way{
			{Direct, reduceScatterDirect, one, others},
			{Ring, reduceScatterRing, others, others},
			{Binomial, reduceScatterBinomial, twiceLogN, upAndDown},
			{TwoLevel, reduceScatterTwoLevel, three, combined},
		}},
	AllToAll: {name: "alltoall", send: blocks, recv: blocks, leader: throughLeaders,
		far: always(Direct),
		ways: []way{
			{Direct, allToAllDirect, one, others},
			{Bruck, allToAllBruck, logN, halvesLogN},
			{Pull, allToAllPull, two, others},
			{TwoLevel, allToAllTwoLevel, three, relayed},
		}},
	Gather: {name: "gather", rooted: true, send: block, recv: blocksAtRoot,
		ways: []way{
			{Direct, gatherDirect, one, one},
			{Binomial, gatherBinomial, logN, half},
		}},
	Scatter: {name: "scatter", rooted: true, send: blocksAtRoot, recv: block,
		far: always(Direct),
		ways: []way{
			{Direct, scatterDirect, one, others},
			{Binomial, scatterBinomial, logN, others},
			{Pull, scatterPull, two, one},
		}},
	Scan: {name: "scan", reduces: true, send: block, recv: block, far: always(Chain),
		ways: []way{
			{RecursiveDoubling, scanDoubling, logN, logN},
			{Direct, scanDirect, one, others},
			{Chain, scanChain, others, one},
			{Pull, scanPull, two, twoPortions},
		}},
	ExScan: {name: "exscan", reduces: true, send: block, recv: block, far: always(Chain),
		ways: []way{
			{RecursiveDoubling, scanDoubling, logN, logN},
			{Direct, scanDirect, one, others},
			{Chain, scanChain, others, one},
			{Pull, scanPull, two, fewerPortions},
		}},
	ReduceScatterV: {name: "reducescatterv", reduces: true, parts: (*invocation).vector,
		ways: []way{
			{Direct, reduceScatterParts, one, portions},
		}},
	Exchange: {name: "exchange", sized: true, parts: (*invocation).movement,
		ways: []way{
			{Direct, exchangeRounds, perPeer, theParts},
		}},
	Fold: {name: "fold", reduces: true, sized: true, parts: (*invocation).fold,
		ways: []way{
			{Direct, foldDirect, one, theParts},
		}},
	farewell: {name: "free",
		ways: []way{
			{Direct, farewellDirect, one, zero},
		}},
}

// An operation is a row of the table.
type operation struct {
	name    string
	rooted  bool // one rank differs from the others
	reduces bool // it combines elements
	// sized: each message says the length of its part, for members do not know each
	// other's arguments.
	sized bool
	// parts checks the arguments of a kind whose data is in parts; nil where it is in
	// send and recv.
	parts      func(*invocation, *cache) error
	send, recv shape
	// ways are the algorithms. The first is selected where there is only one.
	ways []way
	// far are rules in place of Pull, for teams whose members do not all map each other's
	// memory: there one member's link would carry what all others read, and a read takes a
	// round trip. crowded are rules in place of Direct, for members that share CPUs.
	far, crowded []group
	// leader is the most scratch that a leader needs by two levels, where it grows with the
	// number of ranks. It is the same in all members.
	leader func(*selection, *Call) int
}

// A shape is how much of a call's data a buffer holds.
type shape uint8

const (
	absent shape = iota
	block        // the vector, or one block
	blocks       // a block for each rank
	blockAtRoot
	blocksAtRoot
)

// count is the blocks of a member's buffer.
func (s shape) count(n int, root bool) int {
	switch {
	case s == absent, s >= blockAtRoot && !root:
		return 0
	case s == blocks, s == blocksAtRoot:
		return n
	}
	return 1
}

// A way is an algorithm of an operation, and what it costs.
type way struct {
	algorithm Algorithm
	build     func(*builder)
	// steps is the longest chain of messages of which each waits for the one before. It is
	// that of vectors which travel in messages; of long ones it is one more, for the
	// descriptors, and one more for each further piece of those that are passed on in
	// pieces. Algorithms that go by descriptor always (reduce-scatter-gather,
	// scatter-allgather, pull) have the descriptor counted.
	steps cost
	// moves is the most that one rank sends and reads, as a multiple of [Args].Bytes; of a
	// ReduceScatterV of the sum of its blocks.
	moves cost
}

// A cost is a number that depends on the number of ranks.
type cost struct {
	text string
	of   func(n float64) float64 // nil: it depends on the parts, or on the placement
	on   func(k, h int) int      // of k ranks on each of h hosts; nil: it depends on n, or on the parts
}

// The costs.
var (
	zero          = cost{text: "0", of: func(float64) float64 { return 0 }}
	one           = cost{text: "1", of: func(float64) float64 { return 1 }}
	two           = cost{text: "2", of: func(float64) float64 { return 2 }}
	three         = cost{text: "3", of: func(float64) float64 { return 3 }}
	half          = cost{text: "n/2", of: func(n float64) float64 { return n / 2 }}
	others        = cost{text: "n-1", of: func(n float64) float64 { return n - 1 }}
	portions      = cost{text: "(n-1)/n", of: func(n float64) float64 { return (n - 1) / n }}
	fewerPortions = cost{text: "(2n-3)/n", of: func(n float64) float64 { return (2*n - 3) / n }}
	twoPortions   = cost{text: "2(n-1)/n", of: func(n float64) float64 { return 2 * (n - 1) / n }}
	logN          = cost{text: "ceil(log2 n)", of: func(n float64) float64 { return math.Ceil(math.Log2(n)) }}

	twiceOthers = cost{text: "2(n-1)", of: func(n float64) float64 { return 2 * (n - 1) }}
	twiceLogN   = cost{text: "2 ceil(log2 n)", of: func(n float64) float64 { return 2 * logN.of(n) }}
	upAndDown   = cost{text: "3n/2-1", of: func(n float64) float64 { return 3*n/2 - 1 }}

	halvesLogN = cost{text: "n/2 ceil(log2 n)", of: func(n float64) float64 { return n / 2 * math.Ceil(math.Log2(n)) }}

	doubling = cost{text: "floor(log2 n), 2 more unless n is a power of 2", of: func(n float64) float64 {
		return math.Floor(math.Log2(n)) + 2*(math.Ceil(math.Log2(n))-math.Floor(math.Log2(n)))
	}}
	doubled  = cost{text: "ceil(log2 n)", of: logN.of}
	perPeer  = cost{text: "parts with one peer"}
	theParts = cost{text: "the parts"}

	// What two levels cost depends on the placement: k members on each of h hosts.
	hostRounds   = cost{text: "ceil(log2 h)+2", on: func(_, h int) int { return bits.Len(uint(h-1)) + 2 }}
	hostTree     = cost{text: "floor(log2 h)+1", on: func(_, h int) int { return bits.Len(uint(h)) }}
	hostTreeDown = cost{text: "ceil(log2 h)+k-1", on: func(k, h int) int { return bits.Len(uint(h-1)) + k - 1 }}

	toHostsAll = cost{text: "k(h-1)+(k-1)n", on: func(k, h int) int { return k*(h-1) + (k-1)*k*h }}

	relayed = cost{text: "(2k-1)k(h-1)+k-1", on: func(k, h int) int { return (2*k-1)*k*(h-1) + k - 1 }}

	combined = cost{text: "the more of n and k^2(h-1)+k-1", on: func(k, h int) int {
		if k == 1 {
			return h - 1 // no member gives a leader its vector
		}
		return max(k*h, k*k*(h-1)+k-1)
	}}

	alongHosts = cost{text: "2h", on: func(_, h int) int { return 2 * h }}

	throughCarriers = cost{text: "2, on two hosts 2-1/k"}

	toHosts = cost{text: "k(h-1)+k-1", on: func(k, h int) int { return k*(h-1) + k - 1 }}
)

// always is one algorithm for all teams and lengths.
func always(a Algorithm) []group { return []group{{1, []Rule{{0, a}}}} }

// wayOf is an operation's way of an algorithm, nil if it has none.
func wayOf(kind Kind, a Algorithm) *way {
	if kind < kinds {
		for i := range operations[kind].ways {
			if w := &operations[kind].ways[i]; w.algorithm == a {
				return w
			}
		}
	}
	return nil
}

// fits tells whether a kind can be done by an algorithm, or is left to the selection.
func fits(kind Kind, a Algorithm) bool { return a == Auto || wayOf(kind, a) != nil }

// Kinds returns all collectives.
func Kinds() (list []Kind) {
	for k := Barrier; k < farewell; k++ {
		list = append(list, k)
	}
	return list
}

// Algorithms returns the algorithms for a kind of call, or nil for an unknown kind.
func Algorithms(kind Kind) (list []Algorithm) {
	if kind < farewell {
		for _, w := range operations[kind].ways {
			list = append(list, w.algorithm)
		}
	}
	return list
}

// String is the collective's name in lower case.
func (k Kind) String() string {
	switch {
	case k == 0:
		return "none"
	case k < kinds:
		return operations[k].name
	}
	return "collective " + strconv.Itoa(int(k))
}

// kindNamed is the collective of a name; 0 if there is none.
func kindNamed(name string) Kind {
	return Kind(1 + slices.IndexFunc(operations[1:farewell], func(o operation) bool { return o.name == name }))
}

// String is the algorithm's name.
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return "algorithm " + strconv.Itoa(int(a))
}
