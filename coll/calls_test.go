package coll

import (
	"context"
	"math"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// Team.Run under the names of the collectives.

// length is count elements in bytes, -1 where there is no such length.
func length(count int, r *kernel.Reduction) int {
	if count < 0 || r.Elem > 0 && count > math.MaxInt/r.Elem {
		return -1
	}
	return count * r.Elem
}

// Bcast gives all members the first n bytes of the root's buffer.
func (t *Team) Bcast(ctx context.Context, buf Buffer, n, root int) error {
	return t.Run(ctx, &Args{Kind: Bcast, Recv: buf, Bytes: n, Root: root})
}

// AllReduce combines the members' vectors of count elements and gives all of
// them the result, the same bits to each.
func (t *Team) AllReduce(ctx context.Context, send, recv Buffer, count int, r kernel.Reduction) error {
	return t.Run(ctx, &Args{Kind: AllReduce, Send: send, Recv: recv, Bytes: length(count, &r), Reduction: r})
}

// Reduce combines the members' vectors of count elements and gives the root the
// result.
func (t *Team) Reduce(ctx context.Context, send, recv Buffer, count int, r kernel.Reduction, root int) error {
	return t.Run(ctx, &Args{Kind: Reduce, Send: send, Recv: recv, Bytes: length(count, &r), Reduction: r, Root: root})
}

// ReduceScatter combines the members' vectors of Size blocks of count elements,
// and gives each member its block of the result.
func (t *Team) ReduceScatter(ctx context.Context, send, recv Buffer, count int, r kernel.Reduction) error {
	return t.Run(ctx, &Args{Kind: ReduceScatter, Send: send, Recv: recv, Bytes: length(count, &r), Reduction: r})
}

// AllGather gives all members the blocks of all, by rank.
func (t *Team) AllGather(ctx context.Context, send, recv Buffer, block int) error {
	return t.Run(ctx, &Args{Kind: AllGather, Send: send, Recv: recv, Bytes: block})
}

// AllToAll moves block k of member i to block i of member k.
func (t *Team) AllToAll(ctx context.Context, send, recv Buffer, block int, algorithm Algorithm) error {
	return t.Run(ctx, &Args{Kind: AllToAll, Algorithm: algorithm, Send: send, Recv: recv, Bytes: block})
}
