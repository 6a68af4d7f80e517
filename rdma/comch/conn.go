package comch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// A Conn is one end of a channel with one peer. Its methods may be called from
// several goroutines; those that send take turns, and those that receive.
type Conn struct {
	t    transport
	peer string

	// recvMu comes before sendMu where both are taken.
	recvMu, sendMu sync.Mutex
	ended          bool // CloseSend is done; under sendMu

	closing atomic.Bool
	once    sync.Once
	err     error // of Close
}

// A transport moves the messages of a Conn. Of the methods, those that send are called
// under sendMu, those that receive under recvMu, waitAny under both. None but
// the waits blocks. An error is final, but for ErrSize.
type transport interface {
	// trySend takes a message of 1 to MaxMessage bytes if there is room.
	trySend(p []byte) (bool, error)
	// tryEnd sends the end mark if there is room.
	tryEnd() (bool, error)
	// drained tells whether the peer has taken everything that was sent.
	drained() (bool, error)
	// tryRecv receives a message if there is one; io.EOF: there will be none.
	tryRecv(p []byte) (n int, ok bool, err error)
	// The waits return when it is worth another try of what gave false last, or with
	// the error of ctx. They may also return for nothing.
	waitSend(ctx context.Context) error
	waitDrained(ctx context.Context) error
	waitRecv(ctx context.Context) error
	waitAny(ctx context.Context) error
	// interrupt ends waits under way and those to come. Any goroutine.
	interrupt()
	// close gives everything back; no other call is under way, and none comes.
	close() error
}

// Peer says who the other end is.
func (c *Conn) Peer() string { return c.peer }

// TrySend sends a message if there is room for it in the queue. The bytes are the
// caller's again when it returns.
func (c *Conn) TrySend(p []byte) (sent bool, err error) {
	if len(p) < 1 || len(p) > MaxMessage {
		return false, sizeError(len(p))
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	return c.trySend(p)
}

func sizeError(n int) error {
	return fmt.Errorf("%w: found %d bytes, expected 1 to %d", ErrSize, n, MaxMessage)
}

func (c *Conn) trySend(p []byte) (bool, error) {
	if c.ended || c.closing.Load() {
		return false, ErrClosed
	}
	return c.t.trySend(p)
}

// Send sends a message, and waits for room in the queue.
func (c *Conn) Send(ctx context.Context, p []byte) error {
	if len(p) < 1 || len(p) > MaxMessage {
		return sizeError(len(p))
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	for {
		if sent, err := c.trySend(p); sent || err != nil {
			return err
		}
		if err := c.t.waitSend(ctx); err != nil {
			return err
		}
	}
}

// TryRecv receives a message, of n bytes, into p if there is one. It gives io.EOF
// when the peer has ended its sending, and there is nothing left of it.
func (c *Conn) TryRecv(p []byte) (n int, received bool, err error) {
	c.recvMu.Lock()
	defer c.recvMu.Unlock()
	return c.tryRecv(p)
}

func (c *Conn) tryRecv(p []byte) (int, bool, error) {
	if c.closing.Load() {
		return 0, false, ErrClosed
	}
	return c.t.tryRecv(p)
}

// Recv receives the next message into p, and waits for it. MaxMessage bytes hold
// any. It returns io.EOF as TryRecv does.
func (c *Conn) Recv(ctx context.Context, p []byte) (int, error) {
	c.recvMu.Lock()
	defer c.recvMu.Unlock()
	for {
		if n, received, err := c.tryRecv(p); received || err != nil {
			return n, err
		}
		if err := c.t.waitRecv(ctx); err != nil {
			return 0, err
		}
	}
}

// Wait waits until TrySend or TryRecv, which both did nothing when they were called last,
// may do something. It is for a goroutine that does both; no other may wait
// meanwhile.
func (c *Conn) Wait(ctx context.Context) error {
	c.recvMu.Lock()
	defer c.recvMu.Unlock()
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if c.closing.Load() {
		return ErrClosed
	}
	return c.t.waitAny(ctx)
}

// WaitRecv waits until TryRecv may do something. Others may send meanwhile.
func (c *Conn) WaitRecv(ctx context.Context) error {
	c.recvMu.Lock()
	defer c.recvMu.Unlock()
	if c.closing.Load() {
		return ErrClosed
	}
	return c.t.waitRecv(ctx)
}

// TryCloseSend tells the peer that no message follows, if there is room in the queue.
// Receiving goes on.
func (c *Conn) TryCloseSend() (ended bool, err error) {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	return c.tryCloseSend()
}

func (c *Conn) tryCloseSend() (bool, error) {
	switch {
	case c.ended:
		return true, nil
	case c.closing.Load():
		return false, ErrClosed
	}
	var err error
	c.ended, err = c.t.tryEnd()
	return c.ended, err
}

// CloseSend is TryCloseSend that waits for room.
func (c *Conn) CloseSend(ctx context.Context) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	for {
		if ended, err := c.tryCloseSend(); ended || err != nil {
			return err
		}
		if err := c.t.waitSend(ctx); err != nil {
			return err
		}
	}
}

// Drain waits until the peer's program has received every message and, after CloseSend,
// the end.
func (c *Conn) Drain(ctx context.Context) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	for {
		if c.closing.Load() {
			return ErrClosed
		}
		if drained, err := c.t.drained(); drained || err != nil {
			return err
		}
		if err := c.t.waitDrained(ctx); err != nil {
			return err
		}
	}
}

// Close ends the channel. Calls under way return ErrClosed, and the peer is told: what it
// has not received by then, on another host, may be lost. Closing twice is no error.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.closing.Store(true)
		c.t.interrupt()
		c.recvMu.Lock()
		defer c.recvMu.Unlock()
		c.sendMu.Lock()
		defer c.sendMu.Unlock()
		c.err = c.t.close()
	})
	return c.err
}
