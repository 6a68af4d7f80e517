package rank

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// ErrBuffer says that a buffered send found no room in the buffer of [World.AttachBuffer] or a [SendBuffer] (MPI_ERR_BUFFER).
var ErrBuffer = errors.New("the buffer for buffered sends has no room")

// BsendOverhead is the room in bytes that each message needs in the
// attached buffer, beside its data (MPI_BSEND_OVERHEAD).
const BsendOverhead = 0

// BufferAutomatic attaches a buffer that has room for everything (MPI_BUFFER_AUTOMATIC).
const BufferAutomatic = -1

// AttachBuffer provides room for n bytes of buffered messages that have not left yet
// (MPI_Buffer_attach). The package allocates the memory. Only one buffer may be attached at a time.
func (w *World) AttachBuffer(n int) error { return w.SendBuffer().Attach(n) }

// DetachBuffer waits until all buffered messages have left, detaches the buffer and returns
// its length (MPI_Buffer_detach). When ctx ends first, the buffer stays attached. If
// messages were lost, for example because their receiver died, it returns the first error.
func (w *World) DetachBuffer(ctx context.Context) (int, error) { return w.SendBuffer().Detach(ctx) }

// FlushBuffer waits until all buffered messages have left
// (MPI_Buffer_flush). If messages were lost, it returns the first error.
func (w *World) FlushBuffer(ctx context.Context) error { return w.SendBuffer().Flush(ctx) }

// A SendBuffer is room for buffered sends: the world's, or one of communicators that take it from elsewhere
// (MPI_Comm_attach_buffer, MPI_Session_attach_buffer): see [Comm.SetSendBuffer].
type SendBuffer struct {
	world    *World
	beyond   *SendBuffer // what sends take while nothing is attached here
	size     int         // 0: nothing is attached
	held     int         // bytes of it that are taken
	messages int         // that have not left
	lost     error       // the first of a message since it was asked for
}

// SendBuffer is the world's buffer, for communicators that have no other.
func (w *World) SendBuffer() *SendBuffer {
	w.sendBuffer.world = w
	return &w.sendBuffer
}

// NewSendBuffer makes a buffer for communicators that share it. While nothing is attached to it they have
// that of beyond, which may have one beyond it in turn; nil is the world's.
func (w *World) NewSendBuffer(beyond *SendBuffer) *SendBuffer {
	if beyond == nil {
		beyond = w.SendBuffer()
	}
	return &SendBuffer{world: w, beyond: beyond}
}

// SetSendBuffer has buffered sends on this rank take room in b from now on, nil for the world's buffer. Communicators that
// are made of this one have the world's.
func (c *Comm) SetSendBuffer(b *SendBuffer) { c.sendBuffer = b }

// Attach provides room for n bytes, or for everything: [BufferAutomatic]. See [World.AttachBuffer].
func (b *SendBuffer) Attach(n int) error {
	w := b.world
	if err := w.enter(); err != nil {
		return w.comm.fail("buffer_attach", -1, err)
	}
	defer w.leave()
	switch {
	case n < 1 && n != BufferAutomatic:
		return w.comm.fail("buffer_attach", -1, badClass(ClassBuffer, "%d bytes: expected 1 or more", n))
	case b.size != 0:
		return w.comm.fail("buffer_attach", -1, badClass(ClassBuffer, "a buffer of %d bytes is attached already", b.size))
	}
	b.size = n
	return nil
}

// Detach is [World.DetachBuffer] for this buffer. It returns what Attach was told.
func (b *SendBuffer) Detach(ctx context.Context) (int, error) {
	w := b.world
	if err := w.enter(); err != nil {
		return 0, w.comm.fail("buffer_detach", -1, err)
	}
	defer w.leave()
	if b.size == 0 {
		return 0, w.comm.fail("buffer_detach", -1, badClass(ClassBuffer, "no buffer is attached"))
	}
	if err := w.waitFor(ctx, (*unheld)(b)); err != nil {
		return 0, w.comm.fail("buffer_detach", -1, err)
	}
	n := b.size
	b.size = 0
	return n, b.loss()
}

// Flush is [World.FlushBuffer] for this buffer.
func (b *SendBuffer) Flush(ctx context.Context) error {
	w := b.world
	if err := w.enter(); err != nil {
		return w.comm.fail("buffer_flush", -1, err)
	}
	defer w.leave()
	if err := w.waitFor(ctx, (*unheld)(b)); err != nil {
		return w.comm.fail("buffer_flush", -1, err)
	}
	return b.loss()
}

// Iflush starts to wait until the messages that are in the buffer now have left (MPI_Buffer_iflush). Detach and Flush
// return the errors of messages that were lost.
func (b *SendBuffer) Iflush() (Request, error) {
	const op = "buffer_iflush"
	w := b.world
	if err := w.enter(); err != nil {
		return Request{}, w.comm.fail(op, -1, err)
	}
	defer w.leave()
	w.requests.reap()
	f := &flush{}
	for _, r := range w.requests.detached {
		if r.message.from == b {
			f.left = append(f.left, Request{r, r.generation})
		}
	}
	return w.newRequest(w.comm, op).started(f), nil
}

// A flush waits for messages of a buffer.
type flush struct{ left []Request }

var _ pending = (*flush)(nil)

// done looks at messages that were reaped or are about to be.
func (f *flush) done() bool {
	for len(f.left) > 0 {
		if r := f.left[0].live(); r != nil && !r.done() {
			return false
		}
		f.left = f.left[1:]
	}
	return true
}

func (f *flush) finish(st *Status) error {
	*st = emptyStatus
	return nil
}

func (f *flush) cancel()      {}
func (f *flush) start() error { return badClass(ClassRequest, "the request is not persistent") }
func (f *flush) free()        {}

// loss is why a buffered message was lost, the first since it was asked last.
func (b *SendBuffer) loss() error {
	err := b.lost
	b.lost = nil
	return err
}

// unheld waits until no buffered message is left.
type unheld SendBuffer

func (b *unheld) Ready() bool {
	b.world.requests.reap()
	return b.messages == 0
}

// roomOf is the buffer of a communicator's buffered sends.
func roomOf(c *Comm) *SendBuffer {
	b := c.sendBuffer
	for b != nil && b.size == 0 {
		b = b.beyond
	}
	if b == nil {
		b = &c.world.sendBuffer
	}
	return b
}

// keep sends a copy of a buffer, as a request that nobody has.
func (c *Comm) keep(name string, b *Buffer, e match.Envelope, peer, to int) error {
	w, n, from := c.world, b.size(), roomOf(c)
	w.requests.reap()
	if n > from.size-from.held && from.size != BufferAutomatic {
		return fmt.Errorf("%w: the message has %d bytes, and %d of %d are in use", ErrBuffer, n, from.held, from.size)
	}
	r := w.newRequest(c, name)
	m := &r.message
	*m = message{comm: c, name: name, sends: true, mode: buffered, peer: peer, packing: w.packings.get(n), from: from, held: n}
	data := m.packing.mem[:n]
	b.core().Pack(data, b.mem, 0)
	var err error
	if m.op, err = w.messages.Isend(data, nil, e, to, p2p.Standard); err != nil {
		w.packings.put(m.packing)
		r.retire()
		return err
	}
	from.held += n
	from.messages++
	r.started(m)
	w.requests.detached = append(w.requests.detached, r)
	w.requests.reap() // it may have left
	return nil
}
