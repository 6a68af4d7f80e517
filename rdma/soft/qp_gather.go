package soft

import "github.com/gorun-mpi/gorun/rdma"

// A gatherer finds the memory of its own side that a queue pair's requests name.
// Guarded by the queue pair's mu.
type gatherer struct {
	segs    [][]byte   // what was found
	layouts *gathering // of a request that names layouts; made when first needed
	laid    bool       // the request under way is one
}

// gather finds the local memory of a request. guard says that a part of it may
// not be mapped. The result is valid until the next gather.
func (m *gatherer) gather(pd *domain, wr *rdma.SendWR) (segs [][]byte, total uint64, guard, ok bool) {
	segs = m.segs[:0]
	m.laid = false
	if wr.Flags&rdma.SendInline != 0 {
		if wr.Inline != nil {
			if len(wr.Inline) > 0 {
				segs = append(segs, wr.Inline)
			}
			m.segs = segs
			return segs, uint64(len(wr.Inline)), false, true
		}
		for i := range wr.SGL {
			g := &wr.SGL[i]
			if g.Length == 0 {
				continue
			}
			// Inline data has no key check. When there is a region after
			// all its memory is known to be mapped.
			mem, whole, found := pd.local(g, 0)
			if !found {
				if g.Addr < lowestAddress || g.Addr > highestAddress {
					return nil, 0, false, false
				}
				mem, whole = memoryAt(g.Addr, int(g.Length)), true
			}
			segs = append(segs, mem)
			guard = guard || whole
			total += uint64(g.Length)
		}
		m.segs = segs
		return segs, total, guard, true
	}
	need := rdma.Access(0)
	if wr.Opcode.Operation().Fetches() {
		need = rdma.AccessLocalWrite
	}
	if r := ofDevice(wr); r != nil {
		pd = r.t.h.pd // the queue with the tags may be of another domain
	}
	for i := range wr.SGL {
		g := &wr.SGL[i]
		if g.Length == 0 {
			continue
		}
		mem, whole, found := pd.local(g, need)
		if !found {
			return m.gatherLaid(pd, wr, need, 0)
		}
		segs = append(segs, mem)
		guard = guard || whole
		total += uint64(g.Length)
	}
	m.segs = segs
	return segs, total, guard, true
}

// local checks and translates a local memory name. guard says that the memory
// may not be mapped.
func (d *domain) local(g *rdma.SGE, need rdma.Access) (mem []byte, guard, ok bool) {
	r := d.p.byKey.get(g.LKey >> 8)
	if r == nil || r.key != g.LKey || r.pd != d || need&^r.access != 0 || r.window {
		return nil, false, false
	}
	off, n := g.Addr-r.addr, uint64(g.Length)
	if r.kind >= kindImplicit {
		if r.kind == kindMkey || !r.holds(g.Addr, n) || r.kind == kindShared && !grants(*r.grants.Load(), g.Addr, n, need) {
			return nil, false, false
		}
		return memoryAt(g.Addr, int(n)), true, true
	}
	if g.Addr < r.addr || off > r.length || n > r.length-off {
		return nil, false, false
	}
	return r.mem[off : off+n : off+n], r.guard, true
}

// A gathering is the local memory of a request that names layouts. It is given
// out some blocks at a time, so that a layout of thousands needs no list of
// thousands.
type gathering struct {
	pd    *domain
	sgl   []rdma.SGE
	need  rdma.Access
	walk  walk // through the layout of the first of sgl, if laid
	laid  bool
	guard bool   // what was given out last may not be mapped
	skip  uint64 // bytes of the first of sgl that are given out
}

// blocksAtOnce is how many blocks are given out at a time.
const blocksAtOnce = 64

