package soft

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A request is a posted work request that was not executed at once, in memory
// of its own: the caller's slices are the caller's.
type request struct {
	wr     rdma.SendWR
	seq    uint32 // its place in the send queue
	sgl    []rdma.SGE
	inline []byte
	part   part // what an adversary has done of it
}

// A backlog is a ring of requests, grown as needed; its requests keep their
// memory for the next use.
type backlog struct {
	ring []request
	head uint32
	n    uint32
}

func (b *backlog) len() int { return int(b.n) }

func (b *backlog) at(i uint32) *request { return &b.ring[(b.head+i)&uint32(len(b.ring)-1)] }

func (b *backlog) first() *request { return b.at(0) }

func (b *backlog) pop() {
	e := b.first()
	e.wr = rdma.SendWR{}
	b.head++
	b.n--
}

func (b *backlog) push() *request {
	if int(b.n) == len(b.ring) {
		ring := make([]request, max(8, 2*len(b.ring)))
		for i := range b.n {
			ring[i] = *b.at(i)
		}
		b.ring, b.head = ring, 0
	}
	b.n++
	return b.at(b.n - 1)
}

// keep puts a request into the backlog. Called with mu held.
func (q *queuePair) keep(wr *rdma.SendWR) {
	e := q.sq.pending.push()
	e.wr, e.seq = *wr, q.sq.posted
	e.part = part{}
	e.sgl = append(e.sgl[:0], wr.SGL...)
	e.wr.SGL = e.sgl
	if wr.Bind != nil {
		bind := *wr.Bind
		e.wr.Bind = &bind
	}
	if wr.Layout != nil {
		l := *wr.Layout
		l.List, l.Interleaved = slices.Clone(l.List), slices.Clone(l.Interleaved)
		e.wr.Layout = &l
	}
	if wr.Flags&rdma.SendInline != 0 {
		// What cannot be read will fail when it is executed.
		e.inline = e.inline[:0]
		segs, total, guard, ok := q.scratch.mem.gather(q.pd, wr)
		if ok {
			if cap(e.inline) < int(total) {
				e.inline = make([]byte, 0, total)
			}
			for _, b := range segs {
				to := e.inline[len(e.inline) : len(e.inline)+len(b)]
				if !guard {
					copy(to, b)
				} else if ok = guarded(to, b); !ok {
					break
				}
				e.inline = e.inline[:len(e.inline)+len(b)]
			}
		}
		if ok {
			e.wr.Inline = e.inline
		} else {
			e.wr.Flags &^= rdma.SendInline
			e.wr.Inline = nil
		}
	}
	q.p.work.add(q)
}

// forget drops the backlog. Called with mu held.
func (q *queuePair) forget() {
	for q.sq.pending.n > 0 {
		wr := q.sq.pending.first().wr
		q.sq.pending.pop()
		if r := ofDevice(&wr); r != nil {
			q.fetched(r, &wr, rdma.WCWRFlushErr, 0)
		}
	}
	q.sq.waiting, q.sq.tries, q.sq.until = accepted, 0, time.Time{}
	q.p.work.done(q)
	q.change = keyChange{}
	q.dc.hangUp()
	q.calls.end()
	q.dc = connection{q: q}
	q.wire.drop()
	q.wire.count(0)
	q.wire = wireState{q: q}
}

