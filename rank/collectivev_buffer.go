package rank

import "context"

// Gatherv is [Gatherv] of Buffers; counts and displs are in items of recv.
func (c *Comm) Gatherv(ctx context.Context, send, recv Buffer, counts, displs []int, root int) error {
	var s spread
	s.spreadOf(&send, &recv, root)
	if done, err := c.againGatherv(ctx, &s, counts, displs); done {
		return err
	}
	return c.begin("gatherv").likeSpread(&s).gatherv(send, recv, counts, displs, root).run(ctx)
}

// Igatherv is [Igatherv] of Buffers.
func (c *Comm) Igatherv(send, recv Buffer, counts, displs []int, root int) (Request, error) {
	return c.beginRequest("igatherv").gatherv(send, recv, counts, displs, root).launch()
}

// GathervInit is [GathervInit] of Buffers.
func (c *Comm) GathervInit(send, recv Buffer, counts, displs []int, root int) (Request, error) {
	return c.beginRequest("gatherv_init").gatherv(send, recv, counts, displs, root).keep()
}

// Scatterv is [Scatterv] of Buffers; counts and displs are in items of send.
func (c *Comm) Scatterv(ctx context.Context, send Buffer, counts, displs []int, recv Buffer, root int) error {
	var s spread
	s.spreadOf(&send, &recv, root)
	if done, err := c.againScatterv(ctx, &s, counts, displs); done {
		return err
	}
	return c.begin("scatterv").likeSpread(&s).scatterv(send, counts, displs, recv, root).run(ctx)
}

// Iscatterv is [Iscatterv] of Buffers.
func (c *Comm) Iscatterv(send Buffer, counts, displs []int, recv Buffer, root int) (Request, error) {
	return c.beginRequest("iscatterv").scatterv(send, counts, displs, recv, root).launch()
}

// ScattervInit is [ScattervInit] of Buffers.
func (c *Comm) ScattervInit(send Buffer, counts, displs []int, recv Buffer, root int) (Request, error) {
	return c.beginRequest("scatterv_init").scatterv(send, counts, displs, recv, root).keep()
}

// Allgatherv is [Allgatherv] of Buffers; counts and displs are in items of recv.
func (c *Comm) Allgatherv(ctx context.Context, send, recv Buffer, counts, displs []int) error {
	var s spread
	s.spreadOf(&send, &recv, 0)
	if done, err := c.againAllgatherv(ctx, &s, counts, displs); done {
		return err
	}
	return c.begin("allgatherv").likeSpread(&s).allgatherv(send, recv, counts, displs).run(ctx)
}

// Iallgatherv is [Iallgatherv] of Buffers.
func (c *Comm) Iallgatherv(send, recv Buffer, counts, displs []int) (Request, error) {
	return c.beginRequest("iallgatherv").allgatherv(send, recv, counts, displs).launch()
}

// AllgathervInit is [AllgathervInit] of Buffers.
func (c *Comm) AllgathervInit(send, recv Buffer, counts, displs []int) (Request, error) {
	return c.beginRequest("allgatherv_init").allgatherv(send, recv, counts, displs).keep()
}

// Alltoallv is [Alltoallv] of Buffers; counts and displacements are in items of the Buffer that they stand behind.
func (c *Comm) Alltoallv(ctx context.Context, send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) error {
	var s spread
	s.spreadOf(&send, &recv, 0)
	if done, err := c.againAlltoallv(ctx, &s, sendCounts, sendDispls, recvCounts, recvDispls); done {
		return err
	}
	return c.begin("alltoallv").likeSpread(&s).alltoallv(send, sendCounts, sendDispls, recv, recvCounts, recvDispls).run(ctx)
}

// Ialltoallv is [Ialltoallv] of Buffers.
func (c *Comm) Ialltoallv(send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) (Request, error) {
	return c.beginRequest("ialltoallv").alltoallv(send, sendCounts, sendDispls, recv, recvCounts, recvDispls).launch()
}

// AlltoallvInit is [AlltoallvInit] of Buffers.
func (c *Comm) AlltoallvInit(send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) (Request, error) {
	return c.beginRequest("alltoallv_init").alltoallv(send, sendCounts, sendDispls, recv, recvCounts, recvDispls).keep()
}

// Alltoallw sends buffer k of send to rank k, and receives buffer k of recv from rank k (MPI_Alltoallw).
// Each buffer has its own type. In place: send is nil, and the data in recv is sent and replaced.
func (c *Comm) Alltoallw(ctx context.Context, send, recv []Buffer) error {
	return c.begin("alltoallw").alltoallw(send, recv).run(ctx)
}

// Ialltoallw starts Alltoallw.
func (c *Comm) Ialltoallw(send, recv []Buffer) (Request, error) {
	return c.beginRequest("ialltoallw").alltoallw(send, recv).launch()
}

// AlltoallwInit prepares a persistent Alltoallw.
func (c *Comm) AlltoallwInit(send, recv []Buffer) (Request, error) {
	return c.beginRequest("alltoallw_init").alltoallw(send, recv).keep()
}
