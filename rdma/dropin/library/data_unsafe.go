//go:build cgo && linux

package main

/*
#include "calls.h"
*/
import "C"

import (
	"sync"
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

// cookies has what the program's side calls an object of the device, by the object.
var cookies sync.Map

// A pairOf and a sharedOf keep room for the requests of a post.
type (
	pairOf struct {
		rdma.QP
		mu     sync.Mutex // guards what follows
		sends  []rdma.SendWR
		posted []posted // with a checker
		binds  []rdma.MWBind
		receives
	}
	sharedOf struct {
		rdma.SRQ
		mu sync.Mutex // guards what follows
		receives
	}
	receives []rdma.RecvWR
)

// Lists of scatter entries are the same in C and in package rdma.
var (
	_ [16]byte = [unsafe.Sizeof(rdma.SGE{})]byte{}
	_ [8]byte  = [unsafe.Offsetof(rdma.SGE{}.Length)]byte{}
	_ [12]byte = [unsafe.Offsetof(rdma.SGE{}.LKey)]byte{}
)

func entries(sg unsafe.Pointer, n C.uint32_t) []rdma.SGE {
	return unsafe.Slice((*rdma.SGE)(sg), int(n))
}

//export gd_post_send
func gd_post_send(h C.gd_handle, list *C.struct_gd_send, n C.int, taken *C.int) C.int {
	*taken = 0
	q, ok := get[*pairOf](handle(h))
	if !ok {
		return invalid
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.sends) < int(n) {
		q.sends, q.binds = append(q.sends, rdma.SendWR{}), append(q.binds, rdma.MWBind{})
	}
	wrs, bad := q.sends[:n], C.int(0)
	for i, s := range unsafe.Slice(list, int(n)) {
		wrs[i] = rdma.SendWR{
			WRID: uint64(s.wr_id), Opcode: rdma.WROpcode(s.opcode), Flags: rdma.SendFlags(s.flags), SGL: entries(s.sg, s.num_sge),
			ImmData: uint32(s.imm), InvalidateRKey: uint32(s.imm), RemoteAddr: uint64(s.remote_addr), RKey: uint32(s.rkey),
			CompareAdd: uint64(s.compare_add), Swap: uint64(s.swap), RemoteQPN: uint32(s.qpn), RemoteQKey: uint32(s.qkey), SRQNum: uint32(s.srqn),
		}
		if s.opcode >= 16 { // none of libibverbs'
			wrs, bad = wrs[:i], invalid
			break
		}
		if s.ah != 0 {
			if ah, ok := get[handleOf](handle(s.ah)); ok {
				wrs[i].AH = ah.AH
			}
		}
		if s.mw != 0 {
			mw, ok1 := get[windowOf](handle(s.mw))
			bind, ok2 := bound(&s.bind)
			if !ok1 || !ok2 {
				wrs, bad = wrs[:i], invalid
				break
			}
			q.binds[i] = bind
			wrs[i].MW, wrs[i].Bind = mw.MW, &q.binds[i]
		}
	}
	if len(wrs) == 0 {
		return bad
	}
	if check != nil {
		check.posts(q, wrs)
	}
	done, err := q.PostSend(wrs)
	*taken = C.int(done)
	if check != nil {
		check.took(q, len(wrs)-done, err)
	}
	if err != nil {
		return errno(err)
	}
	return bad
}

//export gd_post_recv
func gd_post_recv(h C.gd_handle, list *C.struct_gd_recv, n C.int, taken *C.int) C.int {
	*taken = 0
	o := find(handle(h))
	if o == nil {
		return invalid
	}
	var done int
	var err error
	switch q := o.value.(type) {
	case *pairOf:
		q.mu.Lock()
		defer q.mu.Unlock()
		done, err = q.PostRecv(q.fill(list, n))
	case *sharedOf:
		q.mu.Lock()
		defer q.mu.Unlock()
		done, err = q.PostRecv(q.fill(list, n))
	default:
		return invalid
	}
	*taken = C.int(done)
	if check != nil {
		check.tookReceives(o, err)
	}
	return errno(err)
}

func (r *receives) fill(list *C.struct_gd_recv, n C.int) []rdma.RecvWR {
	*r = (*r)[:0]
	for _, w := range unsafe.Slice(list, int(n)) {
		*r = append(*r, rdma.RecvWR{WRID: uint64(w.wr_id), SGL: entries(w.sg, w.num_sge)})
	}
	return *r
}

// pollRoom is how many completions a poll moves at a time.
const pollRoom = 16

//export gd_poll
func gd_poll(h C.gd_handle, room C.int, list *C.struct_gd_wc, n *C.int) C.int {
	*n = 0
	cq, ok := get[*cqOf](handle(h))
	if !ok {
		return invalid
	}
	var wc [pollRoom]rdma.WCEx
	got, err := cq.PollEx(wc[:min(int(room), pollRoom)])
	out := unsafe.Slice(list, int(room))
	for i := range wc[:got] {
		w := &wc[i]
		if check != nil {
			check.completes(&w.WC)
		}
		out[i] = C.struct_gd_wc{wr_id: C.uint64_t(w.WRID), timestamp: C.uint64_t(w.Timestamp), status: C.uint32_t(w.Status), opcode: C.uint32_t(w.Opcode),
			byte_len: C.uint32_t(w.ByteLen), imm: C.uint32_t(w.ImmData), qpn: C.uint32_t(w.QPNum), src_qp: C.uint32_t(w.SrcQP), flags: C.uint32_t(w.Flags)}
	}
	*n = C.int(got)
	return errno(err)
}
