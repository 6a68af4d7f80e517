package coll

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A wire is a team as the port of its machine: channels are RDMA writes, or
// stores where the peer's lane is mapped.
//
// Ordering of RDMA writes. A message's payload and header are requests of one PostSend on one
// queue pair, so the header becomes visible after the payload; the receiver
// loads the header with an atomic load, and reads the payload after that. The
// receiver reads the payload, then posts its credit; the sender sees the credit
// before it writes the slot again.
//
// Ordering of stores. The header is a release store behind the payload's stores,
// and behind those of a copy into exposed memory. A put that goes by queue pair
// has its header on the queue pair too, behind its data. That header may become
// visible after younger ones that were stored, which is no harm: the receiver
// waits for sequences in their order, and credit that comes late is ignored.
// To and from the ordinary memory of a mapped peer the queue pair moves the bytes
// while we wait, if it can (rdma.Mover): then the header is stored behind them.
type wire Team

var _ port = (*wire)(nil)

func (w *wire) header(peer, slot int) uint64 {
	return atomic.LoadUint64(&w.words[w.layout.header(peer, slot)/8])
}

func (w *wire) payload(peer, slot int) []byte {
	at := w.layout.payload(peer, slot)
	return w.bytes[at : at+w.tuning.eager : at+w.tuning.eager]
}

func (w *wire) credit(peer int) uint16 {
	return uint16(atomic.LoadUint64(&w.words[w.layout.credit(peer)/8]))
}

// describe names n bytes of an operand for local access.
func (w *wire) describe(r *rdma.SGE, at loc, n int) {
	k := &w.call.keys[at.operand]
	r.Addr, r.Length, r.LKey = k.addr+uint64(at.off), uint32(n), k.lkey
}

func (w *wire) expose(at loc, n int) descriptor {
	k := &w.call.keys[at.operand]
	return descriptor{addr: k.addr + uint64(at.off), n: uint64(n), rkey: k.rkey, access: k.access}
}

func (w *wire) view(of int, d *descriptor) []byte {
	p := &w.peers[of]
	if p.memory == nil && !(*Team)(w).reach(of) || d.access == 0 || d.n > math.MaxInt {
		return nil
	}
	mem, err := p.memory.Map(d.addr, d.rkey, int(d.n), d.access)
	if err != nil {
		return nil // a queue pair finds out why, and breaks the team
	}
	return mem
}

// word fills request i of the queue: v is written to addr.
func (q *queue) writeWord(i int, addr uint64, rkey uint32, v uint64) {
	binary.NativeEndian.PutUint64(q.word[:], v)
	wr := &q.wrs[i]
	wr.Opcode, wr.Flags, wr.SGL, wr.Inline = rdma.WRRDMAWrite, rdma.SendInline, nil, q.word[:]
	wr.RemoteAddr, wr.RKey = addr, rkey
}

func (w *wire) giveCredit(to int, taken uint16) bool {
	p := &w.peers[to]
	if p.words != nil {
		// What was read from the slots was read before: a release store.
		arch.StoreRelease64(&p.words[0], uint64(taken))
		p.memory.Notify()
		return true
	}
	if p.maps {
		return (*Team)(w).reach(to) && w.giveCredit(to, taken)
	}
	q := p.queue
	if !w.mesh.connected(q) {
		return false
	}
	q.mu.Lock()
	q.writeWord(0, p.lane, p.rkey, uint64(taken))
	_, ok := w.mesh.post(q, 1, false)
	q.mu.Unlock()
	return ok
}

func (w *wire) send(to, slot int, payload []byte, header uint64) bool {
	p := &w.peers[to]
	if p.words != nil {
		at := ringOffset + slot*w.layout.stride
		store(p.bytes[at+headerLen:], payload)
		arch.StoreRelease64(&p.words[at/8], header)
		p.memory.Notify()
		return true
	}
	if p.maps {
		return (*Team)(w).reach(to) && w.send(to, slot, payload, header)
	}
	return w.post(to, slot, payload, header)
}

