package p2p

import (
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// An arrival is an unexpected message.
type arrival struct {
	header   header // of a peer's; it may announce the message, else
	data     []byte // its payload, or
	long     []byte // that of a message out of a zone, or
	op       *Op    // the send of the rank itself that holds it
	length   int    // of the message
	size     int    // what it counts for in peer.held
	withheld bool   // a credit was not given back
	next     *Message
}

// inbound is messages that come: they meet their receives, or are kept.
type inbound struct {
	self     *ops
	lines    *failures
	wire     *chores
	rest     remnant  // of the message that is being taken out of a ring
	leaving  bool     // nobody receives here any more
	freed    contexts // those whose messages nobody receives
	revoked  contexts // of them, those that Revoke has ended
	control  func(source int, tag int32, data []byte)
	taken    []*Message // by Mprobe, and not received yet
	arrivals *Message   // recycled
	long     buffers    // for messages out of zones
	turn     uint32     // of collect
}

func (in *inbound) take(m *Message) *Message {
	in.self.matches.Drop(m)
	in.taken = append(in.taken, m)
	return m
}

// peek is the message that a receive would take now.
func (in *inbound) peek(want match.Envelope) *Message {
	m := in.self.matches.Peek(want)
	for ; m != nil && in.stale(m); m = in.self.matches.Peek(want) {
		in.self.matches.Drop(m)
		in.refuse(m)
	}
	return m
}

// Imrecv starts to receive a message that Mprobe or Improbe has given, into buf,
// which is the operation's until that is done. The message must not be used
// afterwards. typ is as in match.Envelope.
func (e *Engine) Imrecv(m *Message, buf []byte, mr rdma.MR, typ uint8) (*Op, error) {
	if e.lines.err != nil {
		return nil, e.lines.err
	}
	for i, t := range e.traffic.taken {
		if t == m {
			last := len(e.traffic.taken) - 1
			e.traffic.taken[i], e.traffic.taken[last] = e.traffic.taken[last], nil
			e.traffic.taken = e.traffic.taken[:last]
			break
		}
	}
	o := e.self.newOp()
	o.Envelope, o.buf, o.mr = m.Envelope, buf, mr
	o.Type = typ
	if e.traffic.claimKept(m) {
		e.traffic.consume(o, m)
		return o, nil
	}
	e.traffic.refuse(m)
	e.self.complete(o, about(int(o.Source), ErrWithdrawn))
	return o, nil
}

// accept gives a message to the receive that waits for it, or keeps it. It tells
// whether the credit is the peer's again already.
func (in *inbound) accept(p *peer, h *header, payload []byte) (credit bool) {
	env := match.Envelope{Context: h.context, Source: p.rank, Tag: h.tag, Type: h.typ}
	if r := in.self.matches.First(env); r != nil {
		if h.kind == announce && !in.lines.claimTicket(p, h) {
			in.wire.answer(p, refused, h.id)
			return true
		}
		in.self.matches.Cancel(r)
		if h.kind == announce {
			in.begin(r.Value, env, p, h)
			return true
		}
		in.deliver(r.Value, env, payload)
		if h.kind == eagerSync {
			in.wire.answer(p, finished, h.id)
		}
		return true
	}
	if h.context == Control && h.kind == eager {
		if in.control != nil {
			data := append(make([]byte, 0, len(payload)+in.rest.bytes), payload...)[:len(payload)+in.rest.bytes]
			in.rest.copy(data[len(payload):])
			in.control(int(p.rank), h.tag, data)
		}
		return true
	}
	if in.leaving || in.freed.has(h.context) {
		if h.kind != eager {
			in.wire.answer(p, refused, h.id)
		}
		return true
	}
	m := in.newArrival(env)
	a := &m.Value
	a.header, a.length = *h, len(payload)
	switch {
	case h.kind == announce:
		a.length = int(h.length)
	case h.inZone:
		a.long = in.long.take(a.length)
		copy(a.long, payload)
		a.size += a.length
	default:
		a.length += in.rest.bytes
		a.data = append(slices.Grow(a.data[:0], a.length), payload...)[:a.length]
		in.rest.copy(a.data[len(payload):])
		a.size += a.length
	}
	a.size += slotHeader
	p.held += a.size
	a.withheld = p.held > unexpectedMax
	in.self.matches.Keep(m)
	return !a.withheld
}

// newArrival gives a recycled or a new message.
func (in *inbound) newArrival(env match.Envelope) *Message {
	m := in.arrivals
	if m == nil {
		m = &Message{}
	} else {
		in.arrivals = m.Value.next
		m.Value = arrival{data: m.Value.data}
	}
	m.Envelope = env
	return m
}

// release recycles a message that was received, and gives back its credit.
func (in *inbound) release(m *Message) {
	if m.Source != int32(in.self.rank) {
		p := &in.self.peers[m.Source]
		p.held -= m.Value.size
		if m.Value.withheld && p.Err() == nil {
			in.wire.giveBack(p, 1)
		}
	}
	if m.Value.long != nil {
		in.long.put(m.Value.long)
		m.Value.long = nil
	}
	if cap(m.Value.data) > max(in.self.slotSize(), mappedEager) {
		m.Value.data = nil // a long message to the rank itself
	}
	m.Value.next = in.arrivals
	in.arrivals = m
}

// Control is the context of messages that no receive takes: they go to Config.Control.
const Control = ^uint32(0)

// Purge forgets the messages of a communicator that nobody will receive any
// more, also those that still come, and releases those that wait for them.
func (e *Engine) Purge(context uint32) {
	e.traffic.freed.add(context)
	e.self.matches.Purge(context, e.traffic.refuse)
}

// Purged tells whether Purge was called for a context.
func (e *Engine) Purged(context uint32) bool { return e.traffic.freed.has(context) }

// Leave forgets the messages of all communicators, and those that still come.
func (e *Engine) Leave() {
	e.traffic.leaving = true
	e.self.matches.PurgeAll(e.traffic.refuse)
	for _, m := range e.traffic.taken {
		e.traffic.refuse(m)
	}
	e.traffic.taken = nil
}

// refuse forgets a message, and tells its sender when that waits.
func (in *inbound) refuse(m *Message) {
	switch a := &m.Value; {
	case a.op != nil:
		in.self.complete(a.op, ErrRefused)
		a.op = nil
	case a.header.kind == announce || a.header.kind == eagerSync:
		in.wire.answer(&in.self.peers[m.Source], refused, a.header.id)
	}
	in.release(m)
}

// Irecv starts to receive a message that fits want into buf, which is the
// operation's until that is done. group, which is the operation's too, has the ranks that may
// send it when want leaves the source open, nil for all: when one of them dies
// the operation fails.
func (e *Engine) Irecv(buf []byte, mr rdma.MR, want match.Envelope, group []int32) (*Op, error) {
	if e.lines.err != nil {
		return nil, e.lines.err
	}
	o := e.self.newOp()
	o.Envelope, o.buf, o.mr, o.group = want, buf, mr, group
	for m := e.self.matches.Peek(want); m != nil; m = e.self.matches.Peek(want) {
		e.self.matches.Drop(m)
		if e.traffic.claimKept(m) {
			e.traffic.consume(o, m)
			return o, nil
		}
		e.traffic.refuse(m) // its sender has taken it back
	}
	if e.lines.failed > 0 {
		if err := e.lines.hopeless(want, group); err != nil {
			e.self.complete(o, err)
			return o, nil
		}
	}
	o.state = posted
	e.self.matches.Stand(&o.Receive)
	return o, nil
}

// lost is why no message that fits want can come, nil when one can.
func (in *inbound) lost(want match.Envelope, group []int32) error {
	switch {
	case in.lines.err != nil:
		return in.lines.err
	case len(in.revoked) > 0 && in.revoked.has(want.Context):
		return ErrRevoked
	case in.lines.failed > 0:
		return in.lines.hopeless(want, group)
	}
	return nil
}

// consume gives a message that was kept to a receive.
func (in *inbound) consume(o *Op, m *match.Message[arrival]) {
	a := &m.Value
	switch {
	case a.op != nil:
		in.deliver(o, m.Envelope, a.op.buf)
		in.self.complete(a.op, nil)
		a.op = nil
	case a.header.kind == announce:
		in.begin(o, m.Envelope, &in.self.peers[m.Source], &a.header)
	default:
		if a.long != nil {
			in.deliver(o, m.Envelope, a.long)
		} else {
			in.deliver(o, m.Envelope, a.data)
		}
		if a.header.kind == eagerSync {
			in.wire.answer(&in.self.peers[m.Source], finished, a.header.id)
		}
	}
	in.release(m)
}

// deliver ends a receive with a message that is at hand. One of another type is lost, and leaves the
// memory as it was.
func (in *inbound) deliver(o *Op, env match.Envelope, payload []byte) {
	if differ(o.Type, env.Type) && len(payload) > 0 {
		o.st.Source, o.st.Tag, o.st.Bytes = int(env.Source), int(env.Tag), 0
		o.state, o.err = done, &TypeError{int(env.Source), int(env.Tag), env.Type, o.Type}
		return
	}
	n, length := copy(o.buf, payload), len(payload)
	if in.rest.bytes > 0 {
		length += in.rest.bytes
		n += in.rest.copy(o.buf[n:])
	}
	o.st.Source, o.st.Tag, o.st.Bytes = int(env.Source), int(env.Tag), n
	o.state = done
	if n < length {
		o.err = &TruncateError{Message: length, Buffer: len(o.buf)}
	}
}

// claimKept is claimTicket for a message that was kept.
func (in *inbound) claimKept(m *Message) bool {
	a := &m.Value
	if a.op != nil || a.header.kind != announce {
		return true
	}
	return in.lines.claimTicket(&in.self.peers[m.Source], &a.header)
}

// stale tells whether the sender of a kept message has taken it back.
func (in *inbound) stale(m *Message) bool {
	a := &m.Value
	if a.op != nil || a.header.kind != announce {
		return false
	}
	p := &in.self.peers[m.Source]
	return p.far != nil && p.Err() == nil && atomic.LoadUint64(&p.far.tickets[a.header.word].state) != ticketWord(a.header.generation, ticketOpen)
}
