package soft

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// Unreliable datagrams. A datagram names its target in the request, is executed
// once, and is over with that: whatever the target has against it, the requester
// does not hear of it. The target's receive queue is a shared one, since anybody may
// send to it.

// mtu is the longest datagram.
const mtu = 4096

// addressHandle is a port that datagrams go to.
type addressHandle struct {
	pd    *domain
	peer  *peer
	grh   [rdma.GRHLen]byte // but for the length
	index uint8             // of the own GID in the header

	closed atomic.Bool
}

func (d *domain) CreateAH(av rdma.AV) (rdma.AH, error) {
	bad := func(f string, a ...any) (rdma.AH, error) { return nil, opError("create_ah", rdma.ErrInvalid, f, a...) }
	if av.PortNum != 1 {
		return bad("found port %d, expected port 1, the device's only one", av.PortNum)
	}
	if av.SGIDIdx >= gidTable {
		return bad("found source GID index %d, expected one below %d", av.SGIDIdx, gidTable)
	}
	s := d.p.find(av.DGID)
	if s == nil {
		return bad("destination %v is not known: add its endpoint first", av.DGID)
	}
	if err := d.adopt("create_ah"); err != nil {
		return nil, err
	}
	h := &addressHandle{pd: d, peer: s, index: av.SGIDIdx}
	rdma.GRH{NextHdr: bthHeader, HopLimit: av.HopLimit, SGID: d.p.gids[av.SGIDIdx], DGID: av.DGID}.Append(h.grh[:0])
	return h, nil
}

// bthHeader is the next header of a GRH that an InfiniBand transport header
// follows.
const bthHeader = 27

func (h *addressHandle) PD() rdma.PD { return h.pd }

func (h *addressHandle) Close() error {
	if !h.closed.Swap(true) {
		h.pd.disown()
	}
	return nil
}

// aimed checks what a request of a queue pair of the domain says of its target.
func (d *domain) aimed(wr *rdma.SendWR) string {
	h, ok := wr.AH.(*addressHandle)
	switch {
	case !ok:
		return "a request without an address handle of this device"
	case h.pd != d:
		return "the address handle is of another domain"
	case h.closed.Load():
		return "the address handle is closed"
	case wr.RemoteQPN >= 1<<24:
		return fmt.Sprintf("queue pair %#x has more than 24 bits", wr.RemoteQPN)
	}
	return ""
}

// qkeyOf is the Q_Key that a request carries: one with the high bit set, which
// only the privileged may use, stands for that of the queue pair.
func (q *queuePair) qkeyOf(wr *rdma.SendWR) uint32 {
	if wr.RemoteQKey>>31 != 0 {
		return q.attr.QKey
	}
	return wr.RemoteQKey
}

// fly executes a datagram. The answer is notReady when the link to another
// host cannot take it yet; else the request is over. Called with mu held.
func (q *queuePair) fly(wr *rdma.SendWR) (status rdma.WCStatus, moved uint32, a answer) {
	segs, total, guard, ok := q.scratch.mem.gather(q.pd, wr)
	if !ok {
		return rdma.WCLocProtErr, 0, accepted
	}
	h := wr.AH.(*addressHandle)
	s := h.peer
	// One that is too long is not sent and not complained about (InfiniBand,
	// C10-93.1.1).
	lost := total > mtu || q.p.cfg.Adversary != nil && q.p.work.chaos.below(lossOneIn) == 0
	if !lost && s.wired() {
		return q.flyWire(wr, h, segs, uint32(total), guard)
	}
	if q.posts++; q.posts%checkEvery == 0 {
		s.checkDead()
	}
	if lost || s.dead() {
		return rdma.WCSuccess, uint32(total), accepted
	}
	if i := wr.RemoteQPN & (maxQueues - 1); int(i) < len(s.queues) {
		q.scratch.grh = h.grh
		e := execution{total: total, from: q.num}
		d := e.message(wr)
		status = q.land(s, &s.queues[i], destination{wr.RemoteQPN, q.qkeyOf(wr)}, segs, d, guard)
		s.bell.Ring()
	}
	return status, uint32(total), accepted
}

// land executes the target's part of a datagram whose GRH is q.grh. The status
// is of what went wrong with the requester's memory.
func (q *queuePair) land(s *peer, c *queueContext, to destination, segs [][]byte, d delivery, guard bool) rdma.WCStatus {
	if !listens(c, to) {
		return rdma.WCSuccess
	}
	h := s.sharedBy(atomic.LoadUint32(&c.shared))
	if h == nil {
		return rdma.WCSuccess
	}
	tk, ok := s.take(h, q.p.cfg.Rank)
	if !ok {
		s.hunger(h, c.recvCQ)
		return rdma.WCSuccess
	}
	// The process that takes the queue pair away sees the claim, or this sees that it
	// has gone.
	if !listens(c, to) {
		tk.giveBack()
		return rdma.WCSuccess
	}
	tk.cq = c.recvCQ
	if q.scratch.to == nil {
		q.scratch.to = new(scatter)
	}
	d.n += rdma.GRHLen
	d.flags |= rdma.WCFlagGRH
	_, theirs := tk.receive(uint64(d.n), q.scratch.to)
	if theirs == rdma.WCLocLenErr {
		tk.giveBack()
		return rdma.WCSuccess
	}
	mine := rdma.WCSuccess
	if theirs == rdma.WCSuccess {
		binary.BigEndian.PutUint16(q.scratch.grh[4:], uint16(d.n-rdma.GRHLen))
		st := q.scratch.to.store(0, q.scratch.grh[:], false)
		off := rdma.GRHLen
		for ; segs != nil; segs = q.scratch.mem.more() {
			for i := 0; i < len(segs) && st == rdma.WCSuccess; i++ {
				st = q.scratch.to.store(off, segs[i], guard)
				off += len(segs[i])
			}
		}
		switch st {
		case rdma.WCSuccess:
			s.deliver(c, &tk, d)
			return rdma.WCSuccess
		case rdma.WCRemAccessErr:
			theirs = rdma.WCLocProtErr
		case rdma.WCLocProtErr:
			mine = st
		}
	}
	if theirs == rdma.WCSuccess {
		tk.giveBack()
		return mine
	}
	s.deliver(c, &tk, delivery{status: theirs, op: rdma.WRSend})
	s.fault(c, faultTold)
	return rdma.WCSuccess
}

