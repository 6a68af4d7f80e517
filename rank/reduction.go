package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// The reductions combine the operands of all ranks, element by element, in the order
// of the ranks. In place: nil send, and the data in recv. Lengths are the same on all
// ranks. On an intercommunicator each group gets what the other one's vectors make;
// there is no scan. A reduce-scatter wants vectors of one length in both groups, of
// which each group's ranks get parts of their own.

// Reduce combines send of all ranks into recv of rank root (MPI_Reduce).
// recv is ignored elsewhere. In place at the root: send is nil.
func Reduce[T Element](ctx context.Context, c *Comm, send, recv []T, op Op, root int) error {
	shape := shapeOfSlices(coll.Reduce, send, recv, op, root)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("reduce").like(&shape).reduce(Of(send), Of(recv), op, root).run(ctx)
}

// Ireduce starts Reduce.
func Ireduce[T Element](c *Comm, send, recv []T, op Op, root int) (Request, error) {
	return c.Ireduce(Of(send), Of(recv), op, root)
}

// ReduceInit prepares a persistent Reduce.
func ReduceInit[T Element](c *Comm, send, recv []T, op Op, root int) (Request, error) {
	return c.ReduceInit(Of(send), Of(recv), op, root)
}

// Allreduce combines send of all ranks into recv of every rank (MPI_Allreduce).
func Allreduce[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	shape := shapeOfSlices(coll.AllReduce, send, recv, op, 0)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("allreduce").like(&shape).allreduce(Of(send), Of(recv), op).run(ctx)
}

// Iallreduce starts Allreduce.
func Iallreduce[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.Iallreduce(Of(send), Of(recv), op)
}

// AllreduceInit prepares a persistent Allreduce.
func AllreduceInit[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.AllreduceInit(Of(send), Of(recv), op)
}

// ReduceScatterBlock combines send of all ranks, and gives rank k block k of the
// result (MPI_Reduce_scatter_block). len(send) is Size times len(recv). In place:
// send is nil, recv holds all blocks, and its first block gets the result.
func ReduceScatterBlock[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	shape := shapeOfSlices(coll.ReduceScatter, send, recv, op, 0)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("reduce_scatter_block").like(&shape).scatterBlock(Of(send), Of(recv), op).run(ctx)
}

// IreduceScatterBlock starts ReduceScatterBlock.
func IreduceScatterBlock[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.IreduceScatterBlock(Of(send), Of(recv), op)
}

// ReduceScatterBlockInit prepares a persistent ReduceScatterBlock.
func ReduceScatterBlockInit[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.ReduceScatterBlockInit(Of(send), Of(recv), op)
}

// ReduceScatter combines send of all ranks, and gives rank k its counts[k] elements
// of the result (MPI_Reduce_scatter). len(send) is the sum of counts. In place:
// send is nil, recv holds the whole vector, and its beginning gets the result.
func ReduceScatter[T Element](ctx context.Context, c *Comm, send, recv []T, counts []int, op Op) error {
	return c.ReduceScatter(ctx, Of(send), Of(recv), counts, op)
}

// IreduceScatter starts ReduceScatter.
func IreduceScatter[T Element](c *Comm, send, recv []T, counts []int, op Op) (Request, error) {
	return c.IreduceScatter(Of(send), Of(recv), counts, op)
}

// ReduceScatterInit prepares a persistent ReduceScatter.
func ReduceScatterInit[T Element](c *Comm, send, recv []T, counts []int, op Op) (Request, error) {
	return c.ReduceScatterInit(Of(send), Of(recv), counts, op)
}

// Scan combines send of all ranks up to and including this one into recv (MPI_Scan).
func Scan[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	shape := shapeOfSlices(coll.Scan, send, recv, op, 0)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("scan").like(&shape).scan(coll.Scan, Of(send), Of(recv), op).run(ctx)
}

// Iscan starts Scan.
func Iscan[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.Iscan(Of(send), Of(recv), op)
}

// ScanInit prepares a persistent Scan.
func ScanInit[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.ScanInit(Of(send), Of(recv), op)
}

// Exscan combines send of all lower ranks into recv (MPI_Exscan). On rank 0 recv is unchanged.
func Exscan[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	shape := shapeOfSlices(coll.ExScan, send, recv, op, 0)
	if done, err := c.again(ctx, &shape, bytesOf(send), bytesOf(recv)); done {
		return err
	}
	return c.begin("exscan").like(&shape).scan(coll.ExScan, Of(send), Of(recv), op).run(ctx)
}

// Iexscan starts Exscan.
func Iexscan[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.Iexscan(Of(send), Of(recv), op)
}

// ExscanInit prepares a persistent Exscan.
func ExscanInit[T Element](c *Comm, send, recv []T, op Op) (Request, error) {
	return c.ExscanInit(Of(send), Of(recv), op)
}
