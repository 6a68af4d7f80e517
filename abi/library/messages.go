//go:build cgo && linux

package main

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank"
)

// peer is a rank of C's in package rank's terms: -1 and MPI_PROC_NULL have other numbers there.
func (f *frame) peer(n int, any bool) int {
	switch {
	case n == c_PROC_NULL:
		return rank.ProcNull
	case n == c_ANY_SOURCE && any:
		return rank.AnySource
	case n < 0:
		f.bad(wrong(c_ERR_RANK, "%d is no rank", n))
	}
	return n
}

func (f *frame) tag(n int, any bool) int {
	switch {
	case n == c_ANY_TAG && any:
		return rank.AnyTag
	case n < 0:
		f.bad(wrong(c_ERR_TAG, "the tag is %d: expected 0 or more", n))
	}
	return n
}

func mpiSend(f *frame, at ptr, count int, t *datatype, dst, tag int, c *comm) error {
	b, to, n := f.buffer(at, count, t), f.peer(dst, false), f.tag(tag, false)
	switch c.ready(f) {
	case waits:
		return c.Send(never, b, to, n)
	case starts:
		return f.started(c.Isend(b, to, n))
	case keeps:
		return f.kept(c.SendInit(b, to, n))
	}
	return f.orNull()
}

func mpiSsend(f *frame, at ptr, count int, t *datatype, dst, tag int, c *comm) error {
	b, to, n := f.buffer(at, count, t), f.peer(dst, false), f.tag(tag, false)
	switch c.ready(f) {
	case waits:
		return c.Ssend(never, b, to, n)
	case starts:
		return f.started(c.Issend(b, to, n))
	case keeps:
		return f.kept(c.SsendInit(b, to, n))
	}
	return f.orNull()
}

func mpiRsend(f *frame, at ptr, count int, t *datatype, dst, tag int, c *comm) error {
	b, to, n := f.buffer(at, count, t), f.peer(dst, false), f.tag(tag, false)
	switch c.ready(f) {
	case waits:
		return c.Rsend(never, b, to, n)
	case starts:
		return f.started(c.Irsend(b, to, n))
	case keeps:
		return f.kept(c.RsendInit(b, to, n))
	}
	return f.orNull()
}

func mpiBsend(f *frame, at ptr, count int, t *datatype, dst, tag int, c *comm) error {
	b, to, n := f.buffer(at, count, t), f.peer(dst, false), f.tag(tag, false)
	switch c.ready(f) {
	case waits:
		return bufferError(c.Bsend(never, b, to, n))
	case starts:
		q, err := c.Ibsend(b, to, n)
		return f.started(q, bufferError(err))
	case keeps:
		return f.kept(c.BsendInit(b, to, n))
	}
	return f.orNull()
}

func bufferError(err error) error {
	if errors.Is(err, rank.ErrBuffer) {
		return wrong(c_ERR_BUFFER, "%v", err)
	}
	return err
}

func mpiRecv(f *frame, at ptr, count int, t *datatype, src, tag int, c *comm, status ptr) error {
	b, from, n := f.buffer(at, count, t), f.peer(src, true), f.tag(tag, true)
	if f.err != nil {
		return f.err
	}
	st, err := c.Recv(never, b, from, n)
	statusAt(status).set(&st)
	return err
}

func mpiSendrecv(f *frame, out ptr, nout int, tout *datatype, dst, dtag int, in ptr, nin int, tin *datatype, src, stag int, c *comm, status ptr) error {
	s, to, st := f.buffer(out, nout, tout), f.peer(dst, false), f.tag(dtag, false)
	r, from, rt := f.buffer(in, nin, tin), f.peer(src, true), f.tag(stag, true)
	if f.err != nil {
		return f.err
	}
	got, err := c.Sendrecv(never, s, to, st, r, from, rt)
	statusAt(status).set(&got)
	return err
}

func mpiSendrecvReplace(f *frame, at ptr, count int, t *datatype, dst, dtag, src, stag int, c *comm, status ptr) error {
	b, to, st, from, rt := f.buffer(at, count, t), f.peer(dst, false), f.tag(dtag, false), f.peer(src, true), f.tag(stag, true)
	if f.err != nil {
		return f.err
	}
	got, err := c.SendrecvReplace(never, b, to, st, from, rt)
	statusAt(status).set(&got)
	return err
}

func mpiIrecv(f *frame, at ptr, count int, t *datatype, src, tag int, c *comm, request ptr) error {
	b, from, n := f.buffer(at, count, t), f.peer(src, true), f.tag(tag, true)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Irecv(b, from, n))
}

