//go:build cgo && linux

package main

/*
#include "calls.h"
#include <stdio.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// errno is what a C function returns for an error.
func errno(err error) C.int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return C.int(e)
	}
	return C.int(syscall.EIO)
}

const invalid = C.int(syscall.EINVAL)

// with calls f with a handle's object, if that is a T.
func with[T any](h C.gd_handle, f func(T) error) C.int {
	if o, ok := get[T](handle(h)); ok {
		return errno(f(o))
	}
	return invalid
}

// made enters a new object and stores its handle.
func made(to *C.gd_handle, value any, of *contextOf, end func() error) error {
	h := enter(value, of, end)
	if h == 0 {
		return errors.Join(rdma.ErrNoMemory, end())
	}
	*to = C.gd_handle(h)
	return nil
}

// ringer gives what wakes a program that waits on an eventfd.
func ringer(fd C.int) func() {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	if bigEndian {
		one[0], one[7] = 0, 1
	}
	// It fails only where the program has closed the descriptor, and then waits for nothing.
	return func() { _, _ = unix.Write(int(fd), one) }
}

const bigEndian = runtime.GOARCH == "ppc64" || runtime.GOARCH == "s390x"

//export gd_devices
func gd_devices(list *C.struct_gd_device, room C.int, n *C.int) C.int {
	all, err := devices()
	if err != nil {
		fmt.Fprintf(os.Stderr, "gorun-verbs: %v\n", err)
		return errno(err)
	}
	out := unsafe.Slice(list, int(room))
	*n = C.int(min(len(all), len(out)))
	for i := range out[:*n] {
		ctx, err := all[i].Open()
		if err != nil {
			return errno(err)
		}
		for k, c := range []byte(all[i].Name()) {
			if k < len(out[i].name)-1 {
				out[i].name[k], out[i].name[k+1] = C.char(c), 0
			}
		}
		out[i].guid = C.uint64_t(ctx.QueryDevice().NodeGUID)
		if err := ctx.Close(); err != nil {
			return errno(err)
		}
	}
	return 0
}

//export gd_open
func gd_open(device, fd C.int, out *C.gd_handle) C.int {
	all, err := devices()
	if err != nil || int(device) >= len(all) {
		return C.int(syscall.ENODEV)
	}
	ctx, err := all[device].Open()
	if err != nil {
		return errno(err)
	}
	ctx.(soft.AsyncWaker).WakeAsync(ringer(fd))
	c := &contextOf{Context: ctx, children: map[handle]*object{}}
	return errno(made(out, c, nil, c.leave))
}

//export gd_close
func gd_close(h C.gd_handle) C.int {
	if o := find(handle(h)); o != nil && o.of == nil {
		return errno(o.destroy())
	}
	return invalid
}

//export gd_destroy
func gd_destroy(h C.gd_handle) C.int {
	if o := find(handle(h)); o != nil && o.of != nil {
		err := o.destroy()
		if check != nil && err == nil {
			check.destroyed(o)
		}
		return errno(err)
	}
	return invalid
}

//export gd_query_device
func gd_query_device(h C.gd_handle, out *C.struct_gd_limits) C.int {
	return with(h, func(ctx *contextOf) error {
		a := limits(ctx)
		*out = C.struct_gd_limits{
			max_mr_size: C.uint64_t(a.MaxMRSize), clock_hz: C.uint64_t(a.ClockHz), guid: C.uint64_t(a.NodeGUID),
			max_qp: C.int(a.MaxQP), max_qp_wr: C.int(a.MaxQPWR), max_sge: C.int(a.MaxSGE), max_cq: C.int(a.MaxCQ), max_cqe: C.int(a.MaxCQE),
			max_mr: C.int(a.MaxMR), max_pd: C.int(a.MaxPD), max_rd_atom: C.int(a.MaxQPRdAtom), max_init_rd_atom: C.int(a.MaxQPInitRdAtom),
			max_srq: C.int(a.MaxSRQ), max_srq_wr: C.int(a.MaxSRQWR), max_srq_sge: C.int(a.MaxSRQSGE), max_mw: C.int(a.MaxMW), max_ah: C.int(a.MaxAH),
			srq_resize: truth(a.SRQResize), odp: truth(a.ODP),
		}
		return nil
	})
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

//export gd_query_port
func gd_query_port(h C.gd_handle, port C.int, out *C.struct_gd_port) C.int {
	return with(h, func(ctx *contextOf) error {
		a, err := ctx.QueryPort(uint8(port))
		if err != nil {
			return err
		}
		*out = C.struct_gd_port{state: C.int(a.State), max_mtu: C.int(a.MaxMTU), active_mtu: C.int(a.ActiveMTU), gids: C.int(a.GIDTblLen),
			max_msg: C.uint32_t(a.MaxMsgSz), lid: C.uint16_t(fabric.member.LID())}
		if fabric.network != nil { // as RoCE: LIDs are this machine's
			out.ethernet, out.lid = 1, 0
		}
		return nil
	})
}

//export gd_query_gid
func gd_query_gid(h C.gd_handle, port, index C.int, out *C.uint8_t) C.int {
	return with(h, func(ctx *contextOf) error {
		gid, err := ctx.QueryGID(uint8(port), int(index))
		if err == nil {
			copy(unsafe.Slice((*byte)(out), len(gid)), gid[:])
		}
		return err
	})
}

// A domainOf is a protection domain, and so on: what the table holds of each kind of object.
type (
	domainOf struct {
		rdma.PD
		of *contextOf
	}
	windowOf  struct{ rdma.MW }
	regionOf  struct{ rdma.MR }
	handleOf  struct{ rdma.AH }
	xrcOf     struct{ rdma.XRCD }
	channelOf struct{ rdma.CompChannel }
	cqOf      struct {
		rdma.CQ
		cookie C.uint64_t
		pinned runtime.Pinner
	}
)

//export gd_alloc_pd
func gd_alloc_pd(h C.gd_handle, out *C.gd_handle) C.int {
	return with(h, func(ctx *contextOf) error {
		if err := room[domainOf](ctx, small.MaxPD); err != nil {
			return err
		}
		pd, err := ctx.AllocPD()
		if err != nil {
			return err
		}
		return made(out, domainOf{pd, ctx}, ctx, pd.Close)
	})
}

//export gd_create_channel
func gd_create_channel(h C.gd_handle, fd C.int, out *C.gd_handle) C.int {
	return with(h, func(ctx *contextOf) error {
		ch, err := ctx.CreateCompChannel()
		if err != nil {
			return err
		}
		ch.(soft.Waker).Wake(ringer(fd))
		return made(out, channelOf{ch}, ctx, ch.Close)
	})
}

//export gd_next_cq_event
func gd_next_cq_event(h C.gd_handle, cookie *C.uint64_t) C.int {
	ch, ok := get[channelOf](handle(h))
	if !ok {
		return invalid
	}
	for {
		made, err := ch.CompChannel.(soft.Waker).Next()
		if err != nil {
			return errno(err)
		}
		if made == nil {
			return C.int(syscall.EAGAIN)
		}
		if c, ok := cookies.Load(made); ok {
			*cookie = c.(C.uint64_t)
			return 0
		}
	}
}

//export gd_create_cq
func gd_create_cq(h C.gd_handle, a *C.struct_gd_cq) C.int {
	return with(h, func(ctx *contextOf) error {
		if err := errors.Join(room[*cqOf](ctx, small.MaxCQ), fits(int(a.cqe), small.MaxCQE)); err != nil {
			return err
		}
		init := rdma.CQInitAttr{CQE: int(a.cqe), Timestamps: a.timestamps != 0, IgnoreOverrun: a.ignore_overrun != 0}
		if a.channel != 0 {
			ch, ok := get[channelOf](handle(a.channel))
			if !ok {
				return syscall.EINVAL
			}
			init.Channel = ch.CompChannel
		}
		cq, err := ctx.CreateCQEx(init)
		if err != nil {
			return err
		}
		c := &cqOf{CQ: cq, cookie: a.cookie}
		for i, w := range soft.PollWords(cq) {
			c.pinned.Pin(w)
			a.words[i] = (*C.uint32_t)(w)
		}
		cookies.Store(cq, a.cookie)
		a.cqe = C.int(cq.Cap())
		return made(&a.handle, c, ctx, func() error {
			if err := cq.Close(); err != nil {
				return err
			}
			cookies.Delete(cq)
			c.pinned.Unpin()
			return nil
		})
	})
}

//export gd_resize_cq
func gd_resize_cq(h C.gd_handle, cqe C.int) C.int {
	return with(h, func(cq *cqOf) error { return cq.Resize(int(cqe)) })
}

//export gd_req_notify
func gd_req_notify(h C.gd_handle, solicited C.int) C.int {
	if cq, ok := get[*cqOf](handle(h)); ok {
		return errno(cq.ReqNotify(solicited != 0))
	}
	return invalid
}

//export gd_create_srq
func gd_create_srq(h C.gd_handle, a *C.struct_gd_srq) C.int {
	return with(h, func(pd domainOf) error {
		init := rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: int(a.max_wr), MaxSGE: int(a.max_sge), Limit: int(a.limit)}}
		if a.xrc != 0 {
			xrcd, ok1 := get[xrcOf](handle(a.xrcd))
			cq, ok2 := get[*cqOf](handle(a.cq))
			if !ok1 || !ok2 {
				return syscall.EINVAL
			}
			init.Type, init.XRCD, init.CQ = rdma.SRQXRC, xrcd.XRCD, cq.CQ
		}
		if err := errors.Join(room[*sharedOf](pd.of, small.MaxSRQ), fits(init.Attr.MaxWR, small.MaxSRQWR, init.Attr.MaxSGE, small.MaxSRQSGE)); err != nil {
			return err
		}
		srq, err := pd.CreateSRQ(init)
		if err != nil {
			return err
		}
		got := srq.Query()
		a.max_wr, a.max_sge, a.num = C.uint32_t(got.MaxWR), C.uint32_t(got.MaxSGE), C.uint32_t(srq.Num())
		cookies.Store(srq, a.cookie)
		return made(&a.handle, &sharedOf{SRQ: srq}, pd.of, func() error {
			err := srq.Close()
			if err == nil {
				cookies.Delete(srq)
			}
			return err
		})
	})
}

//export gd_modify_srq
func gd_modify_srq(h C.gd_handle, maxWR, limit C.uint32_t, mask C.int) C.int {
	return with(h, func(srq *sharedOf) error {
		return srq.Modify(rdma.SRQAttr{MaxWR: int(maxWR), Limit: int(limit)}, rdma.SRQAttrMask(mask))
	})
}

//export gd_query_srq
func gd_query_srq(h C.gd_handle, out *C.struct_gd_srq) C.int {
	return with(h, func(srq *sharedOf) error {
		a := srq.Query()
		out.max_wr, out.max_sge, out.limit, out.num = C.uint32_t(a.MaxWR), C.uint32_t(a.MaxSGE), C.uint32_t(a.Limit), C.uint32_t(srq.Num())
		return nil
	})
}

//export gd_create_qp
func gd_create_qp(h C.gd_handle, a *C.struct_gd_qp) C.int {
	o := find(handle(h))
	if o == nil {
		return invalid
	}
	init := rdma.QPInitAttr{Type: rdma.QPType(a._type), SigAll: a.sig_all != 0, Cap: rdma.QPCap{
		MaxSendWR: int(a.max_send_wr), MaxRecvWR: int(a.max_recv_wr), MaxSendSGE: int(a.max_send_sge), MaxRecvSGE: int(a.max_recv_sge), MaxInlineData: int(a.max_inline)}}
	var pd domainOf
	var err error
	switch v := o.value.(type) {
	case domainOf:
		pd = v
	case *contextOf:
		xrcd, ok := get[xrcOf](handle(a.xrcd))
		if !ok {
			return invalid
		}
		pd.of, init.XRCD = v, xrcd.XRCD
		if pd.PD, err = v.domain(); err != nil {
			return errno(err)
		}
	default:
		return invalid
	}
	if cq, ok := get[*cqOf](handle(a.send_cq)); ok {
		init.SendCQ = cq.CQ
	}
	if cq, ok := get[*cqOf](handle(a.recv_cq)); ok {
		init.RecvCQ = cq.CQ
	}
	if srq, ok := get[*sharedOf](handle(a.srq)); ok {
		init.SRQ = srq.SRQ
	} else if a.srq != 0 {
		return invalid
	}
	asked := init.Cap
	if err := errors.Join(room[*pairOf](pd.of, small.MaxQP), fits(asked.MaxSendWR, small.MaxQPWR, asked.MaxRecvWR, small.MaxQPWR, asked.MaxSendSGE, small.MaxSGE, asked.MaxRecvSGE, small.MaxSGE)); err != nil {
		return errno(err)
	}
	qp, err := pd.CreateQP(init)
	if err != nil {
		return errno(err)
	}
	fill(a, qp)
	return errno(enterQP(a, qp, pd.of))
}

// fill says what a queue pair has.
func fill(a *C.struct_gd_qp, qp rdma.QP) {
	_, init := qp.Query()
	a._type, a.sig_all, a.num = C.int(init.Type), truth(init.SigAll), C.uint32_t(qp.Num())
	a.max_send_wr, a.max_recv_wr = C.uint32_t(init.Cap.MaxSendWR), C.uint32_t(init.Cap.MaxRecvWR)
	a.max_send_sge, a.max_recv_sge, a.max_inline = C.uint32_t(init.Cap.MaxSendSGE), C.uint32_t(init.Cap.MaxRecvSGE), C.uint32_t(init.Cap.MaxInlineData)
}

func enterQP(a *C.struct_gd_qp, qp rdma.QP, of *contextOf) error {
	cookies.Store(qp, a.cookie)
	pair := &pairOf{QP: qp}
	if check != nil {
		check.pairs.Store(qp.Num(), pair)
	}
	return made(&a.handle, pair, of, func() error {
		err := qp.Close()
		if err == nil {
			cookies.Delete(qp)
		}
		return err
	})
}

//export gd_open_qp
func gd_open_qp(h, x C.gd_handle, a *C.struct_gd_qp) C.int {
	ctx, ok1 := get[*contextOf](handle(h))
	xrcd, ok2 := get[xrcOf](handle(x))
	if !ok1 || !ok2 {
		return invalid
	}
	qp, err := ctx.OpenQP(uint32(a.num), xrcd.XRCD)
	if err != nil {
		return errno(err)
	}
	fill(a, qp)
	return errno(enterQP(a, qp, ctx))
}

// routed is the address vector of a route, whose peer the device knows from now on.
func routed(ctx rdma.Context, r *C.struct_gd_route) (rdma.AV, error) {
	var gid rdma.GID
	for i, b := range r.gid {
		gid[i] = byte(b)
	}
	if check != nil && r.has_gid == 0 {
		check.say("grh", ctx, "an address without a GRH (is_global is 0): enough here and on InfiniBand, EINVAL or silence on RoCE")
	}
	gid, err := behind(ctx, gid, r.has_gid != 0, uint16(r.lid))
	return rdma.AV{DGID: gid, SGIDIdx: uint8(r.sgid_index), HopLimit: uint8(r.hop_limit), PortNum: uint8(r.port)}, err
}

//export gd_modify_qp
func gd_modify_qp(h C.gd_handle, a *C.struct_gd_qp_attr, mask C.uint32_t) C.int {
	return with(h, func(qp *pairOf) error {
		attr := rdma.QPAttr{
			State: rdma.QPState(a.state), PathMTU: rdma.MTU(a.mtu), QKey: uint32(a.qkey), RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn),
			DestQPNum: uint32(a.dest_qpn), AccessFlags: rdma.Access(a.access), PKeyIndex: uint16(a.pkey_index), SQDAsyncNotify: a.sqd_notify != 0,
			MaxRdAtomic: uint8(a.max_rd_atomic), MaxDestRdAtomic: uint8(a.max_dest_rd_atomic), MinRNRTimer: uint8(a.min_rnr_timer),
			PortNum: uint8(a.port), Timeout: uint8(a.timeout), RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry),
		}
		if rdma.QPAttrMask(mask)&rdma.QPAVMask != 0 {
			var err error
			if attr.AV, err = routed(qp.PD().Context(), &a.route); err != nil {
				return err
			}
		}
		if check != nil && attr.State == rdma.StateReset && rdma.QPAttrMask(mask)&rdma.QPStateMask != 0 {
			check.resets(qp)
		}
		return qp.Modify(attr, rdma.QPAttrMask(mask))
	})
}

//export gd_query_qp
func gd_query_qp(h C.gd_handle, a *C.struct_gd_qp_attr, init *C.struct_gd_qp) C.int {
	return with(h, func(qp *pairOf) error {
		fill(init, qp.QP)
		q, _ := qp.Query()
		*a = C.struct_gd_qp_attr{
			state: C.int(q.State), mtu: C.int(q.PathMTU), qkey: C.uint32_t(q.QKey), rq_psn: C.uint32_t(q.RQPSN), sq_psn: C.uint32_t(q.SQPSN),
			dest_qpn: C.uint32_t(q.DestQPNum), access: C.uint32_t(q.AccessFlags), pkey_index: C.uint16_t(q.PKeyIndex), sqd_notify: C.uint8_t(truth(q.SQDAsyncNotify)),
			max_rd_atomic: C.uint8_t(q.MaxRdAtomic), max_dest_rd_atomic: C.uint8_t(q.MaxDestRdAtomic), min_rnr_timer: C.uint8_t(q.MinRNRTimer),
			port: C.uint8_t(q.PortNum), timeout: C.uint8_t(q.Timeout), retry_cnt: C.uint8_t(q.RetryCnt), rnr_retry: C.uint8_t(q.RNRRetry),
		}
		return nil
	})
}

//export gd_create_ah
func gd_create_ah(h C.gd_handle, r *C.struct_gd_route, out *C.gd_handle) C.int {
	return with(h, func(pd domainOf) error {
		av, err := routed(pd.of.Context, r)
		if err != nil {
			return err
		}
		if err := room[handleOf](pd.of, small.MaxAH); err != nil {
			return err
		}
		ah, err := pd.CreateAH(av)
		if err != nil {
			return err
		}
		return made(out, handleOf{ah}, pd.of, ah.Close)
	})
}

//export gd_open_xrcd
func gd_open_xrcd(h C.gd_handle, fd, oflags C.int, out *C.gd_handle) C.int {
	return with(h, func(ctx *contextOf) error {
		attr := rdma.XRCDInitAttr{Flags: int(oflags)}
		if fd >= 0 {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			attr.File = os.NewFile(uintptr(own), "xrcd")
			defer attr.File.Close()
		}
		xrcd, err := ctx.OpenXRCD(attr)
		if err != nil {
			return err
		}
		return made(out, xrcOf{xrcd}, ctx, xrcd.Close)
	})
}

//export gd_next_event
func gd_next_event(h C.gd_handle, out *C.struct_gd_event) C.int {
	ctx, ok := get[*contextOf](handle(h))
	if !ok {
		return invalid
	}
	for {
		e, ok := ctx.Context.(soft.AsyncWaker).NextAsync()
		if !ok {
			return C.int(syscall.EAGAIN)
		}
		*out = C.struct_gd_event{_type: C.int(e.Type), port: C.int(e.Port)}
		var of any
		switch {
		case e.QP != nil:
			of = e.QP
		case e.CQ != nil:
			of = e.CQ
		case e.SRQ != nil:
			of = e.SRQ
		default:
			return 0
		}
		if c, ok := cookies.Load(of); ok {
			out.cookie = c.(C.uint64_t)
			return 0
		}
	}
}

//export gd_watch
func gd_watch(h C.gd_handle, on C.int) C.int {
	return with(h, func(ctx *contextOf) error {
		ctx.Context.(soft.AsyncWaker).Watch(on != 0)
		return nil
	})
}
