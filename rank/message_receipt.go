package rank

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank/internal/datatype"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// A receipt is what the request of a plain receive keeps: one that Irecv has started,
// into memory that is one run of bytes. Programs start them by the thousand, and a
// message holds six times as much.
type receipt struct {
	op    *p2p.Op        // nil: the request is of another kind
	peer  int            // in the communicator
	count int            // items of the buffer
	core  *datatype.Type // of each
}

// plain is a request as the pending operation that its receipt stands for.
type plain request

var _ pending = (*plain)(nil)

func (p *plain) done() bool              { return p.receipt.op.Done() }
func (p *plain) finish(st *Status) error { return (*request)(p).outcome(st) }
func (p *plain) cancel()                 { p.world.messages.Cancel(p.receipt.op) }
func (p *plain) start() error            { return nil }
func (p *plain) free()                   {}

// receive starts a plain receive that was checked.
func (c *Comm) receive(name string, b *Buffer, src int, want match.Envelope) (Request, error) {
	w := c.world
	data := b.bytes()
	op, err := w.messages.Irecv(data, w.regions.find(data), want, c.ranks)
	if err != nil {
		return Request{}, c.fail(name, src, err)
	}
	r := w.newRequest(c, name)
	w.beside.tellOf(len(data))
	r.receipt.op, r.receipt.peer, r.receipt.count, r.receipt.core = op, src, b.count, b.core()
	return r.started((*plain)(r)), nil
}

// received is complete of a plain receive. Where nobody wants the status st is nil.
func (r *request) received(st *Status) error {
	err := r.outcome(st)
	r.retire()
	return err
}

// outcome takes what the engine says of a plain receive.
func (r *request) outcome(st *Status) error {
	c := r.comm
	p, err := c.world.messages.Finish(r.receipt.op)
	r.receipt.op = nil
	if st != nil {
		count, size := r.receipt.count, r.receipt.core.Size()
		if p.Bytes != count*size || p.Bytes == 0 {
			count = countOf(p.Bytes, size)
		}
		st.Source, st.Tag, st.Count, st.Bytes, st.Cancelled = c.rankOf(p.Source), p.Tag, count, p.Bytes, false
	}
	if err == nil {
		if c.world.recorder != nil {
			c.world.recorder.Received(p.Source, p.Bytes, p.Tag)
		}
		return nil
	}
	if errors.Is(err, p2p.ErrCancelled) {
		if st != nil {
			*st = emptyStatus
			st.Cancelled = true
		}
		return nil
	}
	return c.fail(r.op, r.receipt.peer, c.typed(err, r.receipt.core))
}
