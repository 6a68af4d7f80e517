package verbs

/*
#include "mlx5.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"path/filepath"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// What mlx5 devices have beyond libibverbs comes from the library that their driver
// is in, libmlx5: dynamically connected queue pairs, keys with layouts, payload in
// completions. libibverbs has loaded it when such a device is open, so it is found
// by where the driver's own functions lie, not by a name. Every other device is
// told by mlx5dv_is_supported, or by the want of it.
//
// An extension is that library as one device has it. It is looked for once and
// lives as long as the program.
type extension struct {
	lib  C.gv_mlx5
	caps C.gv_mlx5_caps
}

// mlx5 gives the extension of the context's device. The error wraps
// rdma.ErrNotSupported when the device has none, and does not when that could not
// be found out.
func (c *deviceContext) mlx5(op string) (*extension, error) {
	facts := c.device.facts
	facts.extMu.Lock()
	defer facts.extMu.Unlock()
	if facts.ext == nil && facts.noExt == "" {
		ext, err := c.findMlx5()
		switch {
		case err == nil:
			facts.ext = ext
		case errors.Is(err, rdma.ErrNotSupported):
			facts.noExt = err.Error()
		default:
			return nil, &rdma.OpError{Op: op, Detail: "find out whether the device is mlx5", Err: err}
		}
	}
	if facts.ext == nil {
		return nil, notSupported(op, "%s", facts.noExt)
	}
	return facts.ext, nil
}

func (c *deviceContext) findMlx5() (*extension, error) {
	ext := &extension{}
	no := func(reason string) (*extension, error) { return nil, lack(reason) }
	rc := syscall.Errno(C.gv_mlx5_open(&c.lib.c, c.h, &ext.lib))
	driver := filepath.Base(C.GoString(&ext.lib.driver[0]))
	switch rc {
	case 0:
	case syscall.ENODEV:
		return no("only mlx5 devices have it, and the driver of this one is in " + driver)
	default:
		return nil, &rdma.OpError{Op: "mlx5dv_is_supported", Detail: "the driver library of the device was not found: " + driver, Err: rc}
	}
	if missing := C.gv_mlx5_lacks(&ext.lib, 0); missing != nil {
		return no("libmlx5 is too old: it has no " + C.GoString(missing))
	}
	if rc := C.gv_mlx5_query(&ext.lib, c.h, &ext.caps); rc != 0 {
		err := failed("mlx5dv_query_device", rc, "")
		if errors.Is(err, rdma.ErrNotSupported) {
			return no("libmlx5 says: " + err.Error())
		}
		return nil, err
	}
	return ext, nil
}

// probeMlx5 is probe for what only mlx5 devices have. The extension is there.
func (c *deviceContext) probeMlx5(f rdma.Feature, ext *extension) error {
	if f == rdma.FeatureDC {
		return conclude(f, c.tryDC(ext))
	}
	if missing := C.gv_mlx5_lacks(&ext.lib, 1); missing != nil {
		return notSupported(f.String(), "libmlx5 is too old: it has no %s", C.GoString(missing))
	}
	return conclude(f, c.tryLayouts(ext))
}

// tryExtended makes the smallest queue pair of a kind.
func (c *deviceContext) tryExtended(ext *extension, pd, cq, srq handle, how C.gv_mlx5_qp) error {
	init := C.gv_qp_init{pd: pd, send_cq: cq, recv_cq: cq, srq: srq, _type: C.int(rdma.RC)}
	how.atomics = c.atomics()
	if how.kind != C.GV_QP_DCT {
		init.max_send_wr, init.max_send_sge = 1, 1
	}
	if how.kind == C.GV_QP_RC {
		init.max_recv_wr, init.max_recv_sge = 1, 1
	}
	if rc := C.gv_mlx5_create_qp(&ext.lib, c.h, &init, &how); rc != 0 {
		return failed("mlx5dv_create_qp", rc, "")
	}
	C.gv_destroy_qp(&c.lib.c, init.handle)
	return nil
}

func (c *deviceContext) atomics() C.int { return truth(c.caps.atomic_cap != atomicCapNone) }

// extend chooses how a queue pair is made on an mlx5 device. Connected ones are
// always made by libmlx5's own verb there, be it only to keep payload out of their
// completions: see gv_mlx5_create_qp.
func (q *queuePair) extend(op string) {
	ext, err := q.c.mlx5(op)
	if err != nil {
		return // by libibverbs' verb
	}
	a := &q.init
	how := C.gv_mlx5_qp{atomics: q.c.atomics()}
	switch a.Type {
	case rdma.RC:
		how.kind = C.GV_QP_RC
		how.layouts = truth(q.c.Supports(rdma.FeatureUMR) == nil)
	case rdma.UC:
		how.kind = C.GV_QP_UC
	case rdma.DCI:
		how.kind = C.GV_QP_DCI
	case rdma.DCT:
		how.kind, how.access_key = C.GV_QP_DCT, C.uint64_t(a.DCAccessKey)
	default:
		return
	}
	q.ext, q.how = ext, how
}

// create calls the verb that makes the queue pair.
func (q *queuePair) create(init *C.gv_qp_init) C.int {
	if q.ext == nil {
		return C.gv_create_qp(&q.c.lib.c, q.c.h, init)
	}
	if q.isDC() { // libibverbs wants both queues of both halves
		init.send_cq = cmp.Or(init.send_cq, init.recv_cq)
		init.recv_cq = cmp.Or(init.recv_cq, init.send_cq)
	}
	return C.gv_mlx5_create_qp(&q.ext.lib, q.c.h, init, &q.how)
}
