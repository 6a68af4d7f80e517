package rank

import "context"

// The v collectives have blocks of different lengths. counts and displs tell, by
// rank, how many elements the block of each has and where it begins in the operand;
// with nil displs one block follows the other. What one rank sends another must be
// what that one receives.

// Gatherv collects send of every rank in recv of rank root (MPI_Gatherv), where
// counts and displs are those of recv; recv, counts and displs are ignored
// elsewhere. In place at the root: nil send, and the own block already in recv.
func Gatherv[T Element](ctx context.Context, c *Comm, send, recv []T, counts, displs []int, root int) error {
	return c.Gatherv(ctx, Of(send), Of(recv), counts, displs, root)
}

// Igatherv starts Gatherv.
func Igatherv[T Element](c *Comm, send, recv []T, counts, displs []int, root int) (Request, error) {
	return c.Igatherv(Of(send), Of(recv), counts, displs, root)
}

// GathervInit prepares Gatherv to be started.
func GathervInit[T Element](c *Comm, send, recv []T, counts, displs []int, root int) (Request, error) {
	return c.GathervInit(Of(send), Of(recv), counts, displs, root)
}

// Scatterv gives each rank its block of send of rank root (MPI_Scatterv); send,
// counts and displs are ignored elsewhere. In place at the root: nil recv, and
// the own block stays where it is.
func Scatterv[T Element](ctx context.Context, c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	return c.Scatterv(ctx, Of(send), counts, displs, Of(recv), root)
}

// Iscatterv starts Scatterv.
func Iscatterv[T Element](c *Comm, send []T, counts, displs []int, recv []T, root int) (Request, error) {
	return c.Iscatterv(Of(send), counts, displs, Of(recv), root)
}

// ScattervInit prepares Scatterv to be started.
func ScattervInit[T Element](c *Comm, send []T, counts, displs []int, recv []T, root int) (Request, error) {
	return c.ScattervInit(Of(send), counts, displs, Of(recv), root)
}

// Allgatherv collects send of every rank in recv of every rank (MPI_Allgatherv),
// where counts and displs are those of recv. In place: nil send, and the own
// block already in recv.
func Allgatherv[T Element](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) error {
	return c.Allgatherv(ctx, Of(send), Of(recv), counts, displs)
}

// Iallgatherv starts Allgatherv.
func Iallgatherv[T Element](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	return c.Iallgatherv(Of(send), Of(recv), counts, displs)
}

// AllgathervInit prepares Allgatherv to be started.
func AllgathervInit[T Element](c *Comm, send, recv []T, counts, displs []int) (Request, error) {
	return c.AllgathervInit(Of(send), Of(recv), counts, displs)
}

// Alltoallv sends rank k its block of send and receives its own from rank k
// (MPI_Alltoallv). In place: nil send, and recv holds the blocks to be sent, as
// its counts and displacements say; the send counts are ignored then.
func Alltoallv[T Element](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) error {
	return c.Alltoallv(ctx, Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}

// Ialltoallv starts Alltoallv.
func Ialltoallv[T Element](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	return c.Ialltoallv(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}

// AlltoallvInit prepares Alltoallv to be started.
func AlltoallvInit[T Element](c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (Request, error) {
	return c.AlltoallvInit(Of(send), sendCounts, sendDispls, Of(recv), recvCounts, recvDispls)
}
