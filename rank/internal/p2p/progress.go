package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

func putWord(b *[8]byte, v uint64) { binary.NativeEndian.PutUint64(b[:], v) }

// Progress moves messages on without waiting and tells whether anything came.
// When there is nothing to do it costs a look at the completion queue and, between
// mapped ranks, a load for the inbox and one for each ring that is in use.
func (e *Engine) Progress() bool {
	came := e.set.Moves() && e.set.Progress(e.waiter.Thorough())
	if e.mapping {
		came = e.look() || came
		if len(e.shared) > 0 {
			e.collect()
		}
		if e.looks++; e.flying == 0 && e.distant == 0 && e.looks%pollEvery != 0 && !e.waiter.Thorough() {
			// Nothing comes over queue pairs.
			if len(e.due) > 0 {
				e.catchUp()
			}
			return came
		}
	}
	n, err := e.in.Poll(e.wcs[:])
	if n > 0 || err != nil {
		return e.advance(n, err)
	}
	if len(e.due) > 0 {
		e.catchUp()
	}
	return came
}

// advance handles the n completions in wcs and all that follow.
func (e *Engine) advance(n int, err error) bool {
	for {
		if err != nil {
			e.broken(fmt.Errorf("completion queue: %w", err))
		}
		for i := range n {
			e.completion(&e.wcs[i])
		}
		e.broken(e.refill())
		if len(e.due) > 0 {
			e.catchUp()
		}
		if n < len(e.wcs) {
			return true
		}
		n, err = e.in.Poll(e.wcs[:])
	}
}

// catchUp does what found no room before. Credit comes back without a
// completion, so it is called at every look while something is due.
func (e *Engine) catchUp() {
	due := e.due
	e.due = e.behind[:0] // chores and pump append while the loop runs
	for _, peer := range due {
		l := &e.links[peer]
		l.due = false
		e.chores(l)
		e.pump(l)
	}
	e.behind = due
}

func (e *Engine) completion(wc *rdma.WC) {
	what, peer, index := wc.WRID>>whatShift, wc.WRID>>peerShift&peerMask, uint32(wc.WRID&indexMask)
	if what == whatRecv {
		e.received(peer, int(index), wc)
		return
	}
	l := &e.links[peer]
	retired := uint16(wc.WRID >> markShift & markMask)
	e.flying -= int(retired - l.retired)
	l.retired = retired
	if len(l.todo) > 0 {
		e.chores(l)
	}
	if what == whatSlot {
		e.slots = append(e.slots, int32(index))
	}
	if wc.Status != rdma.WCSuccess {
		e.fail(l, wc.Status)
	} else if what == whatRead {
		e.readDone(l, index)
	} else if what == whatHelp {
		e.pieceWritten(index)
	}
}

// received handles the completion of a receive, and posts its slot anew.
func (e *Engine) received(peer uint64, slot int, wc *rdma.WC) {
	c, at := e.slot(slot)
	var h header
	whole := wc.Status == rdma.WCSuccess && h.parse(c.mem[at:at+int(wc.ByteLen)])
	shared := peer == nobody
	var l *link
	if !shared {
		l = &e.links[peer]
		whole = whole && h.source == uint32(peer)
	} else if whole && int(h.source) < len(e.links) && e.comesFrom(&e.links[h.source], wc.QPNum) {
		l = &e.links[h.source]
	} else { // not of who it says
		l, whole = e.sender(wc.QPNum), false
	}
	credit := false
	switch {
	case l == nil:
	case wc.Status != rdma.WCSuccess:
		e.fail(l, wc.Status)
	case !whole:
		e.fail(l, fmt.Errorf("a message of %d bytes with a damaged header arrived", wc.ByteLen))
	case e.target != nil && wc.QPNum == e.target.Num() && (l.err != nil || !e.connected(l)):
		// Dropped. The peer has been told, or has died.
	case l.qp != nil || e.set.Overtaken(int(l.peer)):
		credit = e.arrived(l, &h, c.mem[at+h.size():at+int(wc.ByteLen)])
	}
	if shared {
		e.broken(e.free(slot))
	} else if l.err == nil {
		if err := e.postRecv(l.peer, l.qp, slot); err != nil {
			e.fail(l, err)
		}
	}
	if credit && l.err == nil {
		e.giveBack(l, 1)
	}
}

