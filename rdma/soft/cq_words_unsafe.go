package soft

import (
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

// PollWords are words that are all 0 while a Poll of the queue would find nothing, and have nothing to move:
// a program in another language reads them before it calls. It reads them with atomic loads and
// never writes; those in Go's memory must be pinned (runtime.Pinner). A closed queue's words say nothing.
func PollWords(cq rdma.CQ) [4]*uint32 {
	c := cq.(*completionQueue)
	return [4]*uint32{&c.count, &c.head.attention, (*uint32)(unsafe.Pointer(&c.p.work.busy)), &c.p.head.wanted}
}
