package verbs

/*
#include "tag.h"
*/
import "C"

import "unsafe"

// An opWR is an operation on a list of tags as C has it (gv_op).
type opWR struct {
	wrID, recvID, tag, mask uint64
	sgl                     uintptr
	handle, unexpected      uint32
	opcode, flags, numSGE   int32
	_                       int32
}

// These do not compile when a layout is not what the C side has.
var (
	_ [unsafe.Sizeof(C.gv_op{})]byte           = [unsafe.Sizeof(opWR{})]byte{}
	_ [unsafe.Offsetof(C.gv_op{}.handle)]byte  = [unsafe.Offsetof(opWR{}.handle)]byte{}
	_ [unsafe.Offsetof(C.gv_op{}.num_sge)]byte = [unsafe.Offsetof(opWR{}.numSGE)]byte{}
	_ [C.GV_MOST_OPS]byte                      = [batchLimit]byte{}
)

func postOps(srq handle, b *batch[opWR], n int) (int, C.int) {
	return results(C.gv_post_srq_ops(srq, b.list(), C.uint32_t(n)))
}
