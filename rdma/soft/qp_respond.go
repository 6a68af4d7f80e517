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

// respond executes a request of total bytes, of which segs are all, or those of the
// piece that in is about.
func (q *queuePair) respond(o *rdma.Operation, wr *rdma.SendWR, segs [][]byte, total uint64, guard bool, in *inbound) (rdma.WCStatus, answer) {
	_, c, _ := q.responder(in)
	rights := atomic.LoadUint32(&c.rights)
	if in == nil && rights>>24 != uint32(q.answerer) {
		return 0, unanswered
	}
	if !permits(rights, o) {
		return q.refuse(in, rdma.WCRemInvReqErr, faultRequest)
	}
	switch o.Moves {
	case rdma.MovesToMemory:
		var sp span
		if total > 0 && !q.opens(&sp, o, wr, total, in) {
			return q.refuse(in, rdma.WCRemAccessErr, faultAccess)
		}
		var tk *ticket
		if o.Received != 0 {
			var ok bool
			var a answer
			if tk, ok, a = q.await(wr, 0, in); !ok {
				return q.unnamed(in, a)
			}
		}
		off := in.offset()
		for ; segs != nil; segs = q.mem.more() {
			for _, b := range segs {
				if st := sp.store(off, b, guard); st != rdma.WCSuccess {
					if tk != nil && in == nil {
						tk.giveBack()
					}
					return q.blame(in, st)
				}
				off += len(b)
			}
		}
		if tk != nil {
			q.arrived(tk, q.message(wr, total, in), in)
		}
		return rdma.WCSuccess, accepted

	case rdma.MovesToReceive:
		return q.takeMessage(o, wr, segs, total, guard, in)

	case rdma.MovesFromMemory:
		if total == 0 {
			return rdma.WCSuccess, accepted
		}
		var sp span
		if !q.opens(&sp, o, wr, total, in) {
			return q.refuse(in, rdma.WCRemAccessErr, faultAccess)
		}
		if in != nil {
			return rdma.WCSuccess, accepted // link.startRead sends it
		}
		return q.bring(&sp, segs, guard)

	case rdma.MovesWord:
		return q.changeWord(o, wr, segs, total, guard, in)
	}
	return q.refuse(in, rdma.WCRemInvReqErr, faultRequest)
}

// responder is where a request is executed, and the receive request that it has.
func (q *queuePair) responder(in *inbound) (*peer, *queueContext, *ticket) {
	if in != nil {
		return q.p.self, q.own, &in.tk
	}
	return q.peer, q.remote, &q.tk
}

// opens resolves the memory that a request names. A layout that came to be after the
// request was marked is not there for it.
func (q *queuePair) opens(sp *span, o *rdma.Operation, wr *rdma.SendWR, n uint64, in *inbound) bool {
	s, c, _ := q.responder(in)
	return s.open(sp, c, wr.RKey, wr.RemoteAddr, n, o.Access) && (in != nil || sp.key == 0 || q.own.mark&markWhat == markQueue)
}

// refuse ends a request that the responder does not take. One that would be answered
// moves it to ERR for the cause.
func (q *queuePair) refuse(in *inbound, st rdma.WCStatus, cause uint32) (rdma.WCStatus, answer) {
	if in != nil {
		in.cause = uint8(cause)
	} else if !q.unreliable {
		q.peer.fault(q.remote, cause)
	}
	return st, accepted
}

// blame ends a request that has failed, and refuses it where that is the responder's
// fault.
func (q *queuePair) blame(in *inbound, st rdma.WCStatus) (rdma.WCStatus, answer) {
	switch st {
	case rdma.WCRemAccessErr, rdma.WCRemOpErr, rdma.WCRemInvReqErr:
		return q.refuse(in, st, faultOf(st))
	}
	return st, accepted
}

// takeMessage is the responder's part of a send.
func (q *queuePair) takeMessage(o *rdma.Operation, wr *rdma.SendWR, segs [][]byte, total uint64, guard bool, in *inbound) (rdma.WCStatus, answer) {
	s, c, tk := q.responder(in)
	skip, incomplete := uint64(0), false // bytes that are a header
	if h := s.tagged(c); h != nil {
		var m tagMessage
		if st, a := q.headed(h, &m, segs, total, guard, in); st != rdma.WCSuccess || a != accepted {
			return st, a
		}
		skip, incomplete = tk.headers(&m, total)
	} else {
		if _, ok, a := q.await(wr, total, in); !ok {
			return q.unnamed(in, a)
		}
	}
	if q.to == nil {
		q.to = new(scatter)
	}
	st, theirs := tk.receive(total-skip, q.to)
	if st == rdma.WCSuccess {
		if st = q.fill(segs, in.offset()-int(skip), guard); st == rdma.WCRemAccessErr {
			st, theirs = rdma.WCRemOpErr, rdma.WCLocProtErr
		}
	}
	switch {
	case st == rdma.WCSuccess:
	case theirs == rdma.WCSuccess, q.unreliable && theirs == rdma.WCLocLenErr:
		if in == nil {
			tk.giveBack()
		}
		return st, accepted
	default:
		s.deliver(c, tk, delivery{status: theirs, op: wr.Opcode, srcQP: q.source(in)})
		s.fault(c, faultTold)
		if in != nil {
			*tk = ticket{}
		}
		return q.refuse(in, st, faultTold)
	}
	if in != nil && !in.last {
		return rdma.WCSuccess, accepted
	}
	if o.Needs&rdma.NeedsKey != 0 && !s.invalidate(c, wr.InvalidateRKey) {
		if in == nil {
			tk.giveBack()
		}
		return q.refuse(in, rdma.WCRemAccessErr, faultAccess)
	}
	d := q.message(wr, total, in)
	d.n -= uint32(skip)
	if incomplete {
		d.status = rdma.WCTMRndvIncomplete
	}
	q.arrived(tk, d, in)
	return rdma.WCSuccess, accepted
}

