package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Send is [Send] of a Buffer.
func (c *Comm) Send(ctx context.Context, b Buffer, dst, tag int) error {
	return c.send(ctx, "send", &b, dst, tag, p2p.Standard)
}

// Ssend is [Ssend] of a Buffer.
func (c *Comm) Ssend(ctx context.Context, b Buffer, dst, tag int) error {
	return c.send(ctx, "ssend", &b, dst, tag, p2p.Synchronous)
}

// Rsend is [Rsend] of a Buffer.
func (c *Comm) Rsend(ctx context.Context, b Buffer, dst, tag int) error {
	return c.send(ctx, "rsend", &b, dst, tag, p2p.Ready)
}

// Bsend is [Bsend] of a Buffer.
func (c *Comm) Bsend(ctx context.Context, b Buffer, dst, tag int) error {
	return c.send(ctx, "bsend", &b, dst, tag, buffered)
}

// Recv is [Recv] into a Buffer.
func (c *Comm) Recv(ctx context.Context, b Buffer, src, tag int) (Status, error) {
	return c.recv(ctx, &b, src, tag)
}

// Sendrecv is the function [Sendrecv] for Buffers. Buffers of types with
// gaps may share memory as long as their data does not overlap.
func (c *Comm) Sendrecv(ctx context.Context, send Buffer, dst, sendTag int, recv Buffer, src, recvTag int) (Status, error) {
	return c.sendrecv(ctx, "sendrecv", half{&send, dst, sendTag}, half{&recv, src, recvTag})
}

// SendrecvReplace is [SendrecvReplace] of a Buffer.
func (c *Comm) SendrecvReplace(ctx context.Context, b Buffer, dst, sendTag, src, recvTag int) (Status, error) {
	return c.sendrecv(ctx, "sendrecv_replace", half{&b, dst, sendTag}, half{&b, src, recvTag})
}

// Isend is [Isend] of a Buffer.
func (c *Comm) Isend(b Buffer, dst, tag int) (Request, error) {
	return c.isend("isend", &b, dst, tag, p2p.Standard)
}

// Issend is [Issend] of a Buffer.
func (c *Comm) Issend(b Buffer, dst, tag int) (Request, error) {
	return c.isend("issend", &b, dst, tag, p2p.Synchronous)
}

// Irsend is [Irsend] of a Buffer.
func (c *Comm) Irsend(b Buffer, dst, tag int) (Request, error) {
	return c.isend("irsend", &b, dst, tag, p2p.Ready)
}

// Ibsend is [Ibsend] of a Buffer.
func (c *Comm) Ibsend(b Buffer, dst, tag int) (Request, error) {
	return c.isend("ibsend", &b, dst, tag, buffered)
}

// Irecv is [Irecv] into a Buffer.
func (c *Comm) Irecv(b Buffer, src, tag int) (Request, error) { return c.irecv("irecv", &b, src, tag) }

// SendInit is [SendInit] of a Buffer.
func (c *Comm) SendInit(b Buffer, dst, tag int) (Request, error) {
	return c.sendInit("send_init", &b, dst, tag, p2p.Standard)
}

// SsendInit is [SsendInit] of a Buffer.
func (c *Comm) SsendInit(b Buffer, dst, tag int) (Request, error) {
	return c.sendInit("ssend_init", &b, dst, tag, p2p.Synchronous)
}

// RsendInit is [RsendInit] of a Buffer.
func (c *Comm) RsendInit(b Buffer, dst, tag int) (Request, error) {
	return c.sendInit("rsend_init", &b, dst, tag, p2p.Ready)
}

// BsendInit is [BsendInit] of a Buffer.
func (c *Comm) BsendInit(b Buffer, dst, tag int) (Request, error) {
	return c.sendInit("bsend_init", &b, dst, tag, buffered)
}

// RecvInit is [RecvInit] into a Buffer.
func (c *Comm) RecvInit(b Buffer, src, tag int) (Request, error) {
	return c.recvInit("recv_init", &b, src, tag)
}
