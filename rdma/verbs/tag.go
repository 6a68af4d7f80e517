package verbs

/*
#include "tag.h"
*/
import "C"

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// A tagList is what a shared queue has beside its receives when it matches tags. The
// device completes operations in their order, so they are in a ring (see workQueue), where
// one that is unsignaled has its place until a later one completes. What an entry of
// the list will be called in its completion is in the table of the receives: it comes
// there when the entry is added, and goes with the completion that says that its
// bytes are in place, or with that of its removal. Everything is guarded by the lock of
// the shared queue; the ring's tail by that of the CQ too.
type tagList struct {
	ops     *workQueue
	batch   batch[opWR]
	entries map[uint32]tagEntry // by the handle that the program has
	handles map[uint32]uint32   // index in the table -> that handle
	next    uint32              // the next one: the device gives its own out again
}

// A tagEntry is one of the list.
type tagEntry struct {
	index  uint32 // in the table
	handle uint32 // the device's
}

// Flags of operations: libibverbs has other bits for them than for requests.
const (
	opSignaled = 1 << 0 // IBV_OPS_SIGNALED
	opTMSync   = 1 << 1 // IBV_OPS_TM_SYNC
	tmCapRC    = 1 << 0 // IBV_TM_CAP_RC
)

// tmFlags are the flags of completions of tag matching.
const tmFlags = rdma.WCFlagTMSyncReq | rdma.WCFlagTMMatch | rdma.WCFlagTMDataValid

// matchesTags tells whether the device says that it does, for RC.
func (c *deviceContext) matchesTags() bool { return c.caps.tm_tags > 0 && c.caps.tm_flags&tmCapRC != 0 }

// tryTags makes the smallest queue that matches tags.
func (c *deviceContext) tryTags(f rdma.Feature) error {
	return conclude(f, c.withQueue(func(pd, _ handle) error {
		cq := C.gv_cq_init{cqe: 1, extended: 1, tags: 1}
		if rc := C.gv_create_cq(&c.lib.c, c.h, &cq); rc != 0 {
			return failed("create_cq_ex", rc, "")
		}
		defer C.gv_destroy_cq(&c.lib.c, cq.handle)
		srq := C.gv_srq_init{pd: pd, cq: cq.handle, max_wr: 1, max_sge: 1}
		if rc := C.gv_create_tm_srq(c.h, &srq, 1, 1); rc != 0 {
			return failed("create_srq_ex", rc, "")
		}
		C.gv_destroy_srq(&c.lib.c, srq.handle)
		return nil
	}))
}

// judgeTags refuses a list that the device does not have.
func (s *sharedQueue) judgeTags(op string) error {
	a, d := &s.init, &s.c.attr
	if a.MaxTags < 1 || a.MaxTags > d.MaxTags || a.MaxOps < 1 || a.MaxOps > d.MaxTagOps {
		return invalid(op, "%d tags and %d operations: the device has 1 to %d, and 1 to %d", a.MaxTags, a.MaxOps, d.MaxTags, d.MaxTagOps)
	}
	var ok bool
	if s.cq, ok = a.CQ.(*completionQueue); !ok || s.cq.c != s.c {
		return invalid(op, "the CQ is missing, or of another context")
	}
	if !s.cq.extended {
		return invalid(op, "the CQ of a tag-matching SRQ must be made by CreateCQEx")
	}
	s.tags = &tagList{entries: make(map[uint32]tagEntry), handles: make(map[uint32]uint32)}
	return nil
}

// addOps makes the ring of the operations. The caller holds c.mu.
func (s *sharedQueue) addOps() error {
	t := s.tags
	t.ops = &workQueue{shared: s, ops: true, room: uint64(s.init.MaxOps), ring: make([]entry, ringSize(s.init.MaxOps))}
	t.batch.sge = max(1, s.c.attr.MaxTagSGE)
	return s.c.workQueues.add(t.ops)
}

