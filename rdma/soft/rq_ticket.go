package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// The executor of a request works so on its responder's receive queues. A queue
// pair's own queue has one initiator at a time, which takes its slots one after the other. A shared queue has many: see sharedHeader.

// A ticket is a receive request that an execution has got hold of.
type ticket struct {
	s    *peer // in whose arena it lies
	sl   *recvSlot
	at   uint64 // offset of the slot
	most uint32 // scatter entries there is room for
	pd   uint32
	cq   uint32 // where it completes

	// Of a striding queue: what is used of the request, and how long it is, in
	// bytes; strides that are left, that the message takes, and whether they are all.
	skip, whole uint64
	rest, takes uint32
	last        bool

	inline  uint32 // bytes of a message that the slot has room for
	inlined bool   // it lies there

	// Of a shared queue:
	h     *sharedHeader
	claim *uint64 // nil: the queue is the queue pair's own
	word  uint64  // what this execution has put there
	slot  uint32

	// Of one with tags, or strides:
	logged  bool // the claim is in the log; the process that gives it back leaves all else to the owner
	matched bool // it is of an entry
	told    bool // it is of a message with a header, which
	op      rdma.TMOpcode
}

// entries is the request's scatter list.
func (tk *ticket) entries() []slotSGE {
	return tableAt[slotSGE](tk.s.arena, tk.at+slotHeader, int(min(uint32(tk.sl.sges), tk.most, maxSGE)))
}

// next gives the receive request that a message to the queue pair c takes. One
// of a shared queue is claimed for rank. It is put into tk, whose copies would
// cost an execution more than the rest of this.
func (s *peer) next(c *queueContext, rank int, n uint64, tk *ticket) (ok bool) {
	if c.shared != 0 {
		h := s.sharedBy(c.shared)
		if h == nil {
			return false
		}
		if atomic.LoadUint32(&h.tags) != 0 {
			return s.arrive(h, rank, nil, tk)
		}
		if atomic.LoadUint64(&h.strides) != 0 {
			return s.takeStrides(c, h, rank, n, tk)
		}
		*tk, ok = s.take(h, rank)
		tk.cq = c.recvCQ
		return ok
	}
	if strides, size, ok := striding(c); ok {
		return s.nextStrides(c, strides, size, n, tk)
	}
	sl, at := s.slot(c)
	if sl == nil {
		return false
	}
	tk.s, tk.sl, tk.at, tk.pd, tk.cq = s, sl, at, c.pd, c.recvCQ
	tk.most, tk.inline = uint32(c.slotSGEs), uint32(c.inline)
	tk.inlined, tk.claim, tk.h = false, nil, nil
	if tk.whole != 0 { // of an earlier peer, whose queue had strides
		tk.skip, tk.whole, tk.rest, tk.takes, tk.last = 0, 0, 0, 0, false
	}
	return true
}

// sharedBy finds a shared queue of the peer by its index + 1.
func (s *peer) sharedBy(index uint32) *sharedHeader {
	if index == 0 || int(index) > len(s.shared) {
		return nil
	}
	return &s.shared[index-1]
}

// take claims the next receive request of a shared queue for rank.
func (s *peer) take(h *sharedHeader, rank int) (tk ticket, ok bool) {
	n, base := atomic.LoadUint32(&h.slots), atomic.LoadUint64(&h.at)
	if n == 0 || n&(n-1) != 0 || n > maxWR || base < s.p.layout.heapAt {
		return tk, false
	}
	claims := tableAt[uint64](s.arena, base, int(n))
	order := tableAt[uint64](s.arena, base+8*uint64(n), int(n))
	if claims == nil || order == nil {
		return tk, false
	}
	// Each turn either claims, or finds that another process has moved on. The
	// bound is for contents that make no sense.
	for range 4*n + 64 {
		head := atomic.LoadUint32(&h.head)
		tail := atomic.LoadUint32(&h.tail)
		if head == tail {
			return tk, false
		}
		o := atomic.LoadUint64(&order[head&(n-1)])
		slot := uint32(o)
		if uint32(o>>32) != head || slot >= n {
			if atomic.LoadUint32(&h.head) == head {
				return tk, false // scribbled
			}
			continue
		}
		word := uint64(head)<<32 | uint64(rank+1)<<claimRank | claimTaken
		if !atomic.CompareAndSwapUint64(&claims[slot], uint64(head)<<32|claimPosted, word) {
			// Another has it, and has yet to move head on or died before it.
			atomic.CompareAndSwapUint32(&h.head, head, head+1)
			continue
		}
		atomic.CompareAndSwapUint32(&h.head, head, head+1)
		at_ := base + 16*uint64(n) + uint64(slot)*uint64(atomic.LoadUint32(&h.slotSize))
		tk = ticket{s: s, sl: at[recvSlot](s.arena, at_), at: at_, most: atomic.LoadUint32(&h.slotSGEs), pd: atomic.LoadUint32(&h.pd), cq: noCQ, h: h, claim: &claims[slot], word: word, slot: slot}
		if tk.sl == nil {
			arch.StoreRelease64(&claims[slot], claimFree) // scribbled: the owner finds out
			return tk, false
		}
		if limit := atomic.LoadUint32(&h.limit); limit != 0 && tail-(head+1) < limit && atomic.CompareAndSwapUint32(&h.limit, limit, 0) {
			atomic.StoreUint32(&h.fired, 1)
			s.alarm.Ring()
		}
		return tk, true
	}
	return tk, false
}

