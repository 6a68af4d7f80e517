package soft

import (
	"cmp"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// wireState is a queue pair's state towards a peer over TCP. The first half is
// the requester's, guarded by the queue pair's mu, and so is the second, the
// responder's.
type wireState struct {
	q       *queuePair
	wired   bool      // requests go over TCP
	link    *link     // that carries them
	next    uint32    // of the backlog, the first that is not wholly sent
	counted uint32    // how many of them the link counts as under way
	offset  uint32    // how much of it is
	settled uint32    // bytes of a read's data that have come
	due     time.Time // when to ask how long the other host has been silent; zero: not timed
	silent  uint8     // how often it had, one after the other

	from *link // where requests come from
	inbound
}

// count tells the link how many requests of the queue pair are unanswered. Those that a queue pair leaves behind
// when it is closed or connected anew count no more.
func (w *wireState) count(underWay uint32) {
	if w.link != nil {
		w.link.underWay.Add(int32(underWay) - int32(w.counted))
	}
	w.counted = underWay
}

// comesBy notes the link of a request, unless a message that came by another has
// taken a receive, and is to be abandoned with that.
func (w *wireState) comesBy(l *link) {
	if w.tk.claim == nil {
		w.from = l
	}
}

// inbound is what a responder has done of what comes in over TCP. Guarded by the
// queue pair's mu.
type inbound struct {
	inside  uint32     // bytes of the request that is due that have been placed
	at      uint32     // of the piece that is executed: its place in the message
	tk      ticket     // the receive request that it takes, once it is known; claimed in a shared queue
	tagged  tagMessage // that it is of
	results []result   // of atomics, for duplicates

	// Of the piece that is executed, too:
	psn    uint32
	last   bool  // it ends its message
	placed bool  // its bytes are where they belong
	cause  uint8 // why the responder is to go to ERR, if the request has failed
}

// there tells whether the bytes are where they belong; what does not come in has to be moved.
func (in *inbound) there() bool { return in != nil && in.placed }

// offset is the place of a piece in its message; what does not come in is whole.
func (in *inbound) offset() int {
	if in == nil {
		return 0
	}
	return int(in.at)
}

// drop gives the receive request back, if one was taken.
func (in *inbound) drop() {
	in.tk.giveBack()
	in.tk = ticket{}
}

// A result is an executed atomic.
type result struct {
	psn uint32
	old uint64
}

// connection gives the peer's link, made when there is none.
func (s *peer) connection() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.link.state.Load() == linkBroken {
		if s.lost.Load() { // nobody is there to answer
			s.link = new(link)
			s.link.state.Store(linkBroken)
			return s.link
		}
		s.link = s.p.tcp.Load().dial(s)
	}
	return s.link
}

// advance sends what can be sent of the backlog. Called with mu held, in
// RTS and with a backlog.
func (w *wireState) advance() (moved bool) {
	q := w.q
	if q.init.Type == rdma.DCI && q.sq.waiting == accepted && !q.dc.follows(&q.sq.pending.first().wr) && !w.wired {
		return false
	}
	if w.link == nil {
		w.link = q.peer.connection()
		w.next, w.offset = 0, 0
	}
	switch w.link.state.Load() {
	case linkDialling:
		return false
	case linkBroken:
		unmet := w.link.unmet.Load()
		w.count(0)
		w.link = nil
		w.next, w.offset = 0, 0
		if unmet { // nothing was sent over it
			q.dc.called = false
			return w.advance()
		}
		// What may have been executed is not tried again.
		q.settle(q.sq.pending.first(), q.unheard(rdma.WCRetryExcErr), 0)
		return true
	}
	if q.sq.waiting != accepted && !w.again() {
		return false
	}
	if q.sq.pending.n == 0 {
		return true
	}
	if q.p.cfg.Adversary != nil && q.p.work.chaos.below(2) == 0 {
		return false
	}
	if w.next == q.sq.pending.n {
		return false
	}
	l := w.link
	moved = w.sendOn()
	l.uncork()
	return moved
}

