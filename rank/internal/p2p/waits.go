package p2p

import (
	"strconv"

	"github.com/gorun-mpi/gorun/rank/internal/match"
)

// AppendWait says what the engine's running call waits for, in words; nothing when none
// runs, or it waits for what is not the engine's. It is for a rank that is about to sleep.
func (e *Engine) AppendWait(b []byte) []byte {
	c := &e.waits.cond
	if c.waits == nil {
		return b
	}
	switch c.what {
	case untilDone:
		if c.op == nil || c.op.state == done {
			return b
		}
		return e.AppendOp(b, c.op)
	case untilMessage:
		return appendEnvelope(append(b, "in a probe for a message from "...), c.want)
	case untilDrained:
		for i := range e.self.peers {
			p := &e.self.peers[i]
			if i != e.self.rank && p.Err() == nil && (p.Flying() > 0 || len(p.todo) > 0 || p.queue.head != nil || p.outstanding > 0) {
				b = append(b, "for what was sent to rank "...)
				return append(strconv.AppendInt(b, int64(p.rank), 10), " to arrive"...)
			}
		}
	}
	return b
}

// AppendOp says what an operation waits for.
func (e *Engine) AppendOp(b []byte, o *Op) []byte {
	switch {
	case o.state == posted:
		return appendEnvelope(append(b, "in a receive from "...), o.Envelope)
	case o.state == moving:
		b = appendEnvelope(append(b, "in a receive from "...), o.Envelope)
		return append(b, ", which has begun"...)
	case o.peer == nil:
		return append(b, "in a send to itself"...)
	}
	b = append(b, "in a send to rank "...)
	b = strconv.AppendInt(b, int64(o.peer.rank), 10)
	b = append(b, ", tag "...)
	b = strconv.AppendInt(b, int64(o.Tag), 10)
	if o.state == sent && o.landed {
		return append(b, ", not received yet"...)
	}
	if o.state == sent {
		return append(b, ", announced and not received"...)
	}
	return append(b, ", for which there is no room yet"...)
}

func appendEnvelope(b []byte, env match.Envelope) []byte {
	if env.Source < 0 {
		b = append(b, "any rank"...)
	} else {
		b = append(b, "rank "...)
		b = strconv.AppendInt(b, int64(env.Source), 10)
	}
	if env.Tag == match.Any {
		return append(b, ", any tag"...)
	}
	b = append(b, ", tag "...)
	return strconv.AppendInt(b, int64(env.Tag), 10)
}
