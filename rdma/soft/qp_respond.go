package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// The responder: what a request does at the queue pair that it reaches. It is one
// for both ways a request comes. The initiator executes it in the segment, with its own
// memory as the source (in is nil, and the responder is q's peer); and the owner does
// for a request that came over TCP, a piece at a time (in is not nil, the source is the
// piece, and the responder is q).
//
//	permits -> key, address -> receive request -> bytes -> completion
//
// The status is the requester's. The answer is accepted; or notReady, or unanswered,
// and then nothing has happened. It is called with the responder marked.

// An execution is a request at its responder. The request itself is not in it: it would
// escape, and take the array that was posted to the heap.
type execution struct {
	q  *queuePair // the initiator, or, of what came over TCP, the responder
	in *inbound   // what has come of that; nil in the segment
	s  *peer      // where it is executed
	c  *queueContext
	tk *ticket // the receive request that it takes

	o     *rdma.Operation
	segs  [][]byte // all of its bytes, or those of the piece that in is about
	total uint64   // bytes of the whole
	guard bool     // segs may not be mapped
	from  uint32   // number of the initiator's queue pair
}

// respond executes the request.
func (e *execution) respond(wr *rdma.SendWR) (rdma.WCStatus, answer) {
	rights := atomic.LoadUint32(&e.c.rights)
	if e.in == nil && rights>>24 != uint32(e.q.answerer) {
		return 0, unanswered
	}
	if !permits(rights, e.o) {
		return e.refuse(rdma.WCRemInvReqErr, faultRequest)
	}
	switch e.o.Moves {
	case rdma.MovesToMemory:
		var sp span
		if e.total > 0 && !e.opens(&sp, wr) {
			return e.refuse(rdma.WCRemAccessErr, faultAccess)
		}
		if e.o.Received != 0 {
			if ok, a := e.await(wr, 0); !ok {
				return e.unnamed(a)
			}
		}
		off := e.in.offset()
		for segs := e.segs; segs != nil && !e.in.there(); segs = e.q.scratch.mem.more() {
			for _, b := range segs {
				if st := sp.store(off, b, e.guard); st != rdma.WCSuccess {
					if e.o.Received != 0 && e.in == nil {
						e.tk.giveBack()
					}
					return e.blame(st)
				}
				off += len(b)
			}
		}
		if e.o.Received != 0 {
			e.arrived(e.message(wr))
		}
		return rdma.WCSuccess, accepted

	case rdma.MovesToReceive:
		return e.takeMessage(wr)

	case rdma.MovesFromMemory:
		if e.total == 0 {
			return rdma.WCSuccess, accepted
		}
		var sp span
		if !e.opens(&sp, wr) {
			return e.refuse(rdma.WCRemAccessErr, faultAccess)
		}
		if e.in != nil {
			return rdma.WCSuccess, accepted // link.startRead sends it
		}
		return e.bring(&sp)

	case rdma.MovesWord:
		return e.changeWord(wr)
	}
	return e.refuse(rdma.WCRemInvReqErr, faultRequest)
}

// opens resolves the memory that a request names. A layout that came to be after the
// request was marked is not there for it.
func (e *execution) opens(sp *span, wr *rdma.SendWR) bool {
	return e.s.open(sp, e.c, wr.RKey, wr.RemoteAddr, e.total, e.o.Access) && (e.in != nil || sp.key == 0 || e.q.own.mark&markWhat == markQueue)
}

// refuse ends a request that the responder does not take. One that would be answered
// moves it to ERR for the cause.
func (e *execution) refuse(st rdma.WCStatus, cause uint32) (rdma.WCStatus, answer) {
	if e.in != nil {
		e.in.cause = uint8(cause)
	} else if !e.q.unreliable {
		e.s.fault(e.c, cause)
	}
	return st, accepted
}

// blame ends a request that has failed, and refuses it where that is the responder's
// fault.
func (e *execution) blame(st rdma.WCStatus) (rdma.WCStatus, answer) {
	switch st {
	case rdma.WCRemAccessErr, rdma.WCRemOpErr, rdma.WCRemInvReqErr:
		return e.refuse(st, faultOf(st))
	}
	return st, accepted
}

// takeMessage is the responder's part of a send.
func (e *execution) takeMessage(wr *rdma.SendWR) (rdma.WCStatus, answer) {
	q, s, c, tk := e.q, e.s, e.c, e.tk
	skip, incomplete := uint64(0), false // bytes that are a header
	if h := s.tagged(c); h != nil {
		var m tagMessage
		if st, a := e.headed(h, &m); st != rdma.WCSuccess || a != accepted {
			return st, a
		}
		skip, incomplete = tk.headers(&m, e.total)
	} else {
		if ok, a := e.await(wr, e.total); !ok {
			return e.unnamed(a)
		}
	}
	if q.scratch.to == nil {
		q.scratch.to = new(scatter)
	}
	st, theirs := tk.receive(e.total-skip, q.scratch.to)
	if st == rdma.WCSuccess {
		if st = e.fill(e.in.offset() - int(skip)); st == rdma.WCRemAccessErr {
			st, theirs = rdma.WCRemOpErr, rdma.WCLocProtErr
		}
	}
	switch {
	case st == rdma.WCSuccess:
	case theirs == rdma.WCSuccess, q.unreliable && theirs == rdma.WCLocLenErr:
		if e.in == nil {
			tk.giveBack()
		}
		return st, accepted
	default:
		s.deliver(c, tk, delivery{status: theirs, op: wr.Opcode, srcQP: e.from})
		s.fault(c, faultTold)
		if e.in != nil {
			*tk = ticket{}
		}
		return e.refuse(st, faultTold)
	}
	if e.in != nil && !e.in.last {
		return rdma.WCSuccess, accepted
	}
	if e.o.Needs&rdma.NeedsKey != 0 && !s.invalidate(c, wr.InvalidateRKey) {
		if e.in == nil {
			tk.giveBack()
		}
		return e.refuse(rdma.WCRemAccessErr, faultAccess)
	}
	d := e.message(wr)
	d.n -= uint32(skip)
	if incomplete {
		d.status = rdma.WCTMRndvIncomplete
	}
	e.arrived(d)
	return rdma.WCSuccess, accepted
}

