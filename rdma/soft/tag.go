package soft

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// Tag matching. The list of tags of a shared receive queue lies in its owner's
// arena, and the process that executes a message matches it there: the owner does not run
// for that. What is decided about the list, by whomever, is one order, the log:
//
//	match   a message takes an entry
//	stray   a message that matches none takes a receive, and counts as unexpected
//	plain   a message without a tag, or a write with immediate, takes a receive
//	enable  the owner lets entries match that it has added
//	remove  the owner takes an entry out
//
// A decision is one compare-and-swap of the next word of the log, by a process that has looked
// at the list as all words before have left it. So it needs no lock, waits for
// nobody, and a process that is killed or stopped has decided or it has not. The
// state of an entry follows from the log: the process that decides next sees first that the last
// decision is applied, whichever process made it (tagView.apply).
//
//	FREE -> POSTED (owner) -> CLAIMED (match) -> HEADED -> DONE (claimant) -> FREE (owner)
//	              '- remove -> FREE     '- RETURNED (claimant) -> POSTED (owner)
//
// An entry that is POSTED matches when its position is before sharedHeader.stand,
// which enable moves on. The owner adds entries behind it, where no sender looks, and
// enables them when software has consumed all the unexpected messages that the log
// has: its enable is the next decision or it fails, so none came in between.
//
// A claim of a process that has died, or gives it back, is undone by the owner: the
// entry is posted again at its old position, in a state that it has not had. The
// log has the order in which messages complete; a match that has been overtaken by
// one that is complete is told by a completion of its own, and its data by another.
//
// Only the owner moves through the log (tagList.consume). A word of it is written
// again when the owner has consumed it: the log has room for a decision on every
// entry and receive, and each is in it once until the owner frees it.
const (
	maxTags     = 1 << 12
	maxTagOps   = maxWR
	maxTagSGE   = 4
	maxRndvHdr  = 64
	arriveTries = 1 << 12 // against others' decisions: then the message waits, as for a receive
	logRankBits = 14
	logIndex    = 15 // bits
	logPosition = 29 // bits, of enable
	tagSlotSize = slotHeader + maxTagSGE*slotSGESize + tagInfoSize
)

// The kinds of decision, in the low bits of a word of the log. Above them are the
// index of what is taken and the rank that takes it, or the position, and
// the number of the decision in the high half. A word of another kind decides
// nothing.
const (
	logMatch uint64 = 1 + iota
	logStray
	logPlain
	logEnable
	logRemove
	logKind     uint64 = 7
	logKindBits        = 3
)

// claimHeaded and claimReturned are further states of a claim, of entries and of
// receives that the log has.
const (
	claimHeaded   = claimDone + 1 + iota // claimed, and the message's header is there
	claimReturned                        // no message has come after all
)

// A tagKey is what of an entry is looked at to match.
type tagKey struct {
	state uint64 // as a claim: above POSTED how often a claim was undone and the low half of pos, the number of the decision above others
	pos   uint64 // counts the entries that were ever added
	tag   uint64
	mask  uint64
}

// A tagInfo is the header of a message; it lies behind the scatter list.
type tagInfo struct {
	tag    uint64
	appCtx uint32
	op     uint32 // rdma.TMOpcode
	addr   uint64 // of a rendezvous
	rkey   uint32
	length uint32
}

// A tagMessage is a message to a queue with tags.
type tagMessage struct {
	op     rdma.TMOpcode
	tagged bool // it may match
	tmh    rdma.TMH
	rvh    rdma.RVH
}

// parseTagged reads the headers at the start of a message of n bytes, of which b
// has as many as there are, or enough.
func parseTagged(b []byte, n uint64) (m tagMessage, ok bool) {
	if len(b) == 0 {
		return m, false
	}
	m.op = rdma.TMOpcode(b[0])
	switch {
	case m.op == rdma.TMNoTag:
		return m, true // "any data following the opcode is ignored"
	case m.op > rdma.TMEager || len(b) < rdma.TMHLen:
		return m, false
	case m.op == rdma.TMRndv && (len(b) < rdma.TMHLen+rdma.RVHLen || n > maxRndvHdr):
		return m, false
	}
	m.tmh = rdma.ParseTMH(b)
	if m.op == rdma.TMRndv {
		m.rvh = rdma.ParseRVH(b[rdma.TMHLen:])
	}
	m.tagged = m.op != rdma.TMFin
	return m, true
}

