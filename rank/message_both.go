package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Isendrecv starts a Sendrecv (MPI_Isendrecv). Its Status is that of the receive.
func Isendrecv[T Element](c *Comm, send []T, dst, sendTag int, recv []T, src, recvTag int) (Request, error) {
	return c.Isendrecv(Of(send), dst, sendTag, Of(recv), src, recvTag)
}

// IsendrecvReplace starts a SendrecvReplace (MPI_Isendrecv_replace). The data to send is copied first.
func IsendrecvReplace[T Element](c *Comm, buf []T, dst, sendTag, src, recvTag int) (Request, error) {
	return c.IsendrecvReplace(Of(buf), dst, sendTag, src, recvTag)
}

// Isendrecv is [Isendrecv] of Buffers.
func (c *Comm) Isendrecv(send Buffer, dst, sendTag int, recv Buffer, src, recvTag int) (Request, error) {
	const op = "isendrecv"
	if err := c.enter(); err != nil {
		return Request{}, c.fail(op, -1, err)
	}
	w := c.world
	err := send.check(w, toRead)
	if err == nil {
		err = recv.check(w, toWrite)
	}
	if err == nil && send.solid() && recv.solid() && overlap(send.bytes(), recv.bytes()) {
		err = badClass(ClassBuffer, "the send buffer and the receive buffer overlap")
	}
	if err != nil {
		err = c.fail(op, -1, err)
	}
	w.leave()
	if err != nil {
		return Request{}, err
	}
	return c.startBoth(op, half{&send, dst, sendTag}, half{&recv, src, recvTag}, nil)
}

// IsendrecvReplace is [IsendrecvReplace] of a Buffer.
func (c *Comm) IsendrecvReplace(b Buffer, dst, sendTag, src, recvTag int) (Request, error) {
	const op = "isendrecv_replace"
	if err := c.enter(); err != nil {
		return Request{}, c.fail(op, -1, err)
	}
	w := c.world
	if err := b.check(w, toWrite); err != nil {
		err = c.fail(op, -1, err)
		w.leave()
		return Request{}, err
	}
	p := w.packings.get(b.size())
	copied := p.mem[:b.size()]
	b.core().Pack(copied, b.mem, 0)
	w.leave()
	sent := Of(copied)
	q, err := c.startBoth(op, half{&sent, dst, sendTag}, half{&b, src, recvTag}, p)
	if err != nil {
		w.packings.put(p)
	}
	return q, err
}

// startBoth starts a receive and a send, and makes one request of theirs. copied is
// what holds the data of the send, nil where that is the program's.
func (c *Comm) startBoth(op string, send, recv half, copied *packing) (Request, error) {
	in, err := c.irecv(op, recv.b, recv.rank, recv.tag)
	if err != nil {
		return Request{}, err
	}
	out, err := c.isend(op, send.b, send.rank, send.tag, p2p.Standard)
	if err != nil {
		// Nothing has been sent, so nothing need be received.
		if in.Cancel() == nil {
			_, _ = in.Wait(context.Background()) // the first error is told
		}
		return Request{}, err
	}
	if err := c.enter(); err != nil { // another goroutine is in a call
		return Request{}, c.fail(op, -1, err)
	}
	defer c.world.leave()
	return c.world.newRequest(c, op).started(&both{in.r, out.r, copied}), nil
}

// both is a receive and a send with one request.
type both struct {
	in, out *request
	copied  *packing
}

var _ pending = (*both)(nil)

func (b *both) done() bool { return b.in.done() && b.out.done() }

func (b *both) finish(st *Status) error {
	w := b.in.world
	var sent Status
	failed := b.out.complete(&sent)
	err := b.in.complete(st)
	w.packings.put(b.copied)
	if err == nil {
		err = failed
	}
	return err
}

// cancel gives up the receive. What was sent is on its way.
func (b *both) cancel() { b.in.what.cancel() }

func (b *both) start() error { return badClass(ClassRequest, "the request is not persistent") }
func (b *both) free()        {}