// sendOn is advanceWire with a link that is up: what it sends together waits for the
// link's uncork.
func (w *wireState) sendOn() (moved bool) {
	q := w.q
	for w.next < q.sq.pending.n {
		if w.offset == 0 && q.state() == rdma.StateSQD {
			return moved // what was begun is sent as a whole, and no more
		}
		e := q.sq.pending.at(w.next)
		if q.p.cfg.Adversary != nil && q.p.work.chaos.unseen(q, e) {
			return moved
		}
		wr := &e.wr
		o := wr.Opcode.Operation()
		if !o.GoesOut() {
			if w.next > 0 {
				return moved // it begins when all before it is complete
			}
			st, a := q.change.run(q, wr)
			if a == draining {
				return moved
			}
			q.settle(e, st, 0)
			if moved = true; q.sq.pending.n == 0 || q.state() != rdma.StateRTS {
				return true
			}
			continue
		}
		if q.init.Type == rdma.DCI && !q.dc.follows(wr) {
			if w.next == 0 {
				return !w.wired || w.advance() || moved
			}
			return moved
		}
		if w.next > 0 && w.offset == 0 && !q.unreliable && w.link.underWay.Load() >= underWayMost {
			return moved
		}
		if wr.Flags&rdma.SendFence != 0 && w.offset == 0 && q.sq.pending.fetches(w.next) > 0 {
			return moved
		}
		segs, total, guard, ok := q.scratch.mem.gather(q.pd, wr)
		bad := rdma.WCLocProtErr
		if ok {
			bad = q.able(o, total)
			ok = bad == rdma.WCSuccess
		}
		if ok && o.Fetches() && q.sq.pending.fetches(w.next) >= int(q.attr.MaxRdAtomic) {
			return moved
		}
		if !ok {
			// It fails in its turn.
			if w.next > 0 {
				return moved
			}
			q.settle(e, bad, 0)
			return true
		}
		if q.unreliable && w.offset == 0 && q.p.cfg.Adversary != nil && q.p.work.chaos.below(lossOneIn) == 0 {
			w.next++
		} else if !w.sendPieces(e, segs, uint32(total), guard) {
			return moved
		}
		moved = true
		if q.unreliable && w.next > 0 {
			w.link.uncork() // the memory is the program's again
			w.next--
			q.settle(e, rdma.WCSuccess, uint32(total))
		}
		if q.sq.pending.n == 0 {
			break // a piece could not be read, and the queue pair is in ERR
		}
	}
	return moved
}

// follows tells whether a request of an initiator of DC goes where those under way
// go. When none is, the connection turns to its target.
func (d *connection) follows(wr *rdma.SendWR) bool {
	q := d.q
	if !wr.Opcode.Operation().GoesOut() || d.leadsTo(wr) {
		return true
	}
	if q.wire.next == 0 && q.wire.offset == 0 {
		d.turnTo(wr)
	}
	return false
}

// fetches counts the reads and atomics among the first n.
func (b *backlog) fetches(n uint32) (k int) {
	for i := range n {
		if b.at(i).wr.Opcode.Operation().Fetches() {
			k++
		}
	}
	return k
}

// sendPieces sends the rest of the request w.next. It is false when the link
// takes no more.
func (w *wireState) sendPieces(e *request, segs [][]byte, total uint32, guard bool) bool {
	q := w.q
	wr := &e.wr
	fetches := wr.Opcode.Operation().Fetches()
	f := frame{
		kind: frameRequest, op: wr.Opcode, to: q.attr.DestQPNum, from: q.num, psn: (q.psn + w.next) & psnMask,
		life: q.life, imm: extra(wr), total: total, key: wr.RKey, addr: wr.RemoteAddr, compareAdd: wr.CompareAdd, swap: wr.Swap,
	}
	if wr.Flags&rdma.SendSolicited != 0 {
		f.flags = frameSolicited
	}
	if q.unreliable {
		f.kind = frameMessage
	}
	var lead *frame
	switch q.init.Type {
	case rdma.XRCSend:
		f.flags |= frameXRC
		if !fetches {
			f.swap = uint64(wr.SRQNum)
		}
	case rdma.DCI:
		f.flags |= frameDC
		f.to = q.dc.num
		if !q.dc.called { // then this is the head of the backlog
			q.life++
			f.life = q.life
			lead = &frame{kind: frameCall, to: f.to, from: f.from, psn: f.psn, life: f.life, compareAdd: q.dc.key}
		}
	}
	for {
		f.offset, f.length = w.offset, 0
		send, copied := segs, false
		if !fetches {
			f.length = min(total-w.offset, w.link.longest(wr.Opcode.Operation()))
		} else {
			send = nil
		}
		off := int(w.offset)
		switch {
		case send == nil:
		case q.scratch.mem.laid, guard && w.link.sealed != nil:
			b, ok := q.scratch.mem.outOf(wr, segs, off, int(f.length))
			if !ok {
				if w.next > 0 {
					return false
				}
				q.settle(e, rdma.WCLocProtErr, 0)
				return true
			}
			send, off, copied = [][]byte{b}, 0, true
		case guard && !readableAt(segs, off, int(f.length)):
			// The kernel would say EFAULT in the middle of a frame. Memory that goes after
			// this look breaks the link.
			if w.next > 0 {
				return false
			}
			q.settle(e, rdma.WCLocProtErr, 0)
			return true
		}
		if !w.link.post(&f, lead, send, off, int(f.length), guard && !copied) {
			return false
		}
		if copied {
			w.link.uncork() // it is scratch
		}
		if lead != nil {
			q.dc.called, lead = true, nil
		}
		w.offset += f.length
		if f.length == 0 || w.offset == total {
			w.next, w.offset = w.next+1, 0
			if !q.unreliable {
				w.count(w.next)
			}
			return true
		}
	}
}

