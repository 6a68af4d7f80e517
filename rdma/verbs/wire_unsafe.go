package verbs

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

// The verbs' own structures, as a 64-bit machine lays them out (shim.c asserts
// the same of the C side). Pointers are integers here: they all lead to C
// memory or are addresses of the device's.

type sendWR struct {
	wrID     uint64
	next     uintptr
	sgList   uintptr
	numSGE   int32
	opcode   uint32
	flags    uint32
	imm      uint32    // in network byte order; or the key to invalidate
	addr     uint64    // remote address; or the address handle
	rkey     [2]uint32 // rkey; datagrams: queue pair number and Q_Key; atomics: one uint64, compare or add
	swap     uint64
	atomic   uint32 // the rkey of atomics
	_        uint32
	srqNum   uint32
	_        uint32
	mw       uint64
	mwRKey   uint32
	_        uint32
	bindMR   uint64
	bindAddr uint64
	bindLen  uint64
	bindAcc  uint32
	_        uint32
}

type recvWR struct {
	wrID   uint64
	next   uintptr
	sgList uintptr
	numSGE int32
	_      uint32
}

type rawWC struct {
	wrID      uint64
	status    uint32
	opcode    uint32
	vendorErr uint32
	byteLen   uint32
	imm       uint32
	qpNum     uint32
	srcQP     uint32
	flags     uint32
	_         [8]byte
}

