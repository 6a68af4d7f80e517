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
	if q.remote == nil || q.pending.n > 0 || q.p.cfg.Adversary != nil || q.closed || q.state() != rdma.StateRTS {
		return false
	}
	if q.posts++; q.posts%checkEvery == 0 {
		q.p.checkQuiet()
		q.peer.checkDead()
	}
	if q.peer.dead() {
		return false
	}
	need := rdma.AccessRemoteWrite
	switch op {
	case rdma.WRRDMARead:
		need = rdma.AccessRemoteRead
		if q.attr.MaxRdAtomic == 0 {
			return false
		}
	case rdma.WRRDMAWrite:
	default:
		return false
	}
	if len(mem) == 0 {
		return true
	}
	q.mark(q.peer.markOf(rkey))
	ok := q.moveMarked(op, mem, addr, rkey, need)
	q.unmark()
	if !ok {
		return false
	}
	if op == rdma.WRRDMARead {
		q.counters.Reads++
		q.counters.ReadBytes += uint64(len(mem))
	} else {
		q.counters.Writes++
		q.counters.WriteBytes += uint64(len(mem))
	}
	return true
}

// moveMarked does the responder's part, as respond does. Nothing that it finds
// wrong is a fault here: the request that is posted instead finds it again.
func (q *queuePair) moveMarked(op rdma.WROpcode, mem []byte, addr uint64, rkey uint32, need rdma.Access) bool {
	c := q.remote
	if admit(c, q.attr.DestQPNum, q.dest, q.psn) != accepted || !permits(atomic.LoadUint32(&c.rights), op) {
		return false
	}
	var sp span
	if !q.open(&sp, rkey, addr, uint64(len(mem)), need) {
		return false
	}
	if op == rdma.WRRDMARead {
		return sp.load(0, mem, false) == rdma.WCSuccess
	}
	return sp.store(0, mem, false) == rdma.WCSuccess
}
