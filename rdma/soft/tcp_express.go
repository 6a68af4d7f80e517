package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// The short way of a short message over TCP. A trip through the kernel leaves a core with cold caches: what
// counts between a message and its answer is how many lines of code and data are touched, and less
// what is done with them. So the usual case has code of its own, of one function a side:
//
//	a post     one inline request, nothing before it waits: it is written to the socket, and noted behind that
//	a receive  a whole send with no extras, to a receive of one entry: it is completed in place
//	answers    an acknowledgement at the end of what was read is acted on at the next look
//
// Where anything is not as usual these do nothing, and the general way finds it again.

// express posts a request. It is false when nothing was done. Called with mu held.
func (w *wireState) express(wr *rdma.SendWR) bool {
	q := w.q
	n, o := len(wr.Inline), wr.Opcode.Operation()
	l := w.link
	if l == nil || !w.wired || q.init.Type != rdma.RC || wr.Flags&^rdma.SendSignaled != rdma.SendInline || n == 0 || n > min(shortMost, q.init.Cap.MaxInlineData) ||
		o.Moves != rdma.MovesToReceive && o.Moves != rdma.MovesToMemory || !o.OnType(rdma.RC) ||
		w.next != q.sq.pending.n || w.offset != 0 || q.sq.waiting != accepted || q.ending.closed || q.state() != rdma.StateRTS || q.p.cfg.Adversary != nil ||
		q.sq.outstanding() >= uint32(q.init.Cap.MaxSendWR) || w.next > 0 && l.underWay.Load() >= underWayMost {
		return false
	}
	f := frame{
		kind: frameRequest, op: wr.Opcode, length: uint32(n), to: q.attr.DestQPNum, from: q.num, psn: (q.psn + w.next) & psnMask, life: q.life,
		imm: extra(wr), total: uint32(n), key: wr.RKey, addr: wr.RemoteAddr, compareAdd: wr.CompareAdd, swap: wr.Swap,
	}
	if !l.express(&f, wr.Inline) {
		return false
	}
	// An answer waits for mu.
	q.sq.posted++
	q.keep(wr)
	w.next++
	w.count(w.next)
	return true
}

// express writes a frame with a short payload to the socket, and acknowledgements that wait behind it. It is false
// when nothing was done.
func (l *link) express(f *frame, payload []byte) bool {
	l.mu.Lock()
	c, acks := &l.corked, l.out[l.gone:]
	if l.state.Load() != linkUp || l.sealed != nil || c.n > 0 || l.stirs.Load() || l.replying.Load() || len(acks) > 0 && !l.owes() ||
		len(acks) > len(c.flat)-frameSize-shortMost {
		l.mu.Unlock()
		return false
	}
	f.put((*[frameSize]byte)(c.flat[:]))
	n := frameSize + copy(c.flat[frameSize:], payload)
	if len(acks) > 0 {
		n += copy(c.flat[n:], acks)
		l.out, l.gone = l.out[:0], 0
		l.owed.Store(0)
	}
	l.ack = -1
	one := [1][]byte{c.flat[:n]}
	if k, err := l.write(one[:]); err != nil || k < n && !l.append(c.flat[k:n]) {
		l.breakOff()
	} else if k < n {
		l.watch(true)
	}
	l.mu.Unlock()
	return true
}

// take executes the request at the beginning of b, and notes its acknowledgement. It gives the bytes of the request, 0
// when nothing was done. Called with network.mu held.
func (l *link) take(b []byte) int {
	n, o := int(le.Uint32(b[4:])), rdma.WROpcode(b[1]).Operation()
	if frameKind(b[0]) != frameRequest || o.Moves != rdma.MovesToReceive || o.Needs != 0 || b[3] != 0 || n == 0 || n > len(b)-frameSize ||
		n > pieceSize || uint32(n) != le.Uint32(b[24:]) {
		return 0
	}
	to := le.Uint32(b[8:])
	q := l.n.p.byQPN.get(to & (maxQueues - 1))
	if q == nil || q.num != to {
		return 0
	}
	q.mu.Lock()
	ok := q.wire.takeExpress(l, b[:frameSize+n])
	q.mu.Unlock()
	if !ok {
		return 0
	}
	l.acknowledge(b)
	return frameSize + n
}

