//go:build cgo && linux

package main

/*
#include "calls.h"
*/
import "C"

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// memory is the program's.
func memory(m *C.struct_gd_mr) []byte {
	if m.addr == nil {
		return nil
	}
	return unsafe.Slice((*byte)(m.addr), int(m.length))
}

//export gd_reg_mr
func gd_reg_mr(h C.gd_handle, m *C.struct_gd_mr) C.int {
	pd, ok := get[domainOf](handle(h))
	access := rdma.Access(m.access)
	whole := m.addr == nil && access&rdma.AccessOnDemand != 0
	if !ok || m.kind != C.GD_MR_DMABUF && !whole && (m.addr == nil || m.length > 1<<47) {
		return invalid
	}
	var mr rdma.MR
	err := errors.Join(room[regionOf](pd.of, small.MaxMR), fits(int(m.length), int(small.MaxMRSize)))
	switch {
	case err != nil:
	case m.kind == C.GD_MR_PLAIN:
		mr, err = pd.RegMR(memory(m), access)
	case m.kind == C.GD_MR_IOVA:
		mr, err = pd.RegMRIOVA(memory(m), uint64(m.iova), access)
	default:
		mr, err = pd.RegDMABufMR(uint64(m.offset), uint64(m.length), uint64(m.iova), int(m.fd), access)
	}
	if err != nil {
		return errno(err)
	}
	m.lkey, m.rkey = C.uint32_t(mr.LKey()), C.uint32_t(mr.RKey())
	if check != nil {
		check.regions.Store(mr.LKey(), regionOf{mr})
	}
	return errno(made(&m.handle, regionOf{mr}, pd.of, mr.Close))
}

//export gd_rereg_mr
func gd_rereg_mr(h C.gd_handle, flags C.int, to C.gd_handle, m *C.struct_gd_mr) C.int {
	mr, ok := get[regionOf](handle(h))
	pd, has := get[domainOf](handle(to))
	if !ok || rdma.ReregFlags(flags)&rdma.ReregPD != 0 && !has || m.length > 1<<47 {
		return invalid
	}
	err := mr.Rereg(rdma.ReregFlags(flags), pd.PD, memory(m), rdma.Access(m.access))
	m.lkey, m.rkey = C.uint32_t(mr.LKey()), C.uint32_t(mr.RKey())
	if check != nil {
		check.regions.Store(mr.LKey(), mr)
	}
	return errno(err)
}

//export gd_advise_mr
func gd_advise_mr(h C.gd_handle, advice C.int, flags C.uint32_t, sg unsafe.Pointer, n C.uint32_t) C.int {
	return with(h, func(pd domainOf) error {
		return pd.AdviseMR(rdma.Advice(advice), rdma.AdviseFlags(flags), entries(sg, n))
	})
}

//export gd_alloc_mw
func gd_alloc_mw(h C.gd_handle, typ C.int, out *C.gd_handle, rkey *C.uint32_t) C.int {
	return with(h, func(pd domainOf) error {
		if err := room[windowOf](pd.of, small.MaxMW); err != nil {
			return err
		}
		mw, err := pd.AllocMW(rdma.MWType(typ))
		if err != nil {
			return err
		}
		*rkey = C.uint32_t(mw.RKey())
		return made(out, windowOf{mw}, pd.of, mw.Close)
	})
}

// bound is the memory that a window is bound to; an unbinding names no region.
func bound(b *C.struct_gd_bind) (rdma.MWBind, bool) {
	mr, ok := get[regionOf](handle(b.mr))
	return rdma.MWBind{MR: mr.MR, Addr: uint64(b.addr), Length: uint64(b.length), Access: rdma.Access(b.access)}, ok || b.mr == 0
}

//export gd_bind_mw
func gd_bind_mw(q, w C.gd_handle, id C.uint64_t, flags C.uint32_t, b *C.struct_gd_bind, rkey *C.uint32_t) C.int {
	qp, ok1 := get[*pairOf](handle(q))
	mw, ok2 := get[windowOf](handle(w))
	bind, ok3 := bound(b)
	if !ok1 || !ok2 || !ok3 {
		return invalid
	}
	err := qp.BindMW(mw.MW, uint64(id), rdma.SendFlags(flags), bind)
	*rkey = C.uint32_t(mw.RKey())
	return errno(err)
}

func place(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// mapped tells whether all pages of memory are there.
func mapped(mem []byte) bool {
	page := uintptr(os.Getpagesize())
	first := place(mem) &^ (page - 1)
	n := place(mem) + uintptr(len(mem)) - first
	if n == 0 {
		return true
	}
	seen := make([]byte, (n+page-1)/page)
	_, _, err := unix.Syscall(unix.SYS_MINCORE, first, n, uintptr(unsafe.Pointer(&seen[0])))
	return err != unix.ENOMEM
}
