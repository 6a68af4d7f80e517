package p2p

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// A peer is another rank, with the connection to it.
//
// Counts run on and are compared by difference. sent - credit word is what the
// peer has not taken yet, at most depth.
type peer struct {
	far  *far // a mapped peer; then the queue pair only moves long messages in ordinary memory
	rank int32

	depth int // credits
	most  int // answers that may be outstanding
	eager int // longest message that is sent without waiting for its receiver

	queue queue // sends that have not left, in order

	sent        uint64 // eager messages and announcements
	outstanding int    // announcements and synchronous messages that are not answered

	taken    uint64 // messages of the peer whose slots are free again
	reported uint64 // of them, what the peer has been told
	held     int    // bytes of unexpected messages
	reading  int    // receives that read from the peer

	control    uint64 // address of our control word at the peer
	controlKey uint32

	todo []chore // what found no room in the send queue, in order
	due  bool    // in Engine.due, for todo, queue or a report

	// The queue pair is nil while it is not connected, where that is on demand. The queue's
	// error is the peer's: nothing reaches a peer that has failed, by no way. Behind the
	// fields that a mapped peer's messages look at: in front it costs each send 20 ns.
	sendq.Queue

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

// Work request ids, above the account's mark: what | peer | index.
const (
	whatShift = 44
	peerShift = 24
	peerMask  = 1<<(whatShift-peerShift) - 1
	indexMask = 1<<peerShift - 1
)

const (
	whatRecv  = iota + 1 // index: receive slot; peer: nobody, where it is shared
	whatMark             // index: none
	whatProbe            // index: none
	whatSlot             // index: send slot
	whatRead             // index: number of an operation
	whatHelp             // index: number of an operation
)

func idOf(what uint64, peer int32, index uint32) uint64 {
	return what<<whatShift | uint64(peer)<<peerShift | uint64(index)
}

// credits is how many more messages the peer can take.
func (e *Engine) credits(p *peer) int {
	return p.depth - int(p.sent-atomic.LoadUint64(&e.credit[p.rank]))
}

// post posts e.wr[0], filled in but for id and signal. A request of its own kind
// (what other than whatMark) is signalled. The caller has seen to room. A failure fails
// the peer, with all operations that concern it.
func (e *Engine) post(p *peer, what uint64, index uint32) {
	if err := p.Post(e.wr[:], idOf(what, p.rank, index), what != whatMark); err != nil {
		e.fail(p, err)
		return
	}
	e.flying++
}

// postInline posts a send of e.small[:n].
func (e *Engine) postInline(p *peer, n int) {
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: e.small[:n]}
	e.post(p, whatMark, 0)
}

// postSlot posts a send of n bytes of a send slot.
func (e *Engine) postSlot(p *peer, slot int32, n int) {
	e.sge[0] = rdma.SGE{Addr: e.mr.Addr() + uint64(e.slotAt(slot)), Length: uint32(n), LKey: e.mr.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRSend, SGL: e.sge[:]}
	e.post(p, whatSlot, uint32(slot))
}

// slotAt is where in mem a send slot begins.
func (e *Engine) slotAt(slot int32) int { return e.sendOff + int(slot)*e.slotSize() }

// fail ends the traffic with a peer: what waits for it fails, now and later. Memory that is
// its owner's again when those calls return is safe: in ERR the queue pair reads
// into none and answers no read.
func (e *Engine) fail(p *peer, err error) {
	if !p.Fail(&PeerError{Peer: int(p.rank), Err: err}) {
		return
	}
	e.letGo(p, noNumber)
	todo := p.todo
	p.todo = nil
	e.failed++
	if qp := e.queueOf(p); qp != nil {
		// A failure to say so means that it is in ERR or gone.
		_ = qp.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask)
	}
	p.reading = 0
	if p.far != nil {
		e.abandonFar(p)
	}
	e.set.Cut(int(p.rank))
	for i := range e.ops.rows {
		o := e.ops.rows[i].value
		if o == nil || o.peer != p || o.state == queued {
			continue // ship looks after a queued one
		}
		e.helpless(o)
		e.ops.remove(o.number)
		e.freeTicket(o)
		_ = o.drop() // the peer's error comes first
		e.complete(o, p.Err())
	}
	for _, c := range todo {
		if c.read != nil && c.read.state != done {
			_ = c.read.drop()
			e.complete(c.read, p.Err())
		}
	}
	for o := p.queue.pop(); o != nil; o = p.queue.pop() {
		e.complete(o, p.Err())
	}
	hopeless := func(r *match.Receive[*Op]) {
		if err := e.hopeless(r.Envelope, r.Value.group); err != nil {
			e.matches.Cancel(r)
			e.complete(r.Value, err)
		}
	}
	e.matches.Posted(p.rank, hopeless)
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
func (p *peer) remove(o *Op) {
	var before *Op
	for at := p.queue.head; at != o; at = at.next {
		before = at
	}
	if before == nil {
		p.queue.pop()
		return
	}
	before.next = o.next
	if p.queue.tail == o {
		p.queue.tail = before
	}
	o.next = nil
}

