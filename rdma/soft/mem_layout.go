package soft

import (
	"sort"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A walk goes through the blocks of a layout one by one. The pieces may be a
// peer's, in its arena: each is read once and checked, its region is looked up
// as for any request, and every step covers a byte at least of those that the
// request asks for.
type walk struct {
	pieces []piece
	pd     uint32
	i      int    // the next piece
	turn   uint64 // in this round
	inside uint64 // from this byte of its block on
	left   uint64 // bytes to go
}

// A block is the next bytes of a layout that lie together.
type block struct {
	addr, n uint64
	lkey    uint32
}

// begin starts a walk of n bytes at off.
func (w *walk) begin(h layoutHeader, pieces []piece, off, n uint64) bool {
	if h.round == 0 || len(pieces) == 0 || off/h.round >= uint64(h.repeat) {
		return false
	}
	in := off % h.round
	i := sort.Search(len(pieces), func(i int) bool { return pieces[i].start > in }) - 1
	if i < 0 {
		return false
	}
	w.pieces, w.i, w.turn, w.inside, w.left = pieces, i, off/h.round, in-pieces[i].start, n
	return true
}

// next is the next block. It is false when the layout is none.
func (w *walk) next() (block, bool) {
	s := w.pieces[w.i]
	if w.inside >= uint64(s.count) {
		return block{}, false
	}
	b := block{
		addr: s.addr + w.turn*(uint64(s.count)+uint64(s.skip)) + w.inside,
		n:    min(uint64(s.count)-w.inside, w.left), lkey: s.lkey,
	}
	w.left -= b.n
	w.inside = 0
	if w.i++; w.i == len(w.pieces) {
		w.i, w.turn = 0, w.turn+1
	}
	return b, true
}

// walk starts a walk through a key's layout, which the caller has found by look.
func (s *peer) walk(key uint32, off, n uint64) (w walk, ok bool) {
	if s.own {
		r := s.p.byKey.get(key >> 8)
		if r == nil || r.key != key || r.kind != kindMkey {
			return w, false
		}
		w.pd = r.pd.id
		return w, w.begin(r.layout.layoutHeader, r.layout.list, off, n)
	}
	index := uint64(key >> 8)
	if index >= uint64(len(s.regions)) {
		return w, false
	}
	e := &s.regions[index]
	if atomic.LoadUint64(&e.state) != uint64(key)|regionLive || e.kind != kindMkey {
		return w, false
	}
	at_ := e.offset
	head := at[layoutHeader](s.arena, at_)
	if head == nil || at_ < s.p.layout.heapAt {
		return w, false
	}
	h := *head
	if h.pieces > maxMkeyEntries {
		return w, false
	}
	w.pd = e.pd
	return w, w.begin(h, tableAt[piece](s.arena, at_+layoutHeaderSize, int(h.pieces)), off, n)
}

// moveLaid stores b at off of a span that is a layout, or loads it from there.
func (t *span) moveLaid(off int, b []byte, guardLocal, load bool) rdma.WCStatus {
	w, ok := t.s.walk(t.key, t.va+uint64(off), uint64(len(b)))
	for ok && len(b) > 0 {
		var at block
		if at, ok = w.next(); !ok {
			break
		}
		var sp span
		if ok = t.s.resolve(&sp, at.lkey, w.pd, at.addr, at.n, t.need); !ok || sp.key != 0 {
			break
		}
		var st rdma.WCStatus
		if load {
			st = sp.get(0, b[:at.n], guardLocal)
		} else {
			st = sp.put(0, b[:at.n], guardLocal)
		}
		if st != rdma.WCSuccess {
			return st
		}
		b = b[at.n:]
	}
	if len(b) > 0 {
		return rdma.WCRemAccessErr
	}
	return rdma.WCSuccess
}

// word gives the 8 bytes of an atomic, which must lie in one block.
func (t *span) word() (span, rdma.WCStatus) {
	w, ok := t.s.walk(t.key, t.va, 8)
	if !ok {
		return span{}, rdma.WCRemAccessErr
	}
	at, ok := w.next()
	if ok && at.n < 8 {
		return span{}, rdma.WCRemInvReqErr
	}
	var sp span
	if !ok || !t.s.resolve(&sp, at.lkey, w.pd, at.addr, 8, t.need) || sp.key != 0 {
		return span{}, rdma.WCRemAccessErr
	}
	return sp, rdma.WCSuccess
}

// markOf is what an initiator marks for a request on a key: through a layout it
// reaches any region of the peer. While a key is live its entry's kind does not change.
func (s *peer) markOf(key uint32) uint64 {
	i := uint64(key >> 8)
	if i < uint64(len(s.regions)) && atomic.LoadUint32(&s.regions[i].kind) == kindMkey {
		return markQueue
	}
	return i + 1
}

// open resolves a key that a request names, at the queue pair's peer. A layout
// that came to be after the request was marked is not there for it.
func (q *queuePair) open(sp *span, key uint32, addr, n uint64, need rdma.Access) bool {
	return q.peer.open(sp, q.remote, key, addr, n, need) && (sp.key == 0 || q.own.mark&markWhat == markQueue)
}
