package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// serve executes a request, or a piece of one, that came over TCP. A payload that is nil is in
// place, unless the landing has lost it. Called with network.mu held.
func (l *link) serve(f *frame, payload []byte) {
	p := l.n.p
	answer := frame{to: f.from, from: f.to, psn: f.psn, life: f.life}
	q, in, expect, a := l.addressed(f)
	if q == nil {
		answer.kind = frameNobody
		l.answer(&answer, nil)
		return
	}
	defer q.mu.Unlock()
	c, o := q.own, f.op.Operation()
	switch a {
	case unanswered:
		// Also to a request from beyond one that was refused, which comes
		// again: no request is dropped without an answer, so silence is the
		// process's and the requester can time it.
		answer.kind = frameNobody
		l.answer(&answer, nil)
		return
	case duplicate:
		if !o.Fetches() {
			if f.last() {
				answer.kind = frameAck
				l.answer(&answer, nil)
			}
			return
		}
		if o.Moves == rdma.MovesWord {
			l.repeatAtomic(in, f, answer)
			return
		}
		l.startRead(q, f)
		return
	}
	if f.offset == 0 {
		in.inside = 0
	}
	if !o.Fetches() && f.offset != in.inside {
		return // behind a piece that was refused
	}
	if atomic.LoadUint32(&c.word) == uint32(rdma.StateRTR) && q.init.Type != rdma.DCT {
		p.self.begin(c)
	}
	requester, cause, retry := rdma.WCRemAccessErr, faultAccess, false
	if payload != nil || !l.landing.lost {
		requester, cause, retry = q.perform(l, in, f, payload)
	}
	switch {
	case retry:
		in.inside = 0
		answer.kind, answer.code = frameNotReady, uint8(atomic.LoadUint32(&c.rights)>>16)
		l.answer(&answer, nil)
	case requester != rdma.WCSuccess:
		in.drop()
		p.self.fault(c, cause)
		answer.kind, answer.code = frameNak, uint8(requester)
		l.answer(&answer, nil)
	case o.Moves == rdma.MovesFromMemory:
		*expect = (f.psn + 1) & psnMask
		l.startRead(q, f)
	case o.Moves == rdma.MovesWord:
		*expect = (f.psn + 1) & psnMask
		l.repeatAtomic(in, f, answer)
	case f.last():
		in.inside = 0
		*expect = (f.psn + 1) & psnMask
		answer.kind = frameAck
		l.answer(&answer, nil)
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
	if q.ending.closed || q.unreliable || q.init.Type == rdma.DCI || (q.init.Type == rdma.XRCRecv) != (f.flags&frameXRC != 0) ||
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
	if q.ending.closed || q.init.Type != rdma.UC || peer == nil || peer.gids[0] != l.from && peer.gids[1] != l.from || q.attr.DestQPNum != f.from ||
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
	if requester, _, retry := q.perform(l, &w.inbound, f, payload); retry || requester != rdma.WCSuccess {
		w.drop()
		w.inside = ^uint32(0)
		return
	}
	w.inside += f.length
}

// perform executes a piece of a request. retry: it finds no receive. Called with mu
// held.
func (q *queuePair) perform(l *link, in *inbound, f *frame, payload []byte) (requester rdma.WCStatus, cause uint32, retry bool) {
	in.at, in.last, in.psn, in.cause, in.placed = f.offset, f.last(), f.psn, 0, payload == nil
	f.request(&l.request)
	l.one[0], q.scratch.mem.laid = payload, false // it is no memory of the queue pair's
	e := execution{q: q, in: in, s: q.p.self, c: q.own, tk: &in.tk, o: f.op.Operation(), segs: l.one[:], total: uint64(f.total), from: f.from}
	st, a := e.respond(&l.request)
	l.one[0] = nil
	return st, uint32(in.cause), a == notReady
}

// word answers an atomic.
func (l *link) word(f *frame, old uint64) {
	answer := frame{kind: frameData, op: f.op, to: f.from, from: f.to, psn: f.psn, life: f.life, total: 8, length: 8}
	b := wordBytes(old)
	l.answer(&answer, b[:])
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
	l.answer(&answer, nil)
}

// startRead begins to answer a read. Called with the queue pair's mu held.
func (l *link) startRead(q *queuePair, f *frame) {
	first := l.replied == len(l.replies)
	l.wait(&reply{f: *f, read: true})
	for first && l.replying.Load() && l.piece(q, &l.replies[l.replied]) {
	}
}

// readOn goes on with a read. It is false when the socket takes no more.
func (l *link) readOn(r *reply) bool {
	q := l.n.p.byQPN.get(r.f.to & (maxQueues - 1))
	if q == nil || q.num != r.f.to {
		// It was closed, and another may have its index.
		l.queue(&frame{kind: frameNobody, op: r.f.op, to: r.f.from, from: r.f.to, psn: r.f.psn, life: r.f.life}, 0, nil)
		l.replyDone()
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return l.piece(q, r)
}

// piece sends or queues some of a read's data.
func (l *link) piece(q *queuePair, r *reply) bool {
	f := &r.f
	answer := frame{op: f.op, to: f.from, from: f.to, psn: f.psn, life: f.life}
	// The region may have gone since the last piece.
	var sp span
	ok := !q.ending.closed && (f.total == 0 || l.n.p.self.open(&sp, q.own, f.key, f.addr, uint64(f.total), f.op.Operation().Access))
	left := f.total - r.sent
	if ok && left >= streamFrom && sp.key == 0 && sp.mem != nil && l.sealed == nil &&
		(!sp.guard || readable(sp.mem[r.sent:min(r.sent+corkBytes, f.total)])) {
		return l.stream(r, answer, sp.mem)
	}
	if l.full() {
		l.flush(true)
		if l.full() {
			return false
		}
	}
	answer.kind, answer.total, answer.offset, answer.length = frameData, f.total, r.sent, min(left, pieceSize)
	ok = ok && l.queue(&answer, int(answer.length), func(to []byte) bool {
		return sp.load(int(r.sent), to, false) == rdma.WCSuccess
	})
	if !ok {
		l.n.p.self.fault(q.own, faultAccess)
		l.queue(&frame{kind: frameNak, op: f.op, code: uint8(rdma.WCRemAccessErr), to: f.from, from: f.to, psn: f.psn, life: f.life}, 0, nil)
		l.replyDone()
		return true
	}
	if r.sent += answer.length; r.sent == f.total {
		l.replyDone()
	}
	return true
}

// streamFrom is from how many bytes on a read's data goes from its memory to the socket.
const streamFrom = 16 << 10

// stream sends some of a read's data, which is mem, as much as the socket takes. Only of a frame
// that has gone in part is the rest copied. It is false when the socket takes no more.
func (l *link) stream(r *reply, answer frame, mem []byte) bool {
	l.flush(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() != linkUp || l.waiting() > 0 {
		return false
	}
	c := &l.n.corked
	defer c.reset()
	answer.kind, answer.total = frameData, uint32(len(mem))
	l.one[0] = mem
	for at := r.sent; at < answer.total && !c.full(); at += answer.length {
		answer.offset, answer.length = at, min(answer.total-at, landingSize)
		c.add(&answer)
		c.payload(l.one[:], int(at), int(answer.length), false)
	}
	l.one[0] = nil
	all := c.bytes
	k, err := l.write(c.vec)
	if err != nil {
		l.breakOff()
		return false
	}
	if k > 0 {
		l.heard.Add(1)
	}
	for done, i := k, 0; done > 0; i += 2 {
		head, data := c.vec[i], c.vec[i+1]
		r.sent += uint32(len(data))
		if done < frameSize+len(data) && !(l.append(head[min(done, frameSize):]) && l.append(data[max(done-frameSize, 0):])) {
			l.breakOff()
			return false
		}
		done -= frameSize + len(data)
	}
	if r.sent == answer.total {
		l.replyDone()
	}
	l.watch(l.waiting() > 0)
	return k == all
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