// changeWord is the responder's part of an atomic.
func (q *queuePair) changeWord(o *rdma.Operation, wr *rdma.SendWR, segs [][]byte, total uint64, guard bool, in *inbound) (rdma.WCStatus, answer) {
	if wr.RemoteAddr%8 != 0 || total != uint64(o.Bytes) {
		return q.refuse(in, rdma.WCRemInvReqErr, faultRequest)
	}
	var sp span
	if !q.opens(&sp, o, wr, total, in) {
		return q.refuse(in, rdma.WCRemAccessErr, faultAccess)
	}
	s, _, _ := q.responder(in)
	old, st := s.atomic(&sp, o.Word, wr.CompareAdd, wr.Swap, q.p.cfg.Rank)
	if st != rdma.WCSuccess {
		return q.blame(in, st)
	}
	if in == nil {
		*q.lastAtomic() = lastAtomic{q.psn, 1, old}
		return scatterWord(segs, old, guard), accepted
	}
	if len(in.results) >= maxRdAtom {
		in.results = in.results[:copy(in.results, in.results[1:])]
	}
	in.results = append(in.results, result{in.psn, old})
	return rdma.WCSuccess, accepted
}

// await gives the next receive request for n bytes, and asks to be woken when there is
// none. Without one the answer says why. All pieces of a message take the same.
func (q *queuePair) await(wr *rdma.SendWR, n uint64, in *inbound) (tk *ticket, ok bool, a answer) {
	s, c, tk := q.responder(in)
	rank, target := q.p.cfg.Rank, q.answerer
	if in != nil {
		if tk.claim != nil {
			return tk, true, accepted
		}
		target = q.init.Type
	}
	if target == rdma.XRCRecv {
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
func (q *queuePair) unnamed(in *inbound, a answer) (rdma.WCStatus, answer) {
	if a == notReady {
		return 0, notReady
	}
	return q.refuse(in, rdma.WCRemInvReqErr, faultRequest)
}

// message is what the receiver is told of a message that has arrived.
func (q *queuePair) message(wr *rdma.SendWR, total uint64, in *inbound) delivery {
	return delivery{op: wr.Opcode, solicited: wr.Flags&rdma.SendSolicited != 0, n: uint32(total), imm: extra(wr), srcQP: q.source(in)}
}

// source is the number of the queue pair that a request comes from.
func (q *queuePair) source(in *inbound) uint32 {
	if in != nil {
		return in.from
	}
	return q.num
}

// arrived completes the receive request of a message, with its last piece.
func (q *queuePair) arrived(tk *ticket, d delivery, in *inbound) {
	s, c, _ := q.responder(in)
	switch {
	case in == nil:
		q.deliver(tk, d)
	case in.last:
		s.deliver(c, tk, d)
		*tk = ticket{}
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
func (q *queuePair) repeat(wr *rdma.SendWR, segs [][]byte, total uint64, guard bool) rdma.WCStatus {
	o := wr.Opcode.Operation()
	if o.Moves == rdma.MovesWord {
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
	if !q.opens(&sp, o, wr, total, nil) {
		st, _ := q.refuse(nil, rdma.WCRemAccessErr, faultAccess)
		return st
	}
	st, _ := q.bring(&sp, segs, guard)
	return st
}

// lastAtomic is where the responder's is noted.
func (q *queuePair) lastAtomic() *lastAtomic {
	if q.dc.held != nil {
		return &q.dc.held.last
	}
	return &q.remote.last
}

// bring does a read's copying.
func (q *queuePair) bring(sp *span, segs [][]byte, guard bool) (rdma.WCStatus, answer) {
	off := 0
	for ; segs != nil; segs = q.mem.more() {
		for _, b := range segs {
			if st := sp.load(off, b, guard); st != rdma.WCSuccess {
				return q.blame(nil, st)
			}
			off += len(b)
		}
	}
	return rdma.WCSuccess, accepted
}

// fill does a message's, from byte off of the receive's memory on; where off is
// negative, so many bytes of the message are left out.
func (q *queuePair) fill(segs [][]byte, off int, guard bool) rdma.WCStatus {
	for ; segs != nil; segs = q.mem.more() {
		for _, b := range segs {
			if off < 0 {
				k := min(len(b), -off)
				b, off = b[k:], off+k
			}
			if st := q.to.store(off, b, guard); st != rdma.WCSuccess {
				return st
			}
			off += len(b)
		}
	}
	return rdma.WCSuccess
}