// comesFrom tells whether a link's messages come over the queue pair of that number.
func (e *Engine) comesFrom(l *link, number uint32) bool {
	if l.number == number {
		return true
	}
	return e.target != nil && number == e.target.Num() && int(l.peer) != e.rank && !l.mapped && e.isPath(l)
}

// arrived handles a message that a peer has sent over its queue pair. It tells whether the
// credit is the peer's again when the receive is posted anew.
func (e *Engine) arrived(l *link, h *header, payload []byte) (credit bool) {
	switch h.kind {
	case finished:
		e.answered(l, h.id, nil)
	case refused:
		e.answered(l, h.id, ErrRefused)
	case gone:
		e.fail(l, ErrCut)
	default:
		return e.accept(l, h, payload)
	}
	return false
}

// accept gives a message to the receive that waits for it, or keeps it. It tells
// whether the credit is the peer's again already.
func (e *Engine) accept(l *link, h *header, payload []byte) (credit bool) {
	env := match.Envelope{Context: h.context, Source: l.peer, Tag: h.tag}
	if r := e.matches.First(env); r != nil {
		if h.kind == announce && !e.claimTicket(l, h) {
			e.answer(l, refused, h.id)
			return true
		}
		e.matches.Cancel(r)
		if h.kind == announce {
			e.begin(r.Value, env, l, h)
			return true
		}
		e.deliver(r.Value, env, payload)
		if h.kind == eagerSync {
			e.answer(l, finished, h.id)
		}
		return true
	}
	if e.leaving || e.freed.has(h.context) {
		if h.kind != eager {
			e.answer(l, refused, h.id)
		}
		return true
	}
	m := e.newArrival(env)
	a := &m.Value
	a.header, a.length = *h, len(payload)
	if h.kind == announce {
		a.length = int(h.length)
	} else {
		a.length += e.rest.bytes
		a.data = append(slices.Grow(a.data[:0], a.length), payload...)[:a.length]
		e.rest.copy(a.data[len(payload):])
		a.size += a.length
	}
	a.size += slotHeader
	l.held += a.size
	a.withheld = l.held > unexpectedMax
	e.matches.Keep(m)
	return !a.withheld
}

// An arrival is an unexpected message.
type arrival struct {
	header   header // of a peer's; it may announce the message, else
	data     []byte // its payload, or
	op       *Op    // the send of the rank itself that holds it
	length   int    // of the message
	size     int    // what it counts for in link.held
	withheld bool   // a credit was not given back
	next     *Message
}

// newArrival gives a recycled or a new message.
func (e *Engine) newArrival(env match.Envelope) *Message {
	m := e.arrivals
	if m == nil {
		m = &Message{}
	} else {
		e.arrivals = m.Value.next
		m.Value = arrival{data: m.Value.data}
	}
	m.Envelope = env
	return m
}

// release recycles a message that was received, and gives back its credit.
func (e *Engine) release(m *Message) {
	if m.Source != int32(e.rank) {
		l := &e.links[m.Source]
		l.held -= m.Value.size
		if m.Value.withheld && l.err == nil {
			e.giveBack(l, 1)
		}
	}
	if cap(m.Value.data) > max(e.slotSize(), mappedEager) {
		m.Value.data = nil // a long message to the rank itself
	}
	m.Value.next = e.arrivals
	e.arrivals = m
}

// Purge forgets the messages of a communicator that nobody will receive any
// more, also those that still come, and releases those who wait for them.
func (e *Engine) Purge(context uint32) {
	e.freed.add(context)
	e.matches.Purge(context, e.refuse)
}

// Leave forgets the messages of all communicators, and those that still come.
func (e *Engine) Leave() {
	e.leaving = true
	e.matches.PurgeAll(e.refuse)
	for _, m := range e.taken {
		e.refuse(m)
	}
	e.taken = nil
}

// refuse forgets a message, and tells its sender when that waits.
func (e *Engine) refuse(m *Message) {
	switch a := &m.Value; {
	case a.op != nil:
		e.complete(a.op, ErrRefused)
		a.op = nil
	case a.header.kind == announce || a.header.kind == eagerSync:
		e.answer(&e.links[m.Source], refused, a.header.id)
	}
	e.release(m)
}

// errStray fails a link over which an answer came that nobody waits for.
var errStray = errors.New("an answer to a message that was never announced arrived")
