package rank

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// A message is a send or a receive of a request: what a request waits for, and part
// of it, so that it is recycled with it.
type message struct {
	comm     *Comm
	name     string // of the call
	sends    bool
	mode     p2p.Mode
	peer     int            // in the communicator
	to       int            // of a send: in the world
	envelope match.Envelope // of the message, or what a receive wants
	buf      Buffer

	op      *p2p.Op // nil: there is nothing to do, or not yet
	packing *packing
	from    *SendBuffer // of a buffered send, which holds room there
	held    int         // bytes of it
	// matched is the message that a probe has taken for this receive.
	matched *p2p.Message
}

var _ pending = (*message)(nil)

func (m *message) done() bool { return m.op == nil || m.op.Done() }

func (m *message) cancel() {
	if m.op != nil {
		m.comm.world.messages.Cancel(m.op)
	}
}

func (m *message) free() {}

// start gives the message to the engine.
func (m *message) start() (err error) {
	if m.peer == ProcNull {
		return nil
	}
	w := m.comm.world
	if w.recorder != nil && m.sends {
		w.recorder.Sent(m.to, m.buf.size(), int(m.envelope.Tag))
	}
	var data []byte
	switch {
	case m.sends && m.mode == buffered:
		return m.comm.keep(m.name, &m.buf, m.envelope, m.peer, m.to)
	case m.sends:
		if w.narrator != nil {
			w.narrator.message(m.comm, m.name, m.peer, m.to, m.buf.size())
		}
		data, m.packing = w.packings.outgoing(&m.buf)
		m.op, err = w.messages.Isend(data, w.regions.find(data), m.envelope, m.to, m.mode)
	case m.matched != nil:
		data, m.packing = w.packings.incoming(&m.buf)
		m.op, err = w.messages.Imrecv(m.matched, data, w.regions.find(data), m.buf.core().Mark())
	default:
		data, m.packing = w.packings.incoming(&m.buf)
		m.op, err = w.messages.Irecv(data, w.regions.find(data), m.envelope, m.comm.ranks)
	}
	w.beside.tellOf(len(data))
	if err != nil {
		w.packings.put(m.packing)
		m.packing = nil
	}
	return err
}

// finish gives the outcome, and leaves the message ready for another start.
func (m *message) finish(status *Status) error {
	if m.op == nil {
		if *status = nothing; m.sends {
			*status = emptyStatus
		}
		return nil
	}
	c := m.comm
	st, err := c.world.messages.Finish(m.op)
	if m.sends {
		c.world.packings.put(m.packing)
		if m.from != nil {
			m.from.held -= m.held
			m.from.messages--
		}
		*status = emptyStatus
	} else {
		c.world.packings.arrived(&m.buf, m.packing, st.Bytes)
		c.status(status, st, &m.buf)
	}
	m.op, m.packing = nil, nil
	switch {
	case err == nil:
		if c.world.recorder != nil && !m.sends {
			c.world.recorder.Received(st.Source, st.Bytes, st.Tag)
		}
		return nil
	case errors.Is(err, p2p.ErrCancelled):
		*status = emptyStatus
		status.Cancelled = true
		return nil
	}
	if !m.sends { // a buffered send has no buffer of the caller's any more
		err = c.typed(err, m.buf.core())
	}
	return c.fail(m.name, m.peer, err)
}

// departed is a send that was over when its call returned.
type departed struct{}

var _ pending = departed{}

func (departed) done() bool { return true }
func (departed) finish(st *Status) error {
	*st = emptyStatus
	return nil
}
func (departed) cancel()      {}
func (departed) start() error { return nil }
func (departed) free()        {}

// sending makes a send without starting it; receiving a receive. The world is
// entered when there is no error.
func (c *Comm) sending(name string, b *Buffer, dst, tag int, mode p2p.Mode) (*request, error) {
	if err := c.enterShort(); err != nil {
		return nil, c.fail(name, -1, err)
	}
	e, to, err := c.outbound(b, dst, tag)
	if err != nil {
		err = c.fail(name, -1, err)
		c.world.leave()
		return nil, err
	}
	return c.toSend(name, b, dst, to, e, mode), nil
}

// toSend is the request of a send that was checked.
func (c *Comm) toSend(name string, b *Buffer, dst, to int, e match.Envelope, mode p2p.Mode) *request {
	r := c.world.newRequest(c, name)
	m := &r.message
	m.comm, m.name, m.sends, m.mode, m.peer, m.to, m.envelope = c, name, true, mode, dst, to, e
	m.buf.set(b)
	return r
}

func (c *Comm) receiving(name string, b *Buffer, src, tag int) (*request, error) {
	if err := c.enterShort(); err != nil {
		return nil, c.fail(name, -1, err)
	}
	want, err := c.inbound(b, src, tag)
	if err != nil {
		err = c.fail(name, -1, err)
		c.world.leave()
		return nil, err
	}
	return c.toReceive(name, b, src, want), nil
}

// toReceive is the request of a receive that was checked.
func (c *Comm) toReceive(name string, b *Buffer, src int, want match.Envelope) *request {
	r := c.world.newRequest(c, name)
	m := &r.message
	m.comm, m.name, m.peer, m.envelope = c, name, src, want
	m.buf.set(b)
	return r
}

// launch starts the message of a request.
func (r *request) launch() (Request, error) {
	m := &r.message
	if err := m.start(); err != nil {
		c, name, peer := m.comm, m.name, m.peer
		r.retire()
		return Request{}, c.fail(name, peer, err)
	}
	return r.started(m), nil
}

func (c *Comm) isend(name string, b *Buffer, dst, tag int, mode p2p.Mode) (Request, error) {
	if err := c.enterShort(); err != nil {
		return Request{}, c.fail(name, -1, err)
	}
	w := c.world
	e, to, err := c.outbound(b, dst, tag)
	var q Request
	switch {
	case err != nil:
		err = c.fail(name, -1, err)
	case dst != ProcNull && b.solid() && w.messages.TrySend(b.bytes(), e, to, mode):
		if w.recorder != nil {
			w.recorder.Sent(to, b.size(), tag)
		}
		q = w.newRequest(c, name).started(departed{})
	default:
		q, err = c.toSend(name, b, dst, to, e, mode).launch()
	}
	w.leave()
	return q, err
}

func (c *Comm) irecv(name string, b *Buffer, src, tag int) (Request, error) {
	if err := c.enterShort(); err != nil {
		return Request{}, c.fail(name, -1, err)
	}
	w := c.world
	want, err := c.inbound(b, src, tag)
	var q Request
	switch {
	case err != nil:
		err = c.fail(name, -1, err)
	case src != ProcNull && b.solid():
		q, err = c.receive(name, b, src, want)
	default:
		q, err = c.toReceive(name, b, src, want).launch()
	}
	w.leave()
	return q, err
}

func (c *Comm) sendInit(name string, b *Buffer, dst, tag int, mode p2p.Mode) (Request, error) {
	r, err := c.sending(name, b, dst, tag, mode)
	if err != nil {
		return Request{}, err
	}
	q := r.inactive(&r.message)
	c.world.leave()
	return q, nil
}

func (c *Comm) recvInit(name string, b *Buffer, src, tag int) (Request, error) {
	r, err := c.receiving(name, b, src, tag)
	if err != nil {
		return Request{}, err
	}
	q := r.inactive(&r.message)
	c.world.leave()
	return q, nil
}
