package soft

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// sharedQueue is the owner's half of a receive queue that many take from; a
// sharedHeader and the memory it names are what they work on.
//
// Locks: mu before the completion queues' mu.
type sharedQueue struct {
	p       *Provider
	pd      *domain
	api     *srq             // as programs have it, or
	inbox   *queuePair       // whose own it is
	recv    *completionQueue // of XRC and with tags: where it completes; else where its queue pairs do
	index   uint32
	head    *sharedHeader
	block   sharedBlock
	maxWR   int
	maxSGE  int
	maxTags int
	tags    *tagList // of SRQTagMatching
	strides *strideQueue
	claims  []uint64
	order   []uint64

	outstanding atomic.Int32 // posted, and their completion not polled

	mu     sync.Mutex // guards what follows, and posting
	wrids  []uint64   // by slot
	free   []uint32   // slots
	where  []uint32   // n & (slots-1) -> slot, as order, but out of others' reach
	posted uint32     // receives ever posted
	seen   uint32     // of those, how many harvest has passed
	held   []uint32   // slots it has passed that are claimed, oldest first
	closed bool
}

// A sharedShape says which memory one shared queue can have after another.
type sharedShape struct{ slots, stride, tags, strides uint32 }

// A sharedBlock is the memory of a shared queue.
type sharedBlock struct {
	sharedShape
	at      uint64
	next    uint32 // the n of the next receive posted in it
	added   uint64 // the position of the next entry of the list of tags
	decided uint32 // the next decision of its log
}

func (s sharedShape) bytes() uint64 { return uint64(s.slots)*(16+uint64(s.stride)) + s.tagBytes() }

// openShared makes a shared queue, of which no process knows before show.
func (d *domain) openShared(op string, maxWR, maxSGE, maxTags int, striding rdma.StridingRQ) (*sharedQueue, error) {
	p := d.p
	h := &sharedQueue{p: p, pd: d, maxWR: maxWR, maxSGE: maxSGE, maxTags: maxTags}
	shape := sharedShape{slotsFor(maxWR, striding), uint32(slotStride(maxSGE)), uint32(maxTags), uint32(striding.Strides)}
	if maxTags > 0 {
		shape.stride = uint32(slotStride(maxSGE + tagInfoSize/slotSGESize))
	}
	p.mu.Lock()
	if list := p.sharedBlocks[shape]; len(list) > 0 {
		h.block = list[len(list)-1]
		p.sharedBlocks[shape] = list[:len(list)-1]
	}
	i, ok := p.free.srqs.take()
	if ok {
		p.head.touched.shared = max(p.head.touched.shared, uint32(i)+1)
	}
	p.mu.Unlock()
	if !ok {
		p.keepBlock(h.block)
		return nil, &rdma.OpError{Op: op, Detail: fmt.Sprintf("all %d shared receive queues are in use: close one first", p.layout.shared), Err: rdma.ErrNoMemory}
	}
	h.index = uint32(i)
	if h.block.slots == 0 {
		offset, _, err := p.allocate(shape.bytes())
		if err != nil {
			p.giveSRQ(i)
			return nil, &rdma.OpError{Op: op, Detail: "receive queue", Err: err}
		}
		h.block = sharedBlock{sharedShape: shape, at: offset}
	}
	n := int(shape.slots)
	h.claims = tableAt[uint64](p.arena, h.block.at, n)
	h.order = tableAt[uint64](p.arena, h.block.at+8*uint64(n), n)
	h.wrids, h.where = make([]uint64, n), make([]uint32, n)
	h.free = make([]uint32, n)
	for i := range h.free {
		h.free[i] = uint32(n - 1 - i)
		atomic.StoreUint64(&h.claims[i], claimFree)
	}
	h.posted, h.seen = h.block.next, h.block.next
	h.head = &p.shared[i]
	c := h.head
	// A process may still be reading of the queue that had the place before.
	atomic.StoreUint64(&c.at, h.block.at)
	atomic.StoreUint32(&c.slots, shape.slots)
	atomic.StoreUint32(&c.slotSize, shape.stride)
	atomic.StoreUint32(&c.slotSGEs, uint32(maxSGE))
	atomic.StoreUint32(&c.pd, d.id)
	atomic.StoreUint64(&c.scope, 0)
	atomic.StoreUint32(&c.cq, noCQ)
	atomic.StoreUint32(&c.tags, 0)
	atomic.StoreUint64(&c.strides, 0)
	atomic.StoreUint32(&c.tail, h.posted)
	atomic.StoreUint32(&c.head, h.posted)
	for _, w := range []*uint32{&c.limit, &c.fired, &c.starved, &c.ready} {
		atomic.StoreUint32(w, 0)
	}
	return h, nil
}

