package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// serve executes a request, or a piece of one, that came over TCP. Called with
// network.mu held.
func (l *link) serve(f *frame, payload []byte) {
	p := l.n.p
	answer := frame{to: f.from, from: f.to, psn: f.psn, life: f.life}
	q, in, expect, a := l.addressed(f)
	if q == nil {
		answer.kind = frameNobody
		l.queue(&answer, 0, nil)
		return
	}
	defer q.mu.Unlock()
	c := q.own
	switch a {
	case unanswered:
		// Also to a request from beyond one that was refused, which comes
		// again: no request is dropped without an answer, so silence is the
		// process's and the requester can time it.
		answer.kind = frameNobody
		l.queue(&answer, 0, nil)
		return
	case duplicate:
		if !fetches(f.op) {
			if f.last() {
				answer.kind = frameAck
				l.queue(&answer, 0, nil)
			}
			return
		}
		if f.op != rdma.WRRDMARead {
			l.repeatAtomic(in, f, answer)
			return
		}
		l.startRead(q, f)
		return
	}
	if f.offset == 0 {
		in.inside = 0
	}
	if !fetches(f.op) && f.offset != in.inside {
		return // behind a piece that was refused
	}
	if atomic.LoadUint32(&c.word) == uint32(rdma.StateRTR) && q.init.Type != rdma.DCT {
		p.self.begin(c)
	}
	requester, cause, retry := q.perform(l, in, f, payload)
	switch {
	case retry:
		in.inside = 0
		answer.kind, answer.code = frameNotReady, uint8(atomic.LoadUint32(&c.rights)>>16)
		l.queue(&answer, 0, nil)
	case requester != rdma.WCSuccess:
		in.drop()
		p.self.fault(c, cause)
		answer.kind, answer.code = frameNak, uint8(requester)
		l.queue(&answer, 0, nil)
	case f.op == rdma.WRRDMARead:
		*expect = (f.psn + 1) & psnMask
		l.startRead(q, f)
	case fetches(f.op):
		*expect = (f.psn + 1) & psnMask
		l.repeatAtomic(in, f, answer)
	case f.last():
		in.inside = 0
		*expect = (f.psn + 1) & psnMask
		answer.kind = frameAck
		l.queue(&answer, 0, nil)
	default:
		in.inside += f.length
	}
}

// addressed finds the queue pair that a request is for, which is then locked, nil for
// none; what it has done of what comes in, the number that is due, and how the
// request stands to that.
func (l *link) addressed(f *frame) (q *queuePair, in *inbound, expect *uint32, a answer) {
	if f.flags&frameDC != 0 {
		c := l.calls[f.from]
		if c == nil || c.life != f.life {
			return nil, nil, nil, 0
		}
		c.q.mu.Lock()
		if c.held == nil || !c.q.takesCalls(f.to) {
			c.q.mu.Unlock()
			return nil, nil, nil, 0
		}
		return c.q, &c.inbound, &c.expect, numbered(f.psn, c.expect)
	}
	if q = l.n.p.byQPN.get(f.to & (maxQueues - 1)); q == nil {
		return nil, nil, nil, 0
	}
	q.mu.Lock()
	peer, c := q.peer, q.own
	if q.closed || q.unreliable || q.init.Type == rdma.DCI || (q.init.Type == rdma.XRCRecv) != (f.flags&frameXRC != 0) ||
		peer == nil || peer.gids[0] != l.from && peer.gids[1] != l.from || q.attr.DestQPNum != f.from {
		q.mu.Unlock()
		return nil, nil, nil, 0
	}
	q.wire.comesBy(l)
	return q, &q.wire.inbound, &c.expect, admit(c, f.to, c.dest, f.psn)
}