// changeWord is the responder's part of an atomic.
func (e *execution) changeWord(wr *rdma.SendWR) (rdma.WCStatus, answer) {
	if wr.RemoteAddr%8 != 0 || e.total != uint64(e.o.Bytes) {
		return e.refuse(rdma.WCRemInvReqErr, faultRequest)
	}
	var sp span
	if !e.opens(&sp, wr) {
		return e.refuse(rdma.WCRemAccessErr, faultAccess)
	}
	old, st := e.s.atomic(&sp, e.o.Word, wr.CompareAdd, wr.Swap, e.q.p.cfg.Rank)
	if st != rdma.WCSuccess {
		return e.blame(st)
	}
	if e.in == nil {
		*e.lastAtomic() = lastAtomic{e.q.psn, 1, old}
		return scatterWord(e.segs, old, e.guard), accepted
	}
	if len(e.in.results) >= maxRdAtom {
		e.in.results = e.in.results[:copy(e.in.results, e.in.results[1:])]
	}
	e.in.results = append(e.in.results, result{e.in.psn, old})
	return rdma.WCSuccess, accepted
}

// await gives the next receive request for n bytes, and asks to be woken when there is
// none. Without one the answer says why. All pieces of a message take the same.
func (e *execution) await(wr *rdma.SendWR, n uint64) (ok bool, a answer) {
	rank, target := e.q.p.cfg.Rank, e.q.answerer
	if e.in != nil {
		if e.tk.claim != nil {
			return true, accepted
		}
		target = e.q.init.Type
	}
	if target == rdma.XRCRecv {
		var right bool
		if *e.tk, ok, right = e.q.scratch.named.take(e.q.p, e.c, wr.SRQNum); !right {
			return false, accepted
		}
		return ok, notReady
	}
	ok = e.s.next(e.c, rank, n, e.tk)
	if !ok && (!e.q.unreliable || e.c.shared != 0) {
		// A full barrier: either the owner sees this or the next look sees
		// its receive, unless that is in the owner's store buffer still; the timer
		// covers that.
		e.s.starve(e.c)
		ok = e.s.next(e.c, rank, n, e.tk)
	}
	return ok, notReady
}

// unnamed answers a request that has got no receive: it waits, or it named a
// shared queue that is not for it.
func (e *execution) unnamed(a answer) (rdma.WCStatus, answer) {
	if a == notReady {
		return 0, notReady
	}
	return e.refuse(rdma.WCRemInvReqErr, faultRequest)
}

// message is what the receiver is told of a message that has arrived.
func (e *execution) message(wr *rdma.SendWR) delivery {
	return delivery{op: wr.Opcode, solicited: wr.Flags&rdma.SendSolicited != 0, n: uint32(e.total), imm: extra(wr), srcQP: e.from}
}

// arrived completes the receive request of a message, with its last piece.
func (e *execution) arrived(d delivery) {
	switch {
	case e.in == nil:
		e.q.deliver(e.tk, d)
	case e.in.last:
		e.s.deliver(e.c, e.tk, d)
		*e.tk = ticket{}
	}
}

// extra is what goes with a message beside its bytes: the immediate, or the key
// to invalidate.
func extra(wr *rdma.SendWR) uint32 {
	if wr.Opcode.Operation().Needs&rdma.NeedsKey != 0 {
		return wr.InvalidateRKey
	}
	return wr.ImmData
}

// repeat answers a read or an atomic that was executed before.
func (e *execution) repeat(wr *rdma.SendWR) rdma.WCStatus {
	if e.o.Moves == rdma.MovesWord {
		last := e.lastAtomic()
		if last.valid == 0 || last.psn != e.q.psn {
			return rdma.WCRetryExcErr
		}
		return scatterWord(e.segs, last.old, e.guard)
	}
	if e.total == 0 {
		return rdma.WCSuccess
	}
	var sp span
	if !e.opens(&sp, wr) {
		st, _ := e.refuse(rdma.WCRemAccessErr, faultAccess)
		return st
	}
	st, _ := e.bring(&sp)
	return st
}

// lastAtomic is where the responder's is noted.
func (e *execution) lastAtomic() *lastAtomic {
	if e.q.dc.held != nil {
		return &e.q.dc.held.last
	}
	return &e.q.remote.last
}

// bring does a read's copying.
func (e *execution) bring(sp *span) (rdma.WCStatus, answer) {
	off := 0
	for segs := e.segs; segs != nil; segs = e.q.scratch.mem.more() {
		for _, b := range segs {
			if st := sp.load(off, b, e.guard); st != rdma.WCSuccess {
				return e.blame(st)
			}
			off += len(b)
		}
	}
	return rdma.WCSuccess, accepted
}

// fill does a message's, from byte off of the receive's memory on; where off is
// negative, so many bytes of the message are left out.
func (e *execution) fill(off int) rdma.WCStatus {
	for segs := e.segs; segs != nil; segs = e.q.scratch.mem.more() {
		for _, b := range segs {
			if off < 0 {
				k := min(len(b), -off)
				b, off = b[k:], off+k
			}
			if st := e.q.scratch.to.store(off, b, e.guard); st != rdma.WCSuccess {
				return st
			}
			off += len(b)
		}
	}
	return rdma.WCSuccess
}
