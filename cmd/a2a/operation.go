package main

import (
	"context"
	"slices"

	"github.com/gorun-mpi/gorun/rank"
)

// An operation is a collective that --op names. A rank's row is shared out to the ranks, block k for rank k, or it is one
// block, of all its integers. A block that arrives is a rank's own, or the sum of those of all ranks:
//
//	               row          arrives at rank k
//	alltoall       shared out   block k of each rank
//	bcast          one block    that of the root
//	allreduce      one block    the sum of all
//	reduce_scatter shared out   the sum of all blocks k
type operation uint8

const (
	allToAll operation = iota
	broadcast
	allReduce
	reduceScatter
)

// root is the rank whose row a broadcast sends; the others send none.
const root = 0

var operations = []string{allToAll: "alltoall", broadcast: "bcast", allReduce: "allreduce", reduceScatter: "reduce_scatter"}

// operation is what --op names, whose check has passed.
func (p *params) operation() operation { return operation(slices.Index(operations, p.op)) }

func (o operation) String() string { return operations[o] }

// sums tells whether what arrives is a sum.
func (o operation) sums() bool { return o == allReduce || o == reduceScatter }

// blocks is the number of blocks in the row of a rank.
func (o operation) blocks(ranks int) int {
	if o == allToAll || o == reduceScatter {
		return ranks
	}
	return 1
}

// arriving is the number of blocks that a rank receives.
func (o operation) arriving(ranks int) int {
	if o == allToAll {
		return ranks
	}
	return 1
}

// sends tells whether a rank's row is sent.
func (o operation) sends(rank int) bool { return o != broadcast || rank == root }

// place is the block of a row that belongs to a rank.
func (o operation) place(rank int) int {
	if o.blocks(2) == 1 {
		return 0
	}
	return rank
}

// sources are the ranks from first to the one before end whose blocks make up the one that arrives in a place.
func (o operation) sources(block, ranks int) (first, end int) {
	switch {
	case o.sums():
		return 0, ranks
	case o == broadcast:
		return root, root + 1
	}
	return block, block + 1
}

// run is the blocking collective. A broadcast is made in recv, where the root has its row.
func (o operation) run(ctx context.Context, c *rank.Comm, send, recv []int32) error {
	switch o {
	case broadcast:
		return rank.Bcast(ctx, c, recv, root)
	case allReduce:
		return rank.Allreduce(ctx, c, send, recv, rank.Sum)
	case reduceScatter:
		return rank.ReduceScatterBlock(ctx, c, send, recv, rank.Sum)
	}
	return rank.Alltoall(ctx, c, send, recv)
}

// prepare is the same as a request that is started for each call.
func (o operation) prepare(c *rank.Comm, send, recv []int32) (rank.Request, error) {
	switch o {
	case broadcast:
		return rank.BcastInit(c, recv, root)
	case allReduce:
		return rank.AllreduceInit(c, send, recv, rank.Sum)
	case reduceScatter:
		return rank.ReduceScatterBlockInit(c, send, recv, rank.Sum)
	}
	return rank.AlltoallInit(c, send, recv)
}
