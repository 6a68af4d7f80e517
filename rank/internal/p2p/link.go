package p2p

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// A link is the connection to one peer.
//
// Counts run on and are compared by difference. sent - credit word is what the
// peer has not taken yet, at most depth; posted - retired is what the send queue
// may still hold, at most queue: an unsignaled request leaves it with the next
// signaled one's completion.
type link struct {
	qp   rdma.QP // nil while it is not connected, where that is on demand
	far  *far    // a mapped peer; then qp only moves long messages in ordinary memory
	peer int32
	err  error

	depth int // credits
	most  int // answers that may be outstanding
	eager int // longest message that is sent without waiting for its receiver

	queue queue // sends that have not left, in order

	sent        uint64 // eager messages and announcements
	outstanding int    // announcements and synchronous messages that are not answered
	posted      uint16
	retired     uint16
	signaled    uint16 // posted, when a request was last signaled

	taken    uint64 // messages of the peer whose slots are free again
	reported uint64 // of them, what the peer has been told
	held     int    // bytes of unexpected messages
	reading  int    // receives that read from the peer

	control    uint64 // address of our control word at the peer
	controlKey uint32

	todo []chore // what found no room in the send queue, in order
	due  bool    // in Engine.due, for todo, queue or a report

	lastProbe int64 // when the peer was last made sure of, in ns

	mapped bool   // the peer's memory is mapped, or will be at the first need
	met    bool   // Attach has been called, on demand
	shares bool   // its receives are in the shared queue
	number uint32 // of the queue pair that its messages come over, 0: none
}

// A chore is control work that could not be posted at once.
type chore struct {
	answer kind   // finished or refused, to the announcement
	id     uint32 // of this number
	read   *Op    // whose next read is to be posted
	help   bool   // or a piece of the send with this id is to be written

	use   peers.Use // of an offer
	offer uint64    // its id
}

// Work request ids: what | peer | count of posted requests | index.
const (
	whatShift = 60
	peerShift = 40
	markShift = 24
	peerMask  = 1<<(whatShift-peerShift) - 1
	markMask  = 1<<(peerShift-markShift) - 1
	indexMask = 1<<markShift - 1
)

const (
	whatRecv = iota + 1 // index: receive slot; peer: nobody, where it is shared
	whatMark            // index: none
	whatSlot            // index: send slot
	whatRead            // index: number of an operation
	whatHelp            // index: number of an operation
)

func (l *link) id(what uint64, index uint32) uint64 {
	return what<<whatShift | uint64(l.peer)<<peerShift | uint64(l.posted)<<markShift | uint64(index)
}

// room is how many requests the send queue can take.
func (e *Engine) room(l *link) int { return e.queue - int(l.posted-l.retired) }

// credits is how many more messages the peer can take.
func (e *Engine) credits(l *link) int {
	return l.depth - int(l.sent-atomic.LoadUint64(&e.credit[l.peer]))
}

// post posts e.wr[0], filled in but for id and signal. A request that another
// index belongs to (what other than whatMark) is signaled; so is one in a
// quarter of the queue, so that the queue drains. The caller has seen to room.
func (e *Engine) post(l *link, what uint64, index uint32) error {
	wr := &e.wr[0]
	l.posted++
	e.flying++
	if what != whatMark || int(l.posted-l.signaled) >= e.queue/4 {
		wr.Flags |= rdma.SendSignaled
		l.signaled = l.posted
	}
	wr.WRID = l.id(what, index)
	if _, err := l.qp.PostSend(e.wr[:]); err != nil {
		e.fail(l, fmt.Errorf("post_send: %w", err))
		return l.err
	}
	return nil
}

// postInline posts a send of e.small[:n].
func (e *Engine) postInline(l *link, n int) error {
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: e.small[:n]}
	return e.post(l, whatMark, 0)
}

// postSlot posts a send of n bytes of a send slot.
func (e *Engine) postSlot(l *link, slot int32, n int) error {
	e.sge[0] = rdma.SGE{Addr: e.mr.Addr() + uint64(e.slotAt(slot)), Length: uint32(n), LKey: e.mr.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRSend, SGL: e.sge[:]}
	return e.post(l, whatSlot, uint32(slot))
}

// slotAt is where in mem a send slot begins.
func (e *Engine) slotAt(slot int32) int { return e.sendOff + int(slot)*e.slotSize() }

// fail ends a link: what waits for the peer fails, now and later. Memory that is
// its owner's again when those calls return is safe: in ERR the queue pair reads
// into none and answers no read.
func (e *Engine) fail(l *link, err error) {
	if l.err != nil {
		return
	}
	l.err = &PeerError{Peer: int(l.peer), Err: err}
	e.letGo(l, noNumber)
	todo := l.todo
	l.todo = nil
	e.failed++
	if qp := e.queueOf(l); qp != nil {
		// A failure to say so means that it is in ERR or gone.
		_ = qp.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask)
	}
	l.reading = 0
	if l.far != nil {
		e.abandonFar(l)
	}
	e.set.Cut(int(l.peer))
	for i := range e.ops.rows {
		o := e.ops.rows[i].value
		if o == nil || o.link != l || o.state == queued {
			continue // ship looks after a queued one
		}
		e.helpless(o)
		e.ops.remove(o.number)
		e.freeTicket(o)
		_ = o.drop() // the link's error comes first
		e.complete(o, l.err)
	}
	for _, c := range todo {
		if c.read != nil && c.read.state != done {
			_ = c.read.drop()
			e.complete(c.read, l.err)
		}
	}
	for o := l.queue.pop(); o != nil; o = l.queue.pop() {
		e.complete(o, l.err)
	}
	hopeless := func(r *match.Receive[*Op]) {
		if err := e.hopeless(r.Envelope, r.Value.group); err != nil {
			e.matches.Cancel(r)
			e.complete(r.Value, err)
		}
	}
	e.matches.Posted(l.peer, hopeless)
	e.matches.Posted(match.Any, hopeless)
}