// message executes a message of UC, or a piece of one. What cannot be executed
// is lost. Called with network.mu held.
func (l *link) message(f *frame, payload []byte) {
	p := l.n.p
	q := p.byQPN.get(f.to & (maxQueues - 1))
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	peer, c, w := q.peer, q.own, &q.wire
	if q.closed || q.init.Type != rdma.UC || peer == nil || peer.gids[0] != l.from && peer.gids[1] != l.from || q.attr.DestQPNum != f.from ||
		q.num != f.to || !live(q.state()) {
		return
	}
	if f.offset == 0 {
		w.inside = 0
	} else if f.offset != w.inside {
		return // behind a piece that was lost
	}
	if q.state() == rdma.StateRTR {
		p.self.begin(c)
	}
	w.comesBy(l)
	if requester, cause, retry := q.perform(l, &w.inbound, f, payload); retry || requester != rdma.WCSuccess {
		w.drop()
		w.inside = ^uint32(0)
		if cause == faultTold {
			p.self.fault(c, cause)
		}
		return
	}
	w.inside += f.length
}

// ticket gives the receive request that the message which is coming in takes,
// all its pieces the same.
// Without one it may come later, or never for a target of XRC that must not
// take from the queue named.
func (q *queuePair) ticket(in *inbound, f *frame) (tk *ticket, ok, retry bool) {
	s, rank := q.p.self, q.p.cfg.Rank
	if in.tk.claim != nil {
		return &in.tk, true, false
	}
	n := uint64(f.total)
	if !isSend(f.op) {
		n = 0 // of a write, whose bytes go elsewhere
	}
	if q.init.Type == rdma.XRCRecv {
		var right bool
		in.tk, ok, right = q.nextNamed(q.own, uint32(f.swap))
		return &in.tk, ok, right
	}
	if ok = s.next(q.own, rank, n, &in.tk); !ok && !q.unreliable {
		s.starve(q.own)
		ok = s.next(q.own, rank, n, &in.tk)
	}
	return &in.tk, ok, true
}

// perform does what a request asks, by the rules of queuePair.respond. cause
// goes with a status for the requester other than success. Called with mu held.
func (q *queuePair) perform(l *link, in *inbound, f *frame, payload []byte) (requester rdma.WCStatus, cause uint32, retry bool) {
	refuse := func(st rdma.WCStatus) (rdma.WCStatus, uint32, bool) { return st, faultOf(st), false }
	s, c := q.p.self, q.own
	if !permits(atomic.LoadUint32(&c.rights), f.op) {
		return refuse(rdma.WCRemInvReqErr)
	}
	switch f.op {
	case rdma.WRRDMAWrite, rdma.WRRDMAWriteWithImm:
		var sp span
		if f.total > 0 {
			if !s.open(&sp, c, f.key, f.addr, uint64(f.total), rdma.AccessRemoteWrite) {
				return refuse(rdma.WCRemAccessErr)
			}
		}
		var tk *ticket
		if f.op == rdma.WRRDMAWriteWithImm {
			var ok bool
			if tk, ok, retry = q.ticket(in, f); !ok {
				return rdma.WCRemInvReqErr, faultRequest, retry
			}
		}
		if len(payload) > 0 {
			if st := sp.store(int(f.offset), payload, false); st != rdma.WCSuccess {
				return refuse(st)
			}
		}
		if tk != nil && f.last() {
			s.deliver(c, tk, f.message())
			*tk = ticket{}
		}
		return rdma.WCSuccess, 0, false

	case rdma.WRSend, rdma.WRSendWithImm, rdma.WRSendWithInv:
		if h := s.tagged(c); h != nil {
			return q.performTagged(h, in, f, payload)
		}
		tk, ok, retry := q.ticket(in, f)
		if !ok {
			return rdma.WCRemInvReqErr, faultRequest, retry
		}
		if q.to == nil {
			q.to = new(scatter)
		}
		st, theirs := tk.receive(uint64(f.total), q.to)
		if st == rdma.WCSuccess && q.to.store(int(f.offset), payload, false) != rdma.WCSuccess {
			st, theirs = rdma.WCRemOpErr, rdma.WCLocProtErr
		}
		if st != rdma.WCSuccess && q.unreliable && theirs == rdma.WCLocLenErr {
			return st, 0, false
		}
		if st != rdma.WCSuccess {
			s.deliver(c, tk, delivery{status: theirs, op: f.op, srcQP: f.from})
			*tk = ticket{}
			return st, faultTold, false
		}
		if f.last() {
			if f.op == rdma.WRSendWithInv && !s.invalidate(c, f.imm) {
				return refuse(rdma.WCRemAccessErr)
			}
			s.deliver(c, tk, f.message())
			*tk = ticket{}
		}
		return rdma.WCSuccess, 0, false

	case rdma.WRRDMARead:
		if f.total > 0 {
			if !s.open(new(span), c, f.key, f.addr, uint64(f.total), rdma.AccessRemoteRead) {
				return refuse(rdma.WCRemAccessErr)
			}
		}
		return rdma.WCSuccess, 0, false
	}

	if f.addr%8 != 0 || f.total != 8 {
		return refuse(rdma.WCRemInvReqErr)
	}
	var sp span
	if !s.open(&sp, c, f.key, f.addr, 8, rdma.AccessRemoteAtomic) {
		return refuse(rdma.WCRemAccessErr)
	}
	old, st := s.atomic(&sp, f.op, f.compareAdd, f.swap, q.p.cfg.Rank)
	if st != rdma.WCSuccess {
		return refuse(st)
	}
	if len(in.results) >= maxRdAtom {
		in.results = in.results[:copy(in.results, in.results[1:])]
	}
	in.results = append(in.results, result{f.psn, old})
	return rdma.WCSuccess, 0, false
}

