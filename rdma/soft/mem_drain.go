package soft

import "sync/atomic"

// A drain is the wait for those that may be in the middle of an operation on a
// key that was taken back: what Provider.drain does, asked again and again
// instead of blocking.
type drain struct {
	marks []seenMark
	busy  []*queuePair // whose lock was taken: they may be at it for a peer over TCP

	claims []seenClaim // of receives that may name the key
}

// A seenClaim is a receive of a shared queue that a peer was filling.
type seenClaim struct {
	claim *uint64
	word  uint64
	rank  int
}

// A seenMark is a mark at the key. When it has changed its initiator looks at
// the key anew.
type seenMark struct {
	context *queueContext
	dead    func() bool
	mark    uint64
}

// drainOf begins the wait for initiators that may be at what, which is taken back
// already: for all of them, or for q's peer alone where only that one can be. Called with q's mu
// held, which keeps q itself out.
func (p *Provider) drainOf(what uint64, q *queuePair, everybody bool) *drain {
	barrier()
	d := new(drain)
	if !everybody {
		d.look(q, what)
		return d
	}
	p.mu.Lock()
	n, shared := p.head.touched.queues, p.head.touched.shared
	p.mu.Unlock()
	for i := range min(n, uint32(len(p.queues))) {
		if other := p.byQPN.get(i); other != nil {
			d.look(other, what)
			if other != q {
				d.busy = append(d.busy, other)
			}
		}
	}
	for i := range min(shared, uint32(len(p.shared))) {
		h := p.byShared.get(i)
		if h == nil {
			continue
		}
		for k := range h.claims {
			if w := atomic.LoadUint64(&h.claims[k]); h.abroad(w) >= 0 {
				d.claims = append(d.claims, seenClaim{&h.claims[k], w, h.abroad(w)})
			}
		}
	}
	list := p.answering()
	for i := range list {
		if c, rank := p.initiator(&list[i]); c != nil && c != q.own {
			d.note(c, func() bool { return p.holderDead(rank) }, what)
		}
	}
	return d
}

// look notes a queue pair's peer if it is at what.
func (d *drain) look(q *queuePair, what uint64) {
	if t := q.target.Load(); t != nil {
		d.note(t.context, t.peer.checkDead, what)
	}
}

// note notes an initiator that is at what.
func (d *drain) note(c *queueContext, dead func() bool, what uint64) {
	if m := atomic.LoadUint64(&c.mark); names(m, what) {
		d.marks = append(d.marks, seenMark{c, dead, m})
	}
}

// over tells whether no process is at it any more.
func (d *drain) over(p *Provider) bool {
	kept := d.marks[:0]
	for _, s := range d.marks {
		if atomic.LoadUint64(&s.context.mark) == s.mark && !s.dead() {
			kept = append(kept, s)
		}
	}
	d.marks = kept
	busy := d.busy[:0]
	for _, q := range d.busy {
		if !q.mu.TryLock() {
			busy = append(busy, q)
			continue
		}
		q.mu.Unlock()
	}
	d.busy = busy
	claims := d.claims[:0]
	for _, s := range d.claims {
		if atomic.LoadUint64(s.claim) == s.word && !p.holderDead(s.rank) {
			claims = append(claims, s)
		}
	}
	d.claims = claims
	return len(d.marks) == 0 && len(d.busy) == 0 && len(d.claims) == 0
}
