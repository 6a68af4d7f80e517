package soft

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// Close destroys the queue pair. When it returns no peer touches its receive
// queue any more.
func (q *queuePair) Close() error {
	if q.ending.left.Swap(true) || q.orphan() {
		return nil
	}
	return q.closeNow()
}

// closeNow is Close of a queue pair that no other process has open.
func (q *queuePair) closeNow() error {
	q.p.acknowledge()
	if !q.closeFirst() {
		return nil
	}
	barrier()
	return q.destroy(new(patience))
}

// acknowledge sends what peers over TCP are owed: a program that closes its queue pairs may end right after, when a card would long
// have acknowledged what the program has seen.
func (p *Provider) acknowledge() {
	if n := p.tcp.Load(); n != nil {
		n.flushAll()
	}
}

// closeFirst is what comes before the barrier. It is false when that was done before.
func (q *queuePair) closeFirst() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending.closed {
		return false
	}
	q.ending.closed = true
	q.depart()
	return true
}

// CloseQPs closes queue pairs of the context with one barrier for all of them.
func (c *context) CloseQPs(qps []rdma.QP) error {
	c.p.acknowledge()
	var errs []error
	mine := make([]*queuePair, 0, len(qps))
	for _, qp := range qps {
		q, ok := qp.(*queuePair)
		if !ok || q.pd.ctx != c {
			errs = append(errs, &rdma.OpError{Op: "destroy_qp", Detail: "found a queue pair of another context", Err: rdma.ErrInvalid})
			continue
		}
		if !q.ending.left.Swap(true) && !q.orphan() && q.closeFirst() {
			mine = append(mine, q)
		}
	}
	barrier()
	var waited patience // one for all: a process that is stopped holds up many
	for _, q := range mine {
		errs = append(errs, q.destroy(&waited))
	}
	return errors.Join(errs...)
}

// destroy is Close after depart and a barrier.
func (q *queuePair) destroy(waited *patience) error {
	q.ending.gone.Store(true) // a receive that is being posted holds rmu, which forsake takes
	q.mu.Lock()
	stuck := q.forsake(waited)
	q.mu.Unlock()

	ctx, p := q.pd.ctx, q.p
	ctx.mu.Lock()
	delete(ctx.queues, q)
	add(&ctx.past, q.snapshot())
	held := !q.ending.orphaned
	ctx.mu.Unlock()
	q.recv.detach(q)
	q.send.detach(q)
	ctx.events.forget(func(e rdma.AsyncEvent) bool { return e.QP == rdma.QP(q) })
	atomic.StoreUint64(&q.own.scope, 0)
	if !stuck {
		// Else it is still found by a deregistration what the peer may be at,
		// and its memory and its number are never used again.
		p.byQPN.set(q.index, nil)
		q.rq.free()
		p.mu.Lock()
		p.free.qps.give(int(q.index))
		p.mu.Unlock()
	}
	if held {
		q.leaveSRQ()
		q.pd.disown()
	}
	if stuck {
		return &rdma.OpError{Op: "destroy_qp", Detail: fmt.Sprintf("the peer has been in the middle of an operation for %v", drainLimit), Err: errStuck}
	}
	return nil
}

// leave takes the queue pair to RESET: no request, no receive, no completion
// of it is left. It tells whether the peer is stuck in it. Called with mu held.
func (q *queuePair) leave() (stuck bool) {
	q.depart()
	barrier()
	return q.forsake(new(patience))
}

// depart is the half of leave before the barrier: the peer finds none.
func (q *queuePair) depart() {
	atomic.StoreUint32(&q.own.word, uint32(rdma.StateReset))
	q.forget()
}

// forsake is the half after it. Called with mu held.
func (q *queuePair) forsake(waited *patience) (stuck bool) {
	stuck = q.drainPeer(markQueue, waited)
	if q.init.Type == rdma.DCT {
		stuck = q.p.drainInitiators(markQueue, waited) || stuck
	}
	if q.shared != nil && q.init.Type == rdma.UD {
		if q.shared.inbox != nil {
			q.shared.empty() // first, so that nothing is claimed any more
		}
		stuck = q.shared.settle(waited) || stuck
	}
	if !stuck {
		q.target.Store(nil) // else it stays for a deregistration to see
	}
	q.peer, q.remote = nil, nil
	q.ending.draining, q.ending.lastWQE = false, false
	switch {
	case q.shared == nil:
	case q.shared.inbox != nil:
		q.shared.empty()
	default:
		q.shared.harvest() // what is for this queue pair, to be purged
	}
	q.rq.mu.Lock()
	// In this order a poll that goes on meanwhile finds nothing more, and then
	// counts nothing more as polled.
	for i := range q.rq.slots {
		if sl := q.rq.slot(i); sl != nil {
			atomic.StoreUint32(&sl.state, slotFree)
		}
	}
	q.send.purge(q)
	q.recv.purge(q)
	q.sq.posted = 0
	atomic.StoreUint32(&q.sq.freed, 0)
	atomic.StoreUint32(&q.rq.posted, 0)
	atomic.StoreUint32(&q.rq.freed, 0)
	q.recv.mu.Lock()
	q.rq.taken = 0
	q.recv.mu.Unlock()
	q.rq.mu.Unlock()
	q.attr = rdma.QPAttr{}
	return stuck
}

