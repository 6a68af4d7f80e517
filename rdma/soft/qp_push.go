package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// pushMost is how many requests push takes: a payload, and the word that announces it.
const pushMost = 2

// push executes a post of a few inline writes to a peer in the segment in one go: what a
// short message is made of. All of them are judged first, behind one mark and with one
// look at the responder, which costs half of what they cost one by one. Where anything
// is not as usual push does nothing and returns false: the requests go one by one then,
// and what is wrong with one is found there. Called with mu held.
func (q *queuePair) push(wrs []rdma.SendWR) bool {
	n := uint32(len(wrs))
	if n == 0 || n > pushMost || q.init.Type != rdma.RC || q.remote == nil || q.p.cfg.Adversary != nil ||
		q.sq.pending.n > 0 || q.ending.closed || q.state() != rdma.StateRTS || q.peer.own || q.peer.dead() ||
		q.posts%checkEvery+n >= checkEvery || uint32(q.init.Cap.MaxSendWR)-q.sq.outstanding() < n {
		return false
	}
	key := wrs[0].RKey
	for i := range wrs {
		wr := &wrs[i]
		if o := wr.Opcode.Operation(); o.Moves != rdma.MovesToMemory || o.Received != 0 || wr.Flags&^rdma.SendSignaled != rdma.SendInline || wr.RKey != key ||
			len(wr.Inline) == 0 || len(wr.Inline) > q.init.Cap.MaxInlineData {
			return false
		}
	}
	q.mark(q.peer.markOf(key))
	ok := q.pushMarked(wrs, key)
	q.own.unmark(q.turn)
	if !ok {
		return false
	}
	q.posts += n
	for i := range wrs {
		q.sq.posted++
		q.finish(&wrs[i], q.sq.posted, rdma.WCSuccess, uint32(len(wrs[i].Inline)))
	}
	return true
}

// pushMarked does the responder's part, as respond does.
func (q *queuePair) pushMarked(wrs []rdma.SendWR, key uint32) bool {
	c := q.remote
	rights := atomic.LoadUint32(&c.rights)
	if admit(c, q.attr.DestQPNum, q.dest, q.psn) != accepted || atomic.LoadUint32(&c.word) != uint32(rdma.StateRTS) ||
		rights>>24 != uint32(q.answerer) || !permits(rights, wrs[0].Opcode.Operation()) {
		return false
	}
	var spans [pushMost]span
	for i := range wrs {
		wr, sp := &wrs[i], &spans[i]
		if !q.open(sp, key, wr.RemoteAddr, uint64(len(wr.Inline)), rdma.AccessRemoteWrite) || sp.mem == nil || sp.guard {
			return false
		}
	}
	for i := range wrs {
		copyRelease(spans[i].mem, wrs[i].Inline)
	}
	q.psn = (q.psn + uint32(len(wrs))) & psnMask
	c.expect = q.psn
	return true
}
