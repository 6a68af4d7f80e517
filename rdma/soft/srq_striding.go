package soft

import (
	"math/bits"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A shared receive queue with strides. It counts in strides, as a queue pair's own
// one does: sharedHeader.head and tail, and the n of a claim, are strides, and there is
// a claim and a slot for each. order names the receives, each of which is as many
// slots as it has strides. A claim is of the first stride that a message takes and
// says how many those are, so that the next claimant finds where the free ones
// begin, also when this one has died before it moved head on:
//
//	n << 32 | rank + 1 << 20 | strides - 1 << 8 | state
//
// So messages of many queue pairs lie in one receive. The owner completes each when it is
// there, and the last to complete of a receive has WCFlagLastStride. What no message
// has come into after all (its claimant has died, or gave it back) is passed by, as the
// rest of a receive is that a message does not fit into; that makes a completion only
// where it is the last. A completion that failed is never the last: its receive is
// given back by another.
const (
	strideTakes    = 8
	strideRank     = 20
	maxStrideRanks = 1<<(32-strideRank) - 1
	strideTries    = 1 << 12 // against others' claims
)

func strideClaim(c uint32, rank int, takes uint32) uint64 {
	return uint64(c)<<32 | uint64(rank+1)<<strideRank | uint64(takes-1)<<strideTakes | claimTaken
}

// strideCount is how many strides a claim is of, of left at most.
func strideCount(word uint64, left uint32) uint32 {
	return min(uint32(word)>>strideTakes&(maxStrides-1)+1, left)
}

// takeStrides claims the strides of a message of n bytes to the queue pair c for rank.
func (s *peer) takeStrides(c *queueContext, h *sharedHeader, rank int, n uint64, tk *ticket) bool {
	shape, slots, base := atomic.LoadUint64(&h.strides), atomic.LoadUint32(&h.slots), atomic.LoadUint64(&h.at)
	strides, size := uint32(shape>>32), uint32(shape)
	if strides-1 >= maxStrides || strides&(strides-1) != 0 || size-1 >= maxStride || slots-1 >= maxRecvSlots || slots&(slots-1) != 0 || strides > slots ||
		base < s.p.layout.heapAt || rank >= maxStrideRanks {
		return false
	}
	receives := slots / strides
	claims := tableAt[uint64](s.arena, base, int(slots))
	order := tableAt[uint64](s.arena, base+8*uint64(slots), int(receives))
	if claims == nil || order == nil {
		return false
	}
	*tk = ticket{}
	whole, slotSize := uint64(strides)*uint64(size), uint64(atomic.LoadUint32(&h.slotSize))
	for range strideTries {
		head := atomic.LoadUint32(&h.head)
		tail := atomic.LoadUint32(&h.tail)
		if head == tail {
			return false
		}
		o := atomic.LoadUint64(&order[head/strides&(receives-1)])
		first := uint32(o) * strides
		if uint32(o>>32) != head/strides || uint32(o) >= receives {
			if atomic.LoadUint32(&h.head) == head {
				return false // scribbled
			}
			continue
		}
		used := head & (strides - 1)
		left := strides - used
		claim := &claims[first+used]
		w := atomic.LoadUint64(claim)
		if w != uint64(head)<<32|claimPosted {
			// Another has it, and has yet to move head on or died before it.
			if uint32(w>>32) != head && atomic.LoadUint32(&h.head) == head {
				return false // scribbled
			}
			atomic.CompareAndSwapUint32(&h.head, head, head+strideCount(w, left))
			continue
		}
		takes, pass := left, n <= whole && n > uint64(left)*uint64(size)
		if n <= whole && !pass {
			takes = uint32(max((n+uint64(size)-1)/uint64(size), 1))
		}
		word := strideClaim(head, rank, takes)
		if !atomic.CompareAndSwapUint64(claim, w, word) {
			continue
		}
		atomic.CompareAndSwapUint32(&h.head, head, head+takes)
		at_ := base + 16*uint64(slots) + uint64(first)*slotSize
		*tk = ticket{s: s, sl: at[recvSlot](s.arena, at_+uint64(used)*slotSize), at: at_, most: atomic.LoadUint32(&h.slotSGEs), pd: atomic.LoadUint32(&h.pd), cq: c.recvCQ,
			skip: uint64(used) * uint64(size), whole: whole, h: h, claim: claim, word: word, logged: true}
		if tk.sl == nil {
			return tk.drop() // scribbled
		}
		tk.sl.qp = c.num
		if limit := atomic.LoadUint32(&h.limit); used == 0 && limit != 0 && (tail-head)/strides-1 < limit && atomic.CompareAndSwapUint32(&h.limit, limit, 0) {
			atomic.StoreUint32(&h.fired, 1)
			s.alarm.Ring()
		}
		if !pass {
			return true
		}
		tk.drop()
	}
	return false
}

// A strideQueue is the owner's half of the strides of a shared queue.
type strideQueue struct {
	h      *sharedQueue
	shape  rdma.StridingRQ
	n      uint32       // strides in a receive
	blocks []uint32     // by receive: strides that are not complete
	held   []heldStride // claimed, and not complete, that gather has passed
}

// A heldStride is a claim of some strides of a receive.
type heldStride struct{ block, c, takes uint32 }

// openStrides makes the strides of a shared queue that no process knows yet.
func (h *sharedQueue) openStrides(shape rdma.StridingRQ) {
	n := uint32(shape.Strides)
	receives := h.block.slots / n
	h.strides = &strideQueue{h: h, shape: shape, n: n, blocks: make([]uint32, receives)}
	h.free = h.free[:receives]
	for i := range h.free {
		h.free[i] = receives - 1 - uint32(i)
	}
	atomic.StoreUint64(&h.head.strides, packStrides(shape))
}

// publish appends a receive to the order. Called with the queue's mu held.
func (t *strideQueue) publish(block uint32) {
	h, c := t.h, t.h.posted
	t.blocks[block] = t.n
	i := c / t.n & (uint32(len(t.blocks)) - 1)
	h.where[i] = block
	sges := at[recvSlot](h.p.arena, h.slotAt(block*t.n)).sges
	for k := range t.n {
		at[recvSlot](h.p.arena, h.slotAt(block*t.n+k)).sges = sges
		atomic.StoreUint64(&h.claims[block*t.n+k], uint64(c+k)<<32|claimPosted)
	}
	// In this order a process that sees the tail sees the claims, the order and the list.
	arch.StoreRelease64(&h.order[i], uint64(c/t.n)<<32|uint64(block))
	h.posted = c + t.n
	arch.StoreRelease32(&h.head.tail, h.posted)
}

// gather is sharedQueue.gather. Called with the queue's mu held.
func (t *strideQueue) gather() {
	h := t.h
	atomic.SwapUint32(&h.head.ready, 0)
	starved := atomic.LoadUint32(&h.head.starved) != 0
	t.sweep(starved)
	for h.seen != h.posted {
		c := h.seen
		used := c & (t.n - 1)
		block := h.where[c/t.n&(uint32(len(t.blocks))-1)]
		claim := &h.claims[block*t.n+used]
		w := atomic.LoadUint64(claim)
		if w == uint64(c)<<32|claimPosted {
			head := atomic.LoadUint32(&h.head.head)
			if atomic.LoadUint64(claim) != w {
				continue
			}
			if head != c {
				// Of a claimant that died before it moved head on, or scribbled.
				atomic.CompareAndSwapUint32(&h.head.head, head, c)
			}
			break
		}
		s := heldStride{block, c, 1}
		if uint32(w>>32) == c {
			s.takes = strideCount(w, t.n-used)
		}
		h.seen += s.takes
		if uint32(w>>32) == c && w&claimState == claimDone && len(t.held) > 0 {
			t.sweep(false) // what its queue pair took before it is DONE too
		}
		if !t.settle(s, starved) {
			t.held = append(t.held, s)
		}
	}
	if starved && h.seen != h.posted {
		h.feed()
	}
}

// sweep looks after the claims that gather has passed.
func (t *strideQueue) sweep(starved bool) {
	kept := t.held[:0]
	for _, s := range t.held {
		if !t.settle(s, starved) {
			kept = append(kept, s)
		}
	}
	t.held = kept
}

// settle completes what a claim is of, if its claimant is at it no more.
func (t *strideQueue) settle(s heldStride, thorough bool) bool {
	h, used := t.h, s.c&(t.n-1)
	w := atomic.LoadUint64(&h.claims[s.block*t.n+used])
	if uint32(w>>32) == s.c && w&claimState == claimTaken && !h.forsaken(w, thorough) {
		return false
	}
	sl := at[recvSlot](h.p.arena, h.slotAt(s.block*t.n+used))
	q := h.p.byQPN.get(sl.qp & (maxQueues - 1))
	if q != nil && (q.num != sl.qp || q.shared != h) {
		q = nil
	}
	t.blocks[s.block] -= s.takes
	last := t.blocks[s.block] == 0
	wrid, offset := h.wrids[s.block], used*uint32(t.shape.StrideBytes)
	if last {
		h.free = append(h.free, s.block)
	}
	if uint32(w>>32) == s.c && w&claimState == claimDone && q != nil {
		e := entry{kind: entryNote, q: q, free: h.index, offset: offset, wc: receiveWC(sl, wrid, q.num)}
		if e.wc.Flags&rdma.WCFlagWithInv != 0 {
			q.pd.ended(q.num, e.wc.ImmData)
		}
		good := e.wc.Status == rdma.WCSuccess
		if last && good {
			e.kind = entryShared
			e.wc.Flags |= rdma.WCFlagLastStride
		}
		q.recv.complete(&e, sl.stamp, sl.flags&slotSolicited != 0)
		if good {
			return true
		}
	}
	if last {
		t.passed(q, wrid, offset)
	}
	return true
}

// passed gives a receive back of which the last strides have no message, through
// the queue pair q, or any, when that has gone.
func (t *strideQueue) passed(q *queuePair, wrid uint64, offset uint32) {
	h := t.h
	for i := uint32(0); q == nil && i < uint32(len(h.p.queues)); i++ {
		if other := h.p.byQPN.get(i); other != nil && other.shared == h {
			q = other
		}
	}
	if q == nil {
		h.outstanding.Add(-1) // all its queue pairs have gone
		return
	}
	q.recv.complete(&entry{kind: entryShared, q: q, free: h.index, offset: offset,
		wc: rdma.WC{WRID: wrid, Opcode: rdma.WCRecv, QPNum: q.num, Flags: rdma.WCFlagLastStride}}, 0, false)
}

// slotsFor is how many slots a shared queue has.
func slotsFor(maxWR int, shape rdma.StridingRQ) uint32 {
	return uint32(max(shape.Strides, 1)) << bits.Len32(uint32(max(maxWR, 1)-1))
}
