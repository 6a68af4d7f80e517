package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

func putWord(b *[8]byte, v uint64) { binary.NativeEndian.PutUint64(b[:], v) }

// Progress moves messages on without waiting and tells whether anything came.
// It costs a look at the completion queue when there is nothing to do.
func (e *Engine) Progress() bool {
	n, err := e.cq.Poll(e.wcs[:])
	if n == 0 && err == nil {
		return false
	}
	return e.advance(n, err)
}

// advance handles the n completions in wcs and all that follow.
func (e *Engine) advance(n int, err error) bool {
	for {
		if err != nil && e.err == nil {
			e.err = fmt.Errorf("completion queue: %w", err)
		}
		for i := range n {
			e.complete(&e.wcs[i])
		}
		if len(e.due) > 0 {
			e.catchUp()
		}
		if n < len(e.wcs) {
			return true
		}
		n, err = e.cq.Poll(e.wcs[:])
	}
}

// catchUp does chores that found no room before.
func (e *Engine) catchUp() {
	due := e.due
	e.due = e.due[len(e.due):] // chores may append while the loop runs
	for _, peer := range due {
		e.links[peer].due = false
		e.chores(&e.links[peer])
	}
	if len(e.due) == 0 {
		e.due = due[:0]
	}
}

func (e *Engine) complete(wc *rdma.WC) {
	what, peer, index := wc.WRID>>whatShift, wc.WRID>>peerShift&peerMask, uint32(wc.WRID&indexMask)
	l := &e.links[peer]
	if what == whatRecv {
		if wc.Status == rdma.WCSuccess {
			e.arrived(l, int(index), int(wc.ByteLen))
		} else {
			e.fail(l, wc.Status)
		}
		return
	}
	l.retired = uint16(wc.WRID >> markShift & markMask)
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
	}
}

// arrived handles what a peer's send has left in a receive slot, and frees the slot.
func (e *Engine) arrived(l *link, slot, length int) {
	at := e.recvAt(l, slot)
	message := e.mem[at : at+length]
	var h header
	if !h.parse(message) {
		e.fail(l, fmt.Errorf("a message of %d bytes with a damaged header arrived", length))
		return
	}
	credit := false
	switch h.kind {
	case finished:
		e.answered(l, h.id, nil)
	case refused:
		e.answered(l, h.id, ErrRefused)
	case gone:
		e.fail(l, ErrCut)
	default:
		credit = e.take(l, &h, message[h.size():])
	}
	if l.err != nil {
		return
	}
	if err := e.postRecv(l, slot); err != nil {
		e.fail(l, err)
	} else if credit {
		e.giveBack(l)
	}
}

// take gives a message to the receive that waits for it, or keeps it. It tells
// whether the credit is the peer's again already.
func (e *Engine) take(l *link, h *header, payload []byte) (credit bool) {
	env := match.Envelope{Context: h.context, Source: l.peer, Tag: h.tag}
	if r := e.matches.Arrive(env); r != nil {
		if h.kind == eager {
			r.Value.deliver(env, payload)
		} else {
			e.begin(r.Value, env, l, h)
		}
		return true
	}
	if e.leaving {
		if h.kind == announce {
			e.assign(l, chore{answer: refused, id: h.id})
		}
		return true
	}
	m := e.newArrival(env)
	a := &m.Value
	if h.kind == eager {
		a.data = append(a.data[:0], payload...)
	} else {
		a.long, a.header = true, *h
	}
	a.size = slotHeader + len(a.data)
	l.held += a.size
	a.withheld = l.held > unexpectedMax
	e.matches.Keep(m)
	return !a.withheld
}

// An arrival is an unexpected message.
type arrival struct {
	data     []byte // its payload, or
	long     bool   // header announces it
	header   header
	size     int  // what it counts for in link.held
	withheld bool // its credit was not given back
	next     *match.Message[arrival]
}

// newArrival gives a recycled or a new message.
func (e *Engine) newArrival(env match.Envelope) *match.Message[arrival] {
	m := e.arrivals
	if m == nil {
		m = &match.Message[arrival]{}
	} else {
		e.arrivals = m.Value.next
		m.Value = arrival{data: m.Value.data}
	}
	m.Envelope = env
	return m
}

// release recycles a message that was received, and gives back its credit.
func (e *Engine) release(m *match.Message[arrival]) {
	if m.Source != int32(e.rank) {
		l := &e.links[m.Source]
		l.held -= m.Value.size
		if m.Value.withheld && l.err == nil {
			e.giveBack(l)
		}
	}
	if cap(m.Value.data) > e.slotSize() {
		m.Value.data = nil // a long message to the rank itself
	}
	m.Value.next = e.arrivals
	e.arrivals = m
}

// Purge forgets the messages of a communicator that nobody will receive any
// more, and releases those who wait for them.
func (e *Engine) Purge(context uint32) {
	e.matches.Purge(context, e.refuse)
}

// Leave forgets the messages of all communicators, and those that still come.
func (e *Engine) Leave() {
	e.leaving = true
	e.matches.PurgeAll(e.refuse)
}

// refuse forgets a message, and tells its sender when that waits.
func (e *Engine) refuse(m *match.Message[arrival]) {
	if m.Value.long {
		e.assign(&e.links[m.Source], chore{answer: refused, id: m.Value.header.id})
	}
	e.release(m)
}

// errStray fails a link over which an answer came that nobody waits for.
var errStray = errors.New("an answer to a message that was never announced arrived")

// answered handles the answer to an announcement.
func (e *Engine) answered(l *link, id uint32, err error) {
	p := e.sends.get(id)
	if p == nil || p.link != l {
		e.fail(l, errStray)
		return
	}
	p.complete(err)
}
