package soft

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A tagList is the owner's half of a list of tags: see tag.go. What it must be able
// to rely on, an entry's memory above all, it keeps here, out of others' reach.
//
// Locks: turn before the queue pairs' mu before sharedQueue.mu, which guards all
// but turn and what is atomic.
type tagList struct {
	h      *sharedQueue
	v      tagView
	maxOps int

	inUse atomic.Int32 // entries whose place is not free
	ops   atomic.Int32 // operations whose place is not free

	entries    []tagEntry // by index
	free       []uint64   // bits of indexes
	added      uint64     // entries ever, the position of the next
	enabled    uint64     // those before it match
	seen       uint32     // decisions that consume has passed
	unexpected uint16     // messages that were delivered so
	reported   uint16     // of those, what software says that it has consumed
	silent     int        // operations without a completion since the last with one
	arrivals   []arrival  // messages that are not told of yet, or not wholly, in the log's order
	undo       []arrival  // scratch
	slots      []tagSlot  // by slot of the queue
	held       []heldSlot // claimed by a process and not in the log

	fetches []*rendezvous // to begin
	begun   []*rendezvous // scratch, guarded by turn
	waiting atomic.Bool   // there are some
	turn    sync.Mutex    // held by the goroutine that begins them
}

// A tagEntry is a place in the list.
type tagEntry struct {
	phase    tagPhase
	owed     bool   // software has been told that a message took it
	told     bool   // and so has it of the match
	life     uint16 // of the place, for the handle
	undone   uint32 // how often a claim was, of the place
	pos      uint64
	recvWRID uint64
	sges     uint8
	sgl      [maxTagSGE]rdma.SGE
	fetch    rendezvous
}

// posted is the state of an entry in the list. No two are alike, also of one that
// is posted again: a claimant may have been stopped before it replaced the first.
func (e *tagEntry) posted() uint64 {
	return e.pos<<32 | uint64(e.undone&(1<<claimRankBits-1))<<claimRank | claimPosted
}

type tagPhase uint8

const (
	tagFree     tagPhase = iota
	tagPosted            // in the list
	tagTaken             // in arrivals
	tagFetching          // a rendezvous of its is under way
)

// An arrival is a message that has an entry, or a receive.
type arrival struct {
	kind  uint64
	index uint32 // of the entry or the slot
	n     uint32 // as the claim has it
}

// A tagSlot is what the owner relies on of a receive.
type tagSlot struct {
	out    bool   // posted, and not given back to the free ones
	coming bool   // in arrivals
	n      uint32 // as which it was posted
}

// A heldSlot is a receive that was claimed as the n-th.
type heldSlot struct{ slot, n uint32 }

const (
	handleIndex = 16 // bits; the life of the place is above them
	syncLag     = 0x3fff
)

// claim is the word that says how far the message is.
func (t *tagList) claim(a arrival) *uint64 {
	if a.kind == logMatch {
		return &t.v.keys[a.index].state
	}
	return &t.h.claims[a.index]
}

// tagBytes is what a list takes of a shared queue's memory.
func (s sharedShape) tagBytes() uint64 {
	if s.tags == 0 {
		return 0
	}
	return uint64(s.tags)*(tagKeySize+tagSlotSize) + 8*uint64(s.logLength())
}

// logLength has room for a decision on each entry and slot, and some of the
// owner's.
func (s sharedShape) logLength() uint32 { return 2 << bits.Len32(s.tags+s.slots-1) }

// openTags makes the list of a shared queue that no process knows yet.
func (h *sharedQueue) openTags(maxOps int) {
	b := &h.block
	t := &tagList{h: h, maxOps: maxOps}
	c := h.head
	atomic.StoreUint64(&c.tagsAt, b.at+uint64(b.slots)*(16+uint64(b.stride)))
	atomic.StoreUint32(&c.log, b.logLength())
	atomic.StoreUint32(&c.tags, b.tags)
	atomic.StoreUint32(&c.used, 0)
	atomic.StoreUint64(&c.stand, b.added)
	h.p.self.view(c, &t.v)
	for i := range t.v.keys {
		atomic.StoreUint64(&t.v.keys[i].state, claimFree)
	}
	t.added, t.enabled, t.seen = b.added, b.added, max(b.decided, b.logLength())
	for n := range uint32(len(t.v.log)) {
		atomic.StoreUint64(t.v.word(t.seen+n), uint64(t.v.before(t.seen+n))<<32)
	}
	// One that decides nothing: before the next there is always one.
	atomic.StoreUint64(t.v.word(t.seen), uint64(t.seen)<<32)
	t.seen++
	atomic.StoreUint32(&c.end, t.seen)
	t.entries = make([]tagEntry, b.tags)
	t.free = make([]uint64, (b.tags+63)/64)
	for i := range b.tags {
		t.free[i/64] |= 1 << (i % 64)
	}
	t.slots = make([]tagSlot, b.slots)
	h.tags = t
}