// tagged gives the shared queue that a message to c is matched in, nil for none.
func (s *peer) tagged(c *queueContext) *sharedHeader {
	if h := s.sharedBy(c.shared); h != nil && atomic.LoadUint32(&h.tags) != 0 {
		return h
	}
	return nil
}

// A tagView is the memory of a list of tags, checked.
type tagView struct {
	h       *sharedHeader
	keys    []tagKey
	log     []uint64
	slotsAt uint64
}

// view finds the list of tags of a shared queue.
func (s *peer) view(h *sharedHeader, v *tagView) bool {
	at, n, log := atomic.LoadUint64(&h.tagsAt), atomic.LoadUint32(&h.tags), atomic.LoadUint32(&h.log)
	if n == 0 || n > maxTags || log < 2 || log&(log-1) != 0 || log > 4*(maxTags+maxWR) || at < s.p.layout.heapAt || at > uint64(len(s.arena)) {
		return false
	}
	v.h = h
	v.keys = tableAt[tagKey](s.arena, at, int(n))
	v.log = tableAt[uint64](s.arena, at+tagKeySize*uint64(n), int(log))
	v.slotsAt = at + tagKeySize*uint64(n) + 8*uint64(log)
	return v.keys != nil && v.log != nil
}

func (v *tagView) slotAt(i uint32) uint64 { return v.slotsAt + uint64(i)*tagSlotSize }

func (v *tagView) word(n uint32) *uint64 { return &v.log[n&uint32(len(v.log)-1)] }

// before is the number that word n has until it is decided: of the decision a round
// ago.
func (v *tagView) before(n uint32) uint32 { return n - uint32(len(v.log)) }

// decided tells whether the log has a decision n.
func decided(w uint64, n uint32) bool { return uint32(w>>32) == n }

func logWord(n uint32, kind uint64, index uint32, rank int) uint64 {
	return uint64(n)<<32 | uint64(rank)<<(logKindBits+logIndex) | uint64(index)<<logKindBits | kind
}

func logIndexOf(w uint64) uint32 { return uint32(w) >> logKindBits & (1<<logIndex - 1) }
func logRankOf(w uint64) int     { return int(uint32(w) >> (logKindBits + logIndex)) }

// next is the number of the decision to be made next, and the word that it has
// to replace. All before are applied. It is false when the log makes no sense.
func (v *tagView) next() (n uint32, old uint64, ok bool) {
	n = atomic.LoadUint32(&v.h.end)
	if !decided(atomic.LoadUint64(v.word(n-1)), n-1) {
		return 0, 0, false // it has gone round since, or is scribbled: the owner puts end right
	}
	for range v.log {
		old = atomic.LoadUint64(v.word(n))
		if !decided(old, n) {
			// A claimant that was stopped meanwhile may find a later decision here, which
			// it must not replace.
			return n, old, decided(old, v.before(n))
		}
		v.apply(n, old)
		atomic.CompareAndSwapUint32(&v.h.end, n, n+1)
		n++
	}
	return 0, 0, false
}

// decide makes decision n. It is false when another process has made it.
func (v *tagView) decide(n uint32, old, w uint64) bool {
	if !atomic.CompareAndSwapUint64(v.word(n), old, w) {
		return false
	}
	v.apply(n, w)
	atomic.CompareAndSwapUint32(&v.h.end, n, n+1)
	return true
}

