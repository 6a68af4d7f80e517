package soft

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// The dynamically connected transport. An initiator (DCI) executes its requests on
// the target (DCT) that each of them names; what it has with it is a connection,
// made anew when the target, its number or the access key is another than the
// last request's (Counters.DCConnects). A request for another target waits until
// all before it are answered.
//
// While requests are under way the connection holds a responder of the target's
// provider: one of those that Config.DCResponders allows, claimed by one
// compare-and-swap that records which process has it, so that one of the dead is found and
// taken over. When there is none the answer is a CNAK (Counters.DCCNAKs), and the
// request waits at the head of its send queue until there is one. A connection
// with nothing under way holds none, and takes one up again without being counted. When it
// has been idle for Config.DCIdle it ends: the next request makes it anew.
//
//	          request                  the last answer             two ticks
//	no connection --> made, responder held ----------> made, idle ----------> no connection
//	                        ^------------ request ---------'
//
// No post reads a clock for that. A timer of the provider goes while there are connections; at
// a tick those end which have done nothing since the one before (lull).
//
// The responder remembers what it has executed, so that a request whose
// acknowledgement was lost is answered and not executed again. An initiator gives it
// back when it has no use for that any more.
//
// In the segment the initiator itself claims the responder. Claims also tell a
// provider which initiators to wait for when it takes back a region or a target. Over
// TCP the initiator calls for one:
//
//	call, request, request ...  ->  a responder is claimed, for this target and key
//	                            <-  answers as for RC, or busy: none was free
//	hang-up                     ->  it is given back
//
// A call goes out with the first request, so that it costs no round trip. What is
// refused, for now or for good, is called for again with the next try; each call has
// a number (frame.life), and answers to an earlier one count for nothing. When the
// link breaks what may have been executed is not tried again.
//
// A target is hurt by nothing that an initiator does: requests that it does not
// take, wrong keys and bad receives end the initiator alone.
type responder struct {
	claim uint64 // rank + 1 << 32 | number of the initiator, or of the target for one of another host; 0 is free

	// Of the process that has claimed it:
	last   lastAtomic
	expect uint32 // PSN of the next request
	_      [36]byte
}

// A connection is the initiator's side of one.
type connection struct {
	q      *queuePair
	to     *peer
	num    uint32
	key    uint64
	made   bool
	used   bool       // since the last tick; set when the last answer comes
	held   *responder // in the segment; nil for none
	called bool       // over TCP: a call is out, and no refusal has come
}

// leadsTo tells whether the connection is one to the target of a request.
func (d *connection) leadsTo(wr *rdma.SendWR) bool {
	return d.to == wr.AH.(*addressHandle).peer && d.num == wr.RemoteQPN && d.key == wr.DCAccessKey
}

// turnTo ends the connection, with nothing under way, in favour of one to the
// target of a request. Called with mu held.
func (d *connection) turnTo(wr *rdma.SendWR) {
	q := d.q
	d.hangUp()
	s := wr.AH.(*addressHandle).peer
	*d = connection{q: q, to: s, num: wr.RemoteQPN, key: wr.DCAccessKey}
	q.peer, q.remote = s, nil
	q.wire.wired = s.wired()
	if i := d.num & (maxQueues - 1); !q.wire.wired && int(i) < len(s.queues) {
		q.remote = &s.queues[i]
	}
}

// dial makes the connection that a request needs, and gets hold of a responder in
// the segment. Called with mu held.
func (d *connection) dial(wr *rdma.SendWR) answer {
	q := d.q
	if !d.leadsTo(wr) {
		d.turnTo(wr)
	}
	switch {
	case q.wire.wired:
		return abroad
	case d.to.dead():
		return accepted // to fail
	case q.remote == nil:
		return unanswered
	case d.held == nil:
		if d.held = d.to.engage(q.holder()); d.held == nil {
			if q.sq.waiting != noResponder {
				q.sq.counters.DCCNAKs++
			}
			return noResponder
		}
		d.held.expect, d.held.last = q.psn, lastAtomic{}
	}
	if !d.made {
		d.made = true
		q.sq.counters.DCConnects++
	}
	return accepted
}

// holder is how a claim names the queue pair.
func (q *queuePair) holder() uint64 { return uint64(q.p.cfg.Rank+1)<<32 | uint64(q.num) }

