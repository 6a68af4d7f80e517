package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

func (q *queuePair) Modify(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := q.state()
	fail := func(format string, args ...any) error {
		to := from
		if mask&rdma.QPStateMask != 0 {
			to = attr.State
		}
		return &rdma.ModifyError{Type: q.init.Type, From: from, To: to, Detail: fmt.Sprintf(format, args...)}
	}
	if q.ending.closed {
		return fail("the queue pair is closed")
	}
	if err := rdma.CheckModify(q.init.Type, from, attr, mask); err != nil {
		return err
	}
	if mask&rdma.QPPortMask != 0 && attr.PortNum != 1 {
		return fail("found port %d, expected port 1, the device's only one", attr.PortNum)
	}
	if mask&rdma.QPPKeyIndexMask != 0 && attr.PKeyIndex != 0 {
		return fail("found P_Key index %d, expected 0: the table has one entry", attr.PKeyIndex)
	}
	if mask&rdma.QPMaxRdAtomicMask != 0 && attr.MaxRdAtomic > maxRdAtom || mask&rdma.QPMaxDestRdAtomicMask != 0 && attr.MaxDestRdAtomic > maxRdAtom {
		return fail("expected at most %d reads and atomics at a time", maxRdAtom)
	}
	to := from
	if mask&rdma.QPStateMask != 0 {
		to = attr.State
	}
	switch {
	case to == rdma.StateReset:
		if from == rdma.StateReset {
			return nil
		}
		if q.leave() {
			return fail("the peer has been in the middle of an operation for %v", drainLimit)
		}
		return nil
	case to == rdma.StateErr:
		q.enterErr()
		return nil
	case from == rdma.StateReset && q.target.Load() != nil:
		// It was left with a peer stuck in it, which would write into the
		// receive queue of the next life.
		barrier()
		if q.drainPeer(markQueue, new(patience)) {
			return fail("the peer of the last connection is still in the middle of an operation")
		}
		q.target.Store(nil)
	case from == rdma.StateInit && to == rdma.StateRTR && q.connected():
		if detail := q.connect(attr); detail != "" {
			return fail("%s", detail)
		}
	}
	q.attr.Apply(attr, mask)
	depth := q.attr.MaxDestRdAtomic
	if q.init.Type == rdma.DCT {
		depth = maxRdAtom
	}
	rights := packRights(q.init.Type, q.attr.AccessFlags, depth, q.attr.MinRNRTimer)
	atomic.StoreUint32(&q.own.rights, rights)
	if q.init.Type == rdma.UD {
		atomic.StoreUint64(&q.own.scope, uint64(q.attr.QKey))
	}
	if from == rdma.StateRTR && to == rdma.StateRTS {
		q.psn = q.attr.SQPSN
	}
	if to != from && !atomic.CompareAndSwapUint32(&q.own.word, uint32(from), uint32(to)) {
		// The peer has moved it to ERR in this moment.
		q.enterErr()
		return fail("the queue pair is in ERR now")
	}
	switch {
	case from == rdma.StateSQD && to == rdma.StateRTS:
		q.advance()
	case from == rdma.StateRTS && to == rdma.StateSQD:
		q.ending.draining = mask&rdma.QPSQDAsyncNotifyMask != 0 && attr.SQDAsyncNotify
		q.drained()
	}
	return nil
}

// connected tells whether a queue pair has one peer, from RTR on.
func (q *queuePair) connected() bool {
	return q.init.Type != rdma.UD && q.init.Type != rdma.DCI && q.init.Type != rdma.DCT
}

// connect finds the peer for the step to RTR. It says what is wrong with attr.
func (q *queuePair) connect(attr rdma.QPAttr) string {
	if attr.AV.SGIDIdx >= gidTable {
		return fmt.Sprintf("source GID index %d: the table has %d entries", attr.AV.SGIDIdx, gidTable)
	}
	if attr.AV.PortNum > 1 {
		return fmt.Sprintf("port %d in the address vector: this device has port 1", attr.AV.PortNum)
	}
	s := q.p.find(attr.AV.DGID)
	if s == nil {
		return fmt.Sprintf("destination %v is not known: its endpoint was not added", attr.AV.DGID)
	}
	q.peer, q.remote = s, nil
	c := q.own
	if s.inside {
		// Who is there is checked at each request: it may be created later.
		// A number outside the table names no queue pair.
		if i := attr.DestQPNum & (maxQueues - 1); int(i) < len(s.queues) {
			q.remote = &s.queues[i]
			q.target.Store(&target{s, q.remote})
			_ = atomic.LoadUint32(&q.remote.word) // its page is mapped here, not in the first post
		}
		atomic.StoreUint64(&c.dest, uint64(s.rank+1)<<32|uint64(attr.DestQPNum))
		q.dest = uint64(q.p.cfg.Rank+1)<<32 | uint64(q.num)
	} else {
		atomic.StoreUint64(&c.dest, 0) // none in the segment
	}
	c.expect = attr.RQPSN
	c.head = 0
	c.last.valid = 0
	// A poll of the queue that it completes to may be looking.
	atomic.StoreUint32(&c.starved, 0)
	atomic.StoreUint32(&c.established, establishedNo)
	// Over TCP go requests to a peer outside the segment, and to one whose ordinary
	// memory the kernel keeps from us, if it listens: all of them, for the sake of
	// their order.
	q.wire.drop()
	q.wire.count(0)
	q.wire = wireState{q: q, wired: s.wired()}
	q.life++
	if q.wire.wired {
		q.remote = nil
	}
	return ""
}

