package p2p

import (
	"errors"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank/internal/match"
)

// ErrRevoked is what operations end with in whose context [Engine.Revoke] was called.
var ErrRevoked = errors.New("its communicator was revoked")

// Revoke ends all that waits in a context, for ever: receives that no message has met, probes, sends
// that have not left, and synchronous ones that are not answered. It does not wait.
//
// A message that is being moved ends by itself. A long message that was announced is taken back where the peer
// is mapped and does not read it yet. Elsewhere the peer may read it at any time: it ends when the
// peer answers, which refuses it in its first call after it has revoked the context too.
func (e *Engine) Revoke(context uint32) {
	e.traffic.revoked.add(context)
	e.Purge(context)
	cancel := func(r *match.Receive[*Op]) {
		if r.Context == context {
			e.self.matches.Cancel(r)
			e.self.complete(r.Value, ErrRevoked)
		}
	}
	e.self.matches.Posted(match.Any, cancel)
	for i := range e.self.peers {
		e.self.matches.Posted(int32(i), cancel)
		p := &e.self.peers[i]
		for o := p.queue.head; o != nil; {
			next := o.next
			if o.Context == context {
				p.remove(o)
				e.self.complete(o, ErrRevoked)
			}
			o = next
		}
	}
	for i := range e.self.rows {
		o := e.self.rows[i].value
		if o == nil || o.state != sent || o.Context != context || o.detached || o.peer == nil {
			continue
		}
		if o.ticket == 0 && o.long() {
			continue // its memory may be read
		}
		if o.ticket != 0 && !e.lines.takeBack(o) {
			continue // it is being read
		}
		e.waits.disown(o)
		_ = o.drop() // ErrRevoked comes first
		e.self.complete(o, ErrRevoked)
	}
}

// takeBack withdraws an announcement to a mapped peer; false: that reads the message already.
func (s *rings) takeBack(o *Op) bool {
	return atomic.CompareAndSwapUint64(&s.tickets[o.ticket-1].state, ticketWord(o.generation, ticketOpen), ticketWord(o.generation, ticketWithdrawn))
}

// disown has the peer's answer to an operation be nobody's.
func (w *waits) disown(o *Op) {
	rest := w.self.newOp()
	rest.state, rest.detached, rest.peer, rest.number, rest.ticket = sent, true, o.peer, o.number, o.ticket
	w.self.replace(o.number, rest)
	o.ticket = 0
}