// show makes the queue known to all of the provider, when what it has is set.
func (h *sharedQueue) show() { h.p.byShared.set(h.index, h) }

// noCQ is no completion queue's index.
const noCQ = ^uint32(0)

// shut takes the queue away. No claim is left but those of peers that are stuck,
// of which it tells; then neither its memory nor its place are used again. Called
// when no initiator is sent to it any more.
func (h *sharedQueue) shut(waited *patience) (stuck bool) {
	p := h.p
	barrier()
	stuck = h.settle(waited)
	h.mu.Lock()
	h.closed = true
	h.block.next = h.posted
	if h.tags != nil {
		h.closeTags()
	}
	h.mu.Unlock()
	if h.recv != nil {
		h.recv.detachShared(h) // what completed in it names the place
	}
	if stuck {
		return true
	}
	for i := range h.claims {
		atomic.StoreUint64(&h.claims[i], claimFree)
	}
	p.byShared.set(h.index, nil)
	p.keepBlock(h.block)
	p.giveSRQ(int(h.index))
	return false
}

func (p *Provider) keepBlock(b sharedBlock) {
	if b.slots == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sharedBlocks == nil {
		p.sharedBlocks = make(map[sharedShape][]sharedBlock)
	}
	p.sharedBlocks[b.sharedShape] = append(p.sharedBlocks[b.sharedShape], b)
}

func (p *Provider) giveSRQ(i int) {
	p.mu.Lock()
	p.free.srqs.give(i)
	p.mu.Unlock()
}

// claimant is the rank that a claim names, -1 for none.
func (h *sharedQueue) claimant(word uint64) int {
	if h.strides != nil {
		return int(uint32(word)>>strideRank) - 1
	}
	return int(word>>claimRank&(1<<claimRankBits-1)) - 1
}

// abroad is the rank of another process that is filling a slot with this claim,
// -1 for none. What this provider itself fills it does under its queue pairs' locks.
func (h *sharedQueue) abroad(word uint64) int {
	if rank := h.claimant(word); word&claimState == claimTaken && rank != h.p.cfg.Rank {
		return rank
	}
	return -1
}

// forsaken tells whether the process that has a claim has died; thorough finds out.
func (h *sharedQueue) forsaken(word uint64, thorough bool) bool {
	rank := h.claimant(word)
	if rank == h.p.cfg.Rank {
		return false
	}
	return rank < 0 || rank >= h.p.segment.Ranks() || h.p.segment.Dead(rank) || thorough && h.p.holderDead(rank)
}

// settle waits until no peer that has claimed a slot, when it is called, is at
// it any more. The caller has passed a barrier.
func (h *sharedQueue) settle(waited *patience) (stuck bool) {
	for i := range h.claims {
		first := atomic.LoadUint64(&h.claims[i])
		rank := h.abroad(first)
		if rank < 0 {
			continue
		}
		for n := 0; atomic.LoadUint64(&h.claims[i]) == first; n++ {
			if n < 100 {
				arch.Pause()
				continue
			}
			if h.p.holderDead(rank) {
				break
			}
			if waited.over(drainLimit) {
				return true
			}
			time.Sleep(drainPoll)
		}
	}
	return false
}

