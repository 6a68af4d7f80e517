package verbs

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"math/bits"
	"runtime"
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

// The verbs' own structures, as a 64-bit machine lays them out (shim.c asserts
// the same of the C side). Pointers are integers here: they all lead to C
// memory or are addresses of the device's.

// A wrHead is how requests of both kinds begin. Those of a batch are linked once and
// for all, and each has its list in one place.
type wrHead struct {
	wrID   uint64
	next   uintptr
	sgList uintptr
	numSGE int32
	opcode uint32 // of receives nothing
}

type sendWR struct {
	wrHead
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
	wrHead
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
	if _, ops := any(&w).(*opWR); !ops {
		for i := range n {
			b.head(i).sgList = b.scatterAt(i)
			if i+1 < n {
				b.head(i).next = uintptr(unsafe.Pointer(b.head(i + 1)))
			}
		}
	}
	return true
}

func (b *batch[W]) free() {
	C.free(b.memory)
	b.memory, b.wrs, b.sgl, b.bytes = nil, nil, nil, nil
}

// scatterAt is the address of request i's scatter list.
func (b *batch[W]) scatterAt(i int) uintptr { return uintptr(unsafe.Pointer(&b.sgl[i*b.sge])) }

// head is how request i begins, which is no operation on a list of tags.
func (b *batch[W]) head(i int) *wrHead { return (*wrHead)(unsafe.Pointer(&b.wrs[i])) }

// scatter copies a request's list to its place and gives its length.
func (b *batch[W]) scatter(i int, sgl []rdma.SGE) int32 {
	return int32(copy(b.sgl[i*b.sge:(i+1)*b.sge], sgl))
}

// payload copies a request's inline bytes to their place, makes its list the one
// entry that names them, and gives the length of that.
func (b *batch[W]) payload(i int, p []byte) int32 {
	if len(p) == 0 {
		return 0
	}
	to := b.bytes[i*b.inline : (i+1)*b.inline]
	copy(to, p)
	b.sgl[i*b.sge] = rdma.SGE{Addr: addressOf(to), Length: uint32(len(p))}
	return 1
}

// list is what C gets: an integer, for which cgo has nothing to check.
func (b *batch[W]) list() C.uintptr_t { return C.uintptr_t(uintptr(b.memory)) }

// end makes request n-1 the last of the list and gives what followed it.
func (b *batch[W]) end(n int) (next uintptr) {
	last := b.head(n - 1)
	next, last.next = last.next, 0
	return next
}

// layOutData writes the requests from n on to their places in the batch and in the
// ring, up to the first that is not of plain, or is inline, or has too long a list, and
// gives the index of that. What libibverbs does not read of a request stays from an
// earlier one.
func layOutData(l *workQueue, b *batch[sendWR], plain uint32, n int, wrs []rdma.SendWR) int {
	if n >= len(wrs) {
		return n
	}
	id, ring, sge := l.id(l.head.Load()+uint64(n)), l.ring, b.sge
	w, list := unsafe.Pointer(&b.wrs[n]), unsafe.Pointer(&b.sgl[n*sge])
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		sgl := wr.SGL
		if wr.Opcode >= 32 || plain>>(wr.Opcode&31)&1 == 0 || wr.Flags&rdma.SendInline != 0 || len(sgl) > sge {
			break
		}
		to := (*sendWR)(w)
		to.wrID, to.numSGE = id, int32(len(sgl))
		to.opcode, to.flags, to.imm = uint32(wr.Opcode), uint32(wr.Flags), network(wr.ImmData)
		to.addr, to.rkey[0] = wr.RemoteAddr, wr.RKey
		bytes := uint32(0)
		for i := range sgl {
			*(*rdma.SGE)(unsafe.Add(list, i*int(unsafe.Sizeof(sgl[i])))) = sgl[i]
			bytes += sgl[i].Length
		}
		e := &ring[id>>queueBits&uint64(len(ring)-1)]
		e.wrid, e.bytes, e.op = wr.WRID, bytes, uint8(wr.Opcode)
		id += 1 << queueBits
		w = unsafe.Add(w, unsafe.Sizeof(*to))
		list = unsafe.Add(list, uintptr(sge)*unsafe.Sizeof(sgl[0]))
	}
	return n
}

// results takes apart what a post returned.
func results(r C.uint64_t) (taken int, rc C.int) { return int(uint32(r)), C.int(r >> 32) }

func postSend(qp handle, b *batch[sendWR], n int) (int, C.int) {
	next := b.end(n)
	r := C.gv_post_send(qp, b.list(), C.uint32_t(n))
	b.head(n - 1).next = next
	return results(r)
}

func postRecv(qp handle, b *batch[recvWR], n int) (int, C.int) {
	next := b.end(n)
	r := C.gv_post_recv(qp, b.list(), C.uint32_t(n))
	b.head(n - 1).next = next
	return results(r)
}

func postSRQ(srq handle, b *batch[recvWR], n int) (int, C.int) {
	next := b.end(n)
	r := C.gv_post_srq_recv(srq, b.list(), C.uint32_t(n))
	b.head(n - 1).next = next
	return results(r)
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
	if bigEndian {
		return v
	}
	return bits.ReverseBytes32(v)
}

const bigEndian = runtime.GOARCH == "ppc64" || runtime.GOARCH == "s390x" || runtime.GOARCH == "mips64"

// receive writes a receive to its place in the batch.
func receive(b *batch[recvWR], i int, id uint64, sgl []rdma.SGE, most int) error {
	if len(sgl) > most {
		return invalid("post_recv", "%d scatter entries: the queue has %d", len(sgl), most)
	}
	w := &b.wrs[i]
	w.wrID, w.numSGE = id, b.scatter(i, sgl)
	return nil
}
