package verbs

/*
#include <stdlib.h>
#include "mlx5.h"
*/
import "C"

import (
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

// A layoutBuffer is C memory for the pieces of the layout that is being posted.
type layoutBuffer struct {
	memory unsafe.Pointer
	size   uintptr
}

// write puts the pieces of a layout that have any bytes there, and gives their
// address and number.
func (b *layoutBuffer) write(l *rdma.MkeyLayout) (at uint64, n int, ok bool) {
	need := unsafe.Sizeof(C.gv_piece{})*uintptr(len(l.Interleaved)) + unsafe.Sizeof(rdma.SGE{})*uintptr(len(l.List))
	if need > b.size {
		memory := C.malloc(C.size_t(need))
		if memory == nil {
			return 0, 0, false
		}
		b.free()
		b.memory, b.size = memory, need
	}
	list := unsafe.Slice((*rdma.SGE)(b.memory), len(l.List))
	for _, s := range l.List {
		if s.Length > 0 {
			list[n] = s
			n++
		}
	}
	pieces := unsafe.Slice((*C.gv_piece)(b.memory), len(l.Interleaved))
	for _, p := range l.Interleaved {
		if p.Count > 0 {
			pieces[n] = C.gv_piece{addr: C.uint64_t(p.Addr), count: C.uint32_t(p.Count), skip: C.uint32_t(p.Skip), lkey: C.uint32_t(p.LKey)}
			n++
		}
	}
	return uint64(uintptr(b.memory)), n, true
}

func (b *layoutBuffer) free() {
	C.free(b.memory)
	*b = layoutBuffer{}
}

// postExtended posts a batch to a queue pair by the functions of ibv_wr_start(3).
func (q *queuePair) postExtended(b *batch[sendWR], n int) (int, C.int) {
	return results(C.gv_mlx5_post_send(q.how.ex, q.how.direct, b.list(), C.uint32_t(n)))
}
