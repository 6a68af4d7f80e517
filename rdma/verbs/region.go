package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// A region is an MR. The device reaches the memory by its own mapping of the
// pages, so they may not change while it lives: memory of the Go heap is pinned
// in its place (runtime.Pinner), AllocMR memory is mapped apart from the heap.
type region struct {
	c    *deviceContext
	node node
	h    handle
	view atomic.Pointer[view]

	mu     sync.Mutex // serialises Rereg and Close, and guards what follows
	pin    runtime.Pinner
	mapped []byte // to be unmapped
	spoilt bool   // by a Rereg that failed
}

// A view is what a region is until Rereg makes it another.
type view struct {
	d          *domain
	access     rdma.Access
	addr       uint64 // of the first byte, as requests name it
	length     uint64
	lkey, rkey uint32
	buf        []byte
}

var _ rdma.MR = (*region)(nil)

// accessMask are the rights of a region that libibverbs knows by the same bits.
const accessMask = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic |
	rdma.AccessMWBind | rdma.AccessOnDemand

func (d *domain) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	if buf == nil && access&rdma.AccessOnDemand != 0 {
		return d.regImplicit(access)
	}
	if access&rdma.AccessZeroBased != 0 {
		return d.register("reg_mr", buf, 0, true, access, nil)
	}
	return d.register("reg_mr", buf, addressOf(buf), false, access, nil)
}

func (d *domain) RegMRIOVA(buf []byte, iova uint64, access rdma.Access) (rdma.MR, error) {
	if access&rdma.AccessZeroBased != 0 {
		return nil, invalid("reg_mr_iova", "ZERO_BASED is not possible together with iova")
	}
	return d.register("reg_mr_iova", buf, iova, true, access, nil)
}

// AllocMR maps pages of their own: nothing else of the program shares them.
func (d *domain) AllocMR(length int, access rdma.Access) (rdma.MR, error) {
	if length < 1 || uint64(length) > d.c.attr.MaxMRSize {
		return nil, invalid("reg_mr", "%d bytes: the device has 1 to %d", length, d.c.attr.MaxMRSize)
	}
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(-1, 0, length, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, &rdma.OpError{Op: "reg_mr", Detail: fmt.Sprintf("map %d bytes", length), Err: err}
	}
	iova := addressOf(memory)
	if access&rdma.AccessZeroBased != 0 {
		iova = 0
	}
	mr, err := d.register("reg_mr", memory, iova, iova == 0, access, memory)
	if err != nil {
		_ = syscall.Munmap(memory)
		return nil, err
	}
	return mr, nil
}

// register makes a region of buf whose addresses begin at iova. mapped is what
// the region unmaps.
func (d *domain) register(op string, buf []byte, iova uint64, moved bool, access rdma.Access, mapped []byte) (rdma.MR, error) {
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	if len(buf) == 0 {
		return nil, invalid(op, "the buffer is empty")
	}
	if err := d.c.checkOnDemand(op, access); err != nil {
		return nil, err
	}
	kind := C.int(C.GV_MR_PLAIN)
	if moved {
		kind = C.GV_MR_IOVA
		if page := uint64(os.Getpagesize()); (addressOf(buf)^iova)%page != 0 {
			const same = "address %#x for memory at %#x: the kernel wants the two at the same place of a page"
			if access&rdma.AccessZeroBased != 0 {
				return nil, notSupported(op, same, iova, addressOf(buf))
			}
			return nil, invalid(op, same, iova, addressOf(buf))
		}
		if iova+uint64(len(buf))-1 < iova {
			return nil, invalid(op, "%d bytes at %#x exceed the address space", len(buf), iova)
		}
	}
	r := &region{c: d.c, mapped: mapped}
	if mapped == nil {
		r.pin.Pin(&buf[0])
	}
	request := C.gv_mr{kind: kind, access: C.uint32_t(access & accessMask), addr: C.uint64_t(addressOf(buf)),
		length: C.uint64_t(len(buf)), iova: C.uint64_t(iova)}
	if err := r.make(op, &request, view{d: d, access: access, addr: iova, length: uint64(len(buf)), buf: buf}); err != nil {
		r.pin.Unpin()
		return nil, err
	}
	return r, nil
}

// make calls the verb and takes over what it gave.
func (r *region) make(op string, request *C.gv_mr, v view) error {
	d := v.d
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if err := check(op, &d.node); err != nil {
		return err
	}
	if rc := C.gv_reg_mr(&d.c.lib.c, d.h, request); rc != 0 {
		return failed(op, rc, fmt.Sprintf("%d bytes with %v", v.length, v.access))
	}
	v.lkey, v.rkey = uint32(request.lkey), uint32(request.rkey)
	r.h = request.handle
	r.view.Store(&v)
	r.node.adopt(&d.node)
	return nil
}

// checkOnDemand tells a device without on-demand paging from wrong rights: the
// kernel calls both invalid.
func (c *deviceContext) checkOnDemand(op string, access rdma.Access) error {
	if access&rdma.AccessOnDemand == 0 {
		return nil
	}
	if err := c.Supports(rdma.FeatureODP); err != nil {
		return &rdma.OpError{Op: op, Detail: "ON_DEMAND", Err: err}
	}
	return nil
}

