package rank

import "context"

// The neighbour collectives move blocks between the neighbours of a communicator with
// a topology: block i of the send operand to destination i, block i of the receive
// operand from source i. In a grid both are, for each dimension, the neighbour in the
// negative direction and then that in the positive one; at an open border the block
// has its place and is left as it is. An operand of blocks has one for each neighbour,
// all as long. There is no in place. Who has no topology gets an error of
// [ClassTopology].

// NeighborAllgather sends all of send to every neighbour that is a destination,
// and receives one block of recv from every source (MPI_Neighbor_allgather).
func NeighborAllgather[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	return c.NeighborAllgather(ctx, Of(send), Of(recv))
}

// IneighborAllgather starts NeighborAllgather.
func IneighborAllgather[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.IneighborAllgather(Of(send), Of(recv))
}

// NeighborAllgatherInit prepares a persistent NeighborAllgather.
func NeighborAllgatherInit[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.NeighborAllgatherInit(Of(send), Of(recv))
}

// NeighborAllgatherv is NeighborAllgather with a count and a
// displacement in recv for each source (MPI_Neighbor_allgatherv).
func NeighborAllgatherv[T Element](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) error {
	return c.NeighborAllgatherv(ctx, Of(send), Of(recv), counts, displs)
}

// IneighborAllgatherv starts NeighborAllgatherv.
func IneighborAllgatherv[T Element](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	return c.IneighborAllgatherv(Of(send), Of(recv), counts, displs)
}

// NeighborAllgathervInit prepares a persistent NeighborAllgatherv.
func NeighborAllgathervInit[T Element](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	return c.NeighborAllgathervInit(Of(send), Of(recv), counts, displs)
}

// NeighborAlltoall sends one block of send to each destination, and
// receives one block of recv from each source (MPI_Neighbor_alltoall).
func NeighborAlltoall[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	return c.NeighborAlltoall(ctx, Of(send), Of(recv))
}

// IneighborAlltoall starts NeighborAlltoall.
func IneighborAlltoall[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.IneighborAlltoall(Of(send), Of(recv))
}

// NeighborAlltoallInit prepares a persistent NeighborAlltoall.
func NeighborAlltoallInit[T Element](c *Comm, send, recv []T) (Request, error) {
	return c.NeighborAlltoallInit(Of(send), Of(recv))
}

// NeighborAlltoallv is NeighborAlltoall with a count and a displacement
// for each neighbour (MPI_Neighbor_alltoallv).
func NeighborAlltoallv[T Element](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	return c.NeighborAlltoallv(ctx, Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}

// IneighborAlltoallv starts NeighborAlltoallv.
func IneighborAlltoallv[T Element](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	return c.IneighborAlltoallv(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}

// NeighborAlltoallvInit prepares a persistent NeighborAlltoallv.
func NeighborAlltoallvInit[T Element](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	return c.NeighborAlltoallvInit(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}