// word answers an atomic.
func (l *link) word(f *frame, old uint64) {
	answer := frame{kind: frameData, op: f.op, to: f.from, from: f.to, psn: f.psn, life: f.life, total: 8, length: 8}
	l.queue(&answer, 8, func(to []byte) bool {
		b := wordBytes(old)
		copy(to, b[:])
		return true
	})
}

// repeatAtomic answers an atomic that was executed, now or before.
func (l *link) repeatAtomic(in *inbound, f *frame, answer frame) {
	for i := len(in.results) - 1; i >= 0; i-- {
		if r := in.results[i]; r.psn == f.psn {
			l.word(f, r.old)
			return
		}
	}
	answer.kind, answer.code = frameNak, uint8(rdma.WCRetryExcErr)
	l.queue(&answer, 0, nil)
}

// startRead begins to answer a read. Called with the queue pair's mu held.
func (l *link) startRead(q *queuePair, f *frame) {
	l.reading = readout{active: true, f: *f}
	for l.reading.active && l.piece(q) {
	}
}

// readOn goes on with it. It is false when the socket takes no more.
func (l *link) readOn() bool {
	q := l.n.p.byQPN.get(l.reading.f.to & (maxQueues - 1))
	if q == nil || q.num != l.reading.f.to {
		l.reading.active = false // it was closed, and another may have its index
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return l.piece(q)
}

// piece queues one piece of a read's data.
func (l *link) piece(q *queuePair) bool {
	if l.full() {
		l.flush()
		if l.full() {
			return false
		}
	}
	r := &l.reading
	f := &r.f
	n := min(f.total-r.sent, pieceSize)
	answer := frame{kind: frameData, op: f.op, to: f.from, from: f.to, psn: f.psn, life: f.life, total: f.total, offset: r.sent, length: n}
	ok := l.queue(&answer, int(n), func(to []byte) bool {
		// The region may have gone since the last piece.
		var sp span
		ok := l.n.p.self.open(&sp, q.own, f.key, f.addr, uint64(f.total), rdma.AccessRemoteRead)
		return ok && !q.closed && sp.load(int(r.sent), to, false) == rdma.WCSuccess
	})
	if !ok {
		l.n.p.self.fault(q.own, faultAccess)
		answer = frame{kind: frameNak, op: f.op, code: uint8(rdma.WCRemAccessErr), to: f.from, from: f.to, psn: f.psn, life: f.life}
		r.active = false
		l.queue(&answer, 0, nil)
		return true
	}
	r.sent += n
	r.active = r.sent < f.total
	return true
}

// abandon gives back what messages have taken that were coming in over a link
// that has broken: they will not end.
func (p *Provider) abandon(l *link) {
	for from := range l.calls {
		l.endCall(from)
	}
	p.mu.Lock()
	n := p.head.touched.queues
	p.mu.Unlock()
	for i := range min(n, uint32(len(p.queues))) {
		q := p.byQPN.get(i)
		if q == nil || q.shared == nil && q.init.Type != rdma.XRCRecv {
			continue
		}
		q.mu.Lock()
		if q.wire.from == l {
			q.wire.drop()
		}
		q.mu.Unlock()
	}
}
