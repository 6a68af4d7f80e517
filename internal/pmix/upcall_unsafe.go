//go:build cgo

package pmix

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
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
	texts := unsafe.Slice((*C.int)(w.keep(C.calloc(C.size_t(n+1), C.size_t(unsafe.Sizeof(C.int(0)))))), n)
	for i, p := range pairs {
		procs[i].nspace, procs[i].rank = w.add(p.By.Space), C.uint32_t(p.By.Rank)
		keys[i] = w.add(p.Key)
		values[i] = w.keep(C.CBytes(append(p.Value[:len(p.Value):len(p.Value)], 0)))
		sizes[i] = C.size_t(len(p.Value))
		if p.Text {
			texts[i] = 1
		}
	}
	C.gorun_pmix_done_lookup(r.take(), C.int(s), C.size_t(n), unsafe.SliceData(procs), unsafe.SliceData(keys), unsafe.SliceData(values), unsafe.SliceData(sizes), unsafe.SliceData(texts))
}

func (r *request) Infos(s Status, list []Info) {
	var w words
	defer w.free()
	C.gorun_pmix_done_infos(r.take(), C.int(s), w.infos(list), C.size_t(len(list)))
}

// infos are attributes in C's memory. A value of a type that Info does not name is
// the caller's mistake.
func (w *words) infos(list []Info) *C.gorun_info {
	p := (*C.gorun_info)(w.keep(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(C.gorun_info{})))))
	array := unsafe.Slice(p, len(list))
	for i := range array {
		c := &array[i]
		c.key = w.add(list[i].Name)
		switch v := list[i].Value.(type) {
		case string:
			c.kind, c.text = C.GORUN_TEXT, w.add(v)
		case bool:
			c.kind = C.GORUN_FLAG
			if v {
				c.number = 1
			}
		case uint32:
			c.kind, c.number = C.GORUN_NUMBER, C.uint64_t(v)
		case uint64:
			c.kind, c.number = C.GORUN_SIZE, C.uint64_t(v)
		case Status:
			c.kind, c.number = C.GORUN_STATUS, C.uint64_t(int64(v))
		case float32:
			c.kind, c.real = C.GORUN_REAL, C.double(v)
		case []byte:
			c.kind, c.bytes, c.n = C.GORUN_BYTES, w.keep(C.CBytes(v)), C.size_t(len(v))
		case []Info:
			c.kind, c.list, c.n = C.GORUN_LIST, w.infos(v), C.size_t(len(v))
		case []Process:
			c.kind, c.processes, c.n = C.GORUN_PROCESSES, w.processes(v), C.size_t(len(v))
		case []Proc:
			c.kind, c.procs, c.n = C.GORUN_PROCS, w.procs(v), C.size_t(len(v))
		default:
			panic(fmt.Sprintf("pmix: %s is a %T", list[i].Name, v))
		}
	}
	return p
}

func (w *words) procs(list []Proc) *C.gorun_proc {
	p := (*C.gorun_proc)(w.keep(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(C.gorun_proc{})))))
	array := unsafe.Slice(p, len(list))
	for i, q := range list {
		array[i] = C.gorun_proc{nspace: w.add(q.Space), rank: C.uint32_t(q.Rank)}
	}
	return p
}

func (w *words) processes(list []Process) *C.gorun_process {
	p := (*C.gorun_process)(w.keep(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(C.gorun_process{})))))
	array := unsafe.Slice(p, len(list))
	for i, q := range list {
		array[i] = C.gorun_process{
			nspace: w.add(q.Space), rank: C.uint32_t(q.Rank), host: w.add(q.Host), program: w.add(q.Program),
			pid: C.int64_t(q.PID), exit: C.int32_t(q.Exit), state: C.int32_t(q.State),
		}
	}
	return p
}

// of finds the server that C knows by a handle.
func of(owner C.uintptr_t) *Server { return cgo.Handle(owner).Value().(*Server) }

func goProc(nspace *C.char, rank C.uint32_t) Proc {
	return Proc{Space: C.GoString(nspace), Rank: uint32(rank)}
}

func goProcs(procs *C.gorun_proc, n C.size_t) []Proc {
	list := make([]Proc, n)
	for i, p := range unsafe.Slice(procs, int(n)) {
		list[i] = goProc(p.nspace, p.rank)
	}
	return list
}

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
	of(owner).handler.Fence(newRequest(r), Kind(kind), goProcs(procs, n), goBytes(data, size))
}

//export gorunGroup
func gorunGroup(owner C.uintptr_t, r unsafe.Pointer, kind C.int, name *C.char, procs *C.gorun_proc, n C.size_t, context C.int, data unsafe.Pointer, size C.size_t) {
	of(owner).handler.Group(newRequest(r), Kind(kind), C.GoString(name), goProcs(procs, n), context != 0, goBytes(data, size))
}

//export gorunControl
func gorunControl(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, procs *C.gorun_proc, n C.size_t, signal, end C.int) {
	of(owner).handler.Control(newRequest(r), goProc(nspace, rank), Control{goProcs(procs, n), int(signal), end != 0})
}

//export gorunLog
func gorunLog(owner C.uintptr_t, nspace *C.char, rank C.uint32_t, stream C.int, text unsafe.Pointer, size C.size_t) {
	b := goBytes(text, size)
	if stream != 0 {
		of(owner).handler.Log(goProc(nspace, rank), int(stream), string(b), false)
	} else if text, ok := unpackHelp(b); ok {
		of(owner).handler.Log(goProc(nspace, rank), 2, text, true)
	}
}

// gorunLogged answers later, on another thread: libpmix holds the lock that its
// answer takes.
//
//export gorunLogged
func gorunLogged(_ C.uintptr_t, r unsafe.Pointer) { go newRequest(r).Done(0) }

//export gorunQuery
func gorunQuery(owner C.uintptr_t, r unsafe.Pointer, queries *C.gorun_query, n C.size_t) {
	list := make([]Query, n)
	for i, q := range unsafe.Slice(queries, int(n)) {
		list[i] = Query{goStrings(q.keys, q.n), C.GoString(q.nspace), q.local != 0}
	}
	of(owner).handler.Query(newRequest(r), list)
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
func gorunPublish(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, own, once C.int, n C.size_t, keys **C.char, values *unsafe.Pointer, sizes *C.size_t, texts *C.int) {
	by := goProc(nspace, rank)
	pairs := make([]Pair, n)
	k, v, s, t := unsafe.Slice(keys, int(n)), unsafe.Slice(values, int(n)), unsafe.Slice(sizes, int(n)), unsafe.Slice(texts, int(n))
	for i := range pairs {
		pairs[i] = Pair{Key: C.GoString(k[i]), Value: goBytes(v[i], s[i]), Text: t[i] != 0, By: by, Own: own != 0, Once: once != 0}
	}
	of(owner).handler.Publish(newRequest(r), by, pairs)
}

//export gorunLookup
func gorunLookup(owner C.uintptr_t, r unsafe.Pointer, nspace *C.char, rank C.uint32_t, n C.size_t, keys **C.char, wait, timeout C.int) {
	of(owner).handler.Lookup(newRequest(r), goProc(nspace, rank), goStrings(keys, n), wait != 0, int(timeout))
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
