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
		return w, w.begin(r.weave.layoutHeader, r.weave.list, off, n)
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

// weave stores b at off of a span that is a layout, or loads it from there.
func (t *span) weave(off int, b []byte, guardLocal, load bool) rdma.WCStatus {
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

// A gathering is the local memory of a request that names layouts. It is given
// out some blocks at a time, so that a layout of thousands needs no list of
// thousands.
type gathering struct {
	pd    *domain
	sgl   []rdma.SGE
	need  rdma.Access
	walk  walk // through the layout of the first of sgl, if woven
	woven bool
	guard bool   // what was given out last may not be mapped
	skip  uint64 // bytes of the first of sgl that are given out
}

// blocksAtOnce is how many blocks are given out at a time.
const blocksAtOnce = 64

// gatherWoven is gather from byte from on, for a request with layouts among its
// memory.
func (q *queuePair) gatherWoven(wr *rdma.SendWR, need rdma.Access, from uint64) (segs [][]byte, total uint64, guard, ok bool) {
	pd, woven := q.gatherFrom(wr), false
	for i := range wr.SGL {
		total += uint64(wr.SGL[i].Length)
		if r := q.p.byKey.get(wr.SGL[i].LKey >> 8); r != nil && r.kind == kindMkey {
			woven = true
		}
	}
	if !woven {
		return nil, 0, false, false
	}
	if q.near == nil {
		q.near = new(gathering)
	}
	// All is looked at before anything goes out.
	q.near.begin(pd, wr.SGL, need, 0)
	for {
		segs, ok = q.blocks(false)
		if !ok {
			return nil, 0, false, false
		}
		guard = guard || q.near.guard
		if len(segs) == 0 {
			break
		}
	}
	q.near.begin(pd, wr.SGL, need, from)
	q.woven = true
	segs, ok = q.blocks(true)
	return segs, total, guard, ok
}

func (g *gathering) begin(pd *domain, sgl []rdma.SGE, need rdma.Access, from uint64) {
	*g = gathering{pd: pd, sgl: sgl, need: need}
	for len(g.sgl) > 0 && from >= uint64(g.sgl[0].Length) {
		from -= uint64(g.sgl[0].Length)
		g.sgl = g.sgl[1:]
	}
	g.skip = from
}

// more gives the next blocks of the request that gather began, nil for no more.
func (q *queuePair) more() [][]byte {
	if !q.woven {
		return nil
	}
	segs, _ := q.blocks(true)
	if len(segs) == 0 {
		q.woven = false
		return nil
	}
	return segs
}

// blocks gives some blocks. It is false when one of them may not be touched.
func (q *queuePair) blocks(keep bool) ([][]byte, bool) {
	g, segs := q.near, q.segs[:0]
	g.guard = false
	for len(segs) < blocksAtOnce && len(g.sgl) > 0 {
		s := &g.sgl[0]
		if s.Length == 0 {
			g.sgl = g.sgl[1:]
			continue
		}
		if !g.woven {
			r := q.p.byKey.get(s.LKey >> 8)
			if r != nil && r.kind == kindMkey {
				n := uint64(s.Length)
				if r.key != s.LKey || r.pd != g.pd || g.need&^r.access != 0 || s.Addr > r.length || n > r.length-s.Addr ||
					!g.walk.begin(r.weave.layoutHeader, r.weave.list, s.Addr+g.skip, n-g.skip) {
					return nil, false
				}
				g.woven = true
			}
		}
		at := block{s.Addr + g.skip, uint64(s.Length) - g.skip, s.LKey}
		if g.woven {
			var ok bool
			if at, ok = g.walk.next(); !ok {
				return nil, false
			}
		}
		mem, guard, ok := g.pd.local(&rdma.SGE{Addr: at.addr, Length: uint32(at.n), LKey: at.lkey}, g.need)
		if !ok {
			return nil, false
		}
		g.guard = g.guard || guard
		segs = append(segs, mem)
		if g.skip += at.n; g.skip == uint64(s.Length) {
			g.sgl, g.skip, g.woven = g.sgl[1:], 0, false
		}
	}
	q.segs = segs
	return segs, true
}

// outOf copies n bytes at off of a request's memory, which is layouts or may not
// be mapped.
func (q *queuePair) outOf(wr *rdma.SendWR, segs [][]byte, off, n int) ([]byte, bool) {
	if !q.woven {
		return guardedCopy(segs, off, n)
	}
	b := make([]byte, 0, n)
	segs, _, _, ok := q.gatherWoven(wr, 0, uint64(off))
	for ; ok && segs != nil && len(b) < n; segs = q.more() {
		for _, s := range segs {
			k := min(len(s), n-len(b))
			if !guarded(b[len(b):len(b)+k], s[:k]) {
				return nil, false
			}
			b = b[:len(b)+k]
		}
	}
	q.woven = true // there may be another piece to send
	return b, len(b) == n
}

// into places b at off of a request's memory.
func (q *queuePair) into(wr *rdma.SendWR, segs [][]byte, off int, b []byte, guard bool) rdma.WCStatus {
	if !q.woven {
		return scatterBytes(segs, off, b, guard)
	}
	segs, _, _, ok := q.gatherWoven(wr, rdma.AccessLocalWrite, uint64(off))
	for ; ok && segs != nil && len(b) > 0; segs = q.more() {
		for _, s := range segs {
			k := min(len(s), len(b))
			if !guarded(s[:k], b[:k]) {
				return rdma.WCLocProtErr
			}
			b = b[k:]
		}
	}
	q.woven = false
	if len(b) > 0 {
		return rdma.WCLocProtErr
	}
	return rdma.WCSuccess
}