// A queue is sends in line.
type queue struct{ head, tail *Op }

func (q *queue) push(o *Op) {
	o.next = nil
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
}

func (q *queue) pop() *Op {
	o := q.head
	if o != nil {
		if q.head = o.next; q.head == nil {
			q.tail = nil
		}
		o.next = nil
	}
	return o
}

// remove takes a send out of the line.
func (l *link) remove(o *Op) {
	var before *Op
	for at := l.queue.head; at != o; at = at.next {
		before = at
	}
	if before == nil {
		l.queue.pop()
		return
	}
	before.next = o.next
	if l.queue.tail == o {
		l.queue.tail = before
	}
	o.next = nil
}

// giveBack gives the peer a message's credits back, and tells it when enough are
// due.
func (e *Engine) giveBack(l *link, credits int) {
	l.taken += uint64(credits)
	if l.taken-l.reported >= l.reportAfter() {
		e.chores(l)
	}
}

// reportAfter is how many credits are given back between two reports of it. What
// is not reported must leave room for the message that needs most.
func (l *link) reportAfter() uint64 {
	if l.far != nil {
		return uint64(l.depth / 4)
	}
	return uint64(l.depth / 2)
}

// assign does a chore now, or when the send queue has room.
func (e *Engine) assign(l *link, c chore) {
	l.todo = append(l.todo, c)
	e.chores(l)
}

// answer answers an announcement or a synchronous message.
func (e *Engine) answer(l *link, what kind, id uint32) {
	if l.err == nil {
		e.assign(l, chore{answer: what, id: id})
	}
}

// chores does what is due on a link as far as the send queue has room.
func (e *Engine) chores(l *link) {
	for l.err == nil && len(l.todo) > 0 {
		over, blocked := e.do(l, l.todo[0])
		if blocked {
			break
		}
		if over && len(l.todo) > 0 { // a failed link has none
			n := copy(l.todo, l.todo[1:])
			l.todo[n] = chore{}
			l.todo = l.todo[:n]
		}
	}
	report := l.taken-l.reported >= l.reportAfter()
	if l.err == nil && report && (l.far != nil || e.room(l) > 0) {
		e.report(l)
		report = false
	}
	if l.err == nil && (report || len(l.todo) > 0) {
		e.later(l)
	}
}

// later has Progress see to a link that has something to post and no room.
func (e *Engine) later(l *link) {
	if !l.due {
		l.due = true
		e.due = append(e.due, l.peer)
	}
}

// do posts a request of a chore and tells whether it was the last; blocked: it
// could not be posted.
func (e *Engine) do(l *link, c chore) (over, blocked bool) {
	switch {
	case c.answer == offer:
		return true, !e.put(l, offer, uint64(c.use), c.offer, nil)
	case l.far != nil && c.read == nil && !c.help:
		return true, !e.put(l, c.answer, 0, uint64(c.id), nil)
	case !e.connected(l) || e.room(l) <= 0:
		return false, true
	}
	if c.read != nil {
		return e.read(l, c.read)
	}
	if c.help {
		return e.writePiece(l, c.id), false
	}
	h := header{kind: c.answer, source: uint32(e.rank), id: c.id}
	_ = e.postInline(l, h.put(e.small[:])) // a failure fails the link
	return true, false
}

// report writes the count of taken messages into the peer's control word.
func (e *Engine) report(l *link) {
	l.reported = l.taken
	if l.shares {
		e.broken(e.refill())
	}
	if l.far != nil {
		// Release: the lines were read before the peer may use them again.
		arch.StoreRelease64(l.far.credit, l.taken)
		l.far.memory.Notify()
		return
	}
	putWord(&e.word, l.taken)
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: e.word[:], RemoteAddr: l.control, RKey: l.controlKey}
	_ = e.post(l, whatMark, 0)
}

// probeLink posts an empty write, whose completion tells whether the peer is there.
func (e *Engine) probeLink(l *link) {
	if l.err != nil || l.qp == nil || e.room(l) <= 0 || l.posted != l.retired && l.signaled == l.posted {
		return // the last request is signaled: its completion tells as well
	}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, RemoteAddr: l.control, RKey: l.controlKey, Flags: rdma.SendSignaled}
	l.posted++
	e.flying++
	l.signaled = l.posted
	e.wr[0].WRID = l.id(whatMark, 0)
	if _, err := l.qp.PostSend(e.wr[:]); err != nil {
		e.fail(l, fmt.Errorf("post_send: %w", err))
	}
}
