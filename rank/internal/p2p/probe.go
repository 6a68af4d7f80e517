package p2p

import (
	"context"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Message is a message that a probe has taken out of matching: only Imrecv
// receives it.
type Message = match.Message[arrival]

// found is the status of a message that is kept.
func found(m *Message) Status {
	return Status{Source: int(m.Source), Tag: int(m.Tag), Bytes: m.Value.length}
}

// Iprobe tells whether a message that fits want has come, and which a receive
// would take. The message stays. group is as in Recv.
func (e *Engine) Iprobe(want match.Envelope, group []int32) (Status, bool, error) {
	e.Progress()
	if m := e.peek(want); m != nil {
		return found(m), true, nil
	}
	return Status{}, false, e.lost(want, group)
}

// lost is why no message that fits want can come, nil when one can.
func (e *Engine) lost(want match.Envelope, group []int32) error {
	if e.err != nil {
		return e.err
	}
	if e.failed > 0 {
		return e.hopeless(want, group)
	}
	return nil
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
	return e.take(m), found(m), nil
}

// Improbe is Iprobe, and takes the message out of matching.
func (e *Engine) Improbe(want match.Envelope, group []int32) (*Message, Status, bool, error) {
	e.Progress()
	if m := e.peek(want); m != nil {
		return e.take(m), found(m), true, nil
	}
	return nil, Status{}, false, e.lost(want, group)
}

func (e *Engine) take(m *Message) *Message {
	e.matches.Drop(m)
	e.taken = append(e.taken, m)
	return m
}

func (e *Engine) probe(ctx context.Context, want match.Envelope, group []int32) (*Message, error) {
	if m := e.peek(want); m != nil {
		return m, nil
	}
	if err := e.wait(ctx, condition{what: untilMessage, want: want, group: group}); err != nil {
		return nil, err
	}
	return e.matches.Peek(want), nil
}

// peek is the message that a receive would take now.
func (e *Engine) peek(want match.Envelope) *Message {
	m := e.matches.Peek(want)
	for ; m != nil && e.stale(m); m = e.matches.Peek(want) {
		e.matches.Drop(m)
		e.refuse(m)
	}
	return m
}

// Imrecv starts to receive a message that Mprobe or Improbe has given, into buf,
// which is the operation's until that is done. The message must not be used
// afterwards.
func (e *Engine) Imrecv(m *Message, buf []byte, mr rdma.MR) (*Op, error) {
	if e.err != nil {
		return nil, e.err
	}
	for i, t := range e.taken {
		if t == m {
			last := len(e.taken) - 1
			e.taken[i], e.taken[last] = e.taken[last], nil
			e.taken = e.taken[:last]
			break
		}
	}
	o := e.newOp()
	o.Envelope, o.buf, o.mr = m.Envelope, buf, mr
	if e.claimKept(m) {
		e.consume(o, m)
		return o, nil
	}
	e.refuse(m)
	e.complete(o, about(int(o.Source), ErrWithdrawn))
	return o, nil
}