// These do not compile when a layout is not what the C side has.
var (
	_ [16]byte  = [unsafe.Sizeof(rdma.SGE{})]byte{}
	_ [128]byte = [unsafe.Sizeof(sendWR{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(recvWR{})]byte{}
	_ [48]byte  = [unsafe.Sizeof(rawWC{})]byte{}
	_ [40]byte  = [unsafe.Offsetof(sendWR{}.addr)]byte{}
	_ [64]byte  = [unsafe.Offsetof(sendWR{}.atomic)]byte{}
	_ [72]byte  = [unsafe.Offsetof(sendWR{}.srqNum)]byte{}
	_ [80]byte  = [unsafe.Offsetof(sendWR{}.mw)]byte{}
	_ [120]byte = [unsafe.Offsetof(sendWR{}.bindAcc)]byte{}
)

// setCompareAdd stores what an atomic compares with or adds.
func (w *sendWR) setCompareAdd(v uint64) { *(*uint64)(unsafe.Pointer(&w.rkey)) = v }

// batchLimit bounds the requests of one crossing into C, and with it the memory
// of a queue's batch.
const batchLimit = 64

// A batch is C memory in which requests are laid out for a post: n requests
// linked in a list, each with room for its scatter list and its inline bytes.
// It starts small and grows to the longest list posted, up to batchLimit.
type batch[W sendWR | recvWR | opWR] struct {
	sge    int // entries per request
	inline int // bytes per request, a multiple of 8
	memory unsafe.Pointer
	wrs    []W // of memory, as are the next two
	sgl    []rdma.SGE
	bytes  []byte
}

// reserve makes room for n requests, at most batchLimit, and reports whether it
// could.
func (b *batch[W]) reserve(n int) bool {
	if n <= len(b.wrs) {
		return true
	}
	n = min(ringSize(n), batchLimit)
	var w W
	size := n * (int(unsafe.Sizeof(w)) + b.sge*int(unsafe.Sizeof(rdma.SGE{})) + b.inline)
	memory := C.calloc(1, C.size_t(size))
	if memory == nil {
		return false
	}
	b.free()
	b.memory = memory
	b.wrs = unsafe.Slice((*W)(memory), n)
	after := unsafe.Add(memory, n*int(unsafe.Sizeof(w)))
	b.sgl = unsafe.Slice((*rdma.SGE)(after), n*b.sge)
	after = unsafe.Add(after, n*b.sge*int(unsafe.Sizeof(rdma.SGE{})))
	b.bytes = unsafe.Slice((*byte)(after), n*b.inline)
	return true
}

func (b *batch[W]) free() {
	C.free(b.memory)
	b.memory, b.wrs, b.sgl, b.bytes = nil, nil, nil, nil
}

// scatter copies a request's list to its place and gives that.
func (b *batch[W]) scatter(i int, sgl []rdma.SGE) uintptr {
	if len(sgl) == 0 {
		return 0
	}
	to := b.sgl[i*b.sge : (i+1)*b.sge]
	copy(to, sgl)
	return uintptr(unsafe.Pointer(&to[0]))
}

// payload copies a request's inline bytes to their place and gives the list of
// one entry that names it.
func (b *batch[W]) payload(i int, p []byte) uintptr {
	to := b.bytes[i*b.inline : (i+1)*b.inline]
	copy(to, p)
	b.sgl[i*b.sge] = rdma.SGE{Addr: addressOf(to), Length: uint32(len(p))}
	return uintptr(unsafe.Pointer(&b.sgl[i*b.sge]))
}

// list is what C gets: an integer, for which cgo has nothing to check.
func (b *batch[W]) list() C.uintptr_t { return C.uintptr_t(uintptr(b.memory)) }

// results takes apart what a post returned.
func results(r C.uint64_t) (taken int, rc C.int) { return int(uint32(r)), C.int(r >> 32) }

func postSend(qp handle, b *batch[sendWR], n int) (int, C.int) {
	return results(C.gv_post_send(qp, b.list(), C.uint32_t(n)))
}

func postRecv(qp handle, b *batch[recvWR], n int) (int, C.int) {
	return results(C.gv_post_recv(qp, b.list(), C.uint32_t(n)))
}

func postSRQ(srq handle, b *batch[recvWR], n int) (int, C.int) {
	return results(C.gv_post_srq_recv(srq, b.list(), C.uint32_t(n)))
}

// A harvest is C memory into which a poll moves completions.
type harvest struct {
	memory unsafe.Pointer
	wcs    []rawWC // of memory: one or the other
	ex     []C.gv_wc_ex
}

// reserve makes room for n completions, at most batchLimit.
func (h *harvest) reserve(n int) bool {
	if n <= len(h.wcs) {
		return true
	}
	n = min(ringSize(n), batchLimit)
	memory := C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(C.gv_wc_ex{})))
	if memory == nil {
		return false
	}
	h.free()
	h.memory = memory
	h.wcs = unsafe.Slice((*rawWC)(memory), n)
	h.ex = unsafe.Slice((*C.gv_wc_ex)(memory), n)
	return true
}

func (h *harvest) free() {
	C.free(h.memory)
	*h = harvest{}
}

func (h *harvest) poll(cq handle, n int) int {
	return int(C.gv_poll_cq(cq, C.uintptr_t(uintptr(h.memory)), C.int(n)))
}

func (h *harvest) pollEx(cq handle, n int, timestamps, tags bool) int {
	return int(C.gv_poll_cq_ex(cq, C.uintptr_t(uintptr(h.memory)), C.int(n), truth(timestamps), truth(tags)))
}

// network turns immediate data to or from the byte order in which verbs has it.
func network(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}

// receive writes a receive to its place in the batch.
func receive(b *batch[recvWR], i int, id uint64, sgl []rdma.SGE, most int) error {
	if len(sgl) > most {
		return invalid("post_recv", "%d scatter entries: the queue has %d", len(sgl), most)
	}
	b.wrs[i] = recvWR{wrID: id, next: b.after(i), sgList: b.scatter(i, sgl), numSGE: int32(len(sgl))}
	return nil
}

// after is the address of the place behind request i, 0 behind the last.
func (b *batch[W]) after(i int) uintptr {
	if i+1 == len(b.wrs) {
		return 0
	}
	return uintptr(unsafe.Pointer(&b.wrs[i+1]))
}
