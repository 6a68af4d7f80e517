package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Wildcards of receives and probes.
const (
	AnySource = -1 // MPI_ANY_SOURCE
	AnyTag    = -1 // MPI_ANY_TAG
)

// ProcNull is a rank that nobody has (MPI_PROC_NULL): what is sent to it is gone,
// and what is received of it is empty.
const ProcNull = -2

// MaxTag is the largest tag (MPI_TAG_UB). Tags count from 0.
const MaxTag = 1<<31 - 1

// A Status tells which message a receive took or a probe found (MPI_Status).
type Status struct {
	Source int // the sender's rank in the communicator
	Tag    int
	Count  int // items of the call's type, Undefined when the last is not whole; of a probe: bytes
	Bytes  int // of data
	// Cancelled: the call was cancelled, and no message taken (MPI_Test_cancelled).
	Cancelled bool
}

// GetCount is how many items of type t arrived, Undefined when the last is not whole
// (MPI_Get_count).
func (s Status) GetCount(t *Datatype) int {
	if t == nil {
		return Undefined
	}
	return countOf(s.Bytes, t.core.Size())
}

// GetElements is how many numbers arrived in items of type t, Undefined when the last
// is not whole (MPI_Get_elements). It differs from a multiple of GetCount when a
// message ends within an item.
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

// Send sends buf to rank dst (MPI_Send). It returns when buf may be changed
// again: a short message is then on its way, a long one has been received.
// Messages between two ranks arrive in the order sent.
func Send[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	var b Buffer
	hold(&b, buf)
	return c.send(ctx, "send", &b, dst, tag, p2p.Standard)
}

// Ssend is Send that returns when a receive has taken the message (MPI_Ssend).
func Ssend[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	var b Buffer
	hold(&b, buf)
	return c.send(ctx, "ssend", &b, dst, tag, p2p.Synchronous)
}

// Rsend is Send by a caller who knows that the receive has been called (MPI_Rsend).
// When it has not, the message waits for it as others do.
func Rsend[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	var b Buffer
	hold(&b, buf)
	return c.send(ctx, "rsend", &b, dst, tag, p2p.Ready)
}

// Bsend is Send that never waits for the receiver: the message is copied into the
// buffer of [World.AttachBuffer] until it has left, and the error is ErrBuffer when
// that has no room for it (MPI_Bsend).
func Bsend[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	return c.Bsend(ctx, Of(buf), dst, tag)
}

// Recv receives a message from rank src with the given tag into buf (MPI_Recv);
// src may be AnySource, tag AnyTag. The message may be shorter than buf; when it
// is longer the error is a *TruncateError.
func Recv[T Element](ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	var b Buffer
	hold(&b, buf)
	return c.recv(ctx, &b, src, tag)
}

// Sendrecv sends and receives at once (MPI_Sendrecv): rings and exchanges of
// any length do not deadlock.
func Sendrecv[T Element](ctx context.Context, c *Comm, send []T, dst, sendTag int, recv []T, src, recvTag int) (Status, error) {
	return c.Sendrecv(ctx, Of(send), dst, sendTag, Of(recv), src, recvTag)
}

// SendrecvReplace is Sendrecv with one buffer: what is received takes the place of
// what was sent (MPI_Sendrecv_replace).
func SendrecvReplace[T Element](ctx context.Context, c *Comm, buf []T, dst, sendTag, src, recvTag int) (Status, error) {
	return c.SendrecvReplace(ctx, Of(buf), dst, sendTag, src, recvTag)
}

// Isend starts a Send (MPI_Isend). buf belongs to the call until the request's end
// was reported.
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

// Irecv starts a Recv (MPI_Irecv). A failure to receive shows when the request is
// waited for.
func Irecv[T Element](c *Comm, buf []T, src, tag int) (Request, error) {
	var b Buffer
	hold(&b, buf)
	return c.irecv("irecv", &b, src, tag)
}

// SendInit prepares an Isend that [Request.Start] starts, again and again
// (MPI_Send_init). Each start sends what buf holds then.
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