// starve notes that no receive was found. The caller looks once more after it.
func (s *peer) starve(c *queueContext) {
	if h := s.sharedBy(c.shared); h != nil {
		cq := atomic.LoadUint32(&h.cq)
		if cq == noCQ {
			cq = c.recvCQ
		}
		s.hunger(h, cq)
		return
	}
	atomic.StoreUint32(&c.starved, 1)
}

// hunger is starve for a shared queue: every claim may be one of the dead, which
// the owner finds out when it looks.
func (s *peer) hunger(h *sharedHeader, cq uint32) {
	atomic.StoreUint32(&h.starved, 1)
	s.attend(cq, false)
}

// giveBack lets go of a request that was taken and not filled.
func (tk *ticket) giveBack() {
	if tk.claim == nil {
		return // it was not taken before it is filled
	}
	if tk.logged {
		arch.StoreRelease64(tk.claim, tk.word&^claimState|claimReturned)
		arch.StoreRelease32(&tk.h.ready, 1)
		tk.s.attend(tk.cq, false)
		return
	}
	// It is the next again, unless another process has taken the one behind it
	// meanwhile: then the owner posts it anew.
	n := uint32(tk.word >> 32)
	atomic.StoreUint64(tk.claim, uint64(n)<<32|claimPosted)
	if !atomic.CompareAndSwapUint32(&tk.h.head, n+1, n) {
		atomic.StoreUint32(&tk.h.ready, 1)
		tk.s.attend(tk.cq, false)
	}
}

// A delivery is what the completion of a receive says of its message.
type delivery struct {
	status    rdma.WCStatus
	op        rdma.WROpcode
	flags     rdma.WCFlags
	solicited bool
	n, imm    uint32
	srcQP     uint32
}

// deliver fills in what the receiver's completion says, hands the request over
// and tells the receiver.
func (s *peer) deliver(c *queueContext, tk *ticket, d delivery) {
	s.hand(c, tk, d)
	tk.s.tell(c, tk.h, tk.cq, d.urgent())
	if tk.matched && tk.op == rdma.TMRndv {
		tk.s.alarm.Ring() // there is something to do, whichever process polls
	}
}

// urgent tells whether a receiver is woken that waits for solicited completions.
func (d *delivery) urgent() bool { return d.solicited || d.status != rdma.WCSuccess }

// hand is deliver without a word to the receiver. Everything before is visible
// to a process that sees DONE.
func (s *peer) hand(c *queueContext, tk *ticket, d delivery) {
	sl := tk.sl
	sl.status, sl.byteLen, sl.srcQP, sl.imm = uint8(d.status), d.n, d.srcQP, d.imm
	o := d.op.Operation()
	sl.opcode = uint8(o.Received)
	flags := uint8(d.flags | o.Flags)
	if d.solicited {
		flags |= slotSolicited
	}
	if d.status != rdma.WCSuccess {
		tk.takes = tk.rest
	} else if tk.last {
		flags |= uint8(rdma.WCFlagLastStride)
	}
	sl.flags = flags
	if tk.inlined && d.status == rdma.WCSuccess {
		sl.opcode |= slotInline
	}
	if tk.claim == nil {
		s.stamp(tk.cq, sl)
		sl.qp = tk.takes
		c.head += max(tk.takes, 1)
		arch.StoreRelease32(&sl.state, slotDone)
		return
	}
	sl.qp = c.num
	if tk.logged {
		tk.label(sl)
	}
	tk.s.stamp(tk.cq, sl)
	arch.StoreRelease64(tk.claim, tk.word&^claimState|claimDone)
}

// tell says that there are messages in the receive queue of the queue pair c, or
// in the shared queue h, that complete in cq.
func (s *peer) tell(c *queueContext, h *sharedHeader, cq uint32, urgent bool) {
	if h != nil {
		arch.StoreRelease32(&h.ready, 1)
	} else {
		s.raise(c)
	}
	s.attend(cq, urgent)
}

// stamp notes the time of a completion for programs that want to know it.
func (s *peer) stamp(cq uint32, sl *recvSlot) {
	if int(cq) < len(s.cqs) && s.cqs[cq].stamps != 0 {
		sl.stamp = deviceTime()
	}
}

// raise says that there is something to see at the queue pair; attend tells its
// completion queues. The owner clears in the opposite order
// (completionQueue.harvest).
func (s *peer) raise(c *queueContext) {
	if i := c.num & (maxQueues - 1); int(i) < len(s.ready) {
		arch.StoreRelease32(&s.ready[i], 1)
	}
}

// attend tells the owner's completion queue that there is something to see, and
// wakes the owner when it waits for that.
func (s *peer) attend(cq uint32, solicited bool) {
	if int(cq) >= len(s.cqs) {
		return
	}
	h := &s.cqs[cq]
	arch.StoreRelease32(&h.attention, 1)
	// This look may overtake the stores before it. An owner that goes to
	// sleep first has a barrier of all initiators and then looks itself: see watch.run.
	if a := atomic.LoadUint32(&h.armed); a == armedAny || a == armedSolicited && solicited {
		s.alarm.Ring()
	}
}
