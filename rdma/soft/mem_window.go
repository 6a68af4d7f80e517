package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// window is a memory window. Bound, its key opens a part of a region as a
// region's key does: peers find where the memory is in the window's own entry of
// the protection table, at no more cost. The entry of one of type 2 names its
// queue pair besides.
//
//	type 1: FREE or BOUND -> (bind) -> BOUND, or FREE for a length of 0
//	type 2: FREE -> (bind) -> BOUND -> (LOCAL_INV, or a peer's SEND_WITH_INV) -> FREE
type window struct {
	p     *Provider
	pd    *domain
	typ   rdma.MWType
	index uint32

	turn sync.Mutex // held by the goroutine that closes it, before any other lock

	mu       sync.Mutex    // guards what follows; after queues' locks, before memoryRegion.mu
	key      uint32        // the last one that was asked for
	bound    *region       // what the key opens, nil for nothing
	of       *memoryRegion // whose part that is
	draining bool          // bound is closed, and a process may be at it still
	closed   bool
}

func (d *domain) AllocMW(typ rdma.MWType) (rdma.MW, error) {
	if typ != rdma.MWType1 && typ != rdma.MWType2 {
		return nil, &rdma.OpError{Op: "alloc_mw", Detail: fmt.Sprintf("found type %v, expected type 1 or 2", typ), Err: rdma.ErrInvalid}
	}
	r := &region{}
	if err := d.take("alloc_mw", r); err != nil {
		return nil, err
	}
	return &window{p: d.p, pd: d, typ: typ, index: r.index, key: r.key}, nil
}

func (w *window) PD() rdma.PD       { return w.pd }
func (w *window) Type() rdma.MWType { return w.typ }

func (w *window) RKey() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.key
}

const windowAccess = rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic | rdma.AccessZeroBased

// bindMW is the flag of a binding that comes by way of BindMW.
const bindMW rdma.SendFlags = 1 << 7

// BindMW posts the binding of a window of type 1.
func (q *queuePair) BindMW(mw rdma.MW, wrid uint64, flags rdma.SendFlags, bind rdma.MWBind) error {
	w, ok := mw.(*window)
	if !ok || w.typ != rdma.MWType1 || w.pd.ctx != q.pd.ctx {
		return &rdma.OpError{Op: "bind_mw", Detail: "found another window, expected one of type 1 of this context", Err: rdma.ErrInvalid}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.mu.Lock()
	was := w.key
	w.key = rdma.IncRKey(was)
	wr := [1]rdma.SendWR{{WRID: wrid, Opcode: rdma.WRBindMW, Flags: flags&^rdma.SendInline | bindMW, MW: mw, RKey: w.key, Bind: &bind}}
	w.mu.Unlock()
	n, err := q.postSend(wr[:])
	if n == 0 {
		w.mu.Lock()
		if w.key == wr[0].RKey {
			w.key = was
		}
		w.mu.Unlock()
		return err
	}
	q.ring(wr[:])
	return nil
}

// checkBind judges a binding as a post does: only what is not a binding at all.
// What the device finds wrong with one completes with MW_BIND_ERR.
func (c *context) checkBind(wr *rdma.SendWR) (wrong string) {
	w, ok := wr.MW.(*window)
	if !ok || w.pd.ctx != c || wr.Bind == nil {
		return "there must be a window of this context, and what it is to show"
	}
	if by := wr.Flags&bindMW != 0; by != (w.typ == rdma.MWType1) {
		return "BindMW is for windows of type 1, a request for those of type 2"
	}
	if b := wr.Bind; b.MR == nil && (b.Length != 0 || b.Addr != 0) {
		return "a binding to no region has no length and no address"
	} else if b.Access&^windowAccess != 0 {
		return fmt.Sprintf("a window has no right %v", b.Access&^windowAccess)
	} else if _, ok := b.MR.(*memoryRegion); b.MR != nil && !ok {
		return "the region is none of this device's"
	}
	return ""
}

// show gives what the window is to show, nil if it may not. Its region is held.
func (w *window) show(q *queuePair, wr *rdma.SendWR) (*region, *memoryRegion) {
	b := wr.Bind
	m, ok := b.MR.(*memoryRegion)
	if !ok || !m.hold(w) {
		return nil, nil
	}
	r := m.now.Load()
	const written = rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic
	switch {
	case r.pd != w.pd, r.access&rdma.AccessMWBind == 0, r.access&rdma.AccessZeroBased != 0,
		b.Access&written != 0 && r.access&rdma.AccessLocalWrite == 0, !r.holds(b.Addr, b.Length):
		m.letGo(w)
		return nil, nil
	}
	off := b.Addr - r.addr
	part := &region{
		object: w, pd: w.pd, index: w.index, key: wr.RKey, access: b.Access &^ rdma.AccessZeroBased,
		kind: r.kind, guard: r.guard, window: true,
		addr: b.Addr, va: r.va + off, length: b.Length, offset: r.offset + off,
	}
	if r.mem != nil {
		part.mem = r.mem[off : off+b.Length : off+b.Length]
	}
	if w.typ == rdma.MWType2 {
		part.queue, part.kind = q.num, part.kind|kindPrivate
	}
	if b.Access&rdma.AccessZeroBased != 0 {
		part.addr = 0
	}
	return part, m
}

// begin closes what the window shows, if it may be bound as asked.
func (w *window) begin(q *queuePair, wr *rdma.SendWR) (*drain, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := !w.closed && w.pd == q.pd && wr.RKey>>8 == w.index
	if w.typ == rdma.MWType2 {
		w.prune()
		ok = ok && w.bound == nil && wr.Bind.Length > 0
		if ok {
			w.key = wr.RKey
		}
	}
	if ok && wr.Bind.Length > 0 {
		var m *memoryRegion
		if _, m = w.show(q, wr); m != nil {
			m.letGo(w) // it is shown at the end
		}
		ok = m != nil
	}
	if !ok {
		w.refuse(wr)
		return nil, false
	}
	if w.bound == nil {
		return nil, true
	}
	w.p.withdraw(w.index)
	w.draining = true
	return w.p.drainOf(uint64(w.index)+1, q, true), true
}

// refuse takes the key of a binding that failed back. Called with mu held.
func (w *window) refuse(wr *rdma.SendWR) {
	if w.typ == rdma.MWType1 && w.key == wr.RKey && w.bound != nil {
		w.key = w.bound.key
	}
}

// end opens it.
func (w *window) end(q *queuePair, wr *rdma.SendWR) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free()
	if w.closed {
		return false
	}
	if wr.Bind.Length == 0 {
		return true
	}
	part, m := w.show(q, wr)
	if m == nil {
		return false
	}
	w.bound, w.of = part, m
	w.p.mu.Lock()
	w.p.free.keyBytes[w.index] = uint8(part.key) // the next owner of the index has another
	w.p.mu.Unlock()
	w.p.publish(part)
	return true
}

