package rank

import "context"

// Wildcards of Recv.
const (
	AnySource = -1 // MPI_ANY_SOURCE
	AnyTag    = -1 // MPI_ANY_TAG
)

// ProcNull is a rank that nobody has (MPI_PROC_NULL): what is sent to it is gone,
// and what is received of it is empty.
const ProcNull = -2

// MaxTag is the largest tag (MPI_TAG_UB). Tags count from 0.
const MaxTag = 1<<31 - 1

// A Status tells which message a receive took (MPI_Status).
type Status struct {
	Source int // the sender's rank in the communicator
	Tag    int
	Count  int // elements of the call's type, Undefined when the last is not whole
	Bytes  int // of data
	// Cancelled: the call was cancelled, and no message taken.
	Cancelled bool
}

// Send sends buf to rank dst (MPI_Send). It returns when buf may be changed
// again: a short message is then on its way, a long one has been received.
// Messages between two ranks arrive in the order sent.
func Send[T Element](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	if err := checkElement[T](c, "send"); err != nil {
		return err
	}
	return c.send(ctx, "send", bytesOf(buf), dst, tag)
}

// Recv receives a message from rank src with the given tag into buf (MPI_Recv);
// src may be AnySource, tag AnyTag. The message may be shorter than buf; when it
// is longer the error is a *TruncateError.
func Recv[T Element](ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	if err := checkElement[T](c, "recv"); err != nil {
		return Status{}, err
	}
	st, err := c.recv(ctx, "recv", bytesOf(buf), src, tag)
	st.Count /= sizeOf[T]()
	return st, err
}

// Sendrecv sends and receives at once (MPI_Sendrecv): rings and exchanges of
// any length do not deadlock.
func Sendrecv[T Element](ctx context.Context, c *Comm, send []T, dst, sendTag int, recv []T, src, recvTag int) (Status, error) {
	if err := checkElement[T](c, "sendrecv"); err != nil {
		return Status{}, err
	}
	st, err := c.sendrecv(ctx, bytesOf(send), dst, sendTag, bytesOf(recv), src, recvTag)
	st.Count /= sizeOf[T]()
	return st, err
}
