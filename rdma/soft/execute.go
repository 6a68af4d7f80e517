package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// checkEvery is after how many executions an initiator looks whether the
// process whose memory it writes to is alive: who is not there cannot fail a
// store, and asking costs a system call.
const checkEvery = 64

// run executes a request on a peer in the segment. When the answer is accepted
// or duplicate the request is over, with status; else nothing was done. Called
// with mu held.
func (q *queuePair) run(wr *rdma.SendWR) (status rdma.WCStatus, moved uint32, a answer) {
	if isOwn(wr.Opcode) {
		if q.owed.n > 0 {
			q.announce() // it may have to wait for this very mark
		}
		status, a = q.runOwn(wr)
		return status, 0, a
	}
	if q.init.Type == rdma.UD {
		return q.fly(wr)
	}
	segs, total, guard, ok := q.gather(wr)
	if !ok {
		return rdma.WCLocProtErr, 0, accepted
	}
	if st := q.able(wr, total); st != rdma.WCSuccess {
		return st, 0, accepted
	}
	if q.init.Type == rdma.DCI {
		if a := q.dial(wr); a != accepted {
			return 0, 0, a
		}
	}
	s, c := q.peer, q.remote
	if q.posts++; q.posts%checkEvery == 0 {
		q.p.checkQuiet()
		s.checkDead()
	}
	if s.dead() {
		return q.unheard(rdma.WCRetryExcErr), uint32(total), accepted
	}
	if q.unreliable && q.p.cfg.Adversary != nil && q.p.work.chaos.below(lossOneIn) == 0 {
		return rdma.WCSuccess, uint32(total), accepted
	}
	what := markQueue
	switch wr.Opcode {
	case rdma.WRRDMAWrite, rdma.WRRDMARead, rdma.WRAtomicCmpAndSwp, rdma.WRAtomicFetchAndAdd:
		what = s.markOf(wr.RKey)
	}
	if q.owed.n > 0 && (what != markQueue || uint64(q.owed.bytes)+total > owedBytes) {
		q.announce()
	}
	if q.owed.n == 0 {
		q.mark(what)
	}
	if q.init.Type == rdma.DCI {
		status, a = q.ask(wr, segs, total, guard)
		q.unmark()
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
		status, a = q.respond(wr, segs, total, guard)
		if a == accepted && !q.unreliable {
			c.expect = (q.psn + 1) & psnMask
		}
	} else if a == duplicate && fetches(wr.Opcode) {
		status = q.repeat(wr, segs, total, guard)
	}
	if q.owed.n == 0 {
		q.unmark()
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

// refuse moves the responder to ERR for a request that it does not take, which
// only one that would be answered does.
func (q *queuePair) refuse(cause uint32) {
	if !q.unreliable {
		q.peer.fault(q.remote, cause)
	}
}

// able judges what the requester itself has to refuse, after its memory.
func (q *queuePair) able(wr *rdma.SendWR, total uint64) rdma.WCStatus {
	if !fetches(wr.Opcode) {
		return rdma.WCSuccess
	}
	if q.attr.MaxRdAtomic == 0 {
		return rdma.WCLocQPOpErr
	}
	if wr.Opcode != rdma.WRRDMARead && total != 8 {
		return rdma.WCLocLenErr
	}
	return rdma.WCSuccess
}

// respond does the responder's part. Called with the responder marked.
func (q *queuePair) respond(wr *rdma.SendWR, segs [][]byte, total uint64, guard bool) (rdma.WCStatus, answer) {
	s, c := q.peer, q.remote
	rights := atomic.LoadUint32(&c.rights)
	if rights>>24 != uint32(q.answerer) {
		return 0, unanswered
	}
	if !permits(rights, wr.Opcode) {
		q.refuse(faultRequest)
		return rdma.WCRemInvReqErr, accepted
	}
	var sp span
	switch wr.Opcode {
	case rdma.WRRDMAWrite, rdma.WRRDMAWriteWithImm:
		if total > 0 {
			if !q.open(&sp, wr.RKey, wr.RemoteAddr, total, rdma.AccessRemoteWrite) {
				q.refuse(faultAccess)
				return rdma.WCRemAccessErr, accepted
			}
		}
		var tk *ticket
		imm := wr.Opcode == rdma.WRRDMAWriteWithImm
		if imm {
			var ok bool
			var a answer
			if tk, ok, a = q.await(wr, 0); !ok {
				return q.unnamed(a)
			}
		}
		off := 0
		for ; segs != nil; segs = q.more() {
			for _, b := range segs {
				if st := sp.store(off, b, guard); st != rdma.WCSuccess {
					if imm {
						tk.giveBack()
					}
					q.blame(st)
					return st, accepted
				}
				off += len(b)
			}
		}
		if imm {
			q.deliver(tk, q.message(wr, total))
		}
		return rdma.WCSuccess, accepted

	case rdma.WRSend, rdma.WRSendWithImm, rdma.WRSendWithInv:
		if h := s.tagged(c); h != nil {
			return q.sendTagged(h, wr, segs, total, guard)
		}
		tk, ok, a := q.await(wr, total)
		if !ok {
			return q.unnamed(a)
		}
		if q.to == nil {
			q.to = new(scatter)
		}
		st, theirs := tk.receive(total, q.to)
		if st == rdma.WCSuccess {
			if st = q.fill(segs, guard); st == rdma.WCRemAccessErr {
				st, theirs = rdma.WCRemOpErr, rdma.WCLocProtErr
			}
			if st == rdma.WCSuccess {
				if wr.Opcode == rdma.WRSendWithInv && !s.invalidate(c, wr.InvalidateRKey) {
					tk.giveBack()
					s.fault(c, faultAccess)
					return rdma.WCRemAccessErr, accepted
				}
				q.deliver(tk, q.message(wr, total))
				return rdma.WCSuccess, accepted
			}
		}
		if theirs != rdma.WCSuccess && !(q.unreliable && theirs == rdma.WCLocLenErr) {
			s.deliver(c, tk, delivery{status: theirs, op: wr.Opcode, srcQP: q.num})
			s.fault(c, faultTold)
		} else {
			tk.giveBack()
		}
		return st, accepted

	case rdma.WRRDMARead:
		if total == 0 {
			return rdma.WCSuccess, accepted
		}
		if !q.open(&sp, wr.RKey, wr.RemoteAddr, total, rdma.AccessRemoteRead) {
			q.refuse(faultAccess)
			return rdma.WCRemAccessErr, accepted
		}
		return q.bring(&sp, segs, guard), accepted
	}

	// The atomics.
	if wr.RemoteAddr%8 != 0 {
		q.refuse(faultRequest)
		return rdma.WCRemInvReqErr, accepted
	}
	if !q.open(&sp, wr.RKey, wr.RemoteAddr, 8, rdma.AccessRemoteAtomic) {
		q.refuse(faultAccess)
		return rdma.WCRemAccessErr, accepted
	}
	old, st := s.atomic(&sp, wr.Opcode, wr.CompareAdd, wr.Swap, q.p.cfg.Rank)
	if st != rdma.WCSuccess {
		q.blame(st)
		return st, accepted
	}
	*q.lastAtomic() = lastAtomic{q.psn, 1, old}
	return scatterWord(segs, old, guard), accepted
}

// await gives the next receive request, and asks to be woken when there is none.
// Without one the answer says why.
func (q *queuePair) await(wr *rdma.SendWR, n uint64) (tk *ticket, ok bool, a answer) {
	s, c, rank := q.peer, q.remote, q.p.cfg.Rank
	tk = &q.tk
	if q.answerer == rdma.XRCRecv {
		var right bool
		if *tk, ok, right = q.nextNamed(c, wr.SRQNum); !right {
			return tk, false, accepted
		}
		return tk, ok, notReady
	}
	ok = s.next(c, rank, n, tk)
	if !ok && (!q.unreliable || c.shared != 0) {
		// A full barrier: either the owner sees this or the next look sees
		// its receive, unless that is in the owner's store buffer still; the timer
		// covers that.
		s.starve(c)
		ok = s.next(c, rank, n, tk)
	}
	return tk, ok, notReady
}

// unnamed answers a request that has got no receive: it waits, or it named a
// shared queue that is not for it.
func (q *queuePair) unnamed(a answer) (rdma.WCStatus, answer) {
	if a == notReady {
		return 0, notReady
	}
	q.refuse(faultRequest)
	return rdma.WCRemInvReqErr, accepted
}

// message is what the receiver is told of a message that has arrived.
func (q *queuePair) message(wr *rdma.SendWR, total uint64) delivery {
	return delivery{op: wr.Opcode, solicited: wr.Flags&rdma.SendSolicited != 0, n: uint32(total), imm: extra(wr), srcQP: q.num}
}

// blame puts the responder into ERR when it was its fault.
func (q *queuePair) blame(st rdma.WCStatus) {
	if st == rdma.WCRemAccessErr || st == rdma.WCRemOpErr {
		q.refuse(faultOf(st))
	}
}

// repeat answers a read or an atomic that was executed before.
func (q *queuePair) repeat(wr *rdma.SendWR, segs [][]byte, total uint64, guard bool) rdma.WCStatus {
	if wr.Opcode != rdma.WRRDMARead {
		last := q.lastAtomic()
		if last.valid == 0 || last.psn != q.psn {
			return rdma.WCRetryExcErr
		}
		return scatterWord(segs, last.old, guard)
	}
	if total == 0 {
		return rdma.WCSuccess
	}
	var sp span
	if !q.open(&sp, wr.RKey, wr.RemoteAddr, total, rdma.AccessRemoteRead) {
		q.refuse(faultAccess)
		return rdma.WCRemAccessErr
	}
	return q.bring(&sp, segs, guard)
}

// lastAtomic is where the responder's is noted.
func (q *queuePair) lastAtomic() *lastAtomic {
	if q.dc.held != nil {
		return &q.dc.held.last
	}
	return &q.remote.last
}

// bring does a read's copying.
func (q *queuePair) bring(sp *span, segs [][]byte, guard bool) rdma.WCStatus {
	off := 0
	for ; segs != nil; segs = q.more() {
		for _, b := range segs {
			if st := sp.load(off, b, guard); st != rdma.WCSuccess {
				q.blame(st)
				return st
			}
			off += len(b)
		}
	}
	return rdma.WCSuccess
}

// fill does a message's.
func (q *queuePair) fill(segs [][]byte, guard bool) rdma.WCStatus {
	off := 0
	for ; segs != nil; segs = q.more() {
		for _, b := range segs {
			if st := q.to.store(off, b, guard); st != rdma.WCSuccess {
				return st
			}
			off += len(b)
		}
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
			place(b, word[off:off+len(b)])
		}
		off += len(b)
	}
	return rdma.WCSuccess
}

// gather finds the local memory of a request. guard says that a part of it may
// not be mapped. The result is valid until the next gather.
func (q *queuePair) gather(wr *rdma.SendWR) (segs [][]byte, total uint64, guard, ok bool) {
	segs = q.segs[:0]
	q.woven = false
	if wr.Flags&rdma.SendInline != 0 {
		if wr.Inline != nil {
			if len(wr.Inline) > 0 {
				segs = append(segs, wr.Inline)
			}
			q.segs = segs
			return segs, uint64(len(wr.Inline)), false, true
		}
		for i := range wr.SGL {
			g := &wr.SGL[i]
			if g.Length == 0 {
				continue
			}
			// Inline data has no key check. When there is a region after
			// all its memory is known to be mapped.
			mem, whole, found := q.local(g, 0)
			if !found {
				if g.Addr < lowestAddress || g.Addr > highestAddress {
					return nil, 0, false, false
				}
				mem, whole = memoryAt(g.Addr, int(g.Length)), true
			}
			segs = append(segs, mem)
			guard = guard || whole
			total += uint64(g.Length)
		}
		q.segs = segs
		return segs, total, guard, true
	}
	need := rdma.Access(0)
	if fetches(wr.Opcode) {
		need = rdma.AccessLocalWrite
	}
	pd := q.gatherFrom(wr)
	for i := range wr.SGL {
		g := &wr.SGL[i]
		if g.Length == 0 {
			continue
		}
		mem, whole, found := pd.local(g, need)
		if !found {
			return q.gatherWoven(wr, need, 0)
		}
		segs = append(segs, mem)
		guard = guard || whole
		total += uint64(g.Length)
	}
	q.segs = segs
	return segs, total, guard, true
}

// gatherFrom is the domain of a request's memory.
func (q *queuePair) gatherFrom(wr *rdma.SendWR) *domain {
	if wr.AH != nil {
		if r := ofDevice(wr); r != nil {
			return r.t.h.pd
		}
	}
	return q.pd
}

// local checks and translates a local memory name. guard says that the memory
// may not be mapped.
func (q *queuePair) local(g *rdma.SGE, need rdma.Access) (mem []byte, guard, ok bool) {
	return q.pd.local(g, need)
}

// local is that of the domain.
func (d *domain) local(g *rdma.SGE, need rdma.Access) (mem []byte, guard, ok bool) {
	r := d.p.byKey.get(g.LKey >> 8)
	if r == nil || r.key != g.LKey || r.pd != d || need&^r.access != 0 || r.window {
		return nil, false, false
	}
	off, n := g.Addr-r.addr, uint64(g.Length)
	if r.kind >= kindImplicit {
		if r.kind == kindMkey || !r.holds(g.Addr, n) || r.kind == kindShared && !grants(*r.grants.Load(), g.Addr, n, need) {
			return nil, false, false
		}
		return memoryAt(g.Addr, int(n)), true, true
	}
	if g.Addr < r.addr || off > r.length || n > r.length-off {
		return nil, false, false
	}
	return r.mem[off : off+n : off+n], r.guard, true
}
