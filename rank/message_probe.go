package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Probe waits for a message that matches src and tag, and describes it
// (MPI_Probe). The message stays in the queue for the next receive that
// matches it. Count is in bytes; [Status.GetCount] converts it to items.
func Probe(ctx context.Context, c *Comm, src, tag int) (Status, error) { return c.Probe(ctx, src, tag) }

// Iprobe is Probe that does not wait (MPI_Iprobe): found is false when there is no such message.
func Iprobe(c *Comm, src, tag int) (st Status, found bool, err error) { return c.Iprobe(src, tag) }

// Mprobe is Probe that also takes the message out of the queue: only a
// receive with the returned Message gets it (MPI_Mprobe).
func Mprobe(ctx context.Context, c *Comm, src, tag int) (Message, Status, error) {
	return c.Mprobe(ctx, src, tag)
}

// Improbe is Mprobe that does not wait (MPI_Improbe).
func Improbe(c *Comm, src, tag int) (m Message, st Status, found bool, err error) {
	return c.Improbe(src, tag)
}

// Mrecv receives a message from a matched probe (MPI_Mrecv). Its sender has
// already started to send it. When ctx ends, the call still returns when the
// whole message has arrived, or with an error if the sender makes no progress.
func Mrecv[T Element](ctx context.Context, m Message, buf []T) (Status, error) {
	return m.Recv(ctx, Of(buf))
}

// Imrecv starts a receive of a message from a matched probe (MPI_Imrecv).
func Imrecv[T Element](m Message, buf []T) (Request, error) { return m.Irecv(Of(buf)) }

// A Message is the result of a matched probe (MPI_Message). It is received
// once; after that all copies of the value are empty, as the zero Message is.
type Message struct{ q Request }

// probed is the status of a probe.
func (c *Comm) probed(st p2p.Status) Status {
	return Status{Source: c.rankOf(st.Source), Tag: st.Tag, Count: st.Bytes, Bytes: st.Bytes}
}

// Probe is the function [Probe].
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	if err := c.enter(); err != nil {
		return Status{}, c.fail("probe", -1, err)
	}
	defer c.world.leave()
	want, _, err := c.envelope(c.userContext(), src, tag, true)
	if err != nil {
		return Status{}, c.fail("probe", -1, err)
	}
	if src == ProcNull {
		return nothing, nil
	}
	st, err := c.world.messages.Probe(ctx, want, c.ranks)
	if err != nil {
		return Status{}, c.fail("probe", src, err)
	}
	return c.probed(st), nil
}

// Iprobe is the function [Iprobe].
func (c *Comm) Iprobe(src, tag int) (st Status, found bool, err error) {
	if err := c.enter(); err != nil {
		return Status{}, false, c.fail("iprobe", -1, err)
	}
	defer c.world.leave()
	want, _, err := c.envelope(c.userContext(), src, tag, true)
	if err != nil {
		return Status{}, false, c.fail("iprobe", -1, err)
	}
	if src == ProcNull {
		return nothing, true, nil
	}
	c.world.progressOthers()
	s, found, err := c.world.messages.Iprobe(want, c.ranks)
	if err != nil {
		return Status{}, false, c.fail("iprobe", src, err)
	}
	if !found {
		c.world.vain()
		return Status{}, false, nil
	}
	return c.probed(s), true, nil
}

// Mprobe is the function [Mprobe].
func (c *Comm) Mprobe(ctx context.Context, src, tag int) (Message, Status, error) {
	if err := c.enter(); err != nil {
		return Message{}, Status{}, c.fail("mprobe", -1, err)
	}
	defer c.world.leave()
	want, _, err := c.envelope(c.userContext(), src, tag, true)
	if err != nil {
		return Message{}, Status{}, c.fail("mprobe", -1, err)
	}
	if src == ProcNull {
		return c.matched(nil), nothing, nil
	}
	m, st, err := c.world.messages.Mprobe(ctx, want, c.ranks)
	if err != nil {
		return Message{}, Status{}, c.fail("mprobe", src, err)
	}
	return c.matched(m), c.probed(st), nil
}

// Improbe is the function [Improbe].
func (c *Comm) Improbe(src, tag int) (m Message, st Status, found bool, err error) {
	if err := c.enter(); err != nil {
		return Message{}, Status{}, false, c.fail("improbe", -1, err)
	}
	defer c.world.leave()
	want, _, err := c.envelope(c.userContext(), src, tag, true)
	if err != nil {
		return Message{}, Status{}, false, c.fail("improbe", -1, err)
	}
	if src == ProcNull {
		return c.matched(nil), nothing, true, nil
	}
	c.world.progressOthers()
	taken, s, found, err := c.world.messages.Improbe(want, c.ranks)
	if err != nil {
		return Message{}, Status{}, false, c.fail("improbe", src, err)
	}
	if !found {
		c.world.vain()
		return Message{}, Status{}, false, nil
	}
	return c.matched(taken), c.probed(s), true, nil
}

// matched is a Message: a request of a receive that has no buffer yet. nil stands
// for the message of ProcNull (MPI_MESSAGE_NO_PROC).
func (c *Comm) matched(m *p2p.Message) Message {
	r := c.world.newRequest(c, "imrecv")
	r.message = message{comm: c, name: "imrecv", peer: ProcNull, matched: m}
	if m != nil {
		r.message.peer = c.rankOf(int(m.Source))
	}
	r.what = &r.message
	return Message{Request{r, r.generation}}
}

// Irecv is the function [Imrecv] for a Buffer.
func (m Message) Irecv(b Buffer) (Request, error) {
	r, err := m.into("imrecv", &b)
	if err != nil {
		return Request{}, err
	}
	defer r.world.leave()
	return r.launch()
}

// Recv is the function [Mrecv] for a Buffer.
func (m Message) Recv(ctx context.Context, b Buffer) (Status, error) {
	r, err := m.into("mrecv", &b)
	if err != nil {
		return Status{}, err
	}
	w := r.world
	defer w.leave()
	if _, err := r.launch(); err != nil {
		return Status{}, err
	}
	if o := r.message.op; o != nil {
		w.messages.Settle(ctx, o)
	}
	err = r.complete(&w.requests.status)
	return w.requests.status, err
}

// into gives a Message its buffer. The world is entered when there is no error.
func (m Message) into(name string, b *Buffer) (*request, error) {
	if m.q.r == nil {
		return nil, &Error{Op: name, Peer: -1, Err: badClass(ClassRequest, "the Message is empty: expected one of Mprobe or Improbe")}
	}
	w := m.q.r.world
	if err := w.enter(); err != nil {
		return nil, w.comm.fail(name, -1, err)
	}
	r, c := m.q.live(), w.comm
	var err error
	if r == nil {
		err = badClass(ClassRequest, "the message was received already")
	} else {
		c = r.comm
		err = b.check(w, toWrite)
	}
	if err != nil {
		err = c.fail(name, -1, err)
		w.leave()
		return nil, err
	}
	// From here on the Message stands for nothing, and a Request for the receive.
	r.generation++
	r.op, r.message.name, r.message.buf = name, name, *b
	return r, nil
}
