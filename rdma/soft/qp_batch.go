package soft

import "github.com/gorun-mpi/gorun/rdma"

// The messages of one PostSend are told to their receiver together: each of them is in
// the receiver's memory and its receive is DONE when the next one begins, but the words
// that say so (queueHeader.attention, the ready word), which cost both sides a cache line
// each, are set once for up to owedMessages or owedBytes.
//
//	mark -> message, DONE -> message, DONE -> ... -> ready, attention -> unmark -> completions
//
// The mark stands all the while, so that the process that takes the queue pair away waits until
// it has been told. Completions come behind that: what has completed is seen although
// the process may die the moment after. Whatever is no message for a receive of the
// peer, and whatever fails, first ends what is under way.

// owedMessages and owedBytes bound how long a receiver is not told of a message.
const (
	owedMessages = 8
	owedBytes    = 4 << 10
)

// owed is what a receiver is still to be told.
type owed struct {
	n      uint32 // messages
	bytes  uint32
	cq     uint32
	urgent bool
	h      *sharedHeader
}

// deliver hands a message of this queue pair over to its receiver, which hears of it now or
// with those behind it in the batch. Called with the responder marked.
func (q *queuePair) deliver(tk *ticket, d delivery) {
	s, c, o := q.peer, q.remote, &q.owed
	if tk.claim != nil && tk.op == rdma.TMRndv { // more is to be told than that
		if o.n > 0 {
			q.pay()
		}
		s.deliver(c, tk, d)
		return
	}
	s.hand(c, tk, d)
	if o.n > 0 && (o.h != tk.h || o.cq != tk.cq) { // scribbled
		q.pay()
	}
	if o.n == 0 && q.behind == 0 {
		tk.s.tell(c, tk.h, tk.cq, d.urgent())
		return
	}
	o.n++
	o.bytes += d.n
	o.h, o.cq, o.urgent = tk.h, tk.cq, o.urgent || d.urgent()
	if q.behind == 0 || o.n == owedMessages || o.bytes >= owedBytes {
		q.pay()
	}
}

// pay tells what is owed.
func (q *queuePair) pay() {
	q.peer.tell(q.remote, q.owed.h, q.owed.cq, q.owed.urgent)
	q.owed = owed{}
}

// A batch is the messages of one PostSend that have been executed. Guarded by the
// queue pair's mu.
type batch struct {
	behind uint32 // requests of it behind the one that is executed
	kept   uint32 // completions that wait until the receiver has been told, in held
	owed   owed   // what it is to hear
	held   [owedMessages]entry
}

// announce ends a batch, or a part of it. Called with mu held.
func (q *queuePair) announce() {
	if q.owed.n > 0 {
		q.pay()
		q.own.unmark(q.turn)
	}
	if q.kept > 0 {
		q.completeKept()
	}
}

// completeKept completes the requests whose messages have been told.
func (q *queuePair) completeKept() {
	c := q.send
	c.mu.Lock()
	for i := range q.held[:q.kept] {
		c.push(&q.held[i], 0, false)
	}
	c.mu.Unlock()
	q.kept = 0
}
