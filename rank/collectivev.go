package rank

import "context"

// Gatherv collects send of every rank, of different lengths, in recv of rank root (MPI_Gatherv): counts[k]
// elements of rank k, from recv[displs[k]] on. With nil displs one block follows the other. len(send) at
// rank k is counts[k]. recv, counts and displs are ignored elsewhere.
// In place at the root: send is nil, and the root's block is already in recv.
func Gatherv[T Element](ctx context.Context, c *Comm, send, recv []T, counts, displs []int, root int) error {
	var s spread
	spreadOfSlices(&s, send, recv, root)
	if done, err := c.againGatherv(ctx, &s, counts, displs); done {
		return err
	}
	return c.begin("gatherv").likeSpread(&s).gatherv(Of(send), Of(recv), counts, displs, root).run(ctx)
}

// Igatherv starts Gatherv.
func Igatherv[T Element](c *Comm, send, recv []T, counts, displs []int, root int) (Request, error) {
	return c.Igatherv(Of(send), Of(recv), counts, displs, root)
}

// GathervInit prepares a persistent Gatherv.
func GathervInit[T Element](c *Comm, send, recv []T, counts, displs []int, root int) (Request, error) {
	return c.GathervInit(Of(send), Of(recv), counts, displs, root)
}

// Scatterv gives rank k block k of send of rank root (MPI_Scatterv): counts[k] elements, from
// send[displs[k]] on. With nil displs one block follows the other. len(recv) at rank k is counts[k].
// send, counts and displs are ignored elsewhere.
// In place at the root: recv is nil, and the root's block stays where it is.
func Scatterv[T Element](ctx context.Context, c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	var s spread
	spreadOfSlices(&s, send, recv, root)
	if done, err := c.againScatterv(ctx, &s, counts, displs); done {
		return err
	}
	return c.begin("scatterv").likeSpread(&s).scatterv(Of(send), counts, displs, Of(recv), root).run(ctx)
}

// Iscatterv starts Scatterv.
func Iscatterv[T Element](c *Comm, send []T, counts, displs []int, recv []T, root int) (Request, error) {
	return c.Iscatterv(Of(send), counts, displs, Of(recv), root)
}

// ScattervInit prepares a persistent Scatterv.
func ScattervInit[T Element](c *Comm, send []T, counts, displs []int, recv []T, root int) (Request, error) {
	return c.ScattervInit(Of(send), counts, displs, Of(recv), root)
}

// Allgatherv collects send of every rank, of different lengths, in recv of every rank (MPI_Allgatherv):
// counts[k] elements of rank k, from recv[displs[k]] on. With nil displs one block follows the other. All
// ranks give the same counts. In place: send is nil, and this rank's block is already in recv.
func Allgatherv[T Element](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) error {
	var s spread
	spreadOfSlices(&s, send, recv, 0)
	if done, err := c.againAllgatherv(ctx, &s, counts, displs); done {
		return err
	}
	return c.begin("allgatherv").likeSpread(&s).allgatherv(Of(send), Of(recv), counts, displs).run(ctx)
}

// Iallgatherv starts Allgatherv.
func Iallgatherv[T Element](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	return c.Iallgatherv(Of(send), Of(recv), counts, displs)
}

// AllgathervInit prepares a persistent Allgatherv.
func AllgathervInit[T Element](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	return c.AllgathervInit(Of(send), Of(recv), counts, displs)
}

// Alltoallv sends block k of send to rank k, and receives block k of recv from rank k
// (MPI_Alltoallv). Counts and displacements are in elements, by rank; with nil displacements one block follows
// the other. Two ranks give the same count for what one sends the other. In place: send is nil, recvCounts and
// recvDispls describe the blocks in recv that are sent and replaced, and the send counts are ignored.
func Alltoallv[T Element](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	var s spread
	spreadOfSlices(&s, send, recv, 0)
	if done, err := c.againAlltoallv(ctx, &s, sendCounts, sendDispls, recvCounts, recvDispls); done {
		return err
	}
	return c.begin("alltoallv").likeSpread(&s).alltoallv(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls).run(ctx)
}

// Ialltoallv starts Alltoallv.
func Ialltoallv[T Element](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	return c.Ialltoallv(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}

// AlltoallvInit prepares a persistent Alltoallv.
func AlltoallvInit[T Element](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	return c.AlltoallvInit(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}
