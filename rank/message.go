package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Wildcards for receives and probes.
const (
	AnySource = -1 // MPI_ANY_SOURCE
	AnyTag    = -1 // MPI_ANY_TAG
)

// ProcNull as a peer makes a send do nothing, and a receive return at
// once with an empty message (MPI_PROC_NULL).
const ProcNull = -2

// MaxTag is the largest tag (MPI_TAG_UB). The smallest is 0.
const MaxTag = 1<<31 - 1

// A Status describes the message that a receive took or a probe found (MPI_Status).
type Status struct {
	Source int // the sender's rank in the communicator
	Tag    int
	Count  int // in items of the call's type, Undefined if the last item is incomplete; after a probe, in bytes
	Bytes  int // bytes of data
	// Cancelled: the operation was cancelled, and took no message (MPI_Test_cancelled).
	Cancelled bool
}

// GetCount is the number of received items of type t, or Undefined if
// the last item is incomplete (MPI_Get_count).
func (s Status) GetCount(t *Datatype) int {
	if t == nil {
		return Undefined
	}
	return countOf(s.Bytes, t.core.Size())
}

// GetElements is the number of received numbers in items of type t, or Undefined if the last number is
// incomplete (MPI_Get_elements). Unlike GetCount it also counts the numbers of an incomplete last item.
func (s Status) GetElements(t *Datatype) int {
	if t == nil {
		return Undefined
	}
	n, whole := t.core.Elements(s.Bytes)
	if !whole {
		return Undefined
	}
	return n
}

// countOf is how many items of a size some bytes are.
func countOf(bytes, size int) int {
	switch {
	case bytes == 0:
		return 0
	case size == 0 || bytes%size != 0:
		return Undefined
	}
	return bytes / size
}

// The functions below send and receive slices; methods of Comm of the same names do
// so with a Buffer, which may have a type of its own.

// Send sends buf to rank dst (MPI_Send). It returns when buf may be changed: a short message is then
// on its way, and a long one has been received. Messages between two ranks do not overtake each other.
func Send[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	var b Buffer
	hold(&b, buf)
	return c.send(ctx, "send", &b, dst, tag, p2p.Standard)
}

// Ssend is Send that returns after a matching receive has taken the message (MPI_Ssend).
func Ssend[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	var b Buffer
	hold(&b, buf)
	return c.send(ctx, "ssend", &b, dst, tag, p2p.Synchronous)
}

// Rsend is Send for a caller that knows that the matching receive was
// called (MPI_Rsend). If it was not, the message waits as any other.
func Rsend[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	var b Buffer
	hold(&b, buf)
	return c.send(ctx, "rsend", &b, dst, tag, p2p.Ready)
}

// Bsend is Send that never waits for the receiver (MPI_Bsend). The message is copied into the
// buffer of [World.AttachBuffer], or [Comm.SetSendBuffer], until it has left. The error is [ErrBuffer] when that has no room.
func Bsend[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	return c.Bsend(ctx, Of(buf), dst, tag)
}

// Recv receives a message from rank src with the given tag into buf (MPI_Recv). src may be [AnySource],
// tag [AnyTag]. The message may be shorter than buf. If it is longer the error is a [*TruncateError].
func Recv[T Element](ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	var b Buffer
	hold(&b, buf)
	return c.recv(ctx, &b, src, tag)
}

// Sendrecv sends and receives at the same time (MPI_Sendrecv), so that
// rings and exchanges of any length do not deadlock.
func Sendrecv[T Element](ctx context.Context, c *Comm, send []T, dst, sendTag int, recv []T, src, recvTag int) (Status, error) {
	return c.Sendrecv(ctx, Of(send), dst, sendTag, Of(recv), src, recvTag)
}

// SendrecvReplace is Sendrecv with one buffer: the received data
// replaces the sent data (MPI_Sendrecv_replace).
func SendrecvReplace[T Element](ctx context.Context, c *Comm, buf []T, dst, sendTag, src, recvTag int) (Status, error) {
	return c.SendrecvReplace(ctx, Of(buf), dst, sendTag, src, recvTag)
}

// Isend starts a Send (MPI_Isend). buf belongs to the operation until completion was reported.
func Isend[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	var b Buffer
	hold(&b, buf)
	return c.isend("isend", &b, dst, tag, p2p.Standard)
}

// Issend starts an Ssend (MPI_Issend).
func Issend[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	var b Buffer
	hold(&b, buf)
	return c.isend("issend", &b, dst, tag, p2p.Synchronous)
}

// Irsend starts an Rsend (MPI_Irsend).
func Irsend[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	var b Buffer
	hold(&b, buf)
	return c.isend("irsend", &b, dst, tag, p2p.Ready)
}

// Ibsend starts a Bsend (MPI_Ibsend).
func Ibsend[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.Ibsend(Of(buf), dst, tag)
}

// Irecv starts a Recv (MPI_Irecv). The call that waits for the request returns a failed receive's error.
func Irecv[T Element](c *Comm, buf []T, src, tag int) (Request, error) {
	var b Buffer
	hold(&b, buf)
	return c.irecv("irecv", &b, src, tag)
}

// SendInit prepares an Isend that [Request.Start] starts any number of
// times (MPI_Send_init). Each start sends the contents of buf at that time.
func SendInit[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.SendInit(Of(buf), dst, tag)
}

// SsendInit prepares an Issend (MPI_Ssend_init).
func SsendInit[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.SsendInit(Of(buf), dst, tag)
}

// RsendInit prepares an Irsend (MPI_Rsend_init).
func RsendInit[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.RsendInit(Of(buf), dst, tag)
}

// BsendInit prepares an Ibsend (MPI_Bsend_init).
func BsendInit[T Element](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.BsendInit(Of(buf), dst, tag)
}

// RecvInit prepares an Irecv (MPI_Recv_init).
func RecvInit[T Element](c *Comm, buf []T, src, tag int) (Request, error) {
	return c.RecvInit(Of(buf), src, tag)
}
