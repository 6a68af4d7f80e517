package soft

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A striding receive queue counts in strides: each has a slot of its own, and a
// request is as many slots behind each other, of which the first holds the scatter
// list. queueContext.head, and receiveRing.posted, taken and freed, count strides.
// A message is recorded in the slot of its first stride, with how many it took in
// recvSlot.qp. When it does not fit into what is left of a request, that is passed
// by: it completes as a message of no bytes from queue pair 0, and the message
// begins the next request.

const (
	minStride    = 64
	maxStride    = 64 << 10
	maxStrides   = 4 << 10
	maxRecvSlots = 1 << 20 // strides in one queue
)

// stridingBad says what is wrong with what was asked for, "" for nothing.
func stridingBad(init *rdma.QPInitAttr) string {
	s := init.Striding
	switch {
	case s == (rdma.StridingRQ{}):
		return ""
	case init.Type != rdma.RC && init.Type != rdma.UC || init.SRQ != nil:
		return "strides are of the own receive queue of RC and UC, or of a shared receive queue"
	}
	return shapeBad(s, init.Cap.MaxRecvWR)
}

// shapeBad is that for the strides of maxWR receives.
func shapeBad(s rdma.StridingRQ, maxWR int) string {
	switch {
	case s.StrideBytes < minStride || s.StrideBytes > maxStride || s.StrideBytes&(s.StrideBytes-1) != 0:
		return fmt.Sprintf("strides of %d bytes: want a power of two from %d to %d", s.StrideBytes, minStride, maxStride)
	case s.Strides < 1 || s.Strides > maxStrides || s.Strides&(s.Strides-1) != 0:
		return fmt.Sprintf("%d strides in a receive: want a power of two up to %d", s.Strides, maxStrides)
	case s.Strides<<bits.Len(uint(max(maxWR, 1)-1)) > maxRecvSlots:
		return fmt.Sprintf("%d receives of %d strides: there can be %d strides", maxWR, s.Strides, maxRecvSlots)
	}
	return ""
}

// packStrides makes queueContext.scope of a striding queue.
func packStrides(s rdma.StridingRQ) uint64 { return uint64(s.Strides)<<32 | uint64(s.StrideBytes) }

// striding tells of a queue pair's own receive queue whether it has strides.
func striding(c *queueContext) (strides, size uint32, ok bool) {
	w := atomic.LoadUint64(&c.scope)
	strides, size = uint32(w>>32), uint32(w)
	typ := rdma.QPType(atomic.LoadUint32(&c.rights) >> 24)
	ok = w != 0 && (typ == rdma.RC || typ == rdma.UC) && strides-1 < maxStrides && strides&(strides-1) == 0 && strides <= c.slots && size-1 < maxStride
	return strides, size, ok
}

// nextStrides is next for a message of n bytes to a striding queue.
func (s *peer) nextStrides(c *queueContext, strides, size uint32, n uint64, tk *ticket) bool {
	sl, at_ := s.slot(c)
	if sl == nil {
		return false
	}
	used := c.head & (strides - 1)
	if left := uint64(strides-used) * uint64(size); n > left && n <= uint64(strides)*uint64(size) {
		rest := ticket{s: s, sl: sl, cq: c.recvCQ, takes: strides - used, last: true}
		s.deliver(c, &rest, delivery{op: rdma.WRSend})
		if sl, at_ = s.slot(c); sl == nil {
			return false
		}
		used = 0
	}
	*tk = ticket{s: s, sl: sl, at: at_ - uint64(used)*uint64(c.slotSize), most: uint32(c.slotSGEs), pd: c.pd, cq: c.recvCQ}
	tk.skip, tk.whole = uint64(used)*uint64(size), uint64(strides)*uint64(size)
	tk.rest = strides - used
	tk.takes = uint32(min(max((n+uint64(size)-1)/uint64(size), 1), uint64(tk.rest)))
	tk.last = tk.takes == tk.rest
	return tk.at >= s.p.layout.heapAt
}
