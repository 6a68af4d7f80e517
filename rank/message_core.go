package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// This is what blocking calls are made of: bytes and types, no type parameters.

// envelope checks and makes the envelope of a message to or from a rank. wild is for
// receives: peer and tag may be open. For ProcNull there is no world rank.
func (c *Comm) envelope(context uint32, peer, tag int, wild bool) (match.Envelope, int, error) {
	e := match.Envelope{Context: context, Source: int32(c.world.rank), Tag: int32(tag)}
	if (peer < 0 || peer >= c.peers.Size()) && !(wild && peer == AnySource) && peer != ProcNull {
		return e, 0, badClass(ClassRank, "rank %d in a communicator of %d ranks", peer, c.peers.Size())
	}
	if (tag < 0 || tag > MaxTag) && !(wild && tag == AnyTag) {
		return e, 0, badClass(ClassTag, "tag %d: expected 0 to %d", tag, MaxTag)
	}
	world := -1
	if peer >= 0 {
		world = c.worldRank(peer)
	}
	if wild {
		e.Source = int32(world)
	}
	return e, world, nil
}

// outbound checks a send of a buffer and makes its message's envelope; inbound that of a receive.
func (c *Comm) outbound(b *Buffer, dst, tag int) (e match.Envelope, to int, err error) {
	if e, to, err = c.envelope(c.userContext(), dst, tag, false); err == nil {
		if err = b.check(c.world, toRead); err == nil {
			e.Type = b.core().Mark()
		}
	}
	return e, to, err
}

func (c *Comm) inbound(b *Buffer, src, tag int) (want match.Envelope, err error) {
	if want, _, err = c.envelope(c.userContext(), src, tag, true); err == nil {
		if err = b.check(c.world, toWrite); err == nil {
			want.Type = b.core().Mark()
		}
	}
	return want, err
}

// status is the status of a message that came into b, in the communicator's ranks.
// Statuses are filled in where they are wanted, a word at a time: copies of what was
// just written in smaller pieces wait for those stores.
func (c *Comm) status(to *Status, st p2p.Status, b *Buffer) {
	count := b.count // of a full buffer, without the divisions
	if st.Bytes != b.size() || st.Bytes == 0 {
		count = countOf(st.Bytes, b.core().Size())
	}
	to.Source, to.Tag, to.Count, to.Bytes, to.Cancelled = c.rankOf(st.Source), st.Tag, count, st.Bytes, false
}

// buffered is the mode of a send that the world keeps (MPI_Bsend); the engine does not
// know it.
const buffered = p2p.Ready + 1

// nothing is the status of a receive from ProcNull.
var nothing = Status{Source: ProcNull, Tag: AnyTag}

func (c *Comm) send(ctx context.Context, op string, b *Buffer, dst, tag int, mode p2p.Mode) error {
	if err := c.enter(); err != nil {
		return c.fail(op, -1, err)
	}
	w := c.world
	e, to, err := c.outbound(b, dst, tag)
	switch {
	case err != nil:
		err = c.fail(op, -1, err)
	case dst == ProcNull:
	default:
		if w.recorder != nil {
			w.recorder.Sent(to, b.size(), tag)
		}
		if mode == buffered {
			err = c.keep(op, b, e, dst, to)
		} else {
			if w.narrator != nil {
				w.narrator.message(c, op, dst, to, b.size())
			}
			data, packed := w.packings.outgoing(b)
			err = w.messages.SendMode(ctx, data, w.regions.find(data), e, to, mode)
			w.packings.put(packed)
		}
		if err != nil {
			err = c.fail(op, dst, err)
		}
	}
	w.leave()
	return err
}

func (c *Comm) recv(ctx context.Context, b *Buffer, src, tag int) (status Status, err error) {
	if err := c.enter(); err != nil {
		return Status{}, c.fail("recv", -1, err)
	}
	w := c.world
	want, err := c.inbound(b, src, tag)
	switch {
	case err != nil:
		err = c.fail("recv", -1, err)
	case src == ProcNull:
		status = nothing
	default:
		data, packed := w.packings.incoming(b)
		var st p2p.Status
		st, err = w.messages.Recv(ctx, data, w.regions.find(data), want, c.ranks)
		w.packings.arrived(b, packed, st.Bytes)
		c.status(&status, st, b)
		if w.recorder != nil && err == nil {
			w.recorder.Received(st.Source, st.Bytes, st.Tag)
		}
		if err != nil {
			err = c.fail("recv", src, c.typed(err, b.core()))
		}
	}
	w.leave()
	return status, err
}

// A half is a buffer on its way to a rank, or from one.
type half struct {
	b         *Buffer
	rank, tag int
}

// sendrecv is both, also with one buffer: then what is sent is copied first.
func (c *Comm) sendrecv(ctx context.Context, op string, send, recv half) (Status, error) {
	if err := c.enter(); err != nil {
		return Status{}, c.fail(op, -1, err)
	}
	defer c.world.leave()
	w := c.world
	e, to, err := c.outbound(send.b, send.rank, send.tag)
	var want match.Envelope
	if err == nil {
		want, err = c.inbound(recv.b, recv.rank, recv.tag)
	}
	replace := send.b == recv.b
	if err == nil && !replace && send.b.solid() && recv.b.solid() && overlap(send.b.bytes(), recv.b.bytes()) {
		err = badClass(ClassBuffer, "the send buffer and the receive buffer overlap")
	}
	if err != nil {
		return Status{}, c.fail(op, -1, err)
	}
	out, sent := w.packings.outgoing(send.b)
	if replace && sent == nil {
		sent = w.packings.get(len(out))
		out = sent.mem[:copy(sent.mem, out)]
	}
	in, received := w.packings.incoming(recv.b)
	if w.narrator != nil && send.rank != ProcNull {
		w.narrator.message(c, op, send.rank, to, len(out))
	}
	if w.recorder != nil && send.rank != ProcNull {
		w.recorder.Sent(to, len(out), send.tag)
	}
	st, status, peer := p2p.Status{}, nothing, -1
	switch {
	case recv.rank == ProcNull && send.rank == ProcNull:
	case recv.rank == ProcNull:
		peer = send.rank
		err = w.messages.Send(ctx, out, w.regions.find(out), e, to)
	case send.rank == ProcNull:
		peer = recv.rank
		st, err = w.messages.Recv(ctx, in, w.regions.find(in), want, c.ranks)
	default:
		st, err = w.messages.Exchange(ctx, &p2p.Sending{Buf: out, MR: w.regions.find(out), Envelope: e, Peer: to},
			&p2p.Receiving{Buf: in, MR: w.regions.find(in), Want: want, Group: c.ranks})
	}
	w.packings.arrived(recv.b, received, st.Bytes)
	w.packings.put(sent)
	if recv.rank != ProcNull {
		c.status(&status, st, recv.b)
		if w.recorder != nil && err == nil {
			w.recorder.Received(st.Source, st.Bytes, st.Tag)
		}
	}
	if err != nil {
		err = c.fail(op, peer, c.typed(err, recv.b.core()))
	}
	return status, err
}

// overlap tells whether two runs of bytes share one.
func overlap(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && address(a) < address(b)+uint64(len(b)) && address(b) < address(a)+uint64(len(a))
}
