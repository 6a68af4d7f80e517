package soft

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// region is what a key opens, as its owner knows it; a regionEntry is what
// peers see of it. It is never changed once it is published, only replaced.
type region struct {
	object io.Closer // whose key it is
	pd     *domain
	index  uint32
	key    uint32
	access rdma.Access
	kind   uint32
	queue  uint32 // kindPrivate: the queue pair through which it is good
	guard  bool   // the memory may not be mapped
	window bool   // no name for local memory
	mem    []byte // keeps ordinary memory alive and on the heap
	addr   uint64 // as SGEs and remote addresses name it
	va     uint64
	length uint64
	offset uint64 // in the arena, kindSegment

	grants *atomic.Pointer[[]grant] // kindShared
	layout *mkeyLayout              // kindMkey
}

// take gives a new key of the domain the next free index.
func (d *domain) take(op string, r *region) error {
	if err := d.adopt(op); err != nil {
		return err
	}
	p := d.p
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.free.keys.take()
	if !ok {
		d.disown()
		return &rdma.OpError{Op: op, Detail: fmt.Sprintf("all %d keys are in use: close a region first", p.layout.regions), Err: rdma.ErrNoMemory}
	}
	for len(p.free.keyBytes) <= i {
		p.free.keyBytes = append(p.free.keyBytes, 0)
	}
	r.pd, r.index = d, uint32(i)
	p.head.touched.regions = max(p.head.touched.regions, r.index+1)
	p.nextKey(r)
	return nil
}

// nextKey gives a key another low byte than the one it had, and every key
// before it of the index. Called with mu held.
func (p *Provider) nextKey(r *region) {
	p.free.keyBytes[r.index]++
	r.key = r.index<<8 | uint32(p.free.keyBytes[r.index])
}

// giveBack ends a key that no process uses any more.
func (d *domain) giveBack(index uint32) {
	d.p.mu.Lock()
	d.p.free.keys.give(int(index))
	d.p.mu.Unlock()
	d.disown()
}

// publish opens a key whose entry is not live.
func (p *Provider) publish(r *region) {
	e := &p.regions[r.index]
	e.addr, e.length, e.va, e.offset = r.addr, r.length, r.va, r.offset
	e.pd, e.access, e.queue = r.pd.id, uint32(r.access), r.queue
	atomic.StoreUint32(&e.kind, r.kind) // see peer.markOf
	p.byKey.set(r.index, r)
	atomic.StoreUint64(&e.state, uint64(r.key)|regionLive)
}

// withdraw closes a key, but does not wait for those that have looked at it
// before: see drain.
func (p *Provider) withdraw(index uint32) {
	atomic.StoreUint64(&p.regions[index].state, 0)
	p.byKey.set(index, nil)
}

// memoryRegion is a memory region.
type memoryRegion struct {
	p     *Provider
	index uint32
	owned bool   // the arena's memory goes back at Close
	unmap func() // of a descriptor's memory, nil for other

	now atomic.Pointer[region] // what it is; stored with turn held

	turn   sync.Mutex // held by the goroutine that closes or changes the region, before any other lock
	broken bool       // a change has failed: it can only be closed
	closed bool

	mu      sync.Mutex // guards what follows; after window.mu
	windows []*window  // bound to it
	leaving bool       // no window may be bound
}

// hold binds a window to the region, unless it is going.
func (m *memoryRegion) hold(w *window) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving {
		return false
	}
	m.windows = append(m.windows, w)
	return true
}

func (m *memoryRegion) letGo(w *window) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.windows, w); i >= 0 {
		m.windows = slices.Delete(m.windows, i, i+1)
	}
}

// leave keeps windows away, unless some are bound. Called with turn held.
func (m *memoryRegion) leave(op string) error {
	m.mu.Lock()
	bound := slices.Clone(m.windows)
	m.mu.Unlock()
	for _, w := range bound {
		w.mu.Lock()
		w.prune()
		w.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.windows); n > 0 {
		return &rdma.OpError{Op: op, Detail: fmt.Sprintf("%d memory windows are bound to it: invalidate or close them first", n), Err: rdma.ErrBusy}
	}
	m.leaving = true
	return nil
}

// stay takes leave back.
func (m *memoryRegion) stay() {
	m.mu.Lock()
	m.leaving = false
	m.mu.Unlock()
}

// base says where a region's addresses count from.
type base struct {
	op      string
	iova    uint64
	hasIOVA bool
}

func (d *domain) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	return d.register(buf, access, base{op: "reg_mr"})
}

// RegMRIOVA asks, as libibverbs does, that iova and the memory lie alike in
// their pages.
func (d *domain) RegMRIOVA(buf []byte, iova uint64, access rdma.Access) (rdma.MR, error) {
	return d.register(buf, access, base{op: "reg_mr_iova", iova: iova, hasIOVA: true})
}

