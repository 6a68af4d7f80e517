package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// checkEvery is after how many executions an initiator looks whether the
// process whose memory it writes to is alive: one that is not there cannot fail a
// store, and asking costs a system call.
const checkEvery = 64

// run executes a request on a peer in the segment. When the answer is accepted
// or duplicate the request is over, with status; else nothing was done. Called
// with mu held.
func (q *queuePair) run(wr *rdma.SendWR) (status rdma.WCStatus, moved uint32, a answer) {
	o := wr.Opcode.Operation()
	if !o.GoesOut() {
		if q.owed.n > 0 {
			q.announce() // it may have to wait for this very mark
		}
		status, a = q.change.run(q, wr)
		return status, 0, a
	}
	if q.init.Type == rdma.UD {
		return q.fly(wr)
	}
	segs, total, guard, ok := q.scratch.mem.gather(q.pd, wr)
	if !ok {
		return rdma.WCLocProtErr, 0, accepted
	}
	if st := q.able(o, total); st != rdma.WCSuccess {
		return st, 0, accepted
	}
	if q.init.Type == rdma.DCI {
		if a := q.dc.dial(wr); a != accepted {
			return 0, 0, a
		}
	}
	s, c := q.peer, q.remote
	if q.posts++; q.posts%checkEvery == 0 {
		q.p.checkQuiet()
		s.checkDead()
	}
	if s.dead() || q.p.cfg.Adversary != nil && q.p.work.chaos.lost(q) {
		return q.unheard(rdma.WCRetryExcErr), uint32(total), accepted
	}
	if q.unreliable && q.p.cfg.Adversary != nil && q.p.work.chaos.below(lossOneIn) == 0 {
		return rdma.WCSuccess, uint32(total), accepted
	}
	what := markQueue
	if o.Access != 0 && o.Received == 0 { // it touches the key's region, and no receive queue
		what = s.markOf(wr.RKey)
	}
	if q.owed.n > 0 && (what != markQueue || uint64(q.owed.bytes)+total > owedBytes) {
		q.announce()
	}
	if q.owed.n == 0 {
		q.mark(what)
	}
	e := execution{q: q, s: s, c: c, tk: &q.scratch.tk, o: o, segs: segs, total: total, guard: guard, from: q.num}
	if q.init.Type == rdma.DCI {
		status, a = q.dc.ask(&e, wr)
		q.own.unmark(q.turn)
		if a <= duplicate {
			q.psn = (q.psn + 1) & psnMask
		}
		return status, uint32(total), a
	}
	if !q.unreliable {
		a = admit(c, q.attr.DestQPNum, q.dest, q.psn)
	} else if a = unanswered; answersTo(c, q.attr.DestQPNum, q.dest) {
		a = accepted // whatever was lost before
	}
	if a == accepted {
		if atomic.LoadUint32(&c.word) == uint32(rdma.StateRTR) {
			s.begin(c)
		}
		status, a = e.respond(wr)
		if a == accepted && !q.unreliable {
			c.expect = (q.psn + 1) & psnMask
		}
	} else if a == duplicate && o.Fetches() {
		status = e.repeat(wr)
	}
	if q.owed.n == 0 {
		q.own.unmark(q.turn)
	}
	if q.unreliable && (a != accepted || status != rdma.WCLocProtErr) {
		status, a = rdma.WCSuccess, accepted
	}
	if a <= duplicate {
		q.psn = (q.psn + 1) & psnMask
	}
	return status, uint32(total), a
}

// unheard is the status of a request whose failure its responder would have to
// tell: one that expects no answer hears nothing.
func (q *queuePair) unheard(st rdma.WCStatus) rdma.WCStatus {
	if q.unreliable {
		return rdma.WCSuccess
	}
	return st
}

// able judges what the requester itself has to refuse, after its memory.
func (q *queuePair) able(o *rdma.Operation, total uint64) rdma.WCStatus {
	switch {
	case !o.Fetches():
	case q.attr.MaxRdAtomic == 0:
		return rdma.WCLocQPOpErr
	case o.Bytes != 0 && total != uint64(o.Bytes):
		return rdma.WCLocLenErr
	}
	return rdma.WCSuccess
}

// scatterWord gives the requester the result of an atomic.
func scatterWord(segs [][]byte, v uint64, guard bool) rdma.WCStatus {
	word := wordBytes(v)
	off := 0
	for _, b := range segs {
		if guard {
			if !guarded(b, word[off:off+len(b)]) {
				return rdma.WCLocProtErr
			}
		} else {
			copyRelease(b, word[off:off+len(b)])
		}
		off += len(b)
	}
	return rdma.WCSuccess
}
