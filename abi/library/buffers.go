//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// A buffer is what buffered sends take room in: the process's, a session's or a communicator's. The memory is package
// rank's; C's is kept only to be given back.
type buffer struct {
	*rank.SendBuffer
	at    ptr
	size  int
	there bool
}

// attached is the process's.
var attached buffer

// processBuffer is the process's buffer, of its job.
func processBuffer() *buffer {
	attached.SendBuffer = job.world.SendBuffer()
	return &attached
}

func (b *buffer) attach(at ptr, size int) error {
	switch {
	case size < 0:
		return wrong(c_ERR_ARG, "the size is %d", size)
	case b.there:
		return wrong(c_ERR_BUFFER, "there is a buffer already: it is to be detached first")
	}
	n := size
	if address(at) == c_BUFFER_AUTOMATIC {
		n, size = rank.BufferAutomatic, 0
	}
	if err := b.Attach(n); err != nil {
		return err
	}
	b.at, b.size, b.there = at, size, true
	return nil
}

func (b *buffer) detach(f *frame, at, size ptr) error {
	switch {
	case at == nil || size == nil:
		return errNull
	case b == nil || !b.there:
		return wrong(c_ERR_BUFFER, "no buffer is attached")
	}
	if _, err := b.Detach(never); err != nil {
		return err
	}
	f.putHandle(at, address(b.at))
	f.putWide(size, b.size)
	b.at, b.there = nil, false
	return nil
}

// flush waits for the messages of a buffer, which may never have been there.
func (b *buffer) flush() error {
	if b == nil {
		return nil
	}
	return b.Flush(never)
}

func (b *buffer) iflush(f *frame, request ptr, on *owner) error {
	if request == nil {
		return errNull
	}
	if b == nil {
		b = &buffer{SendBuffer: job.world.NewSendBuffer(nil)}
	}
	f.at, f.whose = request, on
	return f.started(b.Iflush())
}

func mpiBufferAttach(_ *frame, at ptr, size int) error { return processBuffer().attach(at, size) }
func mpiBufferDetach(f *frame, at, size ptr) error     { return processBuffer().detach(f, at, size) }
func mpiBufferFlush(*frame) error                      { return processBuffer().flush() }
func mpiBufferIflush(f *frame, request ptr) error {
	return processBuffer().iflush(f, request, &base().owner)
}

func mpiCommAttachBuffer(_ *frame, c *comm, at ptr, size int) error {
	if c.buffer == nil {
		c.buffer = &buffer{SendBuffer: job.world.NewSendBuffer(c.session.sendBuffer())}
		c.SetSendBuffer(c.buffer.SendBuffer)
	}
	return c.buffer.attach(at, size)
}

func mpiCommDetachBuffer(f *frame, c *comm, at, size ptr) error { return c.buffer.detach(f, at, size) }
func mpiCommFlushBuffer(_ *frame, c *comm) error                { return c.buffer.flush() }
func mpiCommIflushBuffer(f *frame, c *comm, request ptr) error {
	return c.buffer.iflush(f, request, &c.owner)
}

// sendBuffer is the buffer of a session's communicators, nil for no session.
func (s *session) sendBuffer() *rank.SendBuffer {
	if s == nil {
		return nil
	}
	return s.buffer.SendBuffer
}

func mpiSessionAttachBuffer(_ *frame, s *session, at ptr, size int) error {
	return s.buffer.attach(at, size)
}

func mpiSessionDetachBuffer(f *frame, s *session, at, size ptr) error {
	return s.buffer.detach(f, at, size)
}
func mpiSessionFlushBuffer(_ *frame, s *session) error { return s.buffer.flush() }
func mpiSessionIflushBuffer(f *frame, s *session, request ptr) error {
	return s.buffer.iflush(f, request, &s.owner)
}
