package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// The collectives are called by all ranks of the communicator, in the same order,
// with the same sizes, operation and root, and each comes in three forms that may be
// mixed: blocking; started, I..., whose Request is waited for; and persistent,
// ...Init, whose Request is started again and again. A nil send operand means in
// place where the comment says so. Lengths that do not fit fail on the caller before
// anything moves.
//
// On an intercommunicator the data of each group goes to the other one; rooted
// collectives take [Root] and [ProcNull] in the root's group, where ProcNull's
// operands are ignored. Blocks are then those of the other group's ranks. There is
// no in place.
//
// The methods of [Comm] of the same names take Buffers, of any datatype: a count is
// then in items, and an operand that holds a block for each rank has Size times the
// items of a block.

// Barrier returns when all ranks have called it (MPI_Barrier); on an
// intercommunicator, all ranks of both groups.
func Barrier(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }

// Ibarrier starts Barrier.
func Ibarrier(c *Comm) (Request, error) { return c.Ibarrier() }

// BarrierInit prepares a persistent Barrier.
func BarrierInit(c *Comm) (Request, error) { return c.BarrierInit() }

// Bcast copies buf of rank root into buf of all other ranks (MPI_Bcast).
// buf has the same length on all ranks.
func Bcast[T Element](ctx context.Context, c *Comm, buf []T, root int) error {
	shape := shapeOfSlices(coll.Bcast, []T(nil), buf, Op{}, root)
	if done, err := c.again(ctx, &shape, nil, bytesOf(buf)); done {
		return err
	}
	return c.begin("bcast").like(&shape).bcast(Of(buf), root).run(ctx)
}

// Ibcast starts Bcast.
func Ibcast[T Element](c *Comm, buf []T, root int) (Request, error) { return c.Ibcast(Of(buf), root) }

// BcastInit prepares a persistent Bcast.
func BcastInit[T Element](c *Comm, buf []T, root int) (Request, error) {
	return c.BcastInit(Of(buf), root)
}

// Gather collects send of every rank, in rank order, in recv of rank root
// (MPI_Gather). On the root len(recv) is Size times len(send); elsewhere recv is
// ignored. In place at the root: send is nil, and the root's block is already in recv.
func Gather[T Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	shape := shapeOfSlices(coll.Gather, send, recv, Op{}, root)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("gather").like(&shape).gather(Of(send), Of(recv), root).run(ctx)
}

// Igather starts Gather.
func Igather[T Element](c *Comm, send, recv []T, root int) (Request, error) {
	return c.Igather(Of(send), Of(recv), root)
}

// GatherInit prepares a persistent Gather.
func GatherInit[T Element](c *Comm, send, recv []T, root int) (Request, error) {
	return c.GatherInit(Of(send), Of(recv), root)
}

// Scatter gives rank k block k of send of rank root (MPI_Scatter). On the
// root len(send) is Size times len(recv); elsewhere send is ignored. In
// place at the root: recv is nil, and the root's block stays where it is.
func Scatter[T Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	shape := shapeOfSlices(coll.Scatter, send, recv, Op{}, root)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("scatter").like(&shape).scatter(Of(send), Of(recv), root).run(ctx)
}

// Iscatter starts Scatter.
func Iscatter[T Element](c *Comm, send, recv []T, root int) (Request, error) {
	return c.Iscatter(Of(send), Of(recv), root)
}

// ScatterInit prepares a persistent Scatter.
func ScatterInit[T Element](c *Comm, send, recv []T, root int) (Request, error) {
	return c.ScatterInit(Of(send), Of(recv), root)
}

// Allgather collects send of every rank, in rank order, in recv of every rank (MPI_Allgather).
// len(recv) is Size times len(send). In place: send is nil, and this rank's block is already in recv.
func Allgather[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	shape := shapeOfSlices(coll.AllGather, send, recv, Op{}, 0)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("allgather").like(&shape).allgather(Of(send), Of(recv)).run(ctx)
}

// Iallgather starts Allgather.
func Iallgather[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.Iallgather(Of(send), Of(recv))
}

// AllgatherInit prepares a persistent Allgather.
func AllgatherInit[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.AllgatherInit(Of(send), Of(recv))
}

// Alltoall sends block k of send to rank k, and receives block k of recv from rank k (MPI_Alltoall).
// A block has len(recv) / Size elements. Both lengths are equal. In place: send is nil.
func Alltoall[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	shape := shapeOfSlices(coll.AllToAll, send, recv, Op{}, 0)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("alltoall").like(&shape).alltoall(Of(send), Of(recv)).run(ctx)
}

// Ialltoall starts Alltoall.
func Ialltoall[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.Ialltoall(Of(send), Of(recv))
}

// AlltoallInit prepares a persistent Alltoall.
func AlltoallInit[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.AlltoallInit(Of(send), Of(recv))
}