// takeExpress is take at the queue pair, whose completion it makes at once where none that came before is still
// to be harvested. Called with mu held.
func (w *wireState) takeExpress(l *link, b []byte) bool {
	q := w.q
	c, peer, r := q.own, q.peer, &q.rq
	from, psn, n := le.Uint32(b[12:]), le.Uint32(b[16:]), uint64(len(b)-frameSize)
	if q.ending.closed || q.init.Type != rdma.RC || q.shared != nil || q.init.Cap.MaxInlineRecv > 0 || peer == nil || peer.gids[0] != l.from && peer.gids[1] != l.from ||
		q.attr.DestQPNum != from || atomic.LoadUint32(&c.word) != uint32(rdma.StateRTS) || psn != c.expect || le.Uint32(b[28:]) != 0 ||
		atomic.LoadUint32(&c.established) == establishedNow || w.tk.claim != nil || r.strides != 1 || r.slots == 0 {
		return false
	}
	cq := q.recv
	cq.mu.Lock()
	i := r.taken
	sl, list := r.slot(i), at[slotSGE](q.p.arena, r.slotAt(i)+slotHeader)
	if i != c.head || sl == nil || list == nil || atomic.LoadUint32(&sl.state) != slotPosted || i == atomic.LoadUint32(&r.posted) ||
		sl.sges != 1 || cq.armed != 0 || cq.closed {
		cq.mu.Unlock()
		return false
	}
	m := q.p.byKey.get(list.lkey >> 8)
	if m == nil || m.key != list.lkey || m.pd != q.pd || m.kind != kindSegment || m.access&rdma.AccessLocalWrite == 0 ||
		list.addr < m.addr || list.addr-m.addr > m.length || n > uint64(list.length) || n > m.length-(list.addr-m.addr) {
		cq.mu.Unlock()
		return false
	}
	copyRelease(m.mem[list.addr-m.addr:][:n], b[frameSize:])
	c.head++
	c.expect = (psn + 1) & psnMask
	r.taken++
	w.from, w.inside = l, 0
	e := entry{q: q, free: r.taken, kind: entryRecv,
		wc: rdma.WC{WRID: r.wrids[i&(r.slots-1)], Opcode: rdma.WCRecv, ByteLen: uint32(n), ImmData: le.Uint32(b[20:]), QPNum: q.num, SrcQP: from}}
	arch.StoreRelease32(&sl.state, slotFree)
	cq.push(&e, 0, false)
	cq.mu.Unlock()
	return true
}

// acknowledge answers the request b.
func (l *link) acknowledge(b []byte) {
	answer := frame{kind: frameAck, to: le.Uint32(b[12:]), from: le.Uint32(b[8:]), psn: le.Uint32(b[16:]), life: le.Uint32(b[36:])}
	l.mu.Lock()
	if len(l.out) > 0 || cap(l.out) < frameSize || l.sealed != nil || l.replied < len(l.replies) {
		l.mu.Unlock()
		l.answer(&answer, nil)
		return
	}
	l.out = l.out[:frameSize]
	answer.put((*[frameSize]byte)(l.out))
	l.ack = 0
	l.owed.Store(owedLooks)
	l.mu.Unlock()
}

// later keeps an acknowledgement that is all that is left of what was read for the next look: the program may answer
// the message before it. It is false where there may be no other look soon. Called with network.mu held.
func (l *link) later(b []byte, all bool) bool {
	if all || len(b) != frameSize || frameKind(b[0]) != frameAck || !l.n.few() {
		return false
	}
	l.late = true
	return true
}

// catchUp acts on what is kept. Called with network.mu held.
func (l *link) catchUp() bool {
	l.late = false
	l.heard.Add(1)
	return l.digest(l.rest, true)
}