// consume takes in what was decided. Called with the queue's mu held.
func (t *tagList) consume() {
	for range 2 * len(t.v.log) {
		w := atomic.LoadUint64(t.v.word(t.seen))
		if !decided(w, t.seen) {
			if !decided(w, t.v.before(t.seen)) { // scribbled: no other process would decide
				atomic.CompareAndSwapUint64(t.v.word(t.seen), w, uint64(t.v.before(t.seen))<<32)
			}
			break
		}
		t.v.apply(t.seen, w)
		i := logIndexOf(w)
		switch kind := w & logKind; kind {
		case logMatch:
			if int(i) < len(t.entries) && t.entries[i].phase == tagPosted && t.entries[i].pos < t.enabled {
				t.entries[i].phase = tagTaken
				t.arrivals = append(t.arrivals, arrival{kind, i, t.seen})
			}
		case logStray, logPlain:
			if int(i) < len(t.slots) && t.slots[i].out && !t.slots[i].coming {
				t.slots[i].coming = true
				t.arrivals = append(t.arrivals, arrival{kind, i, t.slots[i].n})
				if kind == logStray {
					t.unexpected++
				}
			}
		}
		t.seen++
	}
	// end is a hint that others move on, or have scribbled on.
	if end := atomic.LoadUint32(&t.v.h.end); end != t.seen {
		atomic.CompareAndSwapUint32(&t.v.h.end, end, t.seen)
	}
}

// propose makes the owner's next decision. It is false when there are others to
// consume first.
func (t *tagList) propose(kind uint64, what uint64) bool {
	old := atomic.LoadUint64(t.v.word(t.seen))
	w := uint64(t.seen)<<32 | what<<logKindBits&(1<<32-1) | kind
	if decided(old, t.seen) || !t.v.decide(t.seen, old, w) {
		return false
	}
	t.seen++
	return true
}

// synced tells whether software has consumed all that was unexpected. All that
// was decided is consumed.
func (t *tagList) synced() bool { return t.reported == t.unexpected }

// enable lets all entries match, if software has consumed all that was unexpected.
func (t *tagList) enable() {
	for t.enabled != t.added {
		t.consume()
		if !t.synced() {
			return
		}
		if t.propose(logEnable, t.added) {
			t.enabled = t.added
		}
	}
}

// take gives a free place, the first, so that few are looked at.
func (t *tagList) take() (uint32, bool) {
	for i, w := range t.free {
		if w != 0 {
			k := uint32(bits.TrailingZeros64(w))
			t.free[i] &^= 1 << k
			return uint32(i)*64 + k, true
		}
	}
	return 0, false
}

// give frees an entry. No process is at it.
func (t *tagList) give(i uint32) {
	e := &t.entries[i]
	e.phase, e.owed, e.told = tagFree, false, false
	atomic.StoreUint64(&t.v.keys[i].state, claimFree)
	t.free[i/64] |= 1 << (i % 64)
	used := atomic.LoadUint32(&t.v.h.used)
	used = min(used, uint32(len(t.entries)))
	for used > 0 && t.entries[used-1].phase == tagFree {
		used--
	}
	atomic.StoreUint32(&t.v.h.used, used)
}

func (s *srq) PostOps(ops []rdma.OpsWR) (int, error) {
	t := s.tags
	if t == nil {
		return s.UnsupportedSRQ.PostOps(ops)
	}
	s.mu.Lock()
	n, err := t.post(ops)
	s.mu.Unlock()
	t.beginFetches()
	return n, err
}

// post does the operations. Called with the queue's mu held.
func (t *tagList) post(ops []rdma.OpsWR) (int, error) {
	for i := range ops {
		wr := &ops[i]
		bad := func(err error, f string, a ...any) (int, error) { return i, opError("post_srq_ops", err, f, a...) }
		at, life := wr.Handle&(1<<handleIndex-1), uint16(wr.Handle>>handleIndex)
		switch {
		case t.h.closed:
			return bad(rdma.ErrInvalid, "the queue is closed")
		case wr.Opcode > rdma.OpSync:
			return bad(rdma.ErrInvalid, "found operation %d, expected add, delete or sync", wr.Opcode)
		case wr.Flags&^(rdma.SendSignaled|rdma.OpsTMSync) != 0:
			return bad(rdma.ErrInvalid, "found flags %#x, expected signaled and TM_SYNC only", uint8(wr.Flags))
		case wr.Opcode == rdma.OpAdd && len(wr.SGL) > maxTagSGE:
			return bad(rdma.ErrInvalid, "found %d scatter entries, expected at most %d", len(wr.SGL), maxTagSGE)
		case wr.Opcode == rdma.OpAdd && sglLength(wr.SGL) > maxMessage:
			return bad(rdma.ErrInvalid, "found a buffer of %d bytes, expected at most %d", sglLength(wr.SGL), maxMessage)
		case wr.Opcode == rdma.OpDel && (int(at) >= len(t.entries) || life == 0 || t.entries[at].life == 0):
			return bad(rdma.ErrInvalid, "found handle %#x, expected one of an entry on the list", wr.Handle)
		case int(t.ops.Load()) >= t.maxOps:
			return bad(rdma.ErrNoMemory, "the queue is full with %d operations: poll completions first", t.maxOps)
		case wr.Opcode == rdma.OpAdd && int(t.inUse.Load()) >= t.h.maxTags:
			return bad(rdma.ErrNoMemory, "the list is full with %d entries", t.h.maxTags)
		}
		t.ops.Add(1)
		if wr.Flags&rdma.OpsTMSync != 0 {
			t.reported = uint16(wr.UnexpectedCnt)
		}
		t.consume()
		if !t.synced() && len(t.arrivals) > 0 {
			t.arrive(true) // the process that was to deliver an unexpected message may have died
		}
		e := entry{kind: entryOp, free: t.h.index, wc: rdma.WC{WRID: wr.WRID}}
		switch wr.Opcode {
		case rdma.OpAdd:
			e.wc.Opcode = rdma.WCTMAdd
			t.add(wr)
		case rdma.OpDel:
			e.wc.Opcode = rdma.WCTMDel
			if !t.del(at, life) {
				e.wc.Status = rdma.WCTMErr
			}
		case rdma.OpSync:
			e.wc.Opcode = rdma.WCTMSync
		}
		t.enable()
		if !t.synced() {
			e.wc.Flags = rdma.WCFlagTMSyncReq
		}
		if t.silent++; wr.Flags&rdma.SendSignaled != 0 || e.wc.Status != rdma.WCSuccess {
			e.offset, t.silent = uint32(t.silent), 0
			t.h.recv.complete(&e, 0, false)
		}
	}
	return len(ops), nil
}