func mpiIsendrecv(f *frame, out ptr, nout int, tout *datatype, dst, dtag int, in ptr, nin int, tin *datatype, src, stag int, c *comm, request ptr) error {
	s, to, st := f.buffer(out, nout, tout), f.peer(dst, false), f.tag(dtag, false)
	r, from, rt := f.buffer(in, nin, tin), f.peer(src, true), f.tag(stag, true)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Isendrecv(s, to, st, r, from, rt))
}

func mpiIsendrecvReplace(f *frame, at ptr, count int, t *datatype, dst, dtag, src, stag int, c *comm, request ptr) error {
	b, to, st, from, rt := f.buffer(at, count, t), f.peer(dst, false), f.tag(dtag, false), f.peer(src, true), f.tag(stag, true)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IsendrecvReplace(b, to, st, from, rt))
}

func mpiRecvInit(f *frame, at ptr, count int, t *datatype, src, tag int, c *comm, request ptr) error {
	b, from, n := f.buffer(at, count, t), f.peer(src, true), f.tag(tag, true)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.RecvInit(b, from, n))
}

func mpiProbe(f *frame, src, tag int, c *comm, status ptr) error {
	from, n := f.peer(src, true), f.tag(tag, true)
	if f.err != nil {
		return f.err
	}
	st, err := c.Probe(never, from, n)
	statusAt(status).set(&st)
	return err
}

func mpiIprobe(f *frame, src, tag int, c *comm, flag, status ptr) error {
	from, n := f.peer(src, true), f.tag(tag, true)
	if f.err != nil {
		return f.err
	}
	st, found, err := c.Iprobe(from, n)
	if found {
		statusAt(status).set(&st)
	}
	f.putBool(flag, found)
	return err
}

// A message is MPI_Message: one that was matched on a communicator, whose errors are those of its receive.
type message struct {
	rank.Message
	on *comm
}

var messages = newTable[message](kindMessage)

// found stores a matched message's handle. A probe of MPI_PROC_NULL finds one of its own.
func (f *frame) found(to ptr, c *comm, m rank.Message, from int) {
	h := uintptr(c_MESSAGE_NO_PROC)
	if from != rank.ProcNull {
		var slot *message
		h, slot = messages.enter()
		*slot = message{m, c}
	}
	f.putHandle(to, h)
}

func mpiMprobe(f *frame, src, tag int, c *comm, to, status ptr) error {
	from, n := f.peer(src, true), f.tag(tag, true)
	if f.err != nil || to == nil {
		return f.orNull()
	}
	m, st, err := c.Mprobe(never, from, n)
	if err == nil {
		statusAt(status).set(&st)
		f.found(to, c, m, from)
	}
	return err
}

func mpiImprobe(f *frame, src, tag int, c *comm, flag, to, status ptr) error {
	from, n := f.peer(src, true), f.tag(tag, true)
	if f.err != nil || to == nil {
		return f.orNull()
	}
	m, st, found, err := c.Improbe(from, n)
	if found && err == nil {
		statusAt(status).set(&st)
		f.found(to, c, m, from)
	}
	f.putBool(flag, found)
	return err
}

// messageAt looks at the message at an address. none: it is the one of MPI_PROC_NULL.
func (f *frame) messageAt(at ptr) (none bool) {
	h := f.handleAt(at)
	if m := messages.find(h); m != nil {
		f.on = &m.on.owner
	} else if h != c_MESSAGE_NO_PROC {
		f.bad(badHandle(c_ERR_REQUEST, "message", h))
	}
	return h == c_MESSAGE_NO_PROC
}

// taken ends the message at an address, which is null from now on.
func (f *frame) taken(at ptr) (m message) {
	h := f.handleAt(at)
	if slot := messages.find(h); slot != nil {
		m, *slot = *slot, message{}
		messages.leave(h)
	}
	f.putHandle(at, c_MESSAGE_NULL)
	return m
}

func mpiMrecv(f *frame, at ptr, count int, t *datatype, from, status ptr) error {
	none := f.messageAt(from)
	b := f.buffer(at, count, t)
	if f.err != nil {
		return f.err
	}
	m := f.taken(from)
	if none {
		statusAt(status).set(&rank.Status{Source: rank.ProcNull, Tag: rank.AnyTag})
		return nil
	}
	st, err := m.Recv(never, b)
	statusAt(status).set(&st)
	return err
}

func mpiImrecv(f *frame, at ptr, count int, t *datatype, from, request ptr) error {
	none := f.messageAt(from)
	b := f.buffer(at, count, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	m := f.taken(from)
	if none {
		return f.to(request, base()).started(root.Irecv(b, rank.ProcNull, 0))
	}
	return f.to(request, m.on).started(m.Irecv(b))
}
