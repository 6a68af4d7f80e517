package coll

import "fmt"

// Thresholds of the selection, from BenchmarkSelection on rdma/soft: processes on
// 2 cores, least of 102 samples of 10 calls, us, beside other work. From 4 ranks
// on the ranks share cores, so that every wait costs a switch.
//
//	                           ranks        2      4      8     16     32
//	alltoall        8 direct                   0.52   7.20   17.3   67.2    258
//	alltoall        8 bruck                    0.49   6.47   14.2   63.6    193
//	alltoall      128 direct                   0.49   7.03   17.7   64.7    309
//	alltoall      128 bruck                    0.52   7.85   18.8   69.8    230
//	alltoall     1024 direct                   0.70   8.36   22.2   91.4    476
//	alltoall     1024 bruck                    0.82   8.27   32.9    149    651
//	allgather      64 direct                   0.50   6.70   15.9   61.3    281
//	allgather      64 bruck                    0.49   6.87   20.4   48.6    148
//	allgather      64 ring                     0.44   7.78   31.8    149    552
//	allgather    1024 direct                   0.67   7.12   27.3   87.4    428
//	allgather    1024 bruck                    0.70   7.72   24.3   83.7    303
//	allgather    1024 ring                     0.65   8.19   37.6    160    539
//	allgather   16384 direct                   1.54   17.7   58.7    262   1219
//	allgather   16384 bruck                    4.61   28.0   95.0    407   1667
//	allgather   16384 ring                     1.47   18.8   83.7    339   1308
//	allreduce    4096 recursive-doubling       2.32   19.9   39.9    107    349
//	allreduce    4096 reduce-scatter-gather    2.54   26.4   67.2    251   1187
//	allreduce    8192 recursive-doubling       3.79   25.1   48.9    164    417
//	allreduce    8192 reduce-scatter-gather    3.41   28.8   79.8    253   1201
//	allreduce   16384 recursive-doubling       7.34   39.6   79.4    226    585
//	allreduce   16384 reduce-scatter-gather    5.16   27.7   74.8    284   1289
//	allreduce   65536 recursive-doubling       25.9   94.7    210    610   1766
//	allreduce   65536 reduce-scatter-gather    16.0   54.5    114    436   1649
//	reduce       8192 binomial                 2.26   4.46   12.5   86.9    180
//	reduce       8192 reduce-scatter-gather    3.30   23.2   51.7    165    742
//	reduce      65536 binomial                 23.7   50.3   91.3    178    455
//	reduce      65536 reduce-scatter-gather    15.2   51.7   95.2    289   1048
//	reduce     262144 binomial                 57.0    175    324    584   1364
//	reduce     262144 reduce-scatter-gather    57.9    216    335    728   1731
const (
	// bruckRanks: from so many ranks on, small blocks hop.
	bruckRanks = 8
	// bruckAllToAll and bruckAllGather, times the ranks, are the longest
	// blocks that do.
	bruckAllToAll, bruckAllGather = 4, 32
	// doublingBytes, times the ranks and up to doublingMost, is the longest
	// vector that is all-reduced by recursive doubling.
	doublingBytes, doublingMost = 2 << 10, 32 << 10
	// binomialBytes is the longest vector that is reduced along a tree, and
	// binomialPair that of two ranks.
	binomialBytes, binomialPair = 256 << 10, 8 << 10
)

// choices are the algorithms of each kind; the first is for whatever the
// selection has no reason to do otherwise.
var choices = [kinds][]Algorithm{
	Barrier:        {Dissemination},
	Bcast:          {Binomial, Direct, ScatterAllGather},
	Reduce:         {Binomial, Direct, ReduceScatterGather},
	AllReduce:      {RecursiveDoubling, Direct, ReduceScatterGather},
	AllGather:      {Direct, Bruck, Ring},
	ReduceScatter:  {Direct},
	AllToAll:       {Direct, Bruck},
	Gather:         {Direct, Binomial},
	Scatter:        {Direct, Binomial},
	Scan:           {RecursiveDoubling, Direct, Chain},
	ExScan:         {RecursiveDoubling, Direct, Chain},
	ReduceScatterV: {Direct},
	Exchange:       {Direct},
	Fold:           {Direct},
	farewell:       {Direct},
}

// fits tells whether a kind can be done by an algorithm.
func fits(kind Kind, algorithm Algorithm) bool {
	if algorithm == Auto {
		return true
	}
	if kind < kinds {
		for _, a := range choices[kind] {
			if a == algorithm {
				return true
			}
		}
	}
	return false
}

// A why is the reason of a selection.
type why uint8

const (
	whyAsked why = iota
	whyOnly
	whySmall
	whyLarge
	whyOneStep
	whyManySmall
	whys
)

var whyText = [whys]string{
	whyAsked:     "asked for",
	whyOnly:      "the only one",
	whySmall:     "few bytes: fewest steps",
	whyLarge:     "many bytes: fewest bytes",
	whyOneStep:   "fewest steps and bytes",
	whyManySmall: "many ranks, few bytes: fewest messages",
}

// selectAlgorithm names the algorithm of a call. It depends on what is the same
// in all members only.
func selectAlgorithm(c *Call) (Algorithm, why) {
	if c.Algorithm != Auto {
		return c.Algorithm, whyAsked
	}
	switch c.Kind {
	case AllToAll:
		if c.Size >= bruckRanks && c.Bytes <= bruckAllToAll*c.Size {
			return Bruck, whyManySmall
		}
		return Direct, whyOneStep
	case AllReduce:
		if c.Bytes <= min(doublingBytes*c.Size, doublingMost) {
			return RecursiveDoubling, whySmall
		}
		return ReduceScatterGather, whyLarge
	case Reduce:
		if c.Bytes <= binomialPair || c.Size > 2 && c.Bytes <= binomialBytes {
			return Binomial, whySmall
		}
		return ReduceScatterGather, whyLarge
	case AllGather:
		// The ring is for networks whose links it spares; in memory it has
		// never been the fastest, and is taken when asked for.
		if c.Size >= bruckRanks && c.Bytes <= bruckAllGather*c.Size {
			return Bruck, whyManySmall
		}
		return Direct, whyOneStep
	}
	return choices[c.Kind][0], whyOnly
}

// Explain says which algorithm a call of this team would take, and why. Rank,
// Size and Elem of the call are the team's own.
func (t *Team) Explain(c Call) string {
	if c.Kind == 0 || c.Kind >= kinds || !fits(c.Kind, c.Algorithm) {
		return fmt.Sprintf("%v does not come as %v", c.Kind, c.Algorithm)
	}
	c.Rank, c.Size = t.rank, t.size
	if c.Algorithm == Auto {
		c.Algorithm = t.selection[c.Kind]
	}
	algorithm, reason := selectAlgorithm(&c)
	way := "by descriptor"
	if c.Bytes <= t.tuning.eager {
		way = "in messages"
	}
	return fmt.Sprintf("%v of %d bytes on %d ranks: %v, %s (%s)", c.Kind, c.Bytes, c.Size, algorithm, way, whyText[reason])
}