// inquestEvery is how often a provider asks, at most, whether holders of responders
// are alive, of whose end nothing has told: that takes system calls for each.
const inquestEvery = 5 * time.Millisecond

// inquest tells whether it is time to ask.
func (p *Provider) inquest() bool {
	was, now := p.inquested.Load(), deviceTime()
	return now-was >= uint64(inquestEvery) && p.inquested.CompareAndSwap(was, now)
}

// engage claims a responder of the peer for a holder of this rank, nil for none.
func (s *peer) engage(holder uint64) *responder {
	h, p := at[arenaHeader](s.arena, 0), s.p
	most := min(int(atomic.LoadUint32(&h.responders)), len(s.responders))
	for _, thorough := range []bool{false, true} {
		if thorough && !p.inquest() {
			break
		}
		for i := range most {
			r := &s.responders[i]
			have := atomic.LoadUint64(&r.claim)
			if rank := int(have>>32) - 1; have != 0 && rank >= 0 && rank < p.segment.Ranks() &&
				!p.segment.Dead(rank) && !(thorough && p.holderDead(rank)) {
				continue
			}
			if !atomic.CompareAndSwapUint64(&r.claim, have, holder) {
				continue
			}
			for t := &h.touched.responders; ; {
				if was := atomic.LoadUint32(t); was > uint32(i) || atomic.CompareAndSwapUint32(t, was, uint32(i)+1) {
					break
				}
			}
			return r
		}
	}
	return nil
}

// release gives a responder back.
func (r *responder) release(holder uint64) { atomic.CompareAndSwapUint64(&r.claim, holder, 0) }

// hangUp gives the responder back. Called with mu held, and nothing under way.
func (d *connection) hangUp() {
	q := d.q
	if d.used = d.made; d.used && !q.p.work.ticking.Load() {
		q.p.work.tickLater()
	}
	if d.held != nil {
		d.held.release(q.holder())
		d.held = nil
		d.to.bell.Ring()
	}
	if !q.wire.wired || d.to == nil {
		return
	}
	if l := q.wire.link; d.called && l != nil {
		l.post(&frame{kind: frameHangUp, to: d.num, from: q.num, life: q.life}, nil, nil, 0, 0, false)
		l.uncork()
	}
	d.called = false
	q.wire.count(0)
	q.wire.link = nil // which may break without harm now
}

// tickLater has the provider look for idle connections in a while.
func (w *progress) tickLater() {
	every := cmp.Or(w.p.cfg.DCIdle, idleAfter)
	if every < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.ticking.Swap(true) {
		return
	}
	w.ended.Add(1)
	w.ticks = time.AfterFunc(every, func() {
		defer w.ended.Done()
		w.ticking.Store(false) // before it looks: what is used from here on asks for a tick itself
		if w.lull() {
			w.tickLater()
		}
	})
}

// idleAfter is Config.DCIdle's default.
const idleAfter = 10 * time.Second

// lull ends the connections that have done nothing since the last tick, and tells whether any goes on.
func (w *progress) lull() (more bool) {
	w.p.mu.Lock()
	n := min(w.p.head.touched.queues, uint32(w.p.layout.queues))
	w.p.mu.Unlock()
	for i := range n {
		q := w.p.byQPN.get(i)
		if q == nil || q.init.Type != rdma.DCI {
			continue
		}
		q.mu.Lock()
		switch d := &q.dc; {
		case !d.made:
		case d.used || q.sq.pending.n > 0:
			d.used, more = false, true
		default:
			*d = connection{q: q}
		}
		q.mu.Unlock()
	}
	return more
}

// ask executes a request on a target. Called with mu held, connected and marked.
func (d *connection) ask(e *execution, wr *rdma.SendWR) (rdma.WCStatus, answer) {
	q := d.q
	a, status := d.reaches()
	switch {
	case a == unanswered || status != rdma.WCSuccess:
		return status, a
	case a == duplicate:
		if e.o.Fetches() {
			status = e.repeat(wr)
		}
		return status, a
	}
	status, a = e.respond(wr)
	if a == accepted {
		d.held.expect = (q.psn + 1) & psnMask
	}
	return status, a
}

// reaches looks at the target for the request psn.
func (d *connection) reaches() (answer, rdma.WCStatus) {
	q := d.q
	c := q.remote
	switch {
	case atomic.LoadUint32(&c.word)&queueState != uint32(rdma.StateRTR) || atomic.LoadUint32(&c.num) != d.num ||
		rdma.QPType(atomic.LoadUint32(&c.rights)>>24) != rdma.DCT:
		return unanswered, 0
	case atomic.LoadUint64(&c.scope) != d.key:
		return accepted, rdma.WCRemAccessErr
	}
	return numbered(q.psn, d.held.expect), rdma.WCSuccess
}

