package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// The dynamically connected transport. An initiator (DCI) executes its requests on
// the target (DCT) that each of them names; what it has with it is a connection,
// made anew when the target, its number or the access key is another than the
// last request's (Counters.DCConnects).
//
// While requests are under way the connection holds a responder of the target's
// provider: one of those that Config.DCResponders allows, claimed by one
// compare-and-swap that records who has it, so that one of the dead is found and
// taken over. When there is none the answer is a CNAK (Counters.DCCNAKs), and the
// request waits at the head of its send queue until there is one. A connection
// with nothing under way holds none: it is dropped in favour of others, and
// taken up again without being counted.
//
// The responders are also how a provider knows whom to wait for when it takes
// back a region or a target.
//
// A target is hurt by nothing that an initiator does: requests that it does not
// take, wrong keys and bad receives end the initiator alone.
//
// It goes by way of the segment; there is none over TCP.
type responder struct {
	claim uint64 // rank + 1 << 32 | number of the initiator; 0 is free
	_     [56]byte
}

// A connection is the initiator's side of one.
type connection struct {
	to    *peer
	num   uint32
	key   uint64
	made  bool
	claim *uint64 // the responder that it holds, nil for none
}

// supportsDC tells why there is no dynamic connection, if so.
func (p *Provider) supportsDC(op string) error {
	if p.private && p.net != nil {
		return &rdma.OpError{Op: op, Detail: "DC does not go over TCP, and there is no segment that peers share", Err: rdma.ErrNotSupported}
	}
	return nil
}

// dial makes the connection that a request needs, and gets hold of a responder.
// Called with mu held.
func (q *queuePair) dial(wr *rdma.SendWR) answer {
	d, s := &q.dc, wr.AH.(*addressHandle).peer
	if d.to != s || d.num != wr.RemoteQPN || d.key != wr.DCAccessKey {
		q.hangUp()
		*d = connection{to: s, num: wr.RemoteQPN, key: wr.DCAccessKey}
		q.peer, q.remote = s, nil
		if i := d.num & (maxQueues - 1); int(i) < len(s.queues) {
			q.remote = &s.queues[i]
		}
	}
	switch {
	case s.dead():
		return accepted // to fail
	case q.remote == nil:
		return unanswered
	case d.claim == nil && !q.engage():
		if q.waiting != noResponder {
			q.counters.DCCNAKs++
		}
		return noResponder
	}
	if !d.made {
		d.made = true
		q.counters.DCConnects++
	}
	return accepted
}

// engage claims a responder of the peer.
func (q *queuePair) engage() bool {
	d := &q.dc
	h := at[arenaHeader](d.to.arena, 0)
	most := min(int(atomic.LoadUint32(&h.responders)), len(d.to.responders))
	mine := uint64(q.p.cfg.Rank+1)<<32 | uint64(q.num)
	for _, thorough := range []bool{false, true} {
		for i := range most {
			w := &d.to.responders[i].claim
			have := atomic.LoadUint64(w)
			if rank := int(have>>32) - 1; have != 0 && rank >= 0 && rank < q.p.segment.Ranks() &&
				!q.p.segment.Dead(rank) && !(thorough && q.p.holderDead(rank)) {
				continue
			}
			if !atomic.CompareAndSwapUint64(w, have, mine) {
				continue
			}
			for t := &h.touched.responders; ; {
				if was := atomic.LoadUint32(t); was > uint32(i) || atomic.CompareAndSwapUint32(t, was, uint32(i)+1) {
					break
				}
			}
			d.claim = w
			return true
		}
	}
	return false
}

// hangUp gives the responder back. Called with mu held.
func (q *queuePair) hangUp() {
	d := &q.dc
	if d.claim == nil {
		return
	}
	atomic.CompareAndSwapUint64(d.claim, uint64(q.p.cfg.Rank+1)<<32|uint64(q.num), 0)
	d.claim = nil
	d.to.bell.Ring()
}

// ask executes a request on a target. Called with mu held, connected and marked.
func (q *queuePair) ask(wr *rdma.SendWR, segs [][]byte, total uint64, guard bool) (rdma.WCStatus, answer) {
	c := q.remote
	switch {
	case atomic.LoadUint32(&c.word)&queueState != uint32(rdma.StateRTR) || atomic.LoadUint32(&c.num) != q.dc.num ||
		rdma.QPType(atomic.LoadUint32(&c.rights)>>24) != rdma.DCT:
		return 0, unanswered
	case atomic.LoadUint64(&c.scope) != q.dc.key:
		return rdma.WCRemAccessErr, accepted
	}
	return q.respond(wr, segs, total, guard)
}

// initiator is who holds a responder of this provider: his context, and his rank.
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
