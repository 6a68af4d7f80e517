package rank

import (
	"context"
	"errors"
	"fmt"
)

// ErrBuffer: a buffered send found no room in the buffer of AttachBuffer
// (MPI_ERR_BUFFER).
var ErrBuffer = errors.New("the buffer for buffered sends has no room")

// BsendOverhead is what each message takes in the attached buffer besides its bytes
// (MPI_BSEND_OVERHEAD).
const BsendOverhead = 0

// AttachBuffer lets buffered sends keep up to n bytes of messages that could not leave
// yet (MPI_Buffer_attach). The memory is the package's own. There is one at a time.
func (w *World) AttachBuffer(n int) error {
	if err := w.enter(); err != nil {
		return w.comm.fail("buffer_attach", -1, err)
	}
	defer w.leave()
	switch {
	case n < 1:
		return w.comm.fail("buffer_attach", -1, badClass(ClassBuffer, "%d bytes", n))
	case w.attached > 0:
		return w.comm.fail("buffer_attach", -1, badClass(ClassBuffer, "a buffer of %d bytes is attached already", w.attached))
	}
	w.attached = n
	return nil
}

// DetachBuffer waits until all buffered messages have left, and gives the length of
// the buffer, which is gone then (MPI_Buffer_detach). When ctx ends first the buffer
// stays.
func (w *World) DetachBuffer(ctx context.Context) (int, error) {
	if err := w.enter(); err != nil {
		return 0, w.comm.fail("buffer_detach", -1, err)
	}
	defer w.leave()
	if w.attached == 0 {
		return 0, w.comm.fail("buffer_detach", -1, badClass(ClassBuffer, "no buffer is attached"))
	}
	if err := w.waitFor(ctx, (*unbuffered)(w)); err != nil {
		return 0, w.comm.fail("buffer_detach", -1, err)
	}
	n := w.attached
	w.attached = 0
	return n, nil
}

// unbuffered waits until no buffered message is left.
type unbuffered World

func (w *unbuffered) Ready() bool { return w.messages.Held() == 0 }

// room tells whether a buffered send of n bytes may be kept.
func (w *World) room(n int) error {
	if held := w.messages.Held(); n > w.attached-held {
		return fmt.Errorf("%w: a message of %d bytes, and %d of %d bytes are taken", ErrBuffer, n, held, w.attached)
	}
	return nil
}
