//go:build cgo

package pmix

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"runtime/cgo"
	"sync/atomic"
	"unsafe"
)

// request is what an upcall of libpmix waits for.
type request struct{ p atomic.Pointer[byte] }

var _ Request = (*request)(nil)

func newRequest(p unsafe.Pointer) *request {
	r := new(request)
	r.p.Store((*byte)(p))
	return r
}

// take gives C's part away, once.
func (r *request) take() unsafe.Pointer {
	p := r.p.Swap(nil)
	if p == nil {
		panic("pmix: a request was answered twice")
	}
	return unsafe.Pointer(p)
}

func (r *request) Done(s Status) { C.gorun_pmix_done(r.take(), C.int(s)) }

func (r *request) Data(s Status, data []byte) {
	C.gorun_pmix_done_data(r.take(), C.int(s), unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)))
}

func (r *request) Spawned(s Status, namespace string) {
	name := C.CString(namespace)
	defer C.free(unsafe.Pointer(name))
	C.gorun_pmix_done_spawn(r.take(), C.int(s), name)
}

func (r *request) Found(s Status, pairs []Pair) {
	var w words
	defer w.free()
	n := len(pairs)
	const pointer = C.size_t(unsafe.Sizeof(uintptr(0)))
	procs := unsafe.Slice((*C.gorun_proc)(w.keep(C.calloc(C.size_t(n+1), C.size_t(unsafe.Sizeof(C.gorun_proc{}))))), n)
	keys := unsafe.Slice((**C.char)(w.keep(C.calloc(C.size_t(n+1), pointer))), n)
	values := unsafe.Slice((*unsafe.Pointer)(w.keep(C.calloc(C.size_t(n+1), pointer))), n)
	sizes := unsafe.Slice((*C.size_t)(w.keep(C.calloc(C.size_t(n+1), pointer))), n)
	for i, p := range pairs {
		procs[i].nspace, procs[i].rank = w.add(p.By.Namespace), C.uint32_t(p.By.Rank)
		keys[i] = w.add(p.Key)
		values[i] = w.keep(C.CBytes(p.Value))
		sizes[i] = C.size_t(len(p.Value))
	}
	C.gorun_pmix_done_lookup(r.take(), C.int(s), C.size_t(n), unsafe.SliceData(procs), unsafe.SliceData(keys), unsafe.SliceData(values), unsafe.SliceData(sizes))
}

// of finds the server that C knows by a handle.
func of(owner C.uintptr_t) *Server { return cgo.Handle(owner).Value().(*Server) }

func goProc(nspace *C.char, rank C.uint32_t) Proc { return Proc{C.GoString(nspace), uint32(rank)} }

func goStrings(list **C.char, n C.size_t) []string {
	out := make([]string, n)
	for i, p := range unsafe.Slice(list, int(n)) {
		out[i] = C.GoString(p)
	}
	return out
}

//export gorunConnected
func gorunConnected(owner C.uintptr_t, nspace *C.char, rank C.uint32_t) {
	of(owner).handler.Connected(goProc(nspace, rank))
}

//export gorunFinalized
func gorunFinalized(owner C.uintptr_t, nspace *C.char, rank C.uint32_t) {
	of(owner).handler.Finalized(goProc(nspace, rank))
}

//export gorunAbort
func gorunAbort(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, status C.int, text *C.char) {
	of(owner).handler.Abort(newRequest(r), goProc(nspace, rank), int(status), C.GoString(text))
}

//export gorunFence
func gorunFence(owner C.uintptr_t, r unsafe.Pointer, kind C.int, procs *C.gorun_proc, n C.size_t, data unsafe.Pointer, size C.size_t) {
	list := make([]Proc, n)
	for i, p := range unsafe.Slice(procs, int(n)) {
		list[i] = goProc(p.nspace, p.rank)
	}
	of(owner).handler.Fence(newRequest(r), Kind(kind), list, goBytes(data, size))
}

//export gorunModex
func gorunModex(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t) {
	of(owner).handler.Modex(newRequest(r), goProc(nspace, rank))
}

//export gorunModexData
func gorunModexData(owner C.uintptr_t, id C.uint64_t, status C.int, data unsafe.Pointer, size C.size_t) {
	of(owner).modexDone(uint64(id), Status(status), goBytes(data, size))
}

//export gorunPublish
func gorunPublish(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, n C.size_t, keys **C.char, values *unsafe.Pointer, sizes *C.size_t) {
	by := goProc(nspace, rank)
	pairs := make([]Pair, n)
	k, v, s := unsafe.Slice(keys, int(n)), unsafe.Slice(values, int(n)), unsafe.Slice(sizes, int(n))
	for i := range pairs {
		pairs[i] = Pair{C.GoString(k[i]), goBytes(v[i], s[i]), by}
	}
	of(owner).handler.Publish(newRequest(r), by, pairs)
}

//export gorunLookup
func gorunLookup(owner C.uintptr_t, r unsafe.Pointer, n C.size_t, keys **C.char, wait C.int) {
	of(owner).handler.Lookup(newRequest(r), goStrings(keys, n), wait != 0)
}

//export gorunUnpublish
func gorunUnpublish(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, n C.size_t, keys **C.char) {
	of(owner).handler.Unpublish(newRequest(r), goProc(nspace, rank), goStrings(keys, n))
}

//export gorunSpawn
func gorunSpawn(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, n C.size_t, words **C.char, counts *C.size_t) {
	const counted = 4 // numbers for each application
	number := unsafe.Slice(counts, counted*int(n))
	total := C.size_t(0)
	for i := range int(n) {
		total += number[counted*i+1] + number[counted*i+2] + 2*number[counted*i+3]
	}
	word := goStrings(words, total)
	take := func(n C.size_t) (list []string) {
		list, word = word[:n:n], word[n:]
		return list
	}
	apps := make([]App, n)
	for i := range apps {
		c := number[counted*i:]
		apps[i] = App{NP: int(c[0]), Argv: take(c[1]), Env: take(c[2]), Info: make([][2]string, c[3])}
		for k := range apps[i].Info {
			apps[i].Info[k] = [2]string(take(2))
		}
	}
	of(owner).handler.Spawn(newRequest(r), goProc(nspace, rank), apps)
}

//export gorunNotify
func gorunNotify(owner C.uintptr_t, data unsafe.Pointer, size C.size_t) {
	of(owner).handler.Notify(goBytes(data, size))
}

// goBytes copies C's bytes; a length beyond a Go slice's is none of libpmix's.
func goBytes(p unsafe.Pointer, n C.size_t) []byte {
	if p == nil || n == 0 {
		return nil
	}
	return append([]byte(nil), unsafe.Slice((*byte)(p), int(n))...)
}
