package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/internal/sendq"
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
		p := &e.peers[peer]
		p.due = false
		e.chores(p)
		e.pump(p)
	}
	e.behind = due
}

func (e *Engine) completion(wc *rdma.WC) {
	id, mark := sendq.Split(wc.WRID)
	what, peer, index := id>>whatShift, id>>peerShift&peerMask, uint32(id&indexMask)
	if what == whatRecv {
		e.received(peer, int(index), wc)
		return
	}
	p := &e.peers[peer]
	e.flying -= p.Completed(mark)
	if len(p.todo) > 0 {
		e.chores(p)
	}
	if what == whatSlot {
		e.slots = append(e.slots, int32(index))
	}
	if wc.Status != rdma.WCSuccess {
		e.fail(p, wc.Status)
	} else if what == whatRead {
		e.readDone(p, index)
	} else if what == whatHelp {
		e.pieceWritten(index)
	}
}

// received handles the completion of a receive, and posts its slot anew.
func (e *Engine) received(from uint64, slot int, wc *rdma.WC) {
	c, at := e.slot(slot)
	var h header
	whole := wc.Status == rdma.WCSuccess && h.parse(c.mem[at:at+int(wc.ByteLen)])
	shared := from == nobody
	var p *peer
	if !shared {
		p = &e.peers[from]
		whole = whole && h.source == uint32(from)
	} else if whole && int(h.source) < len(e.peers) && e.comesFrom(&e.peers[h.source], wc.QPNum) {
		p = &e.peers[h.source]
	} else { // not of who it says
		p, whole = e.sender(wc.QPNum), false
	}
	credit := false
	switch {
	case p == nil:
	case wc.Status != rdma.WCSuccess:
		e.fail(p, wc.Status)
	case !whole:
		e.fail(p, fmt.Errorf("a message of %d bytes with a damaged header arrived", wc.ByteLen))
	case e.target != nil && wc.QPNum == e.target.Num() && (p.Err() != nil || !e.connected(p)):
		// Dropped. The peer has been told, or has died.
	case p.QP != nil || e.set.Overtaken(int(p.rank)):
		credit = e.arrived(p, &h, c.mem[at+h.size():at+int(wc.ByteLen)])
	}
	if shared {
		e.broken(e.free(slot))
	} else if p.Err() == nil {
		if err := e.postRecv(p.rank, p.QP, slot); err != nil {
			e.fail(p, err)
		}
	}
	if credit && p.Err() == nil {
		e.giveBack(p, 1)
	}
}

// comesFrom tells whether a peer's messages come over the queue pair of that number.
func (e *Engine) comesFrom(p *peer, number uint32) bool {
	if p.number == number {
		return true
	}
	return e.target != nil && number == e.target.Num() && int(p.rank) != e.rank && !p.mapped && e.isPath(p)
}

// arrived handles a message that a peer has sent over its queue pair. It tells whether the
// credit is the peer's again when the receive is posted anew.
func (e *Engine) arrived(p *peer, h *header, payload []byte) (credit bool) {
	switch h.kind {
	case finished:
		e.answered(p, h.id, nil)
	case refused:
		e.answered(p, h.id, ErrRefused)
	case gone:
		e.fail(p, ErrCut)
	default:
		return e.accept(p, h, payload)
	}
	return false
}

// accept gives a message to the receive that waits for it, or keeps it. It tells
// whether the credit is the peer's again already.
func (e *Engine) accept(p *peer, h *header, payload []byte) (credit bool) {
	env := match.Envelope{Context: h.context, Source: p.rank, Tag: h.tag}
	if r := e.matches.First(env); r != nil {
		if h.kind == announce && !e.claimTicket(p, h) {
			e.answer(p, refused, h.id)
			return true
		}
		e.matches.Cancel(r)
		if h.kind == announce {
			e.begin(r.Value, env, p, h)
			return true
		}
		e.deliver(r.Value, env, payload)
		if h.kind == eagerSync {
			e.answer(p, finished, h.id)
		}
		return true
	}
	if e.leaving || e.freed.has(h.context) {
		if h.kind != eager {
			e.answer(p, refused, h.id)
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
	p.held += a.size
	a.withheld = p.held > unexpectedMax
	e.matches.Keep(m)
	return !a.withheld
}

// An arrival is an unexpected message.
type arrival struct {
	header   header // of a peer's; it may announce the message, else
	data     []byte // its payload, or
	op       *Op    // the send of the rank itself that holds it
	length   int    // of the message
	size     int    // what it counts for in peer.held
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
		p := &e.peers[m.Source]
		p.held -= m.Value.size
		if m.Value.withheld && p.Err() == nil {
			e.giveBack(p, 1)
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
		e.answer(&e.peers[m.Source], refused, a.header.id)
	}
	e.release(m)
}

// errStray fails a peer from which an answer came that nobody waits for.
var errStray = errors.New("an answer to a message that was never announced arrived")
