package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

var _ rdma.Mover = (*queuePair)(nil)

// Move executes a read or a write on a peer in the segment at once. It saves what a
// request costs beside the copy: its place in the queue, the sequence number and
// the completion, which together take as long as a copy of 8 KiB.
func (q *queuePair) Move(op rdma.WROpcode, mem []byte, addr uint64, rkey uint32) bool {
	q.mu.Lock()
	ok := q.move(op, mem, addr, rkey)
	q.mu.Unlock()
	return ok
}

func (q *queuePair) move(op rdma.WROpcode, mem []byte, addr uint64, rkey uint32) bool {
	// What was posted before comes first, and an adversary delays everything.
	if q.remote == nil || q.sq.pending.n > 0 || q.p.cfg.Adversary != nil || q.ending.closed || q.state() != rdma.StateRTS {
		return false
	}
	if q.posts++; q.posts%checkEvery == 0 {
		q.p.checkQuiet()
		q.peer.checkDead()
	}
	if q.peer.dead() {
		return false
	}
	o := op.Operation()
	if o.Moves != rdma.MovesToMemory && o.Moves != rdma.MovesFromMemory || o.Received != 0 || o.Fetches() && q.attr.MaxRdAtomic == 0 {
		return false
	}
	if len(mem) == 0 {
		return true
	}
	q.mark(q.peer.markOf(rkey))
	ok := q.moveMarked(o, mem, addr, rkey)
	q.own.unmark(q.turn)
	if !ok {
		return false
	}
	q.sq.counters.Count(o, 1, uint64(len(mem)))
	return true
}

// moveMarked does the responder's part, as respond does. Nothing that it finds
// wrong is a fault here: the request that is posted instead finds it again.
func (q *queuePair) moveMarked(o *rdma.Operation, mem []byte, addr uint64, rkey uint32) bool {
	c := q.remote
	if admit(c, q.attr.DestQPNum, q.dest, q.psn) != accepted || !permits(atomic.LoadUint32(&c.rights), o) {
		return false
	}
	var sp span
	if !q.open(&sp, rkey, addr, uint64(len(mem)), o.Access) {
		return false
	}
	if o.Fetches() {
		return sp.load(0, mem, false) == rdma.WCSuccess
	}
	return sp.store(0, mem, false) == rdma.WCSuccess
}
