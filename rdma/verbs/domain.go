package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A domain is a PD.
type domain struct {
	c    *deviceContext
	h    handle
	node node
}

var _ rdma.PD = (*domain)(nil)

func (c *deviceContext) AllocPD() (rdma.PD, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check("alloc_pd", &c.node); err != nil {
		return nil, err
	}
	d := &domain{c: c}
	if rc := C.gv_alloc_pd(&c.lib.c, c.h, &d.h); rc != 0 {
		return nil, failed("alloc_pd", rc, "")
	}
	d.node.adopt(&c.node)
	return d, nil
}

func (d *domain) Context() rdma.Context { return d.c }

func (d *domain) Close() error {
	return d.c.shut("dealloc_pd", &d.node, func() error {
		return failed("dealloc_pd", C.gv_dealloc_pd(&d.c.lib.c, d.h), "")
	})
}

// ShareVA would need a device that walks the process's page tables.
func (d *domain) ShareVA() (rdma.SVA, error) { return nil, d.c.Supports(rdma.FeatureSVA) }

// A window is an MW.
type window struct {
	d    *domain
	node node
	typ  rdma.MWType

	mu      sync.Mutex // taken after those of queue pairs; guards what follows
	h       handle
	rkey    uint32
	through *queuePair // that a window of type 2 was last bound through
}

var _ rdma.MW = (*window)(nil)

func (d *domain) AllocMW(typ rdma.MWType) (rdma.MW, error) {
	if typ != rdma.MWType1 && typ != rdma.MWType2 {
		return nil, invalid("alloc_mw", "%v: expected type 1 or 2", typ)
	}
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check("alloc_mw", &d.node); err != nil {
		return nil, err
	}
	w := &window{d: d, typ: typ}
	var rkey C.uint32_t
	if rc := C.gv_alloc_mw(d.h, C.int(typ), &w.h, &rkey); rc != 0 {
		return nil, failed("alloc_mw", rc, typ.String())
	}
	w.rkey = uint32(rkey)
	w.node.adopt(&d.node)
	c.windows[w] = struct{}{}
	return w, nil
}

func (w *window) PD() rdma.PD       { return w.d }
func (w *window) Type() rdma.MWType { return w.typ }

func (w *window) RKey() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rkey
}

// bound notes a bind of type 2 that was posted. The caller holds w.mu.
func (w *window) bound(through *queuePair, rkey uint32) {
	w.through, w.rkey = through, rkey
	C.gv_set_rkey_of_mw(w.h, C.uint32_t(rkey))
}

func (w *window) setRKey(rkey uint32) {
	w.mu.Lock()
	w.rkey = rkey
	w.mu.Unlock()
}

func (w *window) Close() error {
	return w.d.c.shut("dealloc_mw", &w.node, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := failed("dealloc_mw", C.gv_dealloc_mw(w.h), ""); err != nil {
			return err
		}
		w.through = nil
		w.d.c.mu.Lock()
		delete(w.d.c.windows, w)
		w.d.c.mu.Unlock()
		return nil
	})
}

// freeWindows frees the windows that were last bound through q, which is about to
// be destroyed. Others do that by themselves; rxe (6.1) waits 50 s for a window
// that is bound to its queue pair, and then destroys it under the window.
func (c *deviceContext) freeWindows(q *queuePair) error {
	if c.attr.VendorID != rxeVendor {
		return nil
	}
	c.mu.Lock()
	windows := slices.Collect(maps.Keys(c.windows))
	c.mu.Unlock()
	for _, w := range windows {
		if err := w.free(q); err != nil {
			return err
		}
	}
	return nil
}

// free puts a new window in the place of one that was last bound through q: whether
// it is bound still is not known, and rxe panics at the invalidation of one that
// is not.
func (w *window) free(q *queuePair) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.through != q {
		return nil
	}
	var fresh handle
	var rkey C.uint32_t
	if rc := C.gv_alloc_mw(w.d.h, C.int(w.typ), &fresh, &rkey); rc != 0 {
		return failed("destroy_qp", rc, "a new window for one that is bound")
	}
	if rc := C.gv_dealloc_mw(w.h); rc != 0 {
		C.gv_dealloc_mw(fresh)
		return failed("destroy_qp", rc, "a window that is bound")
	}
	w.h, w.rkey, w.through = fresh, uint32(rkey), nil
	return nil
}

// An address is an AH.
type address struct {
	d    *domain
	h    handle
	node node
	open atomic.Uint64 // h until it is closed: posts look at it
}

var _ rdma.AH = (*address)(nil)

func (d *domain) CreateAH(av rdma.AV) (rdma.AH, error) {
	c := d.c
	if err := c.checkAV("create_ah", av); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check("create_ah", &d.node); err != nil {
		return nil, err
	}
	a := &address{d: d}
	attr := ahAttr(av)
	if rc := C.gv_create_ah(&c.lib.c, d.h, &attr, &a.h); rc != 0 {
		return nil, failed("create_ah", rc, av.DGID.String())
	}
	a.open.Store(uint64(a.h))
	a.node.adopt(&d.node)
	return a, nil
}

// checkAV refuses an address vector whose port or source is not there: not all
// drivers do.
func (c *deviceContext) checkAV(op string, av rdma.AV) error {
	p, err := c.port(op, av.PortNum)
	if err != nil {
		return err
	}
	if int(av.SGIDIdx) >= int(p.gid_tbl_len) {
		return invalid(op, "source GID index %d of a table of %d", av.SGIDIdx, int(p.gid_tbl_len))
	}
	return nil
}

func ahAttr(av rdma.AV) C.gv_ah_attr {
	a := C.gv_ah_attr{sgid_index: C.uint8_t(av.SGIDIdx), hop_limit: C.uint8_t(av.HopLimit), port: C.uint8_t(av.PortNum)}
	for i, b := range av.DGID {
		a.dgid[i] = C.uint8_t(b)
	}
	return a
}

func (a *address) PD() rdma.PD { return a.d }

func (a *address) Close() error {
	return a.d.c.shut("destroy_ah", &a.node, func() error {
		a.open.Store(0)
		return failed("destroy_ah", C.gv_destroy_ah(&a.d.c.lib.c, a.h), "")
	})
}

// An xrcDomain is an XRCD.
type xrcDomain struct {
	c    *deviceContext
	h    handle
	node node
}

var _ rdma.XRCD = (*xrcDomain)(nil)

func (c *deviceContext) OpenXRCD(attr rdma.XRCDInitAttr) (rdma.XRCD, error) {
	fd := -1
	if attr.File != nil {
		fd = int(attr.File.Fd())
	}
	flags := attr.Flags
	if attr.File == nil {
		flags = os.O_CREATE
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check("open_xrcd", &c.node); err != nil {
		return nil, err
	}
	x := &xrcDomain{c: c}
	if rc := C.gv_open_xrcd(c.h, C.int(fd), C.int(flags), &x.h); rc != 0 {
		return nil, failed("open_xrcd", rc, "")
	}
	x.node.adopt(&c.node)
	return x, nil
}

func (x *xrcDomain) Close() error {
	return x.c.shut("close_xrcd", &x.node, func() error {
		return failed("close_xrcd", C.gv_close_xrcd(x.h), "")
	})
}