// post appends receives.
func (h *sharedQueue) post(op string, wrs []rdma.RecvWR) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		if h.closed {
			return i, &rdma.OpError{Op: op, Detail: "the queue is closed", Err: rdma.ErrInvalid}
		}
		if len(wr.SGL) > h.maxSGE {
			return i, &rdma.OpError{Op: op, Detail: fmt.Sprintf("found %d scatter entries, expected at most %d", len(wr.SGL), h.maxSGE), Err: rdma.ErrInvalid}
		}
		if int(h.outstanding.Load()) >= h.maxWR || len(h.free) == 0 {
			return i, &rdma.OpError{Op: op, Detail: fmt.Sprintf("the queue is full with %d requests", h.maxWR), Err: rdma.ErrNoMemory}
		}
		slot := h.free[len(h.free)-1]
		at_ := h.slotAt(slot)
		if t := h.strides; t != nil {
			if want, room := uint64(t.n)*uint64(t.shape.StrideBytes), sglLength(wr.SGL); room < want {
				return i, &rdma.OpError{Op: op, Detail: fmt.Sprintf("found a buffer of %d bytes for %d strides of %d bytes, expected %d", room, t.n, t.shape.StrideBytes, want), Err: rdma.ErrInvalid}
			}
			at_ = h.slotAt(slot * t.n)
		}
		sl := at[recvSlot](h.p.arena, at_)
		list := tableAt[slotSGE](h.p.arena, at_+slotHeader, len(wr.SGL))
		for k, s := range wr.SGL {
			list[k] = slotSGE{s.Addr, s.Length, s.LKey}
		}
		sl.sges = uint8(len(wr.SGL))
		h.free = h.free[:len(h.free)-1]
		h.wrids[slot] = wr.WRID
		h.outstanding.Add(1)
		if h.tags != nil {
			h.tags.slots[slot].out = true
		}
		if h.strides != nil {
			h.strides.publish(slot)
		} else {
			h.publish(slot)
		}
	}
	return len(wrs), nil
}

func (h *sharedQueue) slotAt(slot uint32) uint64 {
	return h.block.at + 16*uint64(h.block.slots) + uint64(slot)*uint64(h.block.stride)
}

// publish appends a slot to the order. Called with mu held.
func (h *sharedQueue) publish(slot uint32) {
	n := h.posted
	i := n & (h.block.slots - 1)
	h.where[i] = slot
	if h.tags != nil {
		h.tags.slots[slot].n = n
	}
	// In this order a process that sees the tail sees the claim, the order and the list.
	atomic.StoreUint64(&h.order[i], uint64(n)<<32|uint64(slot))
	arch.StoreRelease64(&h.claims[slot], uint64(n)<<32|claimPosted)
	h.posted = n + 1
	arch.StoreRelease32(&h.head.tail, h.posted)
}

// fed tells whether anybody waits for a receive, and forgets it.
func (h *sharedQueue) fed() bool {
	return atomic.LoadUint32(&h.head.starved) != 0 && atomic.SwapUint32(&h.head.starved, 0) != 0
}

// feed wakes those that found no receive.
func (h *sharedQueue) feed() {
	if h.fed() {
		for rank := range h.p.segment.Ranks() {
			h.p.segment.Bell(rank).Ring()
		}
	}
}

// harvest moves what was completed into the completion queues, each queue
// pair's in order: a queue pair's messages take receives one after the other,
// and each is DONE before the next is taken. It posts anew what was given back
// or was claimed by a process that has died.
func (h *sharedQueue) harvest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.gather()
	}
}