// regImplicit registers the whole address space.
func (d *domain) regImplicit(access rdma.Access) (rdma.MR, error) {
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	if err := d.c.Supports(rdma.FeatureImplicitODP); err != nil {
		return nil, err
	}
	v := view{d: d, access: access, length: ^uint64(0)}
	r := &region{c: d.c}
	err := r.make("reg_mr", &C.gv_mr{kind: C.GV_MR_PLAIN, access: C.uint32_t(access & accessMask), length: C.uint64_t(v.length)}, v)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (d *domain) RegDMABufMR(offset, length, iova uint64, fd int, access rdma.Access) (rdma.MR, error) {
	const op = "reg_dmabuf_mr"
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	if access&(rdma.AccessZeroBased|rdma.AccessOnDemand) != 0 {
		return nil, invalid(op, "a dma-buf region cannot have the rights %v", access)
	}
	if length > 0 && iova+length-1 < iova {
		return nil, invalid(op, "%d bytes at %#x exceed the address space", length, iova)
	}
	r := &region{c: d.c}
	err := r.make(op, &C.gv_mr{kind: C.GV_MR_DMABUF, fd: C.int(fd), access: C.uint32_t(access & accessMask),
		length: C.uint64_t(length), iova: C.uint64_t(iova), offset: C.uint64_t(offset)},
		view{d: d, access: access, addr: iova, length: length})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (d *domain) AdviseMR(advice rdma.Advice, flags rdma.AdviseFlags, sgl []rdma.SGE) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if err := check("advise_mr", &d.node); err != nil {
		return err
	}
	if len(sgl) == 0 { // which the kernel calls invalid
		return nil
	}
	rc := adviseMR(d.h, advice, flags, sgl)
	// The manual has EFAULT for keys and rights too, the kernel's mlx5 says more.
	if errno := syscall.Errno(rc); errno == syscall.ENOENT || errno == syscall.EPERM {
		rc = C.int(syscall.EFAULT)
	}
	return failed("advise_mr", rc, "")
}

// Rereg changes the region in place.
func (r *region) Rereg(flags rdma.ReregFlags, pd rdma.PD, buf []byte, access rdma.Access) error {
	const op = "rereg_mr"
	if flags == 0 || flags&^(rdma.ReregTranslation|rdma.ReregPD|rdma.ReregAccess) != 0 {
		return invalid(op, "unknown flags %#x", uint8(flags))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoilt {
		return invalid(op, "the region can only be closed: a re-registration has failed")
	}
	from := *r.view.Load()
	to := from
	var pdHandle handle
	if flags&rdma.ReregPD != 0 {
		d, ok := pd.(*domain)
		if !ok || d.c != r.c {
			return invalid(op, "the protection domain is of another context")
		}
		to.d, pdHandle = d, d.h
	}
	if flags&rdma.ReregAccess != 0 {
		if err := rdma.CheckAccess(access); err != nil {
			return err
		}
		if access&rdma.AccessZeroBased != 0 {
			return notSupported(op, "ZERO_BASED")
		}
		to.access = access
	}
	var request C.gv_mr
	if flags&rdma.ReregAccess != 0 { // without the flag libibverbs takes no rights
		request.access = C.uint32_t(to.access & accessMask)
	}
	var pin runtime.Pinner
	if flags&rdma.ReregTranslation != 0 {
		if len(buf) == 0 {
			return invalid(op, "the buffer is empty")
		}
		pin.Pin(&buf[0])
		to.buf, to.addr, to.length = buf, addressOf(buf), uint64(len(buf))
		request.addr, request.length = C.uint64_t(to.addr), C.uint64_t(to.length)
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	err := check(op, &r.node, &to.d.node)
	if err == nil {
		var spoilt C.int
		err = failed(op, C.gv_rereg_mr(&r.c.lib.c, r.h, C.int(flags), pdHandle, &request, &spoilt), "")
		if spoilt != 0 {
			r.spoilt = true
			if err != nil && (errors.Is(err, rdma.ErrInvalid) || errors.Is(err, rdma.ErrBusy) || errors.Is(err, rdma.ErrNotSupported)) {
				// Those would say that it is as it was.
				err = &rdma.OpError{Op: op, Detail: err.Error() + ": the region can only be closed", Err: syscall.EIO}
			}
		}
	}
	if err != nil {
		pin.Unpin()
		return err
	}
	to.lkey, to.rkey = uint32(request.lkey), uint32(request.rkey)
	from.d.node.users--
	r.node.adopt(&to.d.node)
	r.view.Store(&to)
	if flags&rdma.ReregTranslation != 0 {
		r.release()
		r.pin = pin
	}
	return nil
}

// release lets go of the memory.
func (r *region) release() {
	r.pin.Unpin()
	if r.mapped != nil {
		_ = syscall.Munmap(r.mapped) // of our own mapping: it cannot fail
		r.mapped = nil
	}
}

func (r *region) PD() rdma.PD         { return r.view.Load().d }
func (r *region) Addr() uint64        { return r.view.Load().addr }
func (r *region) Len() uint64         { return r.view.Load().length }
func (r *region) LKey() uint32        { return r.view.Load().lkey }
func (r *region) RKey() uint32        { return r.view.Load().rkey }
func (r *region) Access() rdma.Access { return r.view.Load().access }
func (r *region) Bytes() []byte       { return r.view.Load().buf }

// Close deregisters. The kernel waits for requests that are under way.
func (r *region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.c.shut("dereg_mr", &r.node, func() error {
		rc := C.gv_dereg_mr(&r.c.lib.c, r.h)
		if syscall.Errno(rc) == syscall.EINVAL {
			// The handle is good, so this is what rxe says of bound windows.
			rc = C.int(syscall.EBUSY)
		}
		if err := failed("dereg_mr", rc, ""); err != nil {
			return err
		}
		r.release()
		return nil
	})
}