// post is send over the peer's queue pair.
func (w *wire) post(to, slot int, payload []byte, header uint64) bool {
	p := &w.peers[to]
	q := p.queue
	if !w.mesh.connected(q) {
		return false
	}
	far := p.lane + ringOffset + uint64(slot*w.layout.stride)
	n := 0
	q.mu.Lock()
	if len(payload) > 0 {
		n = 1
		wr := &q.wrs[0]
		wr.Opcode, wr.RemoteAddr, wr.RKey = rdma.WRRDMAWrite, far+headerLen, p.rkey
		if len(payload) <= q.inline {
			wr.Flags, wr.SGL, wr.Inline = rdma.SendInline, nil, payload
		} else {
			// The staging slot is free again when the peer has given
			// the slot back, as it has here.
			at := w.layout.stage(to, slot)
			copy(w.bytes[at:], payload)
			q.sges[0] = rdma.SGE{Addr: w.region.Addr() + uint64(at), Length: uint32(len(payload)), LKey: w.region.LKey()}
			wr.Flags, wr.SGL, wr.Inline = 0, q.sges[:1], nil
		}
	}
	q.writeWord(n, far, p.rkey, header)
	_, ok := w.mesh.post(q, n+1, false)
	q.wrs[0].Inline = nil
	q.mu.Unlock()
	return ok
}

// move has the queue pair to a mapped peer move n bytes of an operand at once.
func (w *wire) move(p *peer, op rdma.WROpcode, o loc, n int, at far) bool {
	return p.words != nil && p.queue.mover != nil && p.queue.mover.Move(op, w.machine.operands[o.operand][o.off:o.off+n], at.addr, at.rkey)
}

func (w *wire) put(peer int, to far, from loc, n, slot int, header uint64) bool {
	p := &w.peers[peer]
	q := p.queue
	if !w.mesh.connected(q) {
		return false
	}
	if w.move(p, rdma.WRRDMAWrite, from, n, to) {
		return header == 0 || w.send(peer, slot, nil, header)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		part := min(n, longestWrite)
		last := part == n
		w.describe(&q.sges[0], from, part)
		wr := &q.wrs[0]
		wr.Opcode, wr.Flags, wr.SGL, wr.Inline = rdma.WRRDMAWrite, 0, q.sges[:1], nil
		wr.RemoteAddr, wr.RKey = to.addr, to.rkey
		requests := 1
		if last && header != 0 {
			q.writeWord(1, p.lane+ringOffset+uint64(slot*w.layout.stride), p.rkey, header)
			requests = 2
		}
		count, ok := w.mesh.post(q, requests, last)
		if !ok {
			return false // what was posted of a long one is posted again: the same bytes
		}
		if last {
			p.put = count
			return true
		}
		to.addr, from.off, n = to.addr+uint64(part), from.off+part, n-part
	}
}

func (w *wire) get(peer int, from far, to loc, n int) bool {
	p := &w.peers[peer]
	q := p.queue
	if !w.mesh.connected(q) {
		return false
	}
	if w.move(p, rdma.WRRDMARead, to, n, from) {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		part := min(n, longestWrite)
		w.describe(&q.sges[0], to, part)
		wr := &q.wrs[0]
		wr.Opcode, wr.Flags, wr.SGL, wr.Inline = rdma.WRRDMARead, 0, q.sges[:1], nil
		wr.RemoteAddr, wr.RKey = from.addr, from.rkey
		count, ok := w.mesh.post(q, 1, part == n)
		if !ok {
			return false // what was posted of a long one is posted again: the same bytes
		}
		if part == n {
			p.put = count
			return true
		}
		from.addr, to.off, n = from.addr+uint64(part), to.off+part, n-part
	}
}

func (w *wire) flushed(to int) bool {
	p := &w.peers[to]
	if p.queue.Done() >= p.put {
		return true
	}
	w.mesh.poll()
	return p.queue.Done() >= p.put
}
