package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"os"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// Bits of ibv_device_cap_flags and ibv_odp_general_caps.
const (
	capSRQResize    = 1 << 13
	capXRC          = 1 << 20
	capMemMgt       = 1 << 21
	odpGeneral      = 1 << 0
	odpImplicit     = 1 << 1
	atomicCapNone   = 0
	rcODPSend       = 1 << 0
	probeInlineMost = 1024
)

// transport is the feature that queue pairs of a type are.
func transport(t rdma.QPType) rdma.Feature {
	switch t {
	case rdma.RC:
		return rdma.FeatureRC
	case rdma.UC:
		return rdma.FeatureUC
	case rdma.UD:
		return rdma.FeatureUD
	case rdma.XRCSend, rdma.XRCRecv:
		return rdma.FeatureXRC
	case rdma.DCI, rdma.DCT:
		return rdma.FeatureDC
	}
	return noFeature
}

// noFeature is none of rdma.Features.
const noFeature rdma.Feature = 255

// Supports tells what the device can do, from its attributes or by trying, once
// for all contexts of the device. A trial that failed for want of rights or
// memory says nothing of the device and is made again at the next call.
func (c *deviceContext) Supports(f rdma.Feature) error {
	facts := c.device.facts
	facts.mu.Lock()
	defer facts.mu.Unlock()
	if err, known := facts.features[f]; known {
		return err
	}
	err := c.probe(f)
	if err == nil || errors.Is(err, rdma.ErrNotSupported) {
		facts.features[f] = err
	}
	return err
}

func (c *deviceContext) probe(f rdma.Feature) error {
	lacks := func(format string, args ...any) error { return notSupported(f.String(), format, args...) }
	says := func(has bool, reason string) error {
		if has {
			return nil
		}
		return lacks("%s", reason)
	}
	if reason, lacking := Lacking()[f]; lacking {
		return lacks("%s", reason)
	}
	switch f {
	case rdma.FeatureDC, rdma.FeatureUMR:
		ext, err := c.mlx5(f.String())
		if err != nil {
			return err
		}
		return c.probeMlx5(f, ext)
	case rdma.FeatureRC:
		return c.tryQP(f, rdma.RC)
	case rdma.FeatureUC:
		return c.tryQP(f, rdma.UC)
	case rdma.FeatureUD:
		return c.tryQP(f, rdma.UD)
	case rdma.FeatureXRC:
		if c.caps.cap_flags&capXRC == 0 {
			return lacks("the device's capabilities have no XRC")
		}
		return c.tryXRCD(f)
	case rdma.FeatureSRQ:
		return says(c.attr.MaxSRQ > 0, "the device has no shared receive queues")
	case rdma.FeatureAtomics:
		return says(c.caps.atomic_cap != atomicCapNone, "the device's atomic capability is NONE")
	case rdma.FeatureInlineSend:
		return says(c.tryInline() > 0, "the device takes no queue pair with inline data")
	case rdma.FeatureMW1:
		return c.tryMW(f, rdma.MWType1)
	case rdma.FeatureMW2:
		return c.tryMW(f, rdma.MWType2)
	case rdma.FeatureSendWithInv:
		return says(c.caps.cap_flags&capMemMgt != 0, "the device's capabilities have no memory management extensions")
	case rdma.FeatureIOVA, rdma.FeatureZeroBased: // of memory that begins at a page
		return c.tryMR(f, &C.gv_mr{kind: C.GV_MR_IOVA})
	case rdma.FeatureReregMR:
		return c.tryRereg(f)
	case rdma.FeatureODP:
		return says(c.caps.odp_general&odpGeneral != 0 && c.caps.odp_rc&rcODPSend != 0, "the device's on-demand paging capabilities are none")
	case rdma.FeatureImplicitODP:
		return says(c.caps.odp_general&odpImplicit != 0, "the device's on-demand paging capabilities have no implicit regions")
	case rdma.FeatureDMABuf:
		return c.tryDMABuf(f)
	case rdma.FeatureExtendedCQ:
		return c.tryExtendedCQ(f)
	case rdma.FeatureTagMatching:
		if !c.matchesTags() {
			return lacks("the device's tag-matching capabilities are none")
		}
		return c.tryTags(f)
	case rdma.FeatureCompChannel, rdma.FeatureAsyncEvents: // every device has them
		return nil
	}
	return lacks("no such feature")
}

// conclude makes of a trial's error what it says of the device: EINVAL and
// EOPNOTSUPP that it cannot, anything else that nothing was found out.
func conclude(f rdma.Feature, err error) error {
	if err != nil && errors.Is(err, rdma.ErrInvalid) && !errors.Is(err, rdma.ErrNotSupported) {
		return notSupported(f.String(), "tried, and the device answers: %v", err)
	}
	if err != nil && errors.Is(err, rdma.ErrNotSupported) {
		return notSupported(f.String(), "tried: %v", err)
	}
	return err
}

// tryQP makes the smallest queue pair of a type.
func (c *deviceContext) tryQP(f rdma.Feature, t rdma.QPType) error {
	return conclude(f, c.withQueue(func(pd, cq handle) error {
		return c.makeQP(pd, cq, t, 0)
	}))
}

