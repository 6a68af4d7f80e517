package p2p

import (
	"context"
	"errors"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// errGivenUp ends the receive half of an Exchange whose send failed.
var errGivenUp = errors.New("given up")

// A Message is a message that a probe has taken out of matching: only Imrecv
// receives it.
type Message = match.Message[arrival]

// Recv receives a message that fits want into buf. group has the ranks that may send it when
// want leaves the source open, nil for all: when one of them dies Recv fails.
func (e *Engine) Recv(ctx context.Context, buf []byte, mr rdma.MR, want match.Envelope, group []int32) (Status, error) {
	o, err := e.Irecv(buf, mr, want, group)
	if err != nil {
		return Status{}, err
	}
	return e.end(ctx, o)
}

// A Sending is what [Engine.Send] sends. By a pointer, since ten words in the arguments cost 20 ns a call.
type Sending struct {
	Buf      []byte
	MR       rdma.MR // nil: ordinary memory
	Envelope match.Envelope
	Peer     int
}

// A Receiving is what [Engine.Recv] receives.
type Receiving struct {
	Buf   []byte
	MR    rdma.MR // nil: ordinary memory
	Want  match.Envelope
	Group []int32
}

// Exchange sends and receives at the same time.
func (e *Engine) Exchange(ctx context.Context, send *Sending, recv *Receiving) (Status, error) {
	_, st, err := e.Swap(ctx, send, recv)
	return st, err
}

// Swap is Exchange, and tells whether the message has left: one that was taken back when
// ctx ended has not.
func (e *Engine) Swap(ctx context.Context, send *Sending, recv *Receiving) (sent bool, st Status, err error) {
	o, err := e.Irecv(recv.Buf, recv.MR, recv.Want, recv.Group)
	if err != nil {
		return false, Status{}, err
	}
	if err := e.Send(ctx, send.Buf, send.MR, send.Envelope, send.Peer); err != nil {
		_, _ = e.waits.giveUp(o, errGivenUp)
		return false, Status{}, about(send.Peer, err)
	}
	st, err = e.end(ctx, o)
	return true, st, about(int(recv.Want.Source), err)
}

// end waits for an operation and gives its outcome.
func (e *Engine) end(ctx context.Context, o *Op) (Status, error) {
	if o.state != done {
		if err := e.Wait(ctx, o); err != nil {
			return e.waits.giveUp(o, err)
		}
	}
	return e.Finish(o)
}

// about is an error with the peer that it concerns, unless it says so already or
// there is none.
func about(peer int, err error) error {
	if err == nil || peer < 0 {
		return err
	}
	if _, said := errors.AsType[*PeerError](err); said {
		return err
	}
	return &PeerError{Peer: peer, Err: err}
}

// Send sends buf and returns when it may be changed again. mr is the region that
// holds buf, nil when it is ordinary memory.
func (e *Engine) Send(ctx context.Context, buf []byte, mr rdma.MR, env match.Envelope, peer int) error {
	return e.SendMode(ctx, buf, mr, env, peer, Standard)
}

// SendMode is Send in a mode. When ctx ends the message is taken back; where the
// peer may hold the announcement of a long one, its connection fails (ErrCut).
func (e *Engine) SendMode(ctx context.Context, buf []byte, mr rdma.MR, env match.Envelope, peer int, mode Mode) error {
	if e.lines.err != nil {
		return e.lines.err
	}
	if peer == e.self.rank && (mode != Synchronous || !e.waits.waiter.InTurns()) { // else another call may receive it
		return e.traffic.sendSelf(buf, env, mode)
	}
	p := &e.self.peers[peer]
	if p.Err() != nil {
		return p.Err()
	}
	if peer != e.self.rank && len(buf) <= p.eager && mode != Synchronous && p.queue.head == nil && e.traffic.sendShort(p, eager, buf, env, 0) {
		return p.Err()
	}
	o, err := e.Isend(buf, mr, env, peer, mode)
	if err != nil {
		return err
	}
	_, err = e.end(ctx, o)
	return err
}

// Iprobe tells whether a message that fits want has come, and which a receive
// would take. The message stays. group is as in Recv.
func (e *Engine) Iprobe(want match.Envelope, group []int32) (Status, bool, error) {
	e.Progress()
	if m := e.traffic.peek(want); m != nil {
		return found(m), true, nil
	}
	return Status{}, false, e.traffic.lost(want, group)
}

// Improbe is Iprobe, and takes the message out of matching.
func (e *Engine) Improbe(want match.Envelope, group []int32) (*Message, Status, bool, error) {
	e.Progress()
	if m := e.traffic.peek(want); m != nil {
		return e.traffic.take(m), found(m), true, nil
	}
	return nil, Status{}, false, e.traffic.lost(want, group)
}

// Probe waits until a message that fits want has come. group is as in Recv.
func (e *Engine) Probe(ctx context.Context, want match.Envelope, group []int32) (Status, error) {
	m, err := e.probe(ctx, want, group)
	if err != nil {
		return Status{}, err
	}
	return found(m), nil
}

// Mprobe is Probe, and takes the message out of matching.
func (e *Engine) Mprobe(ctx context.Context, want match.Envelope, group []int32) (*Message, Status, error) {
	m, err := e.probe(ctx, want, group)
	if err != nil {
		return nil, Status{}, err
	}
	return e.traffic.take(m), found(m), nil
}

func (e *Engine) probe(ctx context.Context, want match.Envelope, group []int32) (*Message, error) {
	if m := e.traffic.peek(want); m != nil {
		return m, nil
	}
	if err := e.waits.wait(ctx, condition{what: untilMessage, want: want, group: group}); err != nil {
		return nil, err
	}
	return e.self.matches.Peek(want), nil
}

// found is the status of a message that is kept.
func found(m *Message) Status {
	return Status{Source: int(m.Source), Tag: int(m.Tag), Bytes: m.Value.length}
}

// Attach gets ready for a peer, whose card is known: it maps the peer's region, or its
// messages go over a queue pair, as the peer's do then.
func (e *Engine) Attach(peer int) error { return e.wire.attach(peer) }

// Finish gives the outcome of an operation that is done, which must not be used
// afterwards.
func (e *Engine) Finish(o *Op) (Status, error) { return e.self.finish(o) }

// Progress moves messages on without waiting and tells whether anything came.
// When there is nothing to do it costs a look at the completion queue and, between
// mapped ranks, a load for the inbox and one for each ring that is in use.
func (e *Engine) Progress() bool { return e.waits.move() }

// Check makes sure of a peer: it is Known, and asks one on another host for an
// answer. It is meant for a rank that has waited for a while.
func (e *Engine) Check(peer int) error { return e.waits.check(peer) }

// Known is the error of a peer that is known to have died, or not to be reached. That it was
// cut because a long send was given up says nothing about it.
func (e *Engine) Known(peer int) error { return e.waits.known(peer) }
