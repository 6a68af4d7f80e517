package comch

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
)

// The ranks of a channel's segment. An end that waits for messages sleeps on the
// bell of its receiver, one that waits for room on the bell of its sender: two goroutines can
// wait at a time. The peer rings the receiver's bell for messages, and both for
// room: one goroutine that waits for either sleeps on the receiver's.
//
// The ring to an end is in the arena of its receiver; the other arenas are never touched.
const (
	serverRecv = iota
	serverSend
	clientRecv
	clientSend
	bells
)

// segmentGeometry is that of a segment that holds both rings.
func segmentGeometry(toServer, toClient geometry) shm.Geometry {
	page := os.Getpagesize()
	size := max(toServer.size(), toClient.size())
	return shm.Geometry{Ranks: bells, ArenaSize: uint64((size + page - 1) / page * page)}
}

// A ringConn is an end of a channel on one host.
type ringConn struct {
	segment *shm.Segment // closed by close, when owned
	owned   bool
	out     ringSender
	in      ringReceiver

	mine, theirs struct{ recv, send *shm.Bell }

	sendWaiter, recvWaiter *wait.Waiter
	room                   roomReady
	taken                  takenReady
	message                messageReady
	any                    anyReady

	stream   int         // messages received since this end has sent; under Conn.recvMu
	answered atomic.Bool // this end has sent since
	patience int         // pauses before a stream's receiver looks again

	interrupted atomic.Bool
	gone        atomic.Bool   // the peer has closed, or its process has ended
	line        io.Closer     // the socket by which that is noticed; nil: none
	watched     chan struct{} // closed when its watcher has ended
}

var _ transport = (*ringConn)(nil)

// newRingConn makes an end over a segment that both have.
func newRingConn(cfg *Config, segment *shm.Segment, server bool, out, in geometry) (*ringConn, error) {
	own, peer := clientRecv, serverRecv
	if server {
		own, peer = serverRecv, clientRecv
	}
	c := &ringConn{segment: segment}
	from, err := segment.Arena(own)
	if err != nil {
		return nil, err
	}
	to, err := segment.Arena(peer)
	if err != nil {
		return nil, err
	}
	if len(from) < in.size() || len(to) < out.size() {
		return nil, errors.New("the shared memory is too small for its rings")
	}
	c.out.cursor, c.in.cursor = newCursor(out, to), newCursor(in, from)
	c.mine.recv, c.mine.send = segment.Bell(own), segment.Bell(own+1)
	c.theirs.recv, c.theirs.send = segment.Bell(peer), segment.Bell(peer+1)
	c.recvWaiter = wait.New(wait.Config{Oversubscribed: cfg.Crowded, Scheduler: cfg.Shared, Sleeper: c.mine.recv, CPU: own / 2})
	c.sendWaiter = wait.New(wait.Config{Oversubscribed: cfg.Crowded, Scheduler: cfg.Shared, Sleeper: c.mine.send, CPU: own / 2})
	if !cfg.Crowded && !cfg.Shared {
		c.patience = streamPauses
	}
	c.room.c, c.taken.c, c.message.c, c.any.c = c, c, c, c
	return c, nil
}

// watch takes over the socket: its end is the peer's.
func (c *ringConn) watch(line io.ReadCloser) {
	c.line, c.watched = line, make(chan struct{})
	go func() {
		defer close(c.watched)
		// The peer has nothing to say any more: whatever comes is its end.
		var b [1]byte
		_, _ = line.Read(b[:])
		c.depart()
	}()
}

// depart notes that the peer is gone.
func (c *ringConn) depart() {
	c.gone.Store(true)
	c.mine.recv.Ring()
	c.mine.send.Ring()
}

func (c *ringConn) interrupt() {
	c.interrupted.Store(true)
	c.mine.recv.Ring()
	c.mine.send.Ring()
}

func (c *ringConn) trySend(p []byte) (bool, error) {
	sent, err := c.out.try(p)
	return c.sent(sent, err)
}

func (c *ringConn) tryEnd() (bool, error) {
	sent, err := c.out.end()
	return c.sent(sent, err)
}

func (c *ringConn) sent(sent bool, err error) (bool, error) {
	switch {
	case sent:
		c.theirs.recv.Ring()
		if !c.answered.Load() {
			c.answered.Store(true)
		}
	case err == nil && c.gone.Load():
		err = ErrPeerGone
	}
	return sent, err
}

func (c *ringConn) drained() (bool, error) {
	gone := c.gone.Load() // before the look: what it took, it took before it went
	drained, err := c.out.drained()
	if !drained && err == nil && gone {
		err = ErrPeerGone
	}
	return drained, err
}

func (c *ringConn) tryRecv(p []byte) (int, bool, error) {
	n, ok, err := c.in.try(p)
	switch {
	case ok:
		c.stream++
		if c.in.due() {
			c.tell()
		}
		return n, true, nil
	case err != nil:
		c.tell() // an end mark is taken at once
		return 0, false, err
	}
	c.tell()
	if c.gone.Load() {
		// What it sent before it went is there by now.
		if n, ok, err := c.in.try(p); ok || err != nil {
			return n, ok, err
		}
		return 0, false, ErrPeerGone
	}
	return 0, false, nil
}

// tell gives the peer its slots back.
func (c *ringConn) tell() {
	if c.in.tell() {
		c.theirs.send.Ring()
		c.theirs.recv.Ring()
	}
}

// over tells whether a wait has nothing to wait for any more.
func (c *ringConn) over() bool { return c.gone.Load() || c.interrupted.Load() }

// The conditions of the waits. Errors end them, and are found again by the next try.
type (
	roomReady    struct{ c *ringConn }
	takenReady   struct{ c *ringConn }
	messageReady struct{ c *ringConn }
	anyReady     struct{ c *ringConn }
)

func (r *roomReady) Ready() bool {
	ok, err := r.c.out.room(max(1, r.c.out.need))
	return ok || err != nil || r.c.over()
}

func (r *takenReady) Ready() bool {
	ok, err := r.c.out.drained()
	return ok || err != nil || r.c.over()
}

func (r *messageReady) Ready() bool {
	if r.c.in.ended {
		return true
	}
	_, ok, err := r.c.in.peek()
	return ok || err != nil || r.c.over()
}

func (r *anyReady) Ready() bool { return !r.c.in.ended && r.c.message.Ready() || r.c.room.Ready() }

func (c *ringConn) waitSend(ctx context.Context) error    { return c.sendWaiter.Wait(ctx, &c.room) }
func (c *ringConn) waitDrained(ctx context.Context) error { return c.sendWaiter.Wait(ctx, &c.taken) }
func (c *ringConn) waitAny(ctx context.Context) error     { return c.recvWaiter.Wait(ctx, &c.any) }

// A receiver that is as fast as the sender finds each message alone, and takes its cache lines
// while the sender needs the next ones: 5 M messages of 256 B a second instead of 8 to 24. So
// the receiver of a stream, of streamLeast messages without an answer, lets the sender get
// some microseconds ahead when it has run dry. Requests and answers do not wait.
const streamLeast, streamPauses = 64, 100

func (c *ringConn) waitRecv(ctx context.Context) error {
	if c.answered.Swap(false) {
		c.stream = 0
	}
	if c.stream >= streamLeast {
		for range c.patience {
			arch.Pause()
		}
	}
	return c.recvWaiter.Wait(ctx, &c.message)
}

func (c *ringConn) close() error {
	var err error
	if c.line != nil {
		err = c.line.Close()
		<-c.watched
	}
	if c.owned {
		err = errors.Join(err, c.segment.Close())
	}
	return err
}