func (d *domain) register(buf []byte, access rdma.Access, from base) (rdma.MR, error) {
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	r := &region{access: access}
	if err := d.p.show(r, buf, from); err != nil {
		return nil, err
	}
	m, err := d.enter(from.op, r, nil)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// show makes r the memory of buf, under the rights that r has.
func (p *Provider) show(r *region, buf []byte, from base) error {
	bad := func(format string, args ...any) error { return opError(from.op, rdma.ErrInvalid, format, args...) }
	demand := r.access&rdma.AccessOnDemand != 0
	r.mem, r.va, r.length, r.offset = buf, addressOf(buf), uint64(len(buf)), 0
	r.addr, r.kind, r.guard = r.va, kindOrdinary, demand
	switch {
	case buf == nil && demand:
		if r.access&rdma.AccessZeroBased != 0 || from.hasIOVA {
			return bad("the whole address space has its own addresses")
		}
		r.kind, r.length = kindImplicit, math.MaxUint64
		return nil
	case len(buf) == 0:
		return bad("found no memory, expected a byte or more")
	}
	// Memory of the own arena under another name stays what peers reach fastest.
	if off := r.va - addressOf(p.arena); off < p.layout.size && r.length <= p.layout.size-off {
		r.kind, r.offset, r.guard = kindSegment, off, false
	} else if !demand {
		// On demand is as the memory is when it is touched.
		if err := p.maps.check(r.va, r.length, r.access&rdma.AccessLocalWrite != 0); err != nil {
			return &rdma.OpError{Op: from.op, Detail: fmt.Sprintf("%d bytes at %#x", r.length, r.va), Err: err}
		}
	}
	switch {
	case r.access&rdma.AccessZeroBased != 0 && from.hasIOVA:
		return bad("found an IOVA for a zero-based region, which begins at 0")
	case from.hasIOVA && from.iova+(r.length-1) < from.iova:
		return bad("%d bytes at IOVA %#x wrap", r.length, from.iova)
	case from.hasIOVA && (from.iova^r.va)%pageSize != 0:
		return bad("IOVA %#x and address %#x lie differently in their pages", from.iova, r.va)
	case from.hasIOVA:
		r.addr = from.iova
	case r.access&rdma.AccessZeroBased != 0:
		r.addr = 0
	}
	return nil
}

func (d *domain) AllocMR(length int, access rdma.Access) (rdma.MR, error) {
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	if length <= 0 {
		return nil, &rdma.OpError{Op: "alloc_mr", Detail: fmt.Sprintf("found %d bytes, expected 1 or more", length), Err: rdma.ErrInvalid}
	}
	offset, mem, err := d.p.allocate(uint64(length))
	if err != nil {
		return nil, &rdma.OpError{Op: "alloc_mr", Err: err}
	}
	r := &region{access: access, mem: mem, va: addressOf(mem), length: uint64(length), kind: kindSegment, offset: offset}
	if access&rdma.AccessZeroBased == 0 {
		r.addr = r.va
	}
	m, err := d.enter("alloc_mr", r, nil)
	if err != nil {
		d.p.release(offset, uint64(length))
		return nil, err
	}
	m.owned = true
	return m, nil
}

// enter gives a region its key and publishes it in the protection table.
func (d *domain) enter(op string, r *region, unmap func()) (*memoryRegion, error) {
	if err := d.take(op, r); err != nil {
		return nil, err
	}
	m := &memoryRegion{p: d.p, index: r.index, unmap: unmap}
	r.object = m
	m.now.Store(r)
	d.p.publish(r)
	return m, nil
}

func (m *memoryRegion) PD() rdma.PD         { return m.now.Load().pd }
func (m *memoryRegion) Addr() uint64        { return m.now.Load().addr }
func (m *memoryRegion) Len() uint64         { return m.now.Load().length }
func (m *memoryRegion) LKey() uint32        { return m.now.Load().key }
func (m *memoryRegion) RKey() uint32        { return m.now.Load().key }
func (m *memoryRegion) Access() rdma.Access { return m.now.Load().access }

func (m *memoryRegion) Bytes() []byte {
	if m.unmap != nil {
		return nil
	}
	return m.now.Load().mem
}

const reregAll = rdma.ReregTranslation | rdma.ReregPD | rdma.ReregAccess

// Rereg closes the old key as Close does and opens a new one: a peer that was told
// the old one is refused from then on. Memory that is not there or may not be
// written (EFAULT), and a peer that does not finish, leave a region that can
// only be closed.
func (m *memoryRegion) Rereg(flags rdma.ReregFlags, pd rdma.PD, buf []byte, access rdma.Access) error {
	bad := func(detail string) error { return &rdma.OpError{Op: "rereg_mr", Detail: detail, Err: rdma.ErrInvalid} }
	m.turn.Lock()
	defer m.turn.Unlock()
	if m.closed || m.broken {
		return bad("the region is closed, or a change of it has failed")
	}
	if flags == 0 || flags&^reregAll != 0 {
		return bad(fmt.Sprintf("found flags %#x, expected some of %#x", uint8(flags), uint8(reregAll)))
	}
	if err := m.leave("rereg_mr"); err != nil {
		return err
	}
	defer func() {
		if !m.broken {
			m.stay()
		}
	}()
	old := m.now.Load()
	next := *old
	if flags&rdma.ReregPD != 0 {
		d, ok := pd.(*domain)
		if !ok || d.ctx != old.pd.ctx {
			return bad("found a protection domain of another context")
		}
		next.pd = d
	}
	if flags&rdma.ReregAccess != 0 {
		if err := rdma.CheckAccess(access); err != nil {
			return err
		}
		next.access = access
	}
	if flags&rdma.ReregTranslation != 0 && (m.owned || m.unmap != nil) {
		return bad("the memory is the device's choice")
	}
	if flags&rdma.ReregTranslation == 0 {
		buf = old.mem
	}
	err := m.p.reshow(&next, old, buf, flags)
	if err == nil || !harmless(err) {
		if e := m.replace(old, &next, err); e != nil {
			return e
		}
	}
	return err
}

// reshow is show for a region that has changed. Without a new translation its
// addresses stay, unless it becomes zero-based or ceases to be.
func (p *Provider) reshow(next, old *region, buf []byte, flags rdma.ReregFlags) error {
	from := base{op: "rereg_mr"}
	if flags&rdma.ReregTranslation == 0 && (next.access^old.access)&rdma.AccessZeroBased == 0 && next.access&rdma.AccessZeroBased == 0 && old.addr != old.va {
		from.iova, from.hasIOVA = old.addr, true
	}
	return p.show(next, buf, from)
}

// harmless tells whether a region is what it was after an error of Rereg.
func harmless(err error) bool {
	return errors.Is(err, rdma.ErrInvalid) || errors.Is(err, rdma.ErrBusy) || errors.Is(err, rdma.ErrNotSupported)
}

// replace puts next in old's place, or nothing when the change has failed.
func (m *memoryRegion) replace(old, next *region, failed error) error {
	const op = "rereg_mr"
	if next.pd != old.pd && failed == nil {
		if err := next.pd.adopt(op); err != nil {
			return err
		}
	}
	m.p.withdraw(m.index)
	if m.p.drain(uint64(m.index) + 1) {
		m.broken = true
		if next.pd != old.pd && failed == nil {
			next.pd.disown()
		}
		return &rdma.OpError{Op: op, Detail: stuckDetail(), Err: errStuck}
	}
	if failed != nil {
		m.broken = true
		return nil
	}
	m.p.mu.Lock()
	m.p.nextKey(next)
	m.p.mu.Unlock()
	m.now.Store(next)
	m.p.publish(next)
	if next.pd != old.pd {
		old.pd.disown()
	}
	runtime.KeepAlive(old.mem)
	return nil
}

func stuckDetail() string {
	return fmt.Sprintf("a peer has been in the middle of an operation on the region for %v", drainLimit)
}

// Close deregisters. The order is what makes it safe:
//
//	owner                                initiator
//	entry's state = 0                    mark = entry
//	barrier of all peers                 (nothing, or its own barrier)
//	read the marks of connected peers    read the entry's state
//	wait while one names the entry       copy; mark = 0
//
// Either the initiator sees the state gone or the owner sees the mark. The
// barrier is the owner's, which passes it seldom.
func (m *memoryRegion) Close() error {
	m.turn.Lock()
	defer m.turn.Unlock()
	if m.closed {
		return nil
	}
	if err := m.leave("dereg_mr"); err != nil {
		return err
	}
	p, r := m.p, m.now.Load()
	p.withdraw(m.index)
	stuck := p.drain(uint64(m.index) + 1)
	m.closed = true
	if stuck {
		// The key and the arena's memory are never used again: the peer may
		// wake up and finish.
		p.mu.Lock()
		if m.owned {
			p.abandoned += r.length
		}
		p.mu.Unlock()
		r.pd.disown()
		return &rdma.OpError{Op: "dereg_mr", Detail: stuckDetail(), Err: errStuck}
	}
	if m.owned {
		p.release(r.offset, r.length)
	}
	if m.unmap != nil {
		m.unmap()
	}
	r.pd.giveBack(m.index)
	runtime.KeepAlive(r.mem)
	return nil
}

// barrier orders this goroutine's stores before its later loads against every
// initiator's mark and look.
func barrier() {
	// Where the kernel has none no initiator relies on it: each has a barrier
	// of its own (Provider.quiet), and so has the store before this.
	_ = arch.Membarrier()
}
