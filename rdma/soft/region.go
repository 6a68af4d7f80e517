package soft

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// domain is a protection domain: a number that regions and queue pairs carry.
type domain struct {
	rdma.UnsupportedPD
	ctx *context
	p   *Provider
	id  uint32

	mu       sync.Mutex // guards what follows
	children int        // regions and queue pairs
	closed   bool
}

func (d *domain) Context() rdma.Context { return d.ctx }

func (d *domain) adopt(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return &rdma.OpError{Op: op, Detail: "the protection domain is closed", Err: rdma.ErrInvalid}
	}
	d.children++
	return nil
}

func (d *domain) disown() {
	d.mu.Lock()
	d.children--
	d.mu.Unlock()
}

func (d *domain) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if d.children > 0 {
		n := d.children
		d.mu.Unlock()
		return &rdma.OpError{Op: "dealloc_pd", Detail: fmt.Sprintf("%d regions and queue pairs are left", n), Err: rdma.ErrBusy}
	}
	d.closed = true
	d.mu.Unlock()
	d.ctx.disown()
	return nil
}

// region is the owner's half of a memory region; a regionEntry is what peers
// see of it.
type region struct {
	rdma.UnsupportedMR
	pd     *domain
	index  uint32
	key    uint32
	access rdma.Access
	kind   uint32
	mem    []byte // keeps ordinary memory alive and on the heap
	addr   uint64 // as SGEs and remote addresses name it
	va     uint64
	length uint64
	offset uint64 // in the arena, kindSegment
	owned  bool   // the arena's memory goes back at Close

	mu     sync.Mutex // guards closed
	closed bool
}

func (d *domain) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	r := &region{access: access, mem: buf, va: addressOf(buf), length: uint64(len(buf)), kind: kindOrdinary}
	r.addr = r.va
	switch {
	case buf == nil && access&rdma.AccessOnDemand != 0:
		if access&rdma.AccessZeroBased != 0 {
			return nil, &rdma.OpError{Op: "reg_mr", Detail: "the whole address space cannot be zero-based", Err: rdma.ErrInvalid}
		}
		r.kind, r.length = kindImplicit, math.MaxUint64
	case len(buf) == 0:
		return nil, &rdma.OpError{Op: "reg_mr", Detail: "no memory", Err: rdma.ErrInvalid}
	default:
		// Memory of the own arena under another name stays what peers reach fastest.
		if off := r.va - addressOf(d.p.arena); off < d.p.layout.size && r.length <= d.p.layout.size-off {
			r.kind, r.offset = kindSegment, off
		}
	}
	if access&rdma.AccessZeroBased != 0 {
		r.addr = 0
	}
	return d.enter("reg_mr", r)
}

func (d *domain) AllocMR(length int, access rdma.Access) (rdma.MR, error) {
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	if length <= 0 {
		return nil, &rdma.OpError{Op: "alloc_mr", Detail: fmt.Sprintf("%d bytes", length), Err: rdma.ErrInvalid}
	}
	offset, mem, err := d.p.allocate(uint64(length))
	if err != nil {
		return nil, &rdma.OpError{Op: "alloc_mr", Err: err}
	}
	r := &region{access: access, mem: mem, va: addressOf(mem), length: uint64(length), kind: kindSegment, offset: offset, owned: true}
	if access&rdma.AccessZeroBased == 0 {
		r.addr = r.va
	}
	mr, err := d.enter("alloc_mr", r)
	if err != nil {
		d.p.release(offset, uint64(length))
	}
	return mr, err
}

// enter gives a region its key and publishes it in the protection table.
func (d *domain) enter(op string, r *region) (rdma.MR, error) {
	if err := d.adopt(op); err != nil {
		return nil, err
	}
	p := d.p
	p.mu.Lock()
	i, ok := p.freeKeys.take()
	if !ok {
		p.mu.Unlock()
		d.disown()
		return nil, &rdma.OpError{Op: op, Detail: fmt.Sprintf("all %d keys are in use", p.layout.regions), Err: rdma.ErrNoMemory}
	}
	for len(p.keyBytes) <= i {
		p.keyBytes = append(p.keyBytes, 0)
	}
	p.keyBytes[i]++
	r.pd, r.index = d, uint32(i)
	r.key = uint32(i)<<8 | uint32(p.keyBytes[i])
	p.head.touched.regions = max(p.head.touched.regions, uint32(i)+1)
	p.mu.Unlock()

	e := &p.regions[i]
	e.addr, e.length, e.va, e.offset = r.addr, r.length, r.va, r.offset
	e.pd, e.access, e.kind = d.id, uint32(r.access), r.kind
	p.byKey.set(r.index, r)
	atomic.StoreUint64(&e.state, uint64(r.key)|regionLive)
	return r, nil
}

func (r *region) PD() rdma.PD         { return r.pd }
func (r *region) Addr() uint64        { return r.addr }
func (r *region) Len() uint64         { return r.length }
func (r *region) LKey() uint32        { return r.key }
func (r *region) RKey() uint32        { return r.key }
func (r *region) Access() rdma.Access { return r.access }
func (r *region) Bytes() []byte       { return r.mem }

// Close deregisters. The order is what makes it safe:
//
//	owner                                initiator
//	entry's state = 0                    mark = entry
//	barrier of all peers                 (nothing, or its own barrier)
//	read the marks of connected peers    read the entry's state
//	wait while one names the entry       copy; mark = 0
//
// Either the initiator sees the state gone or the owner sees the mark. The
// barrier is the owner's, who passes it seldom.
func (r *region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	p := r.pd.p
	atomic.StoreUint64(&p.regions[r.index].state, 0)
	p.byKey.set(r.index, nil)
	stuck := p.drain(uint64(r.index) + 1)
	r.closed = true
	r.pd.disown()
	if stuck {
		// The key and the arena's memory are never used again: the peer may
		// wake up and finish.
		p.mu.Lock()
		if r.owned {
			p.abandoned += r.length
		}
		p.mu.Unlock()
		return &rdma.OpError{Op: "dereg_mr", Detail: fmt.Sprintf("a peer has been in the middle of an operation on the region for %v", drainLimit), Err: errStuck}
	}
	if r.owned {
		p.release(r.offset, r.length)
	}
	p.mu.Lock()
	p.freeKeys.give(int(r.index))
	p.mu.Unlock()
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