// withQueue gives f a protection domain and a CQ for a trial. They are made
// beside the context's objects, which may be what calls.
func (c *deviceContext) withQueue(f func(pd, cq handle) error) error {
	var pd handle
	if rc := C.gv_alloc_pd(&c.lib.c, c.h, &pd); rc != 0 {
		return failed("alloc_pd", rc, "")
	}
	defer C.gv_dealloc_pd(&c.lib.c, pd)
	cq := C.gv_cq_init{cqe: 1}
	if rc := C.gv_create_cq(&c.lib.c, c.h, &cq); rc != 0 {
		return failed("create_cq", rc, "")
	}
	defer C.gv_destroy_cq(&c.lib.c, cq.handle)
	return f(pd, cq.handle)
}

func (c *deviceContext) makeQP(pd, cq handle, t rdma.QPType, inline int) error {
	init := C.gv_qp_init{pd: pd, send_cq: cq, recv_cq: cq, _type: C.int(t), max_send_wr: 1, max_recv_wr: 1,
		max_send_sge: 1, max_recv_sge: 1, max_inline: C.uint32_t(inline)}
	if rc := C.gv_create_qp(&c.lib.c, c.h, &init); rc != 0 {
		return failed("create_qp", rc, t.String())
	}
	C.gv_destroy_qp(&c.lib.c, init.handle)
	return nil
}

// maxInline is the longest inline payload. No verb tells it: libraries find it
// by trying, as this does once for a device.
func (c *deviceContext) maxInline() int {
	facts := c.device.facts
	facts.mu.Lock()
	defer facts.mu.Unlock()
	return c.tryInline()
}

// tryInline tries sizes downwards. The caller holds the lock of the facts.
func (c *deviceContext) tryInline() int {
	facts := c.device.facts
	if facts.probed {
		return facts.inline
	}
	err := c.withQueue(func(pd, cq handle) error {
		var err error
		for n := probeInlineMost; n >= 16; n /= 2 {
			err = c.makeQP(pd, cq, rdma.RC, n)
			if err == nil {
				facts.inline, facts.probed = n, true
				return nil
			}
			if !errors.Is(err, rdma.ErrInvalid) && !errors.Is(err, rdma.ErrNoMemory) {
				return err
			}
		}
		if errors.Is(err, rdma.ErrInvalid) {
			facts.probed = true
		}
		return nil
	})
	if err != nil {
		return 0
	}
	return facts.inline
}

func (c *deviceContext) tryXRCD(f rdma.Feature) error {
	var x handle
	rc := C.gv_open_xrcd(c.h, -1, C.int(syscall.O_CREAT), &x)
	if rc == 0 {
		C.gv_close_xrcd(x)
	}
	return conclude(f, failed("open_xrcd", rc, ""))
}

func (c *deviceContext) tryMW(f rdma.Feature, t rdma.MWType) error {
	return conclude(f, c.withQueue(func(pd, _ handle) error {
		var mw handle
		var rkey C.uint32_t
		if rc := C.gv_alloc_mw(pd, C.int(t), &mw, &rkey); rc != 0 {
			return failed("alloc_mw", rc, "")
		}
		C.gv_dealloc_mw(mw)
		return nil
	}))
}

// withMR registers a page for a trial as request says, but for the address.
func (c *deviceContext) withMR(request *C.gv_mr, f func(pd handle) error) error {
	memory, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return &rdma.OpError{Op: "reg_mr", Detail: "map a page", Err: err}
	}
	defer func() { _ = syscall.Munmap(memory) }()
	request.addr, request.length, request.access = C.uint64_t(addressOf(memory)), C.uint64_t(len(memory)), C.uint32_t(rdma.AccessLocalWrite)
	return c.withQueue(func(pd, _ handle) error {
		if rc := C.gv_reg_mr(&c.lib.c, pd, request); rc != 0 {
			return failed("reg_mr", rc, "")
		}
		defer C.gv_dereg_mr(&c.lib.c, request.handle)
		return f(pd)
	})
}

func (c *deviceContext) tryMR(f rdma.Feature, request *C.gv_mr) error {
	return conclude(f, c.withMR(request, func(handle) error { return nil }))
}

func (c *deviceContext) tryRereg(f rdma.Feature) error {
	request := C.gv_mr{kind: C.GV_MR_PLAIN}
	return conclude(f, c.withMR(&request, func(pd handle) error {
		to := C.gv_mr{access: C.uint32_t(rdma.AccessLocalWrite | rdma.AccessRemoteRead)}
		var spoilt C.int
		return failed("rereg_mr", C.gv_rereg_mr(&c.lib.c, request.handle, C.int(rdma.ReregAccess), 0, &to, &spoilt), "")
	}))
}

func (c *deviceContext) tryDMABuf(f rdma.Feature) error {
	return conclude(f, c.withQueue(func(pd, _ handle) error {
		// The kernel looks for the driver's support before it looks at the
		// descriptor, so a bad one is the right answer of those that have it.
		rc := C.gv_reg_mr(&c.lib.c, pd, &C.gv_mr{kind: C.GV_MR_DMABUF, fd: -1, length: 4096, access: C.uint32_t(rdma.AccessLocalWrite)})
		if syscall.Errno(rc) == syscall.EBADF {
			return nil
		}
		return failed("reg_dmabuf_mr", rc, "")
	}))
}

func (c *deviceContext) tryExtendedCQ(f rdma.Feature) error {
	init := C.gv_cq_init{cqe: 1, extended: 1}
	rc := C.gv_create_cq(&c.lib.c, c.h, &init)
	if rc == 0 {
		C.gv_destroy_cq(&c.lib.c, init.handle)
	}
	return conclude(f, failed("create_cq_ex", rc, ""))
}