// again looks at the timer of a request that was refused for now; it is true
// when it has run out and the backlog is sent anew, or given up.
func (w *wireState) again() bool {
	q := w.q
	if time.Now().Before(q.sq.until) {
		return false
	}
	if q.sq.waiting != unanswered || q.attr.Timeout != 0 {
		if q.sq.waiting == unanswered && q.sq.tries >= q.attr.RetryCnt {
			q.settle(q.sq.pending.first(), rdma.WCRetryExcErr, 0)
			return true
		}
		q.sq.count(q.sq.waiting)
	}
	q.sq.waiting = accepted
	w.next, w.offset = 0, 0
	w.count(0)
	return true
}

// refused notes that the head of the backlog has to wait. Called with mu held.
func (w *wireState) refused(a answer, each time.Duration) {
	q := w.q
	if a == notReady && q.attr.RNRRetry != 7 && q.sq.tries >= q.attr.RNRRetry {
		q.settle(q.sq.pending.first(), rdma.WCRNRRetryExcErr, 0)
		return
	}
	q.sq.waiting, q.sq.until = a, time.Now().Add(cmp.Or(each, tick)) // no timeout: it is asked for ever, and not counted
	q.drained()
}

// silenceLeast is the least time that the other host has for an acknowledgement, whatever
// the queue pair's timeout: TCP itself repeats what was lost after 200 ms.
const silenceLeast = 500 * time.Millisecond

// overdue keeps the ack timer over TCP: of a request that is sent, or that the
// link does not take. TCP loses nothing and the responder answers everything,
// in order, so that there is nothing to repeat, and a slow answer is not a lost
// one. As an adapter acknowledges for a process that does not run, the other host's
// kernel does: what is timed is its silence, for Config.Silence at least. For a requester that did not look
// itself the timer begins anew. Called with mu held, after a look at the sockets.
func (w *wireState) overdue(now time.Time) {
	q := w.q
	if w.link == nil || w.link.state.Load() != linkUp || q.sq.pending.n == 0 || q.sq.waiting != accepted || q.attr.Timeout == 0 || q.state() != rdma.StateRTS {
		w.due = time.Time{}
		return
	}
	each := max(rdma.AckTimeout(q.attr.Timeout), silenceLeast, q.p.cfg.Silence/time.Duration(q.attr.RetryCnt+1))
	switch {
	case w.due.IsZero() || now.Sub(w.due) > each/2:
		w.silent = 0
	case now.Before(w.due):
		return
	case !w.link.unheard(each, 1):
		w.silent = 0
	case w.silent >= q.attr.RetryCnt:
		q.settle(q.sq.pending.first(), rdma.WCRetryExcErr, 0)
		return
	default:
		w.silent++
		q.sq.counters.AckRetries++
	}
	w.due = now.Add(each)
}

