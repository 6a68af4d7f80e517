package main

import (
	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank"
)

// How a benchmark is timed, and on what.
type how int

const (
	meets      how = 1 << iota // a barrier before each call, where asked for
	half                       // a call is a round trip
	perMessage                 // a call is a window of messages of each pair
	bothWays                   // in both directions
	senders                    // only the lower half of the ranks counts; else all
	origin                     // only rank 0 counts
	overlaps                   // started, worked beside, and waited for
	reduces                    // has elements of a type, not bytes
	sizeless                   // has no size
	twoRanks                   // for 2 ranks only
	evenRanks                  // for pairs of ranks
	launches                   // a job is started for each call; no rank measures
	fourRanks                  // for 4 ranks only
	startable                  // has begin, so that every engine can run it
)

// A benchmark is a line of the table of all there are.
type benchmark struct {
	name, title string
	group       string // "start", "messages", "collectives", "onesided"
	how         how
	kind        coll.Kind // of a collective that algorithms are selected for
	// make binds buffers and fills them. Missing where a job is the call.
	make maker
}

type maker func(w *worker, p point) (call, error)

// A call is what a point times, bound to its buffers.
type call struct {
	step        func() error
	start, wait func() error                 // the halves of step, of a non-blocking call
	block       func() error                 // the blocking call of a non-blocking one
	begin       func() (rank.Request, error) // the non-blocking call of a blocking one that starts
	// check looks at all of the result and names what is wrong, "" for nothing.
	check func() (string, error)
	// spoil overwrites the result with what no result resembles, so that what is
	// found right later was made right later.
	spoil   func()
	release []func() error // gives the buffers back
}

func (c *call) free() error {
	for _, f := range c.release {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// benchmarks is the table. The names are those of testdata/mpi/bench.c.
var benchmarks = []benchmark{
	{"launch", "Launch of true", "start", launches | sizeless, 0, nil},
	{"launch_limit", "Launch of true, beside a loop of fork and exec in C", "start", launches | sizeless, 0, nil},
	{"init", "Init and Finalize", "start", launches | sizeless, 0, nil},
	{"init_limit", "Init and Finalize, beside a launch of true", "start", launches | sizeless, 0, nil},
	{"init_mpich", "Init and Finalize of a program of MPICH", "start", launches | sizeless | fourRanks, 0, nil},
	{"init_openmpi", "Init and Finalize of a program of Open MPI", "start", launches | sizeless | fourRanks, 0, nil},
	{"output", "Output of 4 ranks, 250 MB each", "start", launches | sizeless | fourRanks, 0, nil},
	{"latency", "Latency, half a round trip", "messages", half | origin | twoRanks, 0, makeLatency},
	{"bw", "Bandwidth", "messages", perMessage | senders | twoRanks, 0, makeWindow},
	{"bibw", "Bandwidth, both ways", "messages", perMessage | bothWays | senders | twoRanks, 0, makeBothWays},
	{"mr", "Message rate, all pairs", "messages", perMessage | senders | evenRanks, 0, makeWindow},
	{"barrier", "Barrier", "collectives", sizeless | startable, coll.Barrier, makeBarrier},
	{"bcast", "Broadcast", "collectives", meets | startable, coll.Bcast, makeBcast},
	{"reduce", "Reduce", "collectives", meets | reduces | startable, coll.Reduce, makeReduction},
	{"allreduce", "Allreduce", "collectives", meets | reduces | startable, coll.AllReduce, makeReduction},
	{"gather", "Gather", "collectives", meets, coll.Gather, makeGather},
	{"scatter", "Scatter", "collectives", meets, coll.Scatter, makeScatter},
	{"allgather", "Allgather", "collectives", meets | startable, coll.AllGather, makeAllgather},
	{"alltoall", "Alltoall", "collectives", meets | startable, coll.AllToAll, makeAlltoall},
	{"reduce_scatter", "Reduce-scatter", "collectives", meets | reduces | startable, coll.ReduceScatter, makeReduction},
	{"scan", "Scan", "collectives", meets | reduces, coll.Scan, makeReduction},
	{"exscan", "Exclusive scan", "collectives", meets | reduces, coll.ExScan, makeReduction},
	{"gatherv", "Gatherv", "collectives", meets, 0, makeGatherv},
	{"scatterv", "Scatterv", "collectives", meets, 0, makeScatterv},
	{"allgatherv", "Allgatherv", "collectives", meets, 0, makeAllgatherv},
	{"alltoallv", "Alltoallv", "collectives", meets, 0, makeAlltoallv},
	{"ibcast", "Non-blocking broadcast", "nonblocking", meets | overlaps, coll.Bcast, makeBcast},
	{"iallreduce", "Non-blocking allreduce", "nonblocking", meets | overlaps | reduces, coll.AllReduce, makeReduction},
	{"iallreduce_x16", "Sixteen allreduces at once", "nonblocking", meets | overlaps | reduces, 0, makeReduction},
	{"ialltoall", "Non-blocking alltoall", "nonblocking", meets | overlaps, coll.AllToAll, makeIalltoall},
	{"put", "Put and flush", onesided, origin | twoRanks, 0, makeRMA},
	{"get", "Get and flush", onesided, origin | twoRanks, 0, makeRMA},
	{"put_bw", "Put bandwidth", onesided, origin | perMessage | twoRanks, 0, makeRMA},
	{"get_bw", "Get bandwidth", onesided, origin | perMessage | twoRanks, 0, makeRMA},
	{"accumulate", "Accumulate and flush", onesided, origin | reduces | twoRanks, 0, makeAccumulate},
}

func find(name string) *benchmark {
	for i := range benchmarks {
		if benchmarks[i].name == name {
			return &benchmarks[i]
		}
	}
	return nil
}

// runsOn tells whether the benchmark makes sense with so many ranks.
func (b *benchmark) runsOn(np int) bool {
	switch {
	case b.how&twoRanks != 0:
		return np == 2
	case b.how&fourRanks != 0:
		return np == 4
	case b.how&evenRanks != 0:
		return np%2 == 0
	case b.how&launches != 0:
		return true
	}
	return np >= 2
}

// The kinds of memory that gorun's ranks may use.
const (
	registered = "registered"
	ordinary   = "ordinary"
)

// onesided is the group whose benchmarks have the kind of memory at the target: registered is memory that
// the window allocates, and ordinary the program's. The origin's is ordinary.
const onesided = "onesided"

// reference is the memory of the MPIs' row beside gorun's.
func (b *benchmark) reference(memory string) string {
	if b.group == onesided {
		return memory
	}
	return ordinary
}

// buffer makes n elements of the plan's kind of memory, which the call releases.
func buffer[T rank.Number](w *worker, c *call, n int) ([]T, error) {
	if w.plan.memory != registered {
		return make([]T, n), nil
	}
	mem, err := rank.Alloc[T](w.comm, n)
	if err == nil {
		c.release = append(c.release, func() error { return rank.Free(w.comm, mem) })
	}
	return mem, err
}

// buffers makes a buffer to send from and one to receive in.
func buffers[T rank.Number](w *worker, c *call, send, recv int) (in, out []T, err error) {
	if in, err = buffer[T](w, c, send); err != nil {
		return nil, nil, err
	}
	if out, err = buffer[T](w, c, recv); err != nil {
		return nil, nil, err
	}
	c.spoil = func() { spoil(out) }
	return in, out, nil
}

func spoil[T rank.Number](mem []T) {
	for i := range mem {
		mem[i] = 0x5a
	}
}