// add appends an entry, for which there is a place.
func (t *tagList) add(wr *rdma.OpsWR) {
	i, ok := t.take()
	if !ok {
		return // cannot be: as many are in use as there are places
	}
	t.inUse.Add(1)
	e := &t.entries[i]
	e.phase, e.pos, e.recvWRID = tagPosted, t.added, wr.RecvWRID
	if e.life++; e.life == 0 {
		e.life = 1
	}
	e.sges = uint8(copy(e.sgl[:], wr.SGL))
	wr.Handle = uint32(e.life)<<handleIndex | i
	sl, list := t.slot(i)
	sl.sges = e.sges
	for k, s := range wr.SGL {
		list[k] = slotSGE{s.Addr, s.Length, s.LKey}
	}
	k := &t.v.keys[i]
	atomic.StoreUint64(&k.pos, e.pos)
	atomic.StoreUint64(&k.tag, wr.Tag)
	atomic.StoreUint64(&k.mask, wr.Mask)
	atomic.StoreUint64(&k.state, e.posted())
	if used := atomic.LoadUint32(&t.v.h.used); used <= i || used > uint32(len(t.entries)) {
		atomic.StoreUint32(&t.v.h.used, i+1)
	}
	t.added++
}

// slot is the memory of an entry's completion and scatter list.
func (t *tagList) slot(i uint32) (*recvSlot, []slotSGE) {
	at_ := t.v.slotAt(i)
	return at[recvSlot](t.h.p.arena, at_), tableAt[slotSGE](t.h.p.arena, at_+slotHeader, maxTagSGE)
}

// del takes an entry out. It is false when a message has taken it, which is, or will
// be, told by a completion.
func (t *tagList) del(i uint32, life uint16) bool {
	e := &t.entries[i]
	for {
		if e.life != life || e.phase == tagFree || e.phase == tagFetching {
			return false
		}
		if e.phase == tagTaken {
			t.arrive(true)
			if e.life == life && e.phase == tagTaken {
				e.owed = true
				return false
			}
			continue
		}
		if e.pos >= t.enabled || t.propose(logRemove, uint64(i)) {
			break
		}
		t.consume()
	}
	t.give(i)
	t.inUse.Add(-1)
	return true
}

// passed notes a slot of the queue that is not POSTED any more, as gather passes it.
func (t *tagList) passed(slot, n uint32, w uint64) {
	if s := t.slots[slot]; s.out && s.n == n && !s.coming && w&claimState != claimFree {
		t.held = append(t.held, heldSlot{slot, n})
	}
}

// sweep posts anew what was claimed and did not get into the log: it was given
// back, or its claimant has died.
func (t *tagList) sweep(starved bool) {
	t.consume()
	kept := t.held[:0]
	for _, s := range t.held {
		if is := t.slots[s.slot]; !is.out || is.n != s.n || is.coming {
			continue // it is in the log, and has had its end perhaps
		}
		w := atomic.LoadUint64(&t.h.claims[s.slot])
		if w&claimState == claimTaken && !t.h.forsaken(w, starved) || !atomic.CompareAndSwapUint64(&t.h.claims[s.slot], w, claimFree) {
			kept = append(kept, s)
			continue
		}
		t.h.publish(s.slot)
	}
	t.held = kept
}

// closeTags ends the list: no process is at it any more. Called with the queue's mu held.
func (h *sharedQueue) closeTags() {
	t := h.tags
	t.consume()
	h.block.added, h.block.decided = t.added, t.seen
	for i := range t.v.keys {
		atomic.StoreUint64(&t.v.keys[i].state, claimFree)
	}
	arch.StoreRelease32(&h.head.tags, 0)
}