// advance executes what can be executed of the backlog and tells whether it
// did anything. Called with mu held.
func (q *queuePair) advance() (moved bool) {
	for q.sq.pending.n > 0 {
		switch q.state() {
		case rdma.StateRTS:
		case rdma.StateSQD:
			if q.wire.offset == 0 {
				return moved
			}
		case rdma.StateErr:
			over := q.flushSend()
			q.flushRecv()
			return over || moved
		case rdma.StateSQE:
			return q.flushSend() || moved
		default:
			return moved
		}
		if q.wire.wired {
			moved = q.wire.advance() || moved
			if q.wire.wired {
				return moved
			}
			continue // the next target is in the segment
		}
		e := q.sq.pending.first()
		if q.p.cfg.Adversary != nil && !q.p.work.chaos.let(q, e) {
			return moved
		}
		status, n, a := rdma.WCRetryExcErr, uint32(0), unanswered
		if q.remote != nil || q.init.Type == rdma.UD || q.init.Type == rdma.DCI {
			status, n, a = q.run(&e.wr)
		} else if q.unreliable {
			status, a = rdma.WCSuccess, accepted
		}
		if a == abroad {
			continue
		}
		if a > duplicate {
			if q.init.Type == rdma.UD {
				return moved // its link will be up, or take more
			}
			if !q.wait(a) {
				return moved
			}
			moved = true
			continue
		}
		if q.p.cfg.Adversary != nil && status == rdma.WCSuccess && e.wr.Opcode.Operation().GoesOut() && q.p.work.chaos.loseAck(q, e) {
			q.psn = (q.psn - 1) & psnMask
			return true
		}
		q.settle(e, status, n)
		moved = true
	}
	return moved
}

// settle completes the head of the backlog. Called with mu held.
func (q *queuePair) settle(e *request, status rdma.WCStatus, n uint32) {
	q.sq.waiting, q.sq.tries = accepted, 0
	wr, seq := e.wr, e.seq
	q.sq.pending.pop()
	if q.sq.pending.n == 0 {
		q.p.work.done(q)
		q.dc.hangUp()
	}
	if r := ofDevice(&wr); r != nil {
		q.fetched(r, &wr, status, n)
	} else {
		q.finish(&wr, seq, status, n)
	}
	if q.remote != nil {
		q.peer.bell.Ring()
	}
	q.drained()
}

// wait takes note that the head of the backlog got the answer a, keeps its
// timer, and gives up when its tries are used up: then it returns true, and the
// queue pair is in ERR. Called with mu held.
//
// A try is counted when its timer has run out. Between, the request is tried
// at every poll, which no program can tell from a timer that ended just then.
func (q *queuePair) wait(a answer) (over bool) {
	switch a {
	case abroad:
		return false
	case draining, noResponder:
		q.sq.waiting = a
		return false
	}
	e := q.sq.pending.first()
	status, limit, forever, each := rdma.WCRetryExcErr, q.attr.RetryCnt, false, rdma.AckTimeout(q.attr.Timeout)
	if a == notReady {
		status, limit, forever = rdma.WCRNRRetryExcErr, q.attr.RNRRetry, q.attr.RNRRetry == 7
		each = q.remote.rnrTimer()
	}
	if q.sq.waiting != a {
		if a == notReady && limit == 0 {
			q.settle(e, status, 0)
			return true
		}
		q.sq.waiting, q.sq.tries, q.sq.until = a, 0, time.Time{}
		if each > 0 {
			q.sq.until = time.Now().Add(each)
		}
		return false
	}
	if q.peer.dead() {
		q.settle(e, rdma.WCRetryExcErr, 0)
		return true
	}
	if q.sq.until.IsZero() {
		return false
	}
	now := time.Now()
	if now.Before(q.sq.until) {
		return false
	}
	if q.peer.checkDead() {
		q.settle(e, rdma.WCRetryExcErr, 0)
		return true
	}
	if q.sq.tries >= limit && !forever {
		q.settle(e, status, 0)
		return true
	}
	q.sq.count(a)
	if a == notReady && q.sq.tries >= limit && !forever {
		q.settle(e, status, 0)
		return true
	}
	q.sq.until = now.Add(each)
	return false
}

// rnrTimer is the wait that the responder asks of a requester that finds no receive.
func (c *queueContext) rnrTimer() time.Duration {
	return rdma.RNRTimer(uint8(atomic.LoadUint32(&c.rights) >> 16))
}

// count notes a retry.
func (s *sendQueue) count(a answer) {
	if a == noResponder {
		return
	}
	if s.tries < 255 {
		s.tries++
	}
	if a == notReady {
		s.counters.RNRRetries++
	} else {
		s.counters.AckRetries++
	}
}