// asked finds the queue pair that asked for an answer, which is then locked, and where in its
// backlog the request is. It is nil for none.
func (l *link) asked(f *frame) (q *queuePair, at uint32) {
	q = l.n.p.byQPN.get(f.to & (maxQueues - 1))
	if q == nil || q.num != f.to {
		return nil, 0
	}
	q.mu.Lock()
	w, dest := &q.wire, q.attr.DestQPNum
	if q.init.Type == rdma.DCI {
		dest = q.dc.num
	}
	at = (f.psn - q.psn) & psnMask
	if q.ending.closed || q.state() != rdma.StateRTS && q.state() != rdma.StateSQD || w.link != l || dest != f.from || q.life != f.life ||
		// It is to what was behind a refused request, and is sent again with that.
		q.sq.waiting != accepted ||
		// It is of an earlier try, and settled since. Only a refusal may come
		// before the request that is being sent is there as a whole.
		at >= w.next && (f.kind == frameAck || at > w.next || w.offset == 0) {
		q.mu.Unlock()
		return nil, 0
	}
	return q, at
}

// answered acts on an answer to this side's requests. A payload that is nil is in place, unless
// the landing has lost it. Called with network.mu held.
func (l *link) answered(f *frame, payload []byte) {
	q, at := l.asked(f)
	if q == nil {
		return
	}
	defer q.mu.Unlock()
	w := &q.wire
	if q.p.cfg.Adversary != nil && q.attr.RetryCnt > 0 && (f.kind == frameAck || f.kind == frameData && f.last()) &&
		at+1 == w.next && w.offset == 0 && q.p.work.chaos.below(8) == 0 {
		// The last acknowledgement is lost, and what it stood for is sent again.
		q.sq.counters.AckRetries++
		for i := range w.next {
			q.sq.pending.at(i).part.lost = 1
		}
		w.next, w.offset, w.settled = 0, 0, 0
		w.count(0)
		return
	}
	if q.init.Type == rdma.DCI && !q.dc.made && f.kind != frameBusy && f.kind != frameNobody {
		q.dc.made = true
		q.sq.counters.DCConnects++
	}
	switch f.kind {
	case frameAck:
		for ; at != psnMask; at = (at - 1) & psnMask {
			e := q.sq.pending.first()
			if e.wr.Opcode.Operation().Fetches() {
				return // its data must come
			}
			q.wire.acknowledged(e, rdma.WCSuccess, uint32(inlineLength(&e.wr)))
		}
	case frameData:
		e := q.sq.pending.first()
		if at != 0 || !e.wr.Opcode.Operation().Fetches() || f.offset != w.settled {
			return
		}
		segs, total, guard, ok := q.scratch.mem.gather(q.pd, &e.wr)
		if !ok || uint64(f.total) != total {
			q.wire.acknowledged(e, rdma.WCLocProtErr, 0)
			return
		}
		st := rdma.WCSuccess
		switch {
		case payload != nil:
			st = q.scratch.mem.into(&e.wr, segs, int(f.offset), payload, guard)
		case l.landing.lost:
			st = rdma.WCLocProtErr
		}
		if st != rdma.WCSuccess {
			q.wire.acknowledged(e, st, 0)
			return
		}
		w.settled += f.length
		if f.last() {
			q.wire.acknowledged(e, rdma.WCSuccess, f.total)
		}
	case frameNak:
		st := rdma.WCStatus(f.code)
		if at != 0 || st == rdma.WCSuccess {
			return
		}
		q.wire.acknowledged(q.sq.pending.first(), st, 0)
	case frameNotReady:
		if at == 0 {
			q.wire.refused(notReady, rdma.RNRTimer(f.code))
		}
	case frameNobody:
		if at != 0 {
			return
		}
		if q.dc.called = false; q.init.Type == rdma.DCI && q.sq.pending.first().part.lost > 0 {
			// The responder that knew of it has gone: another would execute it again.
			q.wire.acknowledged(q.sq.pending.first(), rdma.WCRetryExcErr, 0)
			return
		}
		q.wire.refused(unanswered, rdma.AckTimeout(q.attr.Timeout))
	case frameBusy:
		if at == 0 && q.dc.called {
			q.dc.called = false
			q.sq.counters.DCCNAKs++
			q.wire.refused(noResponder, tick)
		}
	}
}

// acknowledged settles the head of the backlog, which was sent.
func (w *wireState) acknowledged(e *request, st rdma.WCStatus, n uint32) {
	q := w.q
	q.psn = (q.psn + 1) & psnMask
	if w.next > 0 {
		w.next--
		w.count(w.next)
	} else {
		w.offset = 0 // refused while it was being sent
	}
	w.settled = 0
	q.settle(e, st, n)
}
