package p2p

import (
	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
)

// ranks is this rank with its peers, and what one may send to another.
type ranks struct {
	rank, size int
	set        *peers.Set
	peers      []peer
	mapping    bool // some may be mapped

	depth  int // credits of a peer
	eager  int // longest eager payload
	inline int // longest inline send
	queue  int // depth of a send queue
}

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

	zone *zone // the peer's, nil: it has granted none
	loan *loan // of the zone that the peer writes into, nil: it has none

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
	pooled bool   // its receives are in the shared queue
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

// reportAfter is how many credits are given back between two reports of it. What
// is not reported must leave room for the message that needs most.
func (p *peer) reportAfter() uint64 {
	if p.far != nil {
		return uint64(p.depth / 4)
	}
	return uint64(p.depth / 2)
}

// unreported tells whether the peer is to be told of the credit that was given back.
func (p *peer) unreported() bool {
	return p.taken-p.reported >= p.reportAfter() || p.loan != nil && p.loan.bytes >= zoneBytes/2 && p.taken != p.reported
}
