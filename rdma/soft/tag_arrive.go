package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// arrive tells of the messages that have come, in the order of the log, as far as
// they are complete. Called with the queue's mu held; all that was decided is
// consumed.
func (t *tagList) arrive(thorough bool) {
	done := 0 // of arrivals, how many the loop has passed and kept
	for k := 0; k < len(t.arrivals); k++ {
		a := t.arrivals[k]
		switch t.look(a, thorough) {
		case arrivalDone:
			if !t.overtake(&done) {
				t.arrivals[done] = a
				done++
				continue
			}
			t.finish(a)
		case arrivalLost:
			t.undo = append(t.undo, a)
		default:
			t.arrivals[done] = a
			done++
		}
	}
	t.arrivals = t.arrivals[:done]
	for len(t.undo) > 0 {
		a := t.undo[len(t.undo)-1]
		t.undo = t.undo[:len(t.undo)-1]
		t.lost(a)
	}
}

// How far a message is.
type arrivalState uint8

const (
	arrivalComing arrivalState = iota
	arrivalHeaded              // its header is there
	arrivalDone
	arrivalLost // none comes
)

func (t *tagList) look(a arrival, thorough bool) arrivalState {
	w := atomic.LoadUint64(t.claim(a))
	if uint32(w>>32) != a.n {
		return arrivalLost // scribbled
	}
	switch w & claimState {
	case claimDone:
		return arrivalDone
	case claimTaken, claimHeaded:
		if t.h.forsaken(w, thorough) {
			return arrivalLost
		}
		if w&claimState == claimHeaded {
			return arrivalHeaded
		}
		return arrivalComing
	}
	return arrivalLost
}

// overtake is called before a message is told of, and does what has to come before
// that, of those that were passed: what is done by now, of the same queue pair
// perhaps, is told of, and so are matches. It is false when one of those cannot be yet.
func (t *tagList) overtake(passed *int) bool {
	kept := 0
	ok := true
	for k := range *passed {
		a := t.arrivals[k]
		if ok {
			switch t.look(a, false) {
			case arrivalDone:
				t.finish(a)
				continue
			case arrivalHeaded:
				t.tellMatch(a)
			case arrivalComing:
				ok = a.kind != logMatch
			}
		}
		t.arrivals[kept] = a
		kept++
	}
	*passed = kept
	return ok
}

// header gives what a message's completion has of its header. Where its memory is
// the slot of a receive it lies behind that scatter list.
func (t *tagList) header(a arrival) (*recvSlot, tagInfo) {
	at_, most := t.v.slotAt(a.index), uint64(maxTagSGE)
	if a.kind != logMatch {
		at_, most = t.h.slotAt(a.index), uint64(t.h.maxSGE)
	}
	return at[recvSlot](t.h.p.arena, at_), *at[tagInfo](t.h.p.arena, at_+slotHeader+most*slotSGESize)
}

// tellMatch completes a match ahead of its data.
func (t *tagList) tellMatch(a arrival) {
	e := &t.entries[a.index]
	if a.kind != logMatch || e.told {
		return
	}
	e.told = true
	_, info := t.header(a)
	t.complete(&entry{kind: entryNote, wc: rdma.WC{WRID: e.recvWRID, Opcode: rdma.WCTMRecv, Flags: rdma.WCFlagTMMatch}}, 0, false, &info)
}

// complete adds a completion that has a header.
func (t *tagList) complete(e *entry, stamp uint64, solicited bool, info *tagInfo) {
	e.free = t.h.index
	t.h.recv.completeTagged(e, stamp, solicited, tagNote{info.tag, info.appCtx})
}

// finish completes a message that is there.
func (t *tagList) finish(a arrival) {
	sl, info := t.header(a)
	if a.kind != logMatch {
		t.slots[a.index].coming = false
		if a.kind == logStray && rdma.WCStatus(sl.status) != rdma.WCSuccess {
			t.unexpected-- // it is none that software could consume
		}
		e := entry{kind: entryShared, wc: receiveWC(sl, t.h.wrids[a.index], sl.qp)}
		if a.kind == logStray && t.unexpected-t.reported > syncLag {
			e.wc.Flags |= rdma.WCFlagTMSyncReq
		}
		if e.wc.Opcode == rdma.WCRecvRDMAWithImm {
			info = tagInfo{}
		}
		stamp, solicited := sl.stamp, sl.flags&slotSolicited != 0
		atomic.StoreUint64(&t.h.claims[a.index], claimFree)
		t.slots[a.index].out = false
		t.h.free = append(t.h.free, a.index)
		t.complete(&e, stamp, solicited, &info)
		return
	}
	e := &t.entries[a.index]
	c := entry{kind: entryTag, wc: receiveWC(sl, e.recvWRID, sl.qp)}
	switch rdma.WCStatus(sl.status) {
	case rdma.WCSuccess:
		if rdma.TMOpcode(info.op) == rdma.TMRndv {
			t.tellMatch(a)
			t.fetch(a, sl, &info)
			return
		}
		c.wc.Flags |= rdma.WCFlagTMMatch | rdma.WCFlagTMDataValid
	case rdma.WCTMRndvIncomplete:
		c.wc.Opcode, c.wc.ByteLen, c.wc.SrcQP = rdma.WCTMRecv, sl.byteLen, sl.srcQP
		c.wc.Flags = rdma.WCFlagTMMatch | rdma.WCFlagTMDataValid
	}
	if e.told {
		c.wc.Flags &^= rdma.WCFlagTMMatch
	}
	stamp, solicited := sl.stamp, sl.flags&slotSolicited != 0
	t.give(a.index)
	t.complete(&c, stamp, solicited, &info)
}

// lost undoes what was decided for a message that does not come.
func (t *tagList) lost(a arrival) {
	if a.kind != logMatch {
		t.slots[a.index].coming = false
		if a.kind == logStray {
			t.unexpected--
		}
		atomic.StoreUint64(&t.h.claims[a.index], claimFree)
		t.h.publish(a.index)
		return
	}
	e := &t.entries[a.index]
	if e.told || e.owed {
		recvWRID := e.recvWRID
		t.give(a.index)
		t.complete(&entry{kind: entryTag, wc: rdma.WC{WRID: recvWRID, Status: rdma.WCWRFlushErr}}, 0, false, &tagInfo{})
		return
	}
	// With another decision behind it the match is not applied again, and a
	// helper that was about to apply it does not find the state that it has seen.
	for !t.propose(logEnable, t.enabled) {
		t.consume()
	}
	e.phase = tagPosted
	e.undone++
	atomic.StoreUint64(&t.v.keys[a.index].state, e.posted())
}

// patrol looks after claims of the dead, and messages that wait for them. It is
// called now and then, whether or not anything has come.
func (t *tagList) patrol() {
	t.h.mu.Lock()
	if !t.h.closed {
		t.consume()
		t.sweep(true)
		t.arrive(true)
	}
	t.h.mu.Unlock()
	t.beginFetches()
}
