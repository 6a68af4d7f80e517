// Package sendq accounts for what is posted to a queue pair: what has left its send queue,
// which requests are signalled, whether it has failed. Everything that a rank posts to a
// peer goes through a [Queue], of messages, collectives and windows alike.
//
//	Open -> Post ... Completed ... -> Fail, or Drop
//
// Counts are of requests, run on for ever, and keep
//
//	done <= signalled <= posted <= done + depth
//
// since a request that is not signalled leaves the queue with the next signalled one's
// completion. A queue pair completes in order, so one number says all: each request has the
// low bits of its count in its work request id, above which are the owner's ([Split]).
//
// A Queue is up, then failed, for good, with its first error; what was posted before may
// still complete. The zero Queue has no queue pair and no room. Nothing here blocks or
// allocates, but for the first error. The queue pair is the owner's to connect and to close.
//
// Posting belongs to one goroutine at a time, the owner's or the holder of a lock of its own.
// Completions may be told by one other at the same time, and Done, Err and Fail are anybody's.
// The room of a completion queue that several queues share is accounted for by their owner.
package sendq

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

const (
	markBits = 16
	// deepest is the most requests that a queue holds: a mark is unambiguous then, also
	// that of a completion which comes after Drop.
	deepest = 1 << (markBits - 1)
)

// A Queue is a queue pair with the account of its send queue.
type Queue struct {
	QP      rdma.QP // nil while there is none
	depth   uint32
	silent  uint32 // requests since the last signalled one
	posted  uint64
	done    atomic.Uint64
	failure atomic.Pointer[failure]
}

type failure struct{ err error }

// Open gives the queue its queue pair, which takes so many requests.
func (q *Queue) Open(qp rdma.QP, depth int) { q.QP, q.depth = qp, uint32(min(depth, deepest)) }

// Room is how many requests the send queue can take.
func (q *Queue) Room() int { return int(q.depth) - int(q.Flying()) }

// Flying is how many requests were posted and have not left.
func (q *Queue) Flying() uint64 { return q.posted - q.done.Load() }

// Posted is how many requests were posted, ever.
func (q *Queue) Posted() uint64 { return q.posted }

// Done is how many of them have left.
func (q *Queue) Done() uint64 { return q.done.Load() }

// Tells tells whether a completion is to come that says that all has left.
func (q *Queue) Tells() bool { return q.Flying() > 0 && q.silent == 0 }

// Due tells whether the last of n more requests is signalled so that the queue drains: one
// in a quarter of it is.
func (q *Queue) Due(n int) bool { return q.silent+uint32(n) > q.depth/4 }

// Post posts requests that the queue has Room for, with the owner's id, which has 48 bits.
// The last one is signalled when asked, or when it is Due. When the queue pair refuses a
// request the account has those before it, and the caller fails the queue.
func (q *Queue) Post(wrs []rdma.SendWR, id uint64, signal bool) error {
	if signal = signal || q.Due(len(wrs)); signal {
		wrs[len(wrs)-1].Flags |= rdma.SendSignaled
	}
	mark := uint16(q.posted)
	for i := range wrs {
		mark++
		wrs[i].WRID = WRID(id, mark)
	}
	took, err := q.QP.PostSend(wrs)
	q.posted += uint64(took)
	q.silent += uint32(took)
	if err != nil {
		return fmt.Errorf("post_send: %w", err)
	}
	if signal {
		q.silent = 0
	}
	return nil
}

// WRID is the id of a work request: the owner's, and the mark of a request in a Queue.
func WRID(id uint64, mark uint16) uint64 { return id<<markBits | uint64(mark) }

// Split takes the id of a work request apart.
func Split(wrid uint64) (id uint64, mark uint16) { return wrid >> markBits, uint16(wrid) }

// Completed takes in that the request with a mark is complete, and gives how many have left
// by that: 0 for one that was dropped.
func (q *Queue) Completed(mark uint16) int {
	done := q.done.Load()
	n := mark - uint16(done)
	if uint32(n) > q.depth {
		return 0
	}
	q.done.Store(done + uint64(n))
	return int(n)
}

// Drop gives up what has not left, because the queue pair does nothing any more, and gives
// how many that were.
func (q *Queue) Drop() int {
	n := q.Flying()
	q.done.Store(q.posted)
	return int(n)
}

// Fail notes the queue's first error; false: it has one.
func (q *Queue) Fail(err error) bool { return q.failure.CompareAndSwap(nil, &failure{err}) }

// Err is why nothing more is posted, nil while the queue is up.
func (q *Queue) Err() error {
	if f := q.failure.Load(); f != nil {
		return f.err
	}
	return nil
}