// enterErr moves the queue pair to ERR and flushes. Called with mu held.
func (q *queuePair) enterErr() {
	for {
		w := atomic.LoadUint32(&q.own.word)
		if st := rdma.QPState(w & queueState); st == rdma.StateErr || st == rdma.StateReset {
			break
		}
		if atomic.CompareAndSwapUint32(&q.own.word, w, uint32(rdma.StateErr)) {
			break
		}
	}
	q.tellFault()
	q.flushSend()
	q.dc.hangUp()
	q.calls.end()
	q.flushRecv()
}

// enterSQE stops the send queue, after an error of a request of which no other
// side knows: what follows is flushed, and receiving goes on. Called with mu held.
func (q *queuePair) enterSQE() {
	if atomic.CompareAndSwapUint32(&q.own.word, uint32(rdma.StateRTS), uint32(rdma.StateSQE)) ||
		atomic.CompareAndSwapUint32(&q.own.word, uint32(rdma.StateSQD), uint32(rdma.StateSQE)) {
		q.flushSend()
		return
	}
	q.enterErr()
}

// flush completes what is queued at a queue pair in ERR.
func (q *queuePair) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state() == rdma.StateErr && !q.ending.closed {
		q.tellFault()
		q.flushSend()
		q.flushRecv()
	}
}

// flushSend completes the send queue with WR_FLUSH_ERR, behind an operation on a
// key that has begun: that goes on to its end, and until then flushSend is false
// and the queue waits for a later call. Called with mu held.
func (q *queuePair) flushSend() bool {
	if q.change.drain != nil && q.sq.pending.n > 0 {
		e := q.sq.pending.first()
		status, a := q.change.run(q, &e.wr)
		if a == draining {
			return false
		}
		wr, seq := e.wr, e.seq
		q.sq.waiting = accepted
		q.sq.pending.pop()
		q.finish(&wr, seq, status, 0)
	}
	for q.sq.pending.len() > 0 {
		e := q.sq.pending.first()
		if r := ofDevice(&e.wr); r != nil {
			q.fetched(r, &e.wr, rdma.WCWRFlushErr, 0)
		} else {
			q.fail(e.wr.WRID, e.seq, rdma.WCWRFlushErr)
		}
		q.sq.pending.pop()
	}
	q.wire.count(0)
	q.p.work.done(q)
	return true
}

// flushRecv completes the receive queue with WR_FLUSH_ERR, after what the peer
// has delivered. While the peer is still at it, it is left to a later poll.
// Called with mu held.
func (q *queuePair) flushRecv() {
	switch {
	case q.shared != nil && q.shared.inbox != nil:
		q.shared.flushInbox()
		return
	case q.shared != nil:
		q.leaveShared()
		return
	}
	if q.rq.slots == 0 {
		return
	}
	q.rq.mu.Lock()
	defer q.rq.mu.Unlock()
	if atomic.LoadUint32(&q.rq.posted) == q.rq.takenNow() || q.attended() {
		return
	}
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	q.rq.take()
	for q.rq.taken != atomic.LoadUint32(&q.rq.posted) {
		i := q.rq.taken & (q.rq.slots - 1)
		n := q.rq.strides
		k := n - i&(n-1) // the rest of a receive
		q.rq.release(i, k)
		q.rq.taken += k
		q.recv.push(&entry{q: q, free: q.rq.taken, kind: entryRecv,
			wc: rdma.WC{WRID: q.rq.wrid(i), Status: rdma.WCWRFlushErr, QPNum: q.num}}, 0, false)
	}
}

// attended tells whether the peer is in the middle of a message to the queue
// pair. Then a later poll comes back to it.
func (q *queuePair) attended() bool {
	t := q.target.Load()
	if t == nil && q.init.Type != rdma.DCT {
		return false
	}
	barrier()
	if t == nil && !q.p.asked() {
		return false
	} else if t != nil {
		if m := atomic.LoadUint64(&t.context.mark); m&markWhat != markQueue || t.peer.checkDead() {
			return false
		}
	}
	q.p.self.raise(q.own)
	q.p.self.attend(q.recv.index, true)
	return true
}

// leaveShared ends what a queue pair in ERR has to do with its shared receive
// queue: what it has taken is completed, the rest stays for the others, and the
// program is told, once. Called with mu held.
func (q *queuePair) leaveShared() {
	if q.attended() {
		return
	}
	if q.wire.tk.claim != nil {
		q.p.self.deliver(q.own, &q.wire.tk, delivery{status: rdma.WCWRFlushErr, op: rdma.WRSend})
		q.wire.tk = ticket{}
	}
	q.shared.harvest()
	if !q.ending.lastWQE {
		q.ending.lastWQE = true
		q.tell(rdma.EventQPLastWQEReached)
	}
}

func (r *receiveRing) takenNow() uint32 {
	q := r.q
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	return r.taken
}