// mark says what this initiator is at, before it looks at the target's state.
func (q *queuePair) mark(what uint64) {
	q.turn += markTurn
	if q.p.quiet.Load() {
		arch.StoreRelease64(&q.own.mark, q.turn|what)
	} else {
		// A full barrier: the barrier of a peer that deregisters does not reach this process.
		atomic.StoreUint64(&q.own.mark, q.turn|what)
	}
}

// unmark: everything copied is visible to a process that sees it.
func (c *queueContext) unmark(turn uint64) { arch.StoreRelease64(&c.mark, turn) }

const (
	// drainLimit bounds the wait for a peer that is stopped in mid-operation.
	drainLimit = 5 * time.Second
	drainPoll  = 20 * time.Microsecond
)

var errStuck = errors.New("a peer does not finish its operation")

// A patience measures a wait by the waiter's own looks: when all processes of a job are stopped and go on, none has waited.
type patience struct {
	last   time.Time
	waited time.Duration
}

// over counts the time since the last call, of which each may add little, and
// tells whether that makes more than limit.
func (w *patience) over(limit time.Duration) bool {
	now := time.Now()
	if !w.last.IsZero() {
		w.waited += min(now.Sub(w.last), patienceStep)
	}
	w.last = now
	return w.waited > limit
}

const patienceStep = 10 * time.Millisecond

// drain waits until no initiator that was at what, when it is called, is so
// any more. Peers that have ended do not count. It tells whether one is stuck.
func (p *Provider) drain(what uint64) (stuck bool) {
	barrier()
	var waited patience
	p.mu.Lock()
	n, shared := p.head.touched.queues, p.head.touched.shared
	p.mu.Unlock()
	for i := range min(n, uint32(len(p.queues))) {
		if q := p.byQPN.get(i); q != nil {
			stuck = q.drainPeer(what, &waited) || stuck
			// What this provider itself is doing with the region as local memory.
			q.mu.Lock()
			q.mu.Unlock() //nolint:staticcheck // SA2001: taking the lock is the wait
			if q.init.Cap.MaxInlineRecv > 0 {
				q.recv.mu.Lock()
				q.recv.mu.Unlock() //nolint:staticcheck // the same, of unpack
			}
		}
	}
	stuck = p.drainInitiators(what, &waited) || stuck
	if n := p.tcp.Load(); n != nil {
		n.settle()
	}
	for i := range min(shared, uint32(len(p.shared))) {
		if h := p.byShared.get(i); h != nil {
			stuck = h.settle(&waited) || stuck
		}
	}
	return stuck
}

// drainPeer waits until the queue pair's peer, if it was at what, is so no more.
// The caller has passed a barrier.
func (q *queuePair) drainPeer(what uint64, waited *patience) (stuck bool) {
	t := q.target.Load()
	if t == nil {
		return false
	}
	return waitMark(t.context, t.peer.checkDead, what, waited)
}

// waitMark waits until an initiator is not, or no longer, at what.
func waitMark(c *queueContext, dead func() bool, what uint64, waited *patience) (stuck bool) {
	first := atomic.LoadUint64(&c.mark)
	if !names(first, what) {
		return false
	}
	for i := 0; ; i++ {
		if m := atomic.LoadUint64(&c.mark); m != first {
			// It has moved on, and looks at the state anew.
			return false
		}
		if i < 100 {
			arch.Pause()
			continue
		}
		if dead() {
			return false
		}
		if waited.over(drainLimit) {
			return true
		}
		time.Sleep(drainPoll)
	}
}

// names tells whether a mark is at what.
func names(mark, what uint64) bool {
	m := mark & markWhat
	return m != 0 && (m == what || m == markQueue || what == markQueue)
}
