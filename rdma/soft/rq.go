package soft

import (
	"math/bits"
	"sync"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A receiveRing is a queue pair's own receive queue, as the owner has it: a ring of
// slots in the arena. A receive is one slot, or as many as it has strides.
type receiveRing struct {
	q           *queuePair
	at          uint64 // offset of the slots
	slots       uint32 // a power of two; 0: there are none
	size        uint32 // of a slot
	strides     uint32 // slots of a receive
	strideBytes uint32

	mu     sync.Mutex // guards the posting of receives:
	wrids  []uint64   // by slot
	posted uint32     // ever, in slots; stored with mu held; atomic
	taken  uint32     // completed; guarded by the receive completion queue's mu
	freed  uint32     // whose completion was polled; atomic
}

// create makes room for n receives.
func (r *receiveRing) create(n int, size rdma.QPCap) (err error) {
	r.slots = r.strides << bits.Len32(uint32(n-1))
	r.size = uint32(slotStride(size.MaxRecvSGE + (size.MaxInlineRecv+slotSGESize-1)/slotSGESize))
	r.wrids = make([]uint64, r.slots)
	r.at, _, err = r.q.p.allocate(uint64(r.slots) * uint64(r.size))
	return err
}

func (r *receiveRing) destroy() {
	if r.slots > 0 {
		r.q.p.release(r.at, uint64(r.slots)*uint64(r.size))
	}
}

// slotAt is the offset of the i-th slot in the arena.
func (r *receiveRing) slotAt(i uint32) uint64 { return r.at + uint64(i&(r.slots-1))*uint64(r.size) }

// slot is the i-th slot.
func (r *receiveRing) slot(i uint32) *recvSlot { return at[recvSlot](r.q.p.arena, r.slotAt(i)) }

// wrid is the id of the receive that slot i is of.
func (r *receiveRing) wrid(i uint32) uint64 { return r.wrids[i&(r.slots-1)&^(r.strides-1)] }

// took is how many strides the message takes whose record is in slot i.
func (r *receiveRing) took(i uint32, sl *recvSlot) uint32 {
	n := r.strides
	if n == 1 {
		return 1
	}
	left := n - i&(n-1)
	if rdma.WCStatus(sl.status) != rdma.WCSuccess {
		return left // a failure returns the receive
	}
	return min(max(sl.qp, 1), left)
}

// release frees k slots from i on, before their completion says that the
// places are free. Called with the completion queue's mu held.
func (r *receiveRing) release(i, k uint32) {
	for n := range k {
		if sl := r.slot(i + n); sl != nil {
			arch.StoreRelease32(&sl.state, slotFree)
		}
	}
}

// offset is where in its receive's buffer the stride of slot i begins.
func (r *receiveRing) offset(i uint32) uint32 { return i & (r.strides - 1) * r.strideBytes }

// open hands the slots of a receive to the initiator, which sees what was
// written before.
func (r *receiveRing) open(from uint32, sges uint8) {
	for k := range r.strides {
		sl := r.slot(from + k)
		sl.sges = sges
		arch.StoreRelease32(&sl.state, slotPosted)
	}
}