// apply gives an entry the state that decision n, the word w, gives it, unless
// another process has done so: when there is a decision n+1 it was done before that.
func (v *tagView) apply(n uint32, w uint64) {
	switch w & logKind {
	case logMatch:
		v.settle(n, w, takenBy(n, logRankOf(w)))
	case logRemove:
		v.settle(n, w, uint64(n)<<32) // and claimFree, which is 0
	case logEnable:
		for {
			stand := atomic.LoadUint64(&v.h.stand)
			const up = 64 - logPosition
			ahead := int64(w>>logKindBits<<up-stand<<up) >> up
			if ahead <= 0 || atomic.LoadUint64(v.word(n)) != w {
				return
			}
			if atomic.CompareAndSwapUint64(&v.h.stand, stand, stand+uint64(ahead)) {
				return
			}
		}
	}
}

func takenBy(n uint32, rank int) uint64 {
	return uint64(n)<<32 | uint64(rank+1)<<claimRank | claimTaken
}

func (v *tagView) settle(n uint32, w, state uint64) {
	i := logIndexOf(w)
	if int(i) >= len(v.keys) {
		return
	}
	k := &v.keys[i]
	was := atomic.LoadUint64(&k.state)
	// An entry of the place that was added since is not enabled before decision
	// n+1, and if there was none when was was loaded, was is of the entry meant. The
	// log may also have gone round since.
	if was&claimState != claimPosted || atomic.LoadUint64(&k.pos) >= atomic.LoadUint64(&v.h.stand) ||
		decided(atomic.LoadUint64(v.word(n+1)), n+1) || atomic.LoadUint64(v.word(n)) != w {
		return
	}
	atomic.CompareAndSwapUint64(&k.state, was, state)
}

// match finds the earliest entry that a tag matches. What it has seen holds when
// the next decision can be made. It costs a look at every entry up to the last
// in use.
func (v *tagView) match(tag uint64) (index uint32, ok bool) {
	stand := atomic.LoadUint64(&v.h.stand)
	first := uint64(math.MaxUint64)
	used := min(int(atomic.LoadUint32(&v.h.used)), len(v.keys))
	for i := range v.keys[:used] {
		k := &v.keys[i]
		if atomic.LoadUint64(&k.state)&claimState != claimPosted {
			continue
		}
		if (tag^atomic.LoadUint64(&k.tag))&atomic.LoadUint64(&k.mask) != 0 {
			continue
		}
		if pos := atomic.LoadUint64(&k.pos); pos < stand && pos < first {
			first, index, ok = pos, uint32(i), true
		}
	}
	return index, ok
}

// arrive gives a message the entry that it matches, or a receive: into tk. m is
// nil for a write with immediate.
func (s *peer) arrive(h *sharedHeader, rank int, m *tagMessage, tk *ticket) bool {
	var v tagView
	if rank >= 1<<logRankBits || !s.view(h, &v) {
		return false
	}
	have := false // a receive
	*tk = ticket{}
	for range arriveTries {
		n, old, ok := v.next()
		if !ok {
			continue
		}
		if m != nil && m.tagged {
			if i, ok := v.match(m.tmh.Tag); ok {
				if !v.decide(n, old, logWord(n, logMatch, i, rank)) {
					continue
				}
				if have {
					tk.giveBack()
				}
				at_ := v.slotAt(i)
				*tk = ticket{s: s, sl: at[recvSlot](s.arena, at_), at: at_, most: maxTagSGE, pd: atomic.LoadUint32(&h.pd), cq: atomic.LoadUint32(&h.cq),
					h: h, claim: &v.keys[i].state, word: takenBy(n, rank), logged: true, op: m.op, matched: true}
				if tk.sl == nil || !tk.note(m) {
					return tk.drop()
				}
				atomic.StoreUint64(tk.claim, tk.word&^claimState|claimHeaded)
				return true
			}
		}
		if !have {
			if *tk, have = s.take(h, rank); !have {
				return false
			}
			tk.cq = atomic.LoadUint32(&h.cq)
		}
		kind := logPlain
		if m != nil && m.tagged {
			kind = logStray
		}
		if !v.decide(n, old, logWord(n, kind, tk.slot, rank)) {
			continue
		}
		tk.logged = true
		if m != nil {
			tk.op = m.op
			tk.told = true
			if !tk.note(m) {
				return tk.drop()
			}
		}
		return true
	}
	return tk.drop()
}

