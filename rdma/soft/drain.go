package soft

import (
	"sync/atomic"
)

// A drain is the wait for those who may be in the middle of an operation on a
// key that was taken back: what Provider.drain does, asked again and again
// instead of blocking.
type drain struct {
	marks []seenMark
	busy  []*queuePair // whose lock was taken: they may be at it for a peer over TCP
}

// A seenMark is a mark at the key. When it has changed its initiator looks at
// the key anew.
type seenMark struct {
	t    *target
	mark uint64
}

// drainOf begins the wait for who may be at what, which is taken back already:
// for everybody, or for q's peer alone where only he can be. Called with q's mu
// held, which keeps q itself out.
func (p *Provider) drainOf(what uint64, q *queuePair, everybody bool) *drain {
	barrier()
	d := new(drain)
	if !everybody {
		d.look(q, what)
		return d
	}
	p.mu.Lock()
	n := p.head.touched.queues
	p.mu.Unlock()
	for i := range min(n, uint32(len(p.queues))) {
		if other := p.byQPN.get(i); other != nil {
			d.look(other, what)
			if other != q {
				d.busy = append(d.busy, other)
			}
		}
	}
	return d
}

// look notes a queue pair's peer if he is at what.
func (d *drain) look(q *queuePair, what uint64) {
	if t := q.target.Load(); t != nil {
		if m := atomic.LoadUint64(&t.context.mark); names(m, what) {
			d.marks = append(d.marks, seenMark{t, m})
		}
	}
}

// over tells whether nobody is at it any more.
func (d *drain) over() bool {
	kept := d.marks[:0]
	for _, s := range d.marks {
		if atomic.LoadUint64(&s.t.context.mark) == s.mark && !s.t.peer.checkDead() {
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
	return len(d.marks) == 0 && len(d.busy) == 0
}
