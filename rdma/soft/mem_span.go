package soft

import (
	"sync/atomic"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// What is here is done on behalf of the responder, in its arena, by the process that
// executes a request: the initiator in the segment, or the responder itself
// for a request that came in over TCP (then the peer is Provider.self).

// A span is checked memory of a responder.
type span struct {
	s     *peer
	mem   []byte      // when it is memory of this process
	guard bool        // mem may not be mapped
	va    uint64      // else: the address in the peer's process, or, with
	key   uint32      // a key of the peer's that has a layout, the place in that
	need  rdma.Access // the right that the layout's pieces must grant
}

// A caller that looks for memory gives the span to fill in: it is too large to be
// handed up several levels for each request.

// here makes it memory of this process. va and need count without mem alone.
func (t *span) here(s *peer, mem []byte, guard bool) { t.s, t.mem, t.guard, t.key = s, mem, guard, 0 }

// open resolves a key that a request for the queue pair c names.
func (s *peer) open(sp *span, c *queueContext, key uint32, addr, n uint64, need rdma.Access) bool {
	return s.look(sp, keyUse{key, c.pd, c.num}, addr, n, need)
}

// resolve resolves a key of the peer's domain pd that the peer itself names.
func (s *peer) resolve(sp *span, key, pd uint32, addr, n uint64, need rdma.Access) bool {
	return s.look(sp, keyUse{key, pd, 0}, addr, n, need)
}

// A keyUse is a key and who uses it: the peer's domain, and its queue pair whose request it is, 0 for none.
type keyUse struct{ key, pd, num uint32 }

// look checks a key against the protection table, in the order of the
// InfiniBand rules, and translates. The caller has marked the region.
func (s *peer) look(sp *span, by keyUse, addr, n uint64, need rdma.Access) bool {
	if s.own {
		return s.translate(sp, by, addr, n, need)
	}
	index := uint64(by.key >> 8)
	if index >= uint64(len(s.regions)) {
		return false
	}
	e := &s.regions[index]
	// The load is ordered after the mark by the barrier of the process that deregisters.
	if atomic.LoadUint64(&e.state) != uint64(by.key)|regionLive {
		return false
	}
	if e.pd != by.pd {
		return false
	}
	length := e.length
	off := addr - e.addr
	if addr < e.addr || off > length || n > length-off {
		return false
	}
	if uint32(need)&^e.access != 0 {
		return false
	}
	kind := e.kind
	if kind&kindPrivate != 0 {
		if e.queue != by.num {
			return false
		}
		kind &^= kindPrivate
	}
	switch kind {
	case kindSegment:
		return s.inArena(sp, e.offset+off, n)
	case kindOrdinary:
		return s.inProcess(sp, e.va+off, n)
	case kindImplicit:
		return s.anywhere(sp, e.va+off, n)
	case kindShared:
		if s.grants(e, addr, n, need) {
			return s.anywhere(sp, addr, n)
		}
	case kindMkey:
		s.laid(sp, by.key, off, need)
		return true
	}
	return false
}

// laid is a place in the layout of a key. Its pieces are found when they are
// accessed; what is to be written needs regions that their owner may write to.
func (s *peer) laid(sp *span, key uint32, off uint64, need rdma.Access) {
	*sp = span{s: s, key: key, va: off}
	if need&(rdma.AccessRemoteWrite|rdma.AccessRemoteAtomic|rdma.AccessLocalWrite) != 0 {
		sp.need = rdma.AccessLocalWrite
	}
}

// anywhere is n bytes of the peer's address space, its arena among them.
func (s *peer) anywhere(sp *span, va, n uint64) bool {
	if at := va - s.base; at < uint64(len(s.arena)) {
		return s.inArena(sp, at, n)
	}
	return s.inProcess(sp, va, n)
}

// translate is look for the own memory. The owner goes by what it knows of
// its regions, not by the table, which others may have scribbled on.
func (s *peer) translate(sp *span, by keyUse, addr, n uint64, need rdma.Access) bool {
	r := s.p.byKey.get(by.key >> 8)
	if r == nil || r.key != by.key || r.pd.id != by.pd {
		return false
	}
	off := addr - r.addr
	if addr < r.addr || off > r.length || n > r.length-off || need&^r.access != 0 {
		return false
	}
	if r.queue != 0 && r.queue != by.num {
		return false
	}
	kind := r.kind &^ kindPrivate
	if kind == kindShared && !grants(*r.grants.Load(), addr, n, need) {
		return false
	}
	if kind == kindMkey {
		s.laid(sp, by.key, off, need)
		return true
	}
	if kind != kindImplicit && kind != kindShared {
		// Atomics on ordinary memory are guarded by a lock, as a peer's are.
		sp.here(s, r.mem[off:off+n:off+n], kind != kindSegment)
		return true
	}
	if at := r.va + off - addressOf(s.arena); at < uint64(len(s.arena)) {
		return s.inArena(sp, at, n)
	}
	return s.inProcess(sp, r.va+off, n)
}

// inArena is n bytes of the arena's heap.
func (s *peer) inArena(sp *span, at, n uint64) bool {
	size := uint64(len(s.arena))
	if at < s.p.layout.heapAt || at > size || n > size-at {
		return false
	}
	sp.here(s, s.arena[at:at+n:at+n], false)
	return true
}

// lowestAddress and highestAddress bound what a user's address can be.
const (
	lowestAddress  = 1 << 12
	highestAddress = 1 << 56
)

// inProcess is n bytes of the peer's process.
func (s *peer) inProcess(sp *span, va, n uint64) bool {
	if va < lowestAddress || va > highestAddress || n > highestAddress-va {
		return false
	}
	if s.reach == reachSame {
		sp.here(s, memoryAt(va, int(n)), true)
		return true
	}
	*sp = span{s: s, va: va}
	return true
}

// store places src at off; the span has room for it.
func (t *span) store(off int, src []byte, guardLocal bool) rdma.WCStatus {
	if t.key != 0 {
		return t.moveLaid(off, src, guardLocal, false)
	}
	return t.put(off, src, guardLocal)
}

// put is store for a span that is no layout.
func (t *span) put(off int, src []byte, guardLocal bool) rdma.WCStatus {
	switch {
	case len(src) == 0:
	case t.mem != nil && !t.guard && !guardLocal:
		copyRelease(t.mem[off:off+len(src)], src)
	case t.mem != nil:
		return guardedStatus(t.mem[off:off+len(src)], src, guardLocal)
	case t.s.reach != reachVM:
		return rdma.WCRemOpErr
	default:
		return t.s.processStatus(writeProcess(int(t.s.ep.pid), src, t.va+uint64(off)), guardLocal)
	}
	return rdma.WCSuccess
}

// load fills dst from off.
func (t *span) load(off int, dst []byte, guardLocal bool) rdma.WCStatus {
	if t.key != 0 {
		return t.moveLaid(off, dst, guardLocal, true)
	}
	return t.get(off, dst, guardLocal)
}

// get is load for a span that is no layout.
func (t *span) get(off int, dst []byte, guardLocal bool) rdma.WCStatus {
	switch {
	case len(dst) == 0:
	case t.mem != nil && !t.guard && !guardLocal:
		copyRelease(dst, t.mem[off:off+len(dst)])
	case t.mem != nil:
		return guardedStatus(dst, t.mem[off:off+len(dst)], guardLocal)
	case t.s.reach != reachVM:
		return rdma.WCRemOpErr
	default:
		return t.s.processStatus(readProcess(int(t.s.ep.pid), dst, t.va+uint64(off)), guardLocal)
	}
	return rdma.WCSuccess
}

func guardedStatus(dst, src []byte, guardLocal bool) rdma.WCStatus {
	if guarded(dst, src) {
		return rdma.WCSuccess
	}
	if guardLocal {
		return rdma.WCLocProtErr
	}
	return rdma.WCRemAccessErr
}

// processStatus is what an error of process_vm_* means to the requester.
func (s *peer) processStatus(err error, guardLocal bool) rdma.WCStatus {
	switch err {
	case nil:
		return rdma.WCSuccess
	case syscall.ESRCH:
		s.lost.Store(true)
		return rdma.WCRetryExcErr
	case syscall.EFAULT:
		if guardLocal {
			return rdma.WCLocProtErr
		}
		return rdma.WCRemAccessErr
	}
	return rdma.WCRemOpErr
}

// An answer is a responder's first reaction to a request.
type answer uint8

const (
	accepted    answer = iota
	duplicate          // it was executed before
	unanswered         // the queue pair is not there for this initiator, or expects another PSN
	notReady           // no receive is posted
	noResponder        // of DC: none is free
	abroad             // of DC: the target is reached over TCP
	draining           // of an operation on a key of the requester's own: a process is at it
)

// answersTo tells whether a responder's queue pair, which num names, takes
// requests of the queue pair that dest names. The caller has marked the responder.
// Others than the responder's peer may ask. The responder waits for them as little as
// for a stranger, so they may read nothing else of the context.
func answersTo(c *queueContext, num uint32, dest uint64) bool {
	// Ordered after the mark by the barrier of the process that leaves the state.
	switch atomic.LoadUint32(&c.word) {
	case uint32(rdma.StateRTR), uint32(rdma.StateRTS), uint32(rdma.StateSQD), uint32(rdma.StateSQE):
		return atomic.LoadUint64(&c.dest) == dest && atomic.LoadUint32(&c.num) == num
	}
	return false
}

// admit is answersTo for the request psn of a reliable connection.
func admit(c *queueContext, num uint32, dest uint64, psn uint32) answer {
	if !answersTo(c, num, dest) {
		return unanswered
	}
	return numbered(psn, c.expect)
}

// numbered looks at the number of a request where expect is due.
func numbered(psn, expect uint32) answer {
	switch ahead := (psn - expect) & psnMask; {
	case ahead == 0:
		return accepted
	case ahead > psnMask/2:
		return duplicate
	}
	return unanswered
}

const psnMask = 1<<24 - 1

// The fields of queueContext.rights.
func packRights(typ rdma.QPType, access rdma.Access, maxDestRdAtomic, minRNRTimer uint8) uint32 {
	return uint32(access)&0xff | uint32(maxDestRdAtomic)<<8 | uint32(minRNRTimer)<<16 | uint32(typ)<<24
}

// permits tells whether the queue pair grants what an operation needs.
func permits(rights uint32, o *rdma.Operation) bool {
	return rights&uint32(o.Access) == uint32(o.Access) && (!o.Fetches() || rights>>8&0xff != 0)
}

// slot is the receive request that is next, nil when none is posted.
func (s *peer) slot(c *queueContext) (sl *recvSlot, at_ uint64) {
	n := c.slots
	if n == 0 || n&(n-1) != 0 {
		return nil, 0
	}
	at_ = c.slotsAt + uint64(c.head&(n-1))*uint64(c.slotSize)
	if at_ < s.p.layout.heapAt {
		return nil, 0
	}
	sl = at[recvSlot](s.arena, at_)
	if sl == nil || atomic.LoadUint32(&sl.state) != slotPosted {
		return nil, 0
	}
	return sl, at_
}

// fault moves the responder's queue pair to ERR for the cause; its owner finds
// out when it next looks, and flushes.
func (s *peer) fault(c *queueContext, cause uint32) {
	if rdma.QPType(atomic.LoadUint32(&c.rights)>>24) == rdma.DCT && cause != faultFatal {
		return // one initiator does not end it for the others
	}
	for {
		w := atomic.LoadUint32(&c.word)
		if !live(rdma.QPState(w & queueState)) {
			return
		}
		if atomic.CompareAndSwapUint32(&c.word, w, uint32(rdma.StateErr)|cause<<faultShift) {
			break
		}
	}
	s.raise(c)
	s.attend(c.recvCQ, true)
	s.attend(c.sendCQ, true)
	s.alarm.Ring() // there may be an event to tell
}

// live tells whether a queue pair in the state takes requests.
func live(st rdma.QPState) bool {
	return st == rdma.StateRTR || st == rdma.StateRTS || st == rdma.StateSQD || st == rdma.StateSQE
}

// A scatter walks a receive request's memory.
type scatter struct {
	spans [maxSGE]span
	sizes [maxSGE]int
	n     int
}

// receive resolves the memory of a receive request for a message of n bytes.
// The statuses are the requester's and the responder's; both are success or
// neither is.
func (tk *ticket) receive(n uint64, to *scatter) (requester, responder rdma.WCStatus) {
	list, room, whole := tk.entries(), uint64(0), n
	for i := range list {
		room += uint64(list[i].length)
	}
	if tk.whole > 0 {
		room = min(room, tk.whole)
	}
	skip := tk.skip
	if n > room || skip > room-n {
		return rdma.WCRemInvReqErr, rdma.WCLocLenErr
	}
	to.n = 0
	for i := range list {
		if n == 0 {
			break
		}
		length := uint64(list[i].length)
		if length <= skip {
			skip -= length
			continue
		}
		size := min(n, length-skip)
		if !tk.s.resolve(&to.spans[to.n], list[i].lkey, tk.pd, list[i].addr+skip, size, rdma.AccessLocalWrite) {
			return rdma.WCRemOpErr, rdma.WCLocProtErr
		}
		to.sizes[to.n] = int(size)
		to.n++
		n, skip = n-size, 0
	}
	if b := tk.payload(whole); b != nil {
		// The receiver copies it; its memory was looked up to find errors only.
		to.spans[0], to.sizes[0], to.n = span{s: tk.s, mem: b}, len(b), 1
		tk.inlined = true
	}
	return rdma.WCSuccess, rdma.WCSuccess
}

// store places src at off of the whole message.
func (to *scatter) store(off int, src []byte, guardLocal bool) rdma.WCStatus {
	for i := 0; i < to.n && len(src) > 0; i++ {
		size := to.sizes[i]
		if off >= size {
			off -= size
			continue
		}
		k := min(size-off, len(src))
		if st := to.spans[i].store(off, src[:k], guardLocal); st != rdma.WCSuccess {
			return st
		}
		src, off = src[k:], 0
	}
	return rdma.WCSuccess
}
