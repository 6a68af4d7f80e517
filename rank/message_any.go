package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// RecvSlice is Recv of a message of any length: it allocates the slice.
func RecvSlice[T Element](ctx context.Context, c *Comm, src, tag int) ([]T, Status, error) {
	m, st, err := c.Mprobe(ctx, src, tag)
	if err != nil {
		return nil, st, err
	}
	t, err := TypeFor[T]()
	if err != nil {
		return nil, st, c.fail("recv_slice", src, err)
	}
	buf := make([]T, (st.Bytes+t.Size()-1)/t.Size())
	st, err = Mrecv(ctx, m, buf)
	return buf, st, err
}

// SendAny sends a value of any type that msgpack can encode: structs by their exported
// fields, maps, slices, strings, and pointers to those. The receiver calls [RecvAny].
func SendAny(ctx context.Context, c *Comm, v any, dst, tag int) error {
	b, err := pack.Marshal(v)
	if err != nil {
		return c.fail("send_any", dst, badClass(ClassType, "%T: %v", v, err))
	}
	return Send(ctx, c, b, dst, tag)
}

// RecvAny receives a message of [SendAny]. T may differ from the sender's type: fields are
// matched by name. If the value does not fit T the call fails, and the message is lost.
func RecvAny[T any](ctx context.Context, c *Comm, src, tag int) (v T, st Status, err error) {
	b, st, err := RecvSlice[byte](ctx, c, src, tag)
	if err != nil || st.Source == ProcNull {
		return v, st, err
	}
	if err := pack.Unmarshal(b, &v); err != nil {
		return v, st, c.fail("recv_any", st.Source, badClass(ClassType, "%d bytes do not decode as %T: %v", len(b), v, err))
	}
	return v, st, nil
}

// CountOf is the number of elements of type T in a message, or Undefined when
// the last element is incomplete. It is [Status.GetCount] for a Go type.
func CountOf[T Element](s Status) int {
	t, err := TypeFor[T]()
	if err != nil {
		return Undefined
	}
	return s.GetCount(t)
}

// A Swap is a [Sendrecv] with named arguments: it sends to one rank and receives
// from another at the same time. [ProcNull] as To or From leaves that half out.
type Swap[T Element] struct {
	Send []T
	To   int
	Recv []T
	From int
	Tag  int // of both messages
}

// Do sends and receives. The Status is that of the receive.
func (s Swap[T]) Do(ctx context.Context, c *Comm) (Status, error) {
	return Sendrecv(ctx, c, s.Send, s.To, s.Tag, s.Recv, s.From, s.Tag)
}