// gather is harvest with mu held.
func (h *sharedQueue) gather() {
	if h.strides != nil {
		h.strides.gather()
		return
	}
	atomic.SwapUint32(&h.head.ready, 0)
	starved := atomic.LoadUint32(&h.head.starved) != 0
	h.sweep(starved)
	for h.seen != h.posted {
		n := h.seen
		slot := h.where[n&(h.block.slots-1)]
		w := atomic.LoadUint64(&h.claims[slot])
		if w == uint64(n)<<32|claimPosted {
			head := atomic.LoadUint32(&h.head.head)
			if ahead := head - n; ahead == 0 {
				break
			} else if ahead > h.posted-n {
				// Of a claimant that died before it moved head on, or scribbled.
				atomic.CompareAndSwapUint32(&h.head.head, head, n)
				break
			}
			if atomic.LoadUint64(&h.claims[slot]) != w {
				continue
			}
			// It was given back when others had gone past it, or is scribbled.
			h.seen++
			if atomic.CompareAndSwapUint64(&h.claims[slot], w, claimFree) {
				h.publish(slot)
			} else {
				h.held = append(h.held, slot)
			}
			continue
		}
		h.seen++
		switch {
		case h.tags != nil:
			h.tags.passed(slot, n, w)
		case uint32(w>>32) == n && w&claimState == claimDone:
			if len(h.held) > 0 {
				// What its queue pair took before it is DONE too.
				h.sweep(false)
			}
			h.finish(slot)
		default:
			h.held = append(h.held, slot)
		}
	}
	if h.tags != nil {
		h.tags.sweep(starved)
		h.tags.arrive(starved)
	}
	if starved && h.seen != h.posted {
		h.feed()
	}
}

// sweep looks after the claims that harvest has passed. Called with mu held.
func (h *sharedQueue) sweep(starved bool) {
	kept := h.held[:0]
	for _, slot := range h.held {
		w := atomic.LoadUint64(&h.claims[slot])
		switch w & claimState {
		case claimDone:
			h.finish(slot)
			continue
		case claimTaken:
			if !h.forsaken(w, starved) {
				kept = append(kept, slot)
				continue
			}
		}
		// Given back, the dead's, or scribbled.
		if atomic.CompareAndSwapUint64(&h.claims[slot], w, claimFree) {
			h.publish(slot)
		} else {
			kept = append(kept, slot)
		}
	}
	h.held = kept
}

// finish completes the receive of a slot that is DONE. Called with mu held.
func (h *sharedQueue) finish(slot uint32) {
	sl := at[recvSlot](h.p.arena, h.slotAt(slot))
	e := entry{kind: entryShared, free: h.index, wc: receiveWC(sl, h.wrids[slot], sl.qp)}
	stamp, solicited := sl.stamp, sl.flags&slotSolicited != 0
	atomic.StoreUint64(&h.claims[slot], claimFree)
	h.free = append(h.free, slot)
	if h.recv != nil {
		h.recv.complete(&e, stamp, solicited)
		return
	}
	q := h.p.byQPN.get(sl.qp & (maxQueues - 1))
	if q == nil || q.num != e.wc.QPNum || q.shared != h {
		h.outstanding.Add(-1) // its queue pair has gone
		return
	}
	e.q = q
	if e.wc.Flags&rdma.WCFlagWithInv != 0 {
		q.pd.ended(q.num, e.wc.ImmData)
	}
	q.recv.complete(&e, stamp, solicited)
}

// receiveWC is the completion of a receive that was delivered.
func receiveWC(sl *recvSlot, wrid uint64, qp uint32) rdma.WC {
	if st := rdma.WCStatus(sl.status); st != rdma.WCSuccess {
		return rdma.WC{WRID: wrid, Status: st, QPNum: qp}
	}
	return rdma.WC{
		WRID: wrid, Opcode: rdma.WCOpcode(sl.opcode &^ slotInline), ByteLen: sl.byteLen, ImmData: sl.imm,
		QPNum: qp, SrcQP: sl.srcQP, Flags: rdma.WCFlags(sl.flags &^ slotSolicited),
	}
}
