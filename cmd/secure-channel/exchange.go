package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// The k-th message of an end, of n bytes, is pattern[k%period:][:n]: both ends know what
// must arrive, and a message that is lost, doubled or out of order shows.
const period = 256

var pattern = func() []byte {
	b := make([]byte, comch.MaxMessage+period)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// turns is how many messages an end moves in one direction before it looks at the other.
const turns = 32

// An exchange is the traffic of one channel: this end's messages to the peer, and the
// peer's, of which it counts what comes.
type exchange struct {
	conn *comch.Conn
	log  *logrus.Logger
	size int
	left int // to send
	buf  []byte
	ends bool // the end mark is sent
	eof  bool // the peer's has come
	peer plan

	result
}

func newExchange(a *app, conn *comch.Conn) *exchange {
	return &exchange{conn: conn, log: a.Log, size: a.size, left: a.count, buf: make([]byte, comch.MaxMessage),
		result: result{Peer: conn.Peer(), Planned: a.count, Size: a.size}}
}

// A plan is what an end tells the other before its messages: so both start their clocks when
// both are there, and each knows how many messages must come. It is counted nowhere.
type plan struct {
	Count int `msgpack:"count"`
	Size  int `msgpack:"size"`
}

// agree exchanges plans.
func (x *exchange) agree(ctx context.Context) error {
	b, err := pack.Marshal(plan{x.left, x.size})
	if err == nil {
		err = x.conn.Send(ctx, b)
	}
	if err != nil {
		return err
	}
	n, err := x.conn.Recv(ctx, x.buf)
	if err != nil {
		return err
	}
	if err := pack.Unmarshal(x.buf[:n], &x.peer); err != nil {
		return fmt.Errorf("the peer is no secure-channel of this version: %w", err)
	}
	if x.peer.Count < 1 || x.peer.Size < 1 || x.peer.Size > comch.MaxMessage {
		return fmt.Errorf("the peer is no secure-channel of this version: it planned %d messages of %d bytes", x.peer.Count, x.peer.Size)
	}
	x.log.Debugf("the peer plans %d messages of %d bytes", x.peer.Count, x.peer.Size)
	return nil
}

// run moves everything in both directions, until each end knows that the other one has
// received all. What was moved so far is in the result in any case.
func (x *exchange) run(ctx context.Context) error {
	x.log.Infof(saidStarting, x.left, x.size) // before the ends meet, and the clocks start
	if err := x.agree(ctx); err != nil {
		return err
	}
	x.sendStart = time.Now()
	trace := x.log.IsLevelEnabled(logrus.TraceLevel)
	for !x.ends || !x.eof {
		if err := ctx.Err(); err != nil {
			return err
		}
		sent, err := x.send(trace)
		if err != nil {
			return fmt.Errorf("%s: %w", fmt.Sprintf(saidNotSent, x.Sent+1), err)
		}
		received, err := x.receive(trace)
		if err != nil {
			return fmt.Errorf("%s %d: %w", saidNotCame, x.Received+1, err)
		}
		if sent || received {
			continue
		}
		if err := x.wait(ctx); err != nil {
			return err
		}
	}
	if err := x.conn.Drain(ctx); err != nil {
		return fmt.Errorf("the peer has not said that it received all: %w", err)
	}
	x.end = time.Now()
	x.Complete = true
	return nil
}

// send sends some messages, as far as there is room, and behind the last the end.
func (x *exchange) send(trace bool) (moved bool, err error) {
	for range min(turns, x.left) {
		sent, err := x.conn.TrySend(pattern[x.Sent%period:][:x.size])
		if !sent {
			return moved, err
		}
		x.Sent++
		x.left--
		moved = true
		if trace {
			x.log.Tracef(saidOneSent, x.Sent-1)
			x.log.Tracef("Message number %d of %d bytes was sent", x.Sent, x.size)
		}
	}
	if x.left == 0 && !x.ends {
		x.sendEnd = time.Now()
		// In the place of one message: it waits for room only where the peer is slow.
		sent, err := x.conn.TryCloseSend()
		if err != nil {
			return moved, err
		}
		x.ends = sent
		moved = moved || sent
	}
	return moved, nil
}

// receive receives some messages, as far as there are any.
func (x *exchange) receive(trace bool) (moved bool, err error) {
	before := x.Received
	for range turns {
		if x.eof {
			break
		}
		n, received, err := x.conn.TryRecv(x.buf)
		if errors.Is(err, io.EOF) {
			x.eof, moved = true, true
			if x.Received != x.peer.Count {
				return moved, fmt.Errorf("the peer ended its sending after %d messages of %d", x.Received, x.peer.Count)
			}
			break
		}
		if err != nil {
			return moved, err
		}
		if !received {
			break
		}
		if n != x.peer.Size || !bytes.Equal(x.buf[:n], pattern[x.Received%period:][:n]) {
			return moved, fmt.Errorf("its %d bytes are not what the peer sent", n)
		}
		if x.Received == 0 {
			x.recvStart = time.Now()
		}
		x.Received++
		x.ReceivedBytes += int64(n)
		moved = true
		if trace {
			x.log.Tracef("Message number %d of %d bytes was received", x.Received, n)
		}
	}
	if x.Received > before {
		x.recvEnd = time.Now()
	}
	return moved, nil
}

// wait waits for what there is still to do.
func (x *exchange) wait(ctx context.Context) error {
	switch {
	case x.eof && x.ends:
		return nil
	case x.ends:
		return x.conn.WaitRecv(ctx)
	}
	return x.conn.Wait(ctx)
}
