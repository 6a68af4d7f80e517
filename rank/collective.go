package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// The collectives are called by all ranks of the communicator, in the same
// order, with the same sizes, operation and root. A nil send operand means in
// place where the comment says so. Lengths that do not fit fail on the caller
// before anything moves.

// Barrier returns when all ranks have called it (MPI_Barrier).
func Barrier(ctx context.Context, c *Comm) error { return c.barrier(ctx) }

// Bcast copies buf of rank root into buf of all others (MPI_Bcast).
func Bcast[T Element](ctx context.Context, c *Comm, buf []T, root int) error {
	if err := checkElement[T](c, "bcast"); err != nil {
		return err
	}
	return c.bcast(ctx, bytesOf(buf), root)
}

// Alltoall sends block k of send to rank k and receives rank k's block into
// block k of recv (MPI_Alltoall). A block is len(recv) / Size elements; both
// lengths are equal and a multiple of Size. In place: nil send.
func Alltoall[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	if err := checkElement[T](c, "alltoall"); err != nil {
		return err
	}
	return c.alltoall(ctx, bytesOf(send), bytesOf(recv), sizeOf[T](), coll.Auto)
}

// AlltoallWith is Alltoall by a given algorithm: coll.Direct, coll.Bruck, or
// coll.Auto, which is Alltoall. All ranks give the same.
func AlltoallWith[T Element](ctx context.Context, c *Comm, send, recv []T, algorithm coll.Algorithm) error {
	if err := checkElement[T](c, "alltoall"); err != nil {
		return err
	}
	return c.alltoall(ctx, bytesOf(send), bytesOf(recv), sizeOf[T](), algorithm)
}

// Allgather collects send of every rank, in rank order, in every rank's recv
// (MPI_Allgather): len(recv) is Size times len(send). In place: nil send, and
// the own block already in recv.
func Allgather[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	if err := checkElement[T](c, "allgather"); err != nil {
		return err
	}
	return c.allgather(ctx, bytesOf(send), bytesOf(recv), sizeOf[T]())
}

// Gather collects send of every rank, in rank order, in recv of rank root
// (MPI_Gather): len(recv) is Size times len(send) there and ignored elsewhere.
// In place at the root: nil send, and the own block already in recv.
func Gather[T Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	if err := checkElement[T](c, "gather"); err != nil {
		return err
	}
	return c.gather(ctx, bytesOf(send), bytesOf(recv), root)
}

// Reduce combines send of all ranks, element by element, into recv of rank root
// (MPI_Reduce). recv is ignored elsewhere. In place at the root: nil send.
func Reduce[T Element](ctx context.Context, c *Comm, send, recv []T, op Op, root int) error {
	if err := checkElement[T](c, "reduce"); err != nil {
		return err
	}
	return c.reduce(ctx, bytesOf(send), bytesOf(recv), kindOf[T](), op, root)
}

// Allreduce combines send of all ranks, element by element, into every rank's
// recv (MPI_Allreduce). In place: nil send.
func Allreduce[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	if err := checkElement[T](c, "allreduce"); err != nil {
		return err
	}
	return c.allreduce(ctx, bytesOf(send), bytesOf(recv), kindOf[T](), op)
}

// ReduceScatterBlock combines send of all ranks, element by element, and gives
// rank k block k of the result (MPI_Reduce_scatter_block): len(send) is Size
// times len(recv).
func ReduceScatterBlock[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	if err := checkElement[T](c, "reduce_scatter_block"); err != nil {
		return err
	}
	return c.reduceScatter(ctx, bytesOf(send), bytesOf(recv), kindOf[T](), op)
}