// A call is the target's side of a connection over TCP.
type call struct {
	q    *queuePair
	life uint32

	// Guarded by q.mu:
	held   *responder // nil: the call is over
	expect uint32     // PSN of the next request
	inbound
}

// called answers a call. Called with network.mu held.
func (l *link) called(f *frame) {
	l.endCall(f.from)
	p := l.n.p
	answer := frame{kind: frameNobody, to: f.from, from: f.to, psn: f.psn, life: f.life}
	if q := p.byQPN.get(f.to & (maxQueues - 1)); q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case !q.takesCalls(f.to):
		case q.init.DCAccessKey != f.compareAdd:
			answer.kind, answer.code = frameNak, uint8(rdma.WCRemAccessErr)
		default:
			held := p.self.engage(q.holder())
			if held == nil {
				answer.kind = frameBusy
				break
			}
			c := &call{q: q, life: f.life, held: held, expect: f.psn}
			if l.calls == nil {
				l.calls = make(map[uint32]*call)
			}
			l.calls[f.from] = c
			if q.calls == nil {
				q.calls = make(callers)
			}
			q.calls[c] = struct{}{}
			return
		}
	}
	l.answer(&answer, nil)
}

// takesCalls tells whether the queue pair is a target num that is ready. Called with
// mu held.
func (q *queuePair) takesCalls(num uint32) bool {
	return !q.ending.closed && q.num == num && q.init.Type == rdma.DCT && q.state() == rdma.StateRTR
}

// hungUp ends a call for its initiator. Called with network.mu held.
func (l *link) hungUp(f *frame) {
	if c := l.calls[f.from]; c != nil && c.life == f.life {
		l.endCall(f.from)
	}
}

// endCall ends the call of an initiator, if there is one. Called with network.mu held.
func (l *link) endCall(from uint32) {
	c := l.calls[from]
	if c == nil {
		return
	}
	delete(l.calls, from)
	c.q.mu.Lock()
	c.end()
	c.q.mu.Unlock()
}

// end gives back what a call has. A message that was coming in leaves its receive to
// others. Called with q's mu held.
func (c *call) end() {
	if c.held == nil {
		return
	}
	c.drop()
	c.held.release(c.q.holder())
	c.held = nil
	delete(c.q.calls, c)
}

// callers are the calls of a target.
type callers map[*call]struct{}

// end ends them: the target is not there for them any more. Called with mu held.
func (s callers) end() {
	for c := range s {
		c.end()
	}
}

// initiator gives the context and the rank of the initiator that holds a responder
// of this provider.
func (p *Provider) initiator(r *responder) (*queueContext, int) {
	w := atomic.LoadUint64(&r.claim)
	rank := int(w>>32) - 1
	if w == 0 || rank < 0 || rank >= p.segment.Ranks() {
		return nil, 0
	}
	arena, err := p.segment.Arena(rank)
	if err != nil {
		return nil, 0
	}
	table := tableAt[queueContext](arena, p.layout.queueAt, p.layout.queues)
	i := uint32(w) & (maxQueues - 1)
	if int(i) >= len(table) {
		return nil, 0
	}
	return &table[i], rank
}

// answering lists the responders that were ever held.
func (p *Provider) answering() []responder {
	return p.responders[:min(int(atomic.LoadUint32(&p.head.touched.responders)), len(p.responders))]
}

// drainInitiators waits for initiators as drainPeer does for one peer.
func (p *Provider) drainInitiators(what uint64, waited *patience) (stuck bool) {
	list := p.answering()
	for i := range list {
		if c, rank := p.initiator(&list[i]); c != nil {
			stuck = waitMark(c, func() bool { return p.holderDead(rank) }, what, waited) || stuck
		}
	}
	return stuck
}

// asked tells whether an initiator is in the middle of a message.
func (p *Provider) asked() bool {
	list := p.answering()
	for i := range list {
		if c, rank := p.initiator(&list[i]); c != nil && atomic.LoadUint64(&c.mark)&markWhat == markQueue && !p.holderDead(rank) {
			return true
		}
	}
	return false
}