// free unbinds it, when no process is at what it showed. Called with mu held.
func (w *window) free() {
	if w.bound != nil {
		w.p.byKey.set(w.index, nil)
		w.of.letGo(w)
	}
	w.bound, w.of, w.draining = nil, nil, false
}

// prune frees a window that the peer has invalidated, which its owner may not
// have heard of yet. The peer alone could use it, and has done with it. Called
// with mu held.
func (w *window) prune() {
	if w.bound != nil && w.typ == rdma.MWType2 && !w.draining && !w.p.isLive(w.bound) {
		w.free()
	}
}

// isLive tells whether a key is still as it was published.
func (p *Provider) isLive(r *region) bool {
	return atomic.LoadUint64(&p.regions[r.index].state) == uint64(r.key)|regionLive
}

func (w *window) invalidate(q *queuePair, key uint32) (*drain, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.typ != rdma.MWType2 || w.bound == nil || w.bound.key != key || w.bound.queue != q.num || !w.p.isLive(w.bound) {
		return nil, false
	}
	w.p.withdraw(w.index)
	w.draining = true
	return w.p.drainOf(uint64(w.index)+1, q, false), true
}

func (w *window) invalidated(key uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != nil && w.bound.key == key {
		w.free()
	}
}

// endBy needs no drain: the peer alone could use the window, and its requests
// are executed one after the other.
func (w *window) endBy(num, key uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound == nil || w.draining || w.bound.key != key || w.bound.queue != num {
		return false
	}
	w.p.withdraw(w.index)
	w.free()
	return true
}

// Close frees the window. What it shows is closed as a region is.
func (w *window) Close() error {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.mu.Lock()
	closed, used := w.closed, w.bound != nil
	w.closed = true
	w.mu.Unlock()
	if closed {
		return nil
	}
	if used {
		w.p.withdraw(w.index)
		if w.p.drain(uint64(w.index) + 1) {
			w.pd.disown() // the key, and the region, are never given back
			return &rdma.OpError{Op: "dealloc_mw", Detail: stuckDetail(), Err: errStuck}
		}
	}
	w.mu.Lock()
	w.free()
	w.mu.Unlock()
	w.pd.giveBack(w.index)
	return nil
}
