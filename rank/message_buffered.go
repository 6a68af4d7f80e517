package rank

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// ErrBuffer says that a buffered send found no room in the buffer of [World.AttachBuffer] (MPI_ERR_BUFFER).
var ErrBuffer = errors.New("the buffer for buffered sends has no room")

// BsendOverhead is the room in bytes that each message needs in the
// attached buffer, beside its data (MPI_BSEND_OVERHEAD).
const BsendOverhead = 0

// AttachBuffer provides room for n bytes of buffered messages that have not left yet
// (MPI_Buffer_attach). The package allocates the memory. Only one buffer may be attached at a time.
func (w *World) AttachBuffer(n int) error {
	if err := w.enter(); err != nil {
		return w.comm.fail("buffer_attach", -1, err)
	}
	defer w.leave()
	switch {
	case n < 1:
		return w.comm.fail("buffer_attach", -1, badClass(ClassBuffer, "%d bytes: expected 1 or more", n))
	case w.attached > 0:
		return w.comm.fail("buffer_attach", -1, badClass(ClassBuffer, "a buffer of %d bytes is attached already", w.attached))
	}
	w.attached = n
	return nil
}

// DetachBuffer waits until all buffered messages have left, detaches the buffer and returns
// its length (MPI_Buffer_detach). When ctx ends first, the buffer stays attached. If
// messages were lost, for example because their receiver died, it returns the first error.
func (w *World) DetachBuffer(ctx context.Context) (int, error) {
	if err := w.enter(); err != nil {
		return 0, w.comm.fail("buffer_detach", -1, err)
	}
	defer w.leave()
	if w.attached == 0 {
		return 0, w.comm.fail("buffer_detach", -1, badClass(ClassBuffer, "no buffer is attached"))
	}
	if err := w.waitFor(ctx, (*unheld)(w)); err != nil {
		return 0, w.comm.fail("buffer_detach", -1, err)
	}
	n := w.attached
	w.attached = 0
	return n, w.loss()
}

// FlushBuffer waits until all buffered messages have left
// (MPI_Buffer_flush). If messages were lost, it returns the first error.
func (w *World) FlushBuffer(ctx context.Context) error {
	if err := w.enter(); err != nil {
		return w.comm.fail("buffer_flush", -1, err)
	}
	defer w.leave()
	if err := w.waitFor(ctx, (*unheld)(w)); err != nil {
		return w.comm.fail("buffer_flush", -1, err)
	}
	return w.loss()
}

// loss is why a buffered message was lost, the first since it was asked last.
func (w *World) loss() error {
	err := w.lost
	w.lost = nil
	return err
}

// unheld waits until no buffered message is left.
type unheld World

func (w *unheld) Ready() bool {
	(*World)(w).reap()
	return w.held == 0
}

// keep sends a copy of a buffer, as a request that nobody has.
func (c *Comm) keep(name string, b *Buffer, e match.Envelope, peer, to int) error {
	w, n := c.world, b.size()
	w.reap()
	if n > w.attached-w.held {
		return fmt.Errorf("%w: the message has %d bytes, and %d of %d are in use", ErrBuffer, n, w.held, w.attached)
	}
	r := w.newRequest(c, name)
	m := &r.message
	*m = message{comm: c, name: name, sends: true, mode: buffered, peer: peer, packing: w.packings.get(n), held: n}
	data := m.packing.mem[:n]
	b.core().Pack(data, b.mem, 0)
	var err error
	if m.op, err = w.messages.Isend(data, nil, e, to, p2p.Standard); err != nil {
		w.packings.put(m.packing)
		r.retire()
		return err
	}
	w.held += n
	r.started(m)
	w.detached = append(w.detached, r)
	w.reap() // it may have left
	return nil
}