// A destination is the queue pair that a datagram is for, by its number, with the key that it must have.
type destination struct{ num, qkey uint32 }

// listens tells whether a queue pair takes a datagram.
func listens(c *queueContext, to destination) bool {
	return live(rdma.QPState(atomic.LoadUint32(&c.word))) && atomic.LoadUint32(&c.num) == to.num &&
		rdma.QPType(atomic.LoadUint32(&c.rights)>>24) == rdma.UD && uint32(atomic.LoadUint64(&c.scope)) == to.qkey
}

// wired tells whether what goes to the peer goes over TCP.
func (s *peer) wired() bool {
	return !s.inside || s.reach == reachNone && s.p.tcp.Load() != nil && s.callable()
}

// flyWire sends a datagram over TCP.
func (q *queuePair) flyWire(wr *rdma.SendWR, h *addressHandle, segs [][]byte, total uint32, guard bool) (rdma.WCStatus, uint32, answer) {
	l := h.peer.connection()
	switch l.state.Load() {
	case linkDialling:
		// Of a peer that did not listen each look begins a new link, and would wait for that: nobody else, or no
		// other goroutine, could have its turn.
		if h.peer.gone.Load() {
			return rdma.WCSuccess, total, accepted
		}
		return 0, 0, notReady
	case linkBroken:
		return rdma.WCSuccess, total, accepted // no process is there
	}
	if guard || q.scratch.mem.laid {
		copied, ok := q.scratch.mem.outOf(wr, segs, 0, int(total))
		if !ok {
			return rdma.WCLocProtErr, 0, accepted
		}
		segs = [][]byte{copied}
	}
	f := frame{
		kind: frameDatagram, op: wr.Opcode, code: h.index, to: wr.RemoteQPN, from: q.num, imm: wr.ImmData,
		total: total, length: total, key: q.qkeyOf(wr),
	}
	if wr.Flags&rdma.SendSolicited != 0 {
		f.flags = frameSolicited
	}
	copy(f.gid[:], h.grh[24:])
	if !l.post(&f, nil, segs, 0, int(total), false) {
		return 0, 0, notReady
	}
	l.uncork() // the memory is the program's again
	return rdma.WCSuccess, total, accepted
}

// datagram executes one that came over TCP. Called with network.mu held.
func (l *link) datagram(f *frame, payload []byte) {
	p := l.n.p
	q := p.byQPN.get(f.to & (maxQueues - 1))
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending.closed || q.init.Type != rdma.UD {
		return
	}
	from := l.from
	if f.code != 0 {
		from = otherGID(from)
	}
	rdma.GRH{NextHdr: bthHeader, HopLimit: 1, SGID: from, DGID: f.gid}.Append(q.scratch.grh[:0])
	l.one[0] = payload
	q.scratch.mem.laid = false // this is no memory of its own
	_ = q.land(p.self, q.own, destination{f.to, f.key}, l.one[:], f.message(), false)
	l.one[0] = nil
}

// otherGID is the second GID of the process that has the first.
func otherGID(first rdma.GID) (g rdma.GID) {
	g[0] = 0xfd
	copy(g[8:], first[8:])
	return g
}

// revoke takes back the receives that no initiator has claimed, and hands each to
// drop. Called with mu held.
func (h *sharedQueue) revoke(drop func(slot uint32)) {
	h.gather()
	for ; h.seen != h.posted; h.seen++ {
		slot := h.where[h.seen&(h.block.slots-1)]
		if !atomic.CompareAndSwapUint64(&h.claims[slot], uint64(h.seen)<<32|claimPosted, claimFree) {
			h.held = append(h.held, slot)
			continue
		}
		h.free = append(h.free, slot)
		drop(slot)
	}
	arch.StoreRelease32(&h.head.head, h.posted)
}

// flushInbox completes the receive queue of a datagram queue pair in ERR with
// WR_FLUSH_ERR. What is being filled completes when it is. Called with the queue
// pair's mu held.
func (h *sharedQueue) flushInbox() {
	q := h.inbox
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoke(func(slot uint32) {
		q.recv.complete(&entry{q: q, kind: entryShared, free: h.index, wc: rdma.WC{WRID: h.wrids[slot], Status: rdma.WCWRFlushErr, QPNum: q.num}}, 0, false)
	})
}

// empty takes everything out of the queue.
func (h *sharedQueue) empty() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoke(func(uint32) { h.outstanding.Add(-1) })
}
