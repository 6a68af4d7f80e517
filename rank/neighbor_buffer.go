package rank

import "context"

// NeighborAllgather is [NeighborAllgather] of Buffers.
func (c *Comm) NeighborAllgather(ctx context.Context, send, recv Buffer) error {
	return c.begin("neighbor_allgather").neighborAllgather(send, recv).run(ctx)
}

// IneighborAllgather is [IneighborAllgather] of Buffers.
func (c *Comm) IneighborAllgather(send, recv Buffer) (Request, error) {
	return c.beginRequest("ineighbor_allgather").neighborAllgather(send, recv).launch()
}

// NeighborAllgatherInit is [NeighborAllgatherInit] of Buffers.
func (c *Comm) NeighborAllgatherInit(send, recv Buffer) (Request, error) {
	return c.beginRequest("neighbor_allgather_init").neighborAllgather(send, recv).keep()
}

// NeighborAllgatherv is [NeighborAllgatherv] of Buffers.
func (c *Comm) NeighborAllgatherv(ctx context.Context, send, recv Buffer, counts, displs []int) error {
	return c.begin("neighbor_allgatherv").neighborAllgatherv(send, recv, counts, displs).run(ctx)
}

// IneighborAllgatherv is [IneighborAllgatherv] of Buffers.
func (c *Comm) IneighborAllgatherv(send, recv Buffer, counts, displs []int) (Request, error) {
	return c.beginRequest("ineighbor_allgatherv").neighborAllgatherv(send, recv, counts, displs).launch()
}

// NeighborAllgathervInit is [NeighborAllgathervInit] of Buffers.
func (c *Comm) NeighborAllgathervInit(send, recv Buffer, counts, displs []int) (Request, error) {
	return c.beginRequest("neighbor_allgatherv_init").neighborAllgatherv(send, recv, counts, displs).keep()
}

// NeighborAlltoall is [NeighborAlltoall] of Buffers.
func (c *Comm) NeighborAlltoall(ctx context.Context, send, recv Buffer) error {
	return c.begin("neighbor_alltoall").neighborAlltoall(send, recv).run(ctx)
}

// IneighborAlltoall is [IneighborAlltoall] of Buffers.
func (c *Comm) IneighborAlltoall(send, recv Buffer) (Request, error) {
	return c.beginRequest("ineighbor_alltoall").neighborAlltoall(send, recv).launch()
}

// NeighborAlltoallInit is [NeighborAlltoallInit] of Buffers.
func (c *Comm) NeighborAlltoallInit(send, recv Buffer) (Request, error) {
	return c.beginRequest("neighbor_alltoall_init").neighborAlltoall(send, recv).keep()
}

// NeighborAlltoallv is [NeighborAlltoallv] of Buffers.
func (c *Comm) NeighborAlltoallv(ctx context.Context, send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) error {
	return c.begin("neighbor_alltoallv").neighborAlltoallv(send, sendCounts, sendDispls, recv, recvCounts, recvDispls).run(ctx)
}

// IneighborAlltoallv is [IneighborAlltoallv] of Buffers.
func (c *Comm) IneighborAlltoallv(send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) (Request, error) {
	return c.beginRequest("ineighbor_alltoallv").neighborAlltoallv(send, sendCounts, sendDispls, recv, recvCounts, recvDispls).launch()
}

// NeighborAlltoallvInit is [NeighborAlltoallvInit] of Buffers.
func (c *Comm) NeighborAlltoallvInit(send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) (Request, error) {
	return c.beginRequest("neighbor_alltoallv_init").neighborAlltoallv(send, sendCounts, sendDispls, recv, recvCounts, recvDispls).keep()
}

// NeighborAlltoallw is NeighborAlltoall with one Buffer of its own type
// for each neighbour (MPI_Neighbor_alltoallw).
func (c *Comm) NeighborAlltoallw(ctx context.Context, send, recv []Buffer) error {
	return c.begin("neighbor_alltoallw").neighborAlltoallw(send, recv).run(ctx)
}

// IneighborAlltoallw starts NeighborAlltoallw.
func (c *Comm) IneighborAlltoallw(send, recv []Buffer) (Request, error) {
	return c.beginRequest("ineighbor_alltoallw").neighborAlltoallw(send, recv).launch()
}

// NeighborAlltoallwInit prepares a persistent NeighborAlltoallw.
func (c *Comm) NeighborAlltoallwInit(send, recv []Buffer) (Request, error) {
	return c.beginRequest("neighbor_alltoallw_init").neighborAlltoallw(send, recv).keep()
}
