package verbs

/*
#cgo CFLAGS: -Wall
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

// A handle is a pointer of libibverbs.
type handle = C.gv_handle

// A library is a loaded libibverbs. Its table of functions is Go's memory, and
// C keeps no pointer to it.
type library struct {
	c C.gv_lib
}

// load finds libibverbs and its functions.
func load(path string) (*library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	lib := &library{}
	var reason [512]C.char
	if C.gv_open(name, &lib.c, &reason[0], C.size_t(len(reason))) != 0 {
		return nil, &rdma.OpError{Op: "load " + path, Detail: C.GoString(&reason[0]), Err: ErrNoLibrary}
	}
	return lib, nil
}

// failed makes an error of what a verb returned, nil of 0.
func failed(op string, rc C.int, detail string) error {
	errno := syscall.Errno(rc)
	switch errno {
	case 0:
		return nil
	case syscall.ENOSYS, syscall.EPROTONOSUPPORT: // what some drivers say
		errno = rdma.ErrNotSupported
	case syscall.EPERM, syscall.EACCES:
		detail = join(detail, "no right to")
	case syscall.ENOMEM:
		detail = join(detail, "out of device objects, of memory, or of memory that may be locked (ulimit -l)")
	}
	return &rdma.OpError{Op: op, Detail: detail, Err: errno}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ": " + b
}

// invalid is the error of an argument that the device is not even asked about.
func invalid(op, format string, args ...any) error {
	return &rdma.OpError{Op: op, Detail: fmt.Sprintf(format, args...), Err: rdma.ErrInvalid}
}

// notSupported says what a device, or this provider, lacks.
func notSupported(op, format string, args ...any) error {
	return &rdma.OpError{Op: op, Detail: fmt.Sprintf(format, args...), Err: rdma.ErrNotSupported}
}

// deviceNames lists what the library sees.
func (l *library) deviceNames() ([]string, error) {
	for size := 16; ; size *= 2 {
		list := make([]C.gv_device, size)
		var n C.int
		if rc := C.gv_get_device_list(&l.c, &list[0], C.int(size), &n); rc != 0 {
			if syscall.Errno(rc) == syscall.ENOSYS {
				return nil, &rdma.OpError{Op: "get_device_list", Err: ErrNoKernel}
			}
			return nil, failed("get_device_list", rc, "")
		}
		if int(n) > size {
			continue
		}
		names := make([]string, n)
		for i := range names {
			names[i] = C.GoString(&list[i].name[0])
		}
		return names, nil
	}
}

// openDevice opens the device of that name.
func (l *library) openDevice(name string) (C.gv_context, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var ctx C.gv_context
	err := failed("open_device", C.gv_open_device(&l.c, c, &ctx), name)
	return ctx, err
}

// addressOf is the address of a buffer's first byte.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// asyncEvent reads the next event and hands its object's handle to found before
// it acknowledges it.
func (l *library) asyncEvent(ctx handle, found func(C.gv_async_event)) error {
	var e C.gv_async_event
	var raw [3]uint64
	if rc := C.gv_get_async_event(&l.c, ctx, &e, unsafe.Pointer(&raw)); rc != 0 {
		return failed("get_async_event", rc, "")
	}
	found(e)
	C.gv_ack_async_event(&l.c, unsafe.Pointer(&raw))
	return nil
}

// adviseMR passes advice on.
func adviseMR(pd handle, advice rdma.Advice, flags rdma.AdviseFlags, sgl []rdma.SGE) C.int {
	return C.gv_advise_mr(pd, C.int(advice), C.uint32_t(flags), unsafe.Pointer(unsafe.SliceData(sgl)), C.uint32_t(len(sgl)))
}