// PostOps posts operations in one call of C for up to batchLimit of them.
func (s *sharedQueue) PostOps(ops []rdma.OpsWR) (int, error) {
	const op = "post_srq_ops"
	if s.tags == nil {
		if err := s.c.Supports(rdma.FeatureTagMatching); err != nil {
			return 0, err
		}
		return 0, notSupported(op, "the queue does not match tags")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return 0, invalid(op, "the queue is closed")
	}
	taken := 0
	for taken < len(ops) {
		n, err := s.postOps(ops[taken:])
		if taken += n; err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// postOps posts as many as fit into one batch: without an error one at least. The
// caller holds s.mu.
func (s *sharedQueue) postOps(ops []rdma.OpsWR) (int, error) {
	const op = "post_srq_ops"
	t := s.tags
	l, b := t.ops, &t.batch
	limit := min(len(ops), batchLimit, l.free())
	if limit == 0 || !b.reserve(limit) {
		return 0, errFull(op)
	}
	s.grow(limit)
	head := l.head.Load()
	var bad error
	n, adds := 0, 0
	for n < limit {
		if ops[n].Opcode == rdma.OpAdd && len(t.entries)+adds >= s.init.MaxTags {
			bad = &rdma.OpError{Op: op, Detail: fmt.Sprintf("the list is full: it has %d entries", s.init.MaxTags), Err: rdma.ErrNoMemory}
			break
		}
		var index uint32
		if index, bad = s.layOutOp(n, head+uint64(n), &ops[n], adds); bad != nil {
			break
		}
		if ops[n].Opcode == rdma.OpAdd {
			s.wrids[index] = ops[n].RecvWRID
			adds++
		}
		n++
	}
	if n == 0 {
		return 0, bad
	}
	l.head.Store(head + uint64(n))
	done, rc := postOps(s.h, b, n)
	if rc != 0 {
		l.head.Store(head + uint64(done))
		bad = failed(op, rc, "")
	}
	// A goroutine that polls what of it has completed waits for the lock.
	adds = 0
	for i := range ops[:done] {
		if ops[i].Opcode != rdma.OpAdd {
			continue
		}
		index := s.free[len(s.free)-1-adds]
		for t.next++; ; t.next++ {
			if _, used := t.entries[t.next]; !used {
				break
			}
		}
		ops[i].Handle = t.next
		t.entries[t.next], t.handles[index] = tagEntry{index, b.wrs[i].handle}, t.next
		adds++
	}
	s.free = s.free[:len(s.free)-adds]
	return done, bad
}

// layOutOp writes an operation to its place in the batch and in the ring. One that
// adds gets the adds-th free index of the table.
func (s *sharedQueue) layOutOp(i int, seq uint64, wr *rdma.OpsWR, adds int) (index uint32, err error) {
	const op = "post_srq_ops"
	t := s.tags
	if wr.Flags&^(rdma.SendSignaled|rdma.OpsTMSync) != 0 {
		return 0, invalid(op, "unknown flags %#x", uint8(wr.Flags))
	}
	to := &t.batch.wrs[i]
	*to = opWR{wrID: t.ops.id(seq), opcode: int32(wr.Opcode), unexpected: wr.UnexpectedCnt}
	if wr.Flags&rdma.SendSignaled != 0 {
		to.flags |= opSignaled
	}
	if wr.Flags&rdma.OpsTMSync != 0 {
		to.flags |= opTMSync
	}
	posted := entry{wrid: wr.WRID, op: uint8(wr.Opcode)}
	switch wr.Opcode {
	case rdma.OpAdd:
		if most := s.c.attr.MaxTagSGE; len(wr.SGL) > most {
			return 0, invalid(op, "%d scatter entries of a tag: the device has %d", len(wr.SGL), most)
		}
		index = s.free[len(s.free)-1-adds]
		to.recvID = uint64(index)<<queueBits | uint64(s.workQueue.index)
		to.tag, to.mask = wr.Tag, wr.Mask
		to.sgl, to.numSGE = t.batch.scatterAt(i), t.batch.scatter(i, wr.SGL)
	case rdma.OpDel:
		e, there := t.entries[wr.Handle]
		if !there {
			return 0, invalid(op, "no entry has the handle %#x", wr.Handle)
		}
		to.handle, posted.bytes = e.handle, wr.Handle
	case rdma.OpSync:
	default:
		return 0, invalid(op, "unknown operation %d", wr.Opcode)
	}
	*t.ops.at(seq) = posted
	return index, nil
}

// tagged makes a completion of a queue that matches tags what the program knows. The
// caller holds the lock of the CQ.
func (s *sharedQueue) tagged(l *workQueue, raw *rawWC, wc *rdma.WC) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tags
	success := wc.Status == rdma.WCSuccess
	flags := rdma.WCFlags(raw.flags) & (tmFlags | rdma.WCFlagWithImm)
	if l.ops {
		tail, head := l.tail.Load(), l.head.Load()
		seq := tail + (raw.wrID>>queueBits-tail)&seqMask
		if seq >= head {
			return false
		}
		for n := tail; n <= seq; n++ {
			// What comes before one that completes has not failed.
			if e := l.at(n); rdma.OpsOpcode(e.op) == rdma.OpDel && (n < seq || success) {
				s.leave(e.bytes)
			}
		}
		wc.WRID = l.at(seq).wrid
		l.tail.Store(seq + 1)
		if success {
			wc.Opcode, wc.Flags = rdma.WCOpcode(raw.opcode), flags&rdma.WCFlagTMSyncReq
		}
		return true
	}
	index := raw.wrID >> queueBits
	if index >= uint64(len(s.wrids)) {
		return false
	}
	wc.WRID = s.wrids[index]
	told := success || wc.Status == rdma.WCTMRndvIncomplete
	h, is := t.handles[uint32(index)]
	if !is {
		s.free = append(s.free, uint32(index))
	} else if !success || flags&rdma.WCFlagTMDataValid != 0 {
		s.leave(h)
	}
	if told {
		wc.Opcode, wc.Flags, wc.SrcQP = rdma.WCOpcode(raw.opcode), flags, raw.srcQP
		if !is || !success || flags&rdma.WCFlagTMDataValid != 0 { // else nothing has come yet
			wc.ByteLen = raw.byteLen
		}
		if flags&rdma.WCFlagWithImm != 0 {
			wc.ImmData = network(raw.imm)
		}
		if pair := s.c.numbered(raw.qpNum); pair != nil {
			wc.SrcQP = pair.peer.Load()
		}
	}
	return true
}

// leave takes an entry out of the tables, if it is there. The caller holds s.mu.
func (s *sharedQueue) leave(h uint32) {
	if e, there := s.tags.entries[h]; there {
		delete(s.tags.entries, h)
		delete(s.tags.handles, e.index)
		s.free = append(s.free, e.index)
	}
}