// gatherLaid is gather from byte from on, for a request with layouts among its
// memory.
func (m *gatherer) gatherLaid(pd *domain, wr *rdma.SendWR, need rdma.Access, from uint64) (segs [][]byte, total uint64, guard, ok bool) {
	laid := false
	for i := range wr.SGL {
		total += uint64(wr.SGL[i].Length)
		if r := pd.p.byKey.get(wr.SGL[i].LKey >> 8); r != nil && r.kind == kindMkey {
			laid = true
		}
	}
	if !laid {
		return nil, 0, false, false
	}
	if m.layouts == nil {
		m.layouts = new(gathering)
	}
	// All is looked at before anything goes out.
	m.layouts.begin(pd, wr.SGL, need, 0)
	for {
		segs, ok = m.blocks()
		if !ok {
			return nil, 0, false, false
		}
		guard = guard || m.layouts.guard
		if len(segs) == 0 {
			break
		}
	}
	m.layouts.begin(pd, wr.SGL, need, from)
	m.laid = true
	segs, ok = m.blocks()
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
func (m *gatherer) more() [][]byte {
	if !m.laid {
		return nil
	}
	segs, _ := m.blocks()
	if len(segs) == 0 {
		m.laid = false
		return nil
	}
	return segs
}

// blocks gives some blocks. It is false when one of them may not be touched.
func (m *gatherer) blocks() ([][]byte, bool) {
	g, segs := m.layouts, m.segs[:0]
	g.guard = false
	for len(segs) < blocksAtOnce && len(g.sgl) > 0 {
		s := &g.sgl[0]
		if s.Length == 0 {
			g.sgl = g.sgl[1:]
			continue
		}
		if !g.laid {
			r := g.pd.p.byKey.get(s.LKey >> 8)
			if r != nil && r.kind == kindMkey {
				n := uint64(s.Length)
				if r.key != s.LKey || r.pd != g.pd || g.need&^r.access != 0 || s.Addr > r.length || n > r.length-s.Addr ||
					!g.walk.begin(r.layout.layoutHeader, r.layout.list, s.Addr+g.skip, n-g.skip) {
					return nil, false
				}
				g.laid = true
			}
		}
		at := block{s.Addr + g.skip, uint64(s.Length) - g.skip, s.LKey}
		if g.laid {
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
			g.sgl, g.skip, g.laid = g.sgl[1:], 0, false
		}
	}
	m.segs = segs
	return segs, true
}

// outOf copies n bytes at off of a request's memory, which is layouts or may not
// be mapped.
func (m *gatherer) outOf(wr *rdma.SendWR, segs [][]byte, off, n int) ([]byte, bool) {
	if !m.laid {
		return guardedCopy(segs, off, n)
	}
	b := make([]byte, 0, n)
	segs, _, _, ok := m.gatherLaid(m.layouts.pd, wr, 0, uint64(off))
	for ; ok && segs != nil && len(b) < n; segs = m.more() {
		for _, s := range segs {
			k := min(len(s), n-len(b))
			if !guarded(b[len(b):len(b)+k], s[:k]) {
				return nil, false
			}
			b = b[:len(b)+k]
		}
	}
	m.laid = true // there may be another piece to send
	return b, len(b) == n
}

// into places b at off of a request's memory.
func (m *gatherer) into(wr *rdma.SendWR, segs [][]byte, off int, b []byte, guard bool) rdma.WCStatus {
	if !m.laid {
		return scatterBytes(segs, off, b, guard)
	}
	segs, _, _, ok := m.gatherLaid(m.layouts.pd, wr, rdma.AccessLocalWrite, uint64(off))
	for ; ok && segs != nil && len(b) > 0; segs = m.more() {
		for _, s := range segs {
			k := min(len(s), len(b))
			if !guarded(s[:k], b[:k]) {
				return rdma.WCLocProtErr
			}
			b = b[k:]
		}
	}
	m.laid = false
	if len(b) > 0 {
		return rdma.WCLocProtErr
	}
	return rdma.WCSuccess
}

// guardedCopy copies n bytes at off of memory that may not be mapped.
func guardedCopy(segs [][]byte, off, n int) ([]byte, bool) {
	b := make([]byte, 0, n)
	for _, s := range segs {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		k := min(len(s)-off, n-len(b))
		if !guarded(b[len(b):len(b)+k], s[off:off+k]) {
			return nil, false
		}
		b, off = b[:len(b)+k], 0
	}
	return b, true
}

// readableAt tells whether n bytes at off of segs, which may not be mapped, can be read now.
func readableAt(segs [][]byte, off, n int) bool {
	for _, s := range segs {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		k := min(len(s)-off, n)
		if !readable(s[off : off+k]) {
			return false
		}
		if off, n = 0, n-k; n == 0 {
			break
		}
	}
	return true
}

// scatterBytes places b at off of segs.
func scatterBytes(segs [][]byte, off int, b []byte, guard bool) rdma.WCStatus {
	for _, s := range segs {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		k := min(len(s)-off, len(b))
		if guard {
			if !guarded(s[off:off+k], b[:k]) {
				return rdma.WCLocProtErr
			}
		} else {
			copyRelease(s[off:off+k], b[:k])
		}
		b, off = b[k:], 0
		if len(b) == 0 {
			break
		}
	}
	return rdma.WCSuccess
}
