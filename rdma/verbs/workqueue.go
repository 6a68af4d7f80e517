//go:build cgo

package verbs

import (
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// Requests go to the device under an identity of ours, and completions give the
// program's back. That tells, for every completion, failed ones included, which
// queue it is of, and so what was executed before it; and a completion that a
// destroyed or reset queue pair left behind is known and dropped.
//
//	wr_id:  63            24 23         0
//	       | sequence number | queue     |
//
// A work queue is the send or the receive queue of a queue pair, or a
// shared receive queue. The requests of a queue pair complete in the order of
// their posting, so a work queue is a ring:
//
//	   tail                head
//	    v                   v
//	... | posted, incomplete | free ...
//
// Posters, which hold the lock of their side of the queue pair, write the entry
// and then move head, before the device sees the request. Pollers, which hold the
// lock of the CQ, move tail. A slot of an unsignaled request comes back with the
// next completion behind it, as verbs has it. A shared receive queue completes
// in any order: its slots are in a free list.
const (
	queueBits = 24
	queueMask = 1<<queueBits - 1
	seqMask   = 1<<(64-queueBits) - 1
)

// An entry is a posted request.
type entry struct {
	wrid  uint64
	bytes uint32
	op    uint8 // rdma.WROpcode | opInline; of receives nothing
}

// opInline is in entry.op beside the operation, which is less: the payload was
// inline. An operation of no number below it is not posted.
const opInline = 16

type workQueue struct {
	index  uint32
	send   bool
	pair   *queuePair   // whose work queue it is, or
	shared *sharedQueue // whose, and then what follows is unused, unless
	ops    bool         // it is of the operations on its list of tags

	ring []entry // a power of two of them
	room uint64  // requests that may be outstanding
	head atomic.Uint64
	tail atomic.Uint64

	count tally // guarded by the lock of the CQ
}

// A tally is what the completions of a work queue said was executed.
type tally struct {
	ops    [2 * opInline]struct{ requests, bytes uint64 } // by entry.op
	errors uint64
}

// add counts a request that was executed.
func (t *tally) add(e *entry) {
	o := &t.ops[e.op%uint8(len(t.ops))]
	o.requests++
	o.bytes += uint64(e.bytes)
}

// report adds what was counted.
func (t *tally) report(to *rdma.Counters) {
	for _, op := range rdma.Opcodes() {
		plain, inline := &t.ops[opOf(op)], &t.ops[opOf(op)|opInline]
		to.Count(op.Operation(), plain.requests+inline.requests, plain.bytes+inline.bytes)
	}
	for i := range t.ops[opInline:] {
		to.Inline += t.ops[opInline+i].requests
	}
	to.Errors += t.errors
}

// free is how many more requests may be posted.
func (l *workQueue) free() int { return int(l.room - (l.head.Load() - l.tail.Load())) }

// at is the slot of a sequence number.
func (l *workQueue) at(seq uint64) *entry { return &l.ring[seq&uint64(len(l.ring)-1)] }

// id is the identity under which the device gets a request.
func (l *workQueue) id(seq uint64) uint64 { return seq<<queueBits | uint64(l.index) }

// retire ends the requests up to the one whose completion came, and gives the
// program's identity of that one. It is false for a request that the work queue knows
// nothing of (any more).
func (l *workQueue) retire(id uint64, ok bool) (wrid uint64, known bool) {
	tail := l.tail.Load()
	seq := tail + (id>>queueBits-tail)&seqMask
	if seq >= l.head.Load() {
		return 0, false
	}
	e := l.at(seq)
	if l.send {
		for ; tail != seq; tail++ {
			l.count.add(l.at(tail))
		}
		if ok {
			l.count.add(e)
		} else {
			l.count.errors++
		}
	}
	wrid = e.wrid // before it may be overwritten
	l.tail.Store(seq + 1)
	return wrid, true
}

// forget drops everything that is posted: its completions will not be known.
func (l *workQueue) forget() { l.tail.Store(l.head.Load()) }

// workQueues is the table of a context's work queues. Pollers read it without a lock.
type workQueues struct {
	table atomic.Pointer[[]atomic.Pointer[workQueue]]

	mu   sync.Mutex
	next []uint64 // per index, the sequence number that its next work queue begins with
	free []uint32
}

// of is the work queue that an identity names, nil for none.
func (t *workQueues) of(id uint64) *workQueue {
	if table := t.table.Load(); table != nil {
		if i := id & queueMask; i < uint64(len(*table)) {
			return (*table)[i].Load()
		}
	}
	return nil
}

// add gives l an index, whose numbers go on where its last work queue's ended: what
// that one left in a CQ is no request of l.
func (t *workQueues) add(l *workQueue) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		if err := t.grow(); err != nil {
			return err
		}
	}
	l.index = t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	l.head.Store(t.next[l.index])
	l.tail.Store(t.next[l.index])
	(*t.table.Load())[l.index].Store(l)
	return nil
}

func (t *workQueues) grow() error {
	old := t.table.Load()
	n := 0
	if old != nil {
		n = len(*old)
	}
	size := max(16, 2*n)
	if size > queueMask+1 {
		return &rdma.OpError{Op: "create_qp", Detail: "too many queues in one context", Err: rdma.ErrNoMemory}
	}
	table := make([]atomic.Pointer[workQueue], size)
	for i := range n {
		table[i].Store((*old)[i].Load())
	}
	t.next = append(t.next, make([]uint64, size-n)...)
	for i := size - 1; i >= n; i-- {
		t.free = append(t.free, uint32(i))
	}
	t.table.Store(&table)
	return nil
}

func (t *workQueues) remove(l *workQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next[l.index] = l.head.Load()
	(*t.table.Load())[l.index].Store(nil)
	t.free = append(t.free, l.index)
}

// ringSize is the power of two that holds n.
func ringSize(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}