// drop gives a request back, if one was taken. It is false.
func (tk *ticket) drop() bool {
	tk.giveBack()
	*tk = ticket{}
	return false
}

// note puts the message's header where its completion is made from.
func (tk *ticket) note(m *tagMessage) bool {
	info := at[tagInfo](tk.s.arena, tk.at+slotHeader+uint64(tk.most)*slotSGESize)
	if info == nil {
		return false
	}
	*info = tagInfo{tag: m.tmh.Tag, appCtx: m.tmh.AppCtx, op: uint32(m.op), addr: m.rvh.Addr, rkey: m.rvh.RKey, length: m.rvh.Length}
	return true
}

// headers is how many bytes of a message are not placed: those before an eager
// payload. incomplete says that a rendezvous is longer than the entry's memory, and
// is left to software, with its headers there.
func (tk *ticket) headers(m *tagMessage, total uint64) (skip uint64, incomplete bool) {
	if !tk.matched {
		return 0, false
	}
	if m.op != rdma.TMRndv {
		return rdma.TMHLen, false
	}
	room := uint64(0)
	for _, e := range tk.entries() {
		room += uint64(e.length)
	}
	if uint64(m.rvh.Length) > room {
		return 0, true
	}
	return total, false
}

// label makes the completion of a receive that of a message with a tag.
func (tk *ticket) label(sl *recvSlot) {
	switch {
	case !tk.matched && !tk.told:
	case tk.op == rdma.TMNoTag || tk.op == rdma.TMFin:
		sl.opcode = uint8(rdma.WCTMNoTag)
	default:
		sl.opcode = uint8(rdma.WCTMRecv)
	}
}

// headed reads the header of a message to a queue with tags into m and gives the
// message the request that it matches, when it has none yet. The results are
// those of respond.
func (e *execution) headed(h *sharedHeader, m *tagMessage) (rdma.WCStatus, answer) {
	if e.in != nil && e.tk.claim != nil {
		*m = e.in.tagged
		return rdma.WCSuccess, accepted
	}
	var b [rdma.TMHLen + rdma.RVHLen]byte
	k, readable := peek(b[:], e.segs, e.guard)
	if !readable {
		return rdma.WCLocProtErr, accepted
	}
	var ok bool
	if *m, ok = parseTagged(b[:k], e.total); !ok || e.in.offset() != 0 {
		return e.refuse(rdma.WCRemInvReqErr, faultRequest)
	}
	if e.in != nil {
		e.in.tagged = *m
	}
	if !e.s.arrive(h, e.q.p.cfg.Rank, m, e.tk) {
		e.s.starve(e.c)
		if !e.s.arrive(h, e.q.p.cfg.Rank, m, e.tk) {
			return 0, notReady
		}
	}
	return rdma.WCSuccess, accepted
}

// peek copies the first bytes of a request's memory. The first blocks of a layout
// are more than any header has bytes.
func peek(b []byte, segs [][]byte, guard bool) (n int, ok bool) {
	for _, seg := range segs {
		k := min(len(b)-n, len(seg))
		if k == 0 {
			continue
		}
		if !guard {
			copy(b[n:n+k], seg[:k])
		} else if !guarded(b[n:n+k], seg[:k]) {
			return n, false
		}
		n += k
	}
	return n, true
}

// finOf is what is sent when a rendezvous is over: its own headers.
func finOf(info *tagInfo) (b [rdma.TMHLen + rdma.RVHLen]byte) {
	to := rdma.TMH{Opcode: rdma.TMFin, AppCtx: info.appCtx, Tag: info.tag}.Append(b[:0])
	binary.BigEndian.PutUint64(b[len(to):], info.addr)
	binary.BigEndian.PutUint32(b[len(to)+8:], info.rkey)
	binary.BigEndian.PutUint32(b[len(to)+12:], info.length)
	return b
}