// giveBack gives the peer a message's credits back, and tells it when enough are
// due.
func (e *Engine) giveBack(p *peer, credits int) {
	p.taken += uint64(credits)
	if p.taken-p.reported >= p.reportAfter() {
		e.chores(p)
	}
}

// reportAfter is how many credits are given back between two reports of it. What
// is not reported must leave room for the message that needs most.
func (p *peer) reportAfter() uint64 {
	if p.far != nil {
		return uint64(p.depth / 4)
	}
	return uint64(p.depth / 2)
}

// assign does a chore now, or when the send queue has room.
func (e *Engine) assign(p *peer, c chore) {
	p.todo = append(p.todo, c)
	e.chores(p)
}

// answer answers an announcement or a synchronous message.
func (e *Engine) answer(p *peer, what kind, id uint32) {
	if p.Err() == nil {
		e.assign(p, chore{answer: what, id: id})
	}
}

// chores does what is due to a peer as far as the send queue has room.
func (e *Engine) chores(p *peer) {
	for p.Err() == nil && len(p.todo) > 0 {
		over, blocked := e.do(p, p.todo[0])
		if blocked {
			break
		}
		if over && len(p.todo) > 0 { // a failed peer has none
			n := copy(p.todo, p.todo[1:])
			p.todo[n] = chore{}
			p.todo = p.todo[:n]
		}
	}
	report := p.taken-p.reported >= p.reportAfter()
	if p.Err() == nil && report && (p.far != nil || p.Room() > 0) {
		e.report(p)
		report = false
	}
	if p.Err() == nil && (report || len(p.todo) > 0) {
		e.later(p)
	}
}

// later has Progress see to a peer that has something to post and no room.
func (e *Engine) later(p *peer) {
	if !p.due {
		p.due = true
		e.due = append(e.due, p.rank)
	}
}

// do posts a request of a chore and tells whether it was the last; blocked: it
// could not be posted.
func (e *Engine) do(p *peer, c chore) (over, blocked bool) {
	switch {
	case c.answer == offer:
		return true, !e.put(p, offer, uint64(c.use), c.offer, nil)
	case p.far != nil && c.read == nil && !c.help:
		return true, !e.put(p, c.answer, 0, uint64(c.id), nil)
	case !e.connected(p) || p.Room() <= 0:
		return false, true
	}
	if c.read != nil {
		return e.read(p, c.read)
	}
	if c.help {
		return e.writePiece(p, c.id), false
	}
	h := header{kind: c.answer, source: uint32(e.rank), id: c.id}
	e.postInline(p, h.put(e.small[:])) // a failure fails the peer
	return true, false
}

// report writes the count of taken messages into the peer's control word.
func (e *Engine) report(p *peer) {
	p.reported = p.taken
	if p.shares {
		e.broken(e.refill())
	}
	if p.far != nil {
		// Release: the lines were read before the peer may use them again.
		arch.StoreRelease64(p.far.credit, p.taken)
		p.far.memory.Notify()
		return
	}
	putWord(&e.word, p.taken)
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: e.word[:], RemoteAddr: p.control, RKey: p.controlKey}
	e.post(p, whatMark, 0)
}

// probePeer posts an empty write, whose completion tells whether the peer is there.
func (e *Engine) probePeer(p *peer) {
	if p.Err() != nil || p.QP == nil || p.Room() <= 0 || p.Tells() {
		return
	}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, RemoteAddr: p.control, RKey: p.controlKey}
	e.post(p, whatProbe, 0)
}
