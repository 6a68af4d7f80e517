package p2p

import (
	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// chores is what is due to peers, and posted as far as there is room.
type chores struct {
	links
	due    []int32  // peers with work that could not be posted yet
	behind []int32  // the other half of due
	splits []uint32 // receives that wait for the sender's part, by number
}

// Offer puts an offer into a mapped peer's inbox, at once or ahead of what may be waiting
// for this very connection.
func (e *Engine) Offer(peer int, use peers.Use, id uint64) {
	p := &e.self.peers[peer]
	if !e.lines.put(p, offer, uint64(use), id, nil) {
		p.todo = append(p.todo, chore{})
		copy(p.todo[1:], p.todo)
		p.todo[0] = chore{answer: offer, use: use, offer: id}
		e.wire.later(p)
	}
}

// giveBack gives the peer a message's credits back, and tells it when enough are
// due.
func (cs *chores) giveBack(p *peer, credits int) {
	p.taken += uint64(credits)
	if p.unreported() {
		cs.work(p)
	}
}

// assign does a chore now, or when the send queue has room.
func (cs *chores) assign(p *peer, c chore) {
	p.todo = append(p.todo, c)
	cs.work(p)
}

// answer answers an announcement or a synchronous message.
func (cs *chores) answer(p *peer, what kind, id uint32) {
	if p.Err() == nil {
		cs.assign(p, chore{answer: what, id: id})
	}
}

// work does what is due to a peer as far as the send queue has room.
func (cs *chores) work(p *peer) {
	for p.Err() == nil && len(p.todo) > 0 {
		over, blocked := cs.do(p, p.todo[0])
		if blocked {
			break
		}
		if over && len(p.todo) > 0 { // a failed peer has none
			n := copy(p.todo, p.todo[1:])
			p.todo[n] = chore{}
			p.todo = p.todo[:n]
		}
	}
	report := p.unreported()
	if p.Err() == nil && report && (p.far != nil || p.Room() > 0) {
		cs.report(p)
		report = false
	}
	if p.Err() == nil && (report || len(p.todo) > 0) {
		cs.later(p)
	}
}

// later has Progress see to a peer that has something to post and no room.
func (cs *chores) later(p *peer) {
	if !p.due {
		p.due = true
		cs.due = append(cs.due, p.rank)
	}
}

// do posts a request of a chore and tells whether it was the last; blocked: it
// could not be posted.
func (cs *chores) do(p *peer, c chore) (over, blocked bool) {
	switch {
	case c.answer == offer:
		return true, !cs.lines.put(p, offer, uint64(c.use), c.offer, nil)
	case p.far != nil && c.read == nil && !c.help:
		return true, !cs.lines.put(p, c.answer, 0, uint64(c.id), nil)
	case !cs.links.connected(p) || p.Room() <= 0:
		return false, true
	}
	if c.read != nil {
		return cs.read(p, c.read)
	}
	if c.help {
		return cs.writePiece(p, c.id), false
	}
	h := header{kind: c.answer, source: uint32(cs.self.rank), id: c.id}
	if c.answer == finished && p.loan != nil && !p.loan.told {
		p.loan.grant(&h)
	}
	cs.links.postInline(p, h.put(cs.links.small[:])) // a failure fails the peer
	return true, false
}

// report writes the count of taken messages into the peer's control word.
func (cs *chores) report(p *peer) {
	cs.told(p)
	if p.far != nil {
		// Release: the lines were read before the peer may use them again.
		arch.StoreRelease64(p.far.credit, p.taken)
		p.far.memory.Notify()
		return
	}
	putWord(&cs.links.word, p.taken)
	cs.links.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: cs.links.word[:], RemoteAddr: p.control, RKey: p.controlKey}
	cs.links.post(p, whatMark, 0)
}

// told notes that the peer is being told how many messages were taken.
func (cs *chores) told(p *peer) {
	if p.reported = p.taken; p.loan != nil {
		p.loan.bytes = 0
	}
	if p.pooled {
		cs.lines.broken(cs.pool.refill())
	}
}

// read posts the next read of a receive and tells whether the chore is over. It
// stays when there are too many operations with a number.
func (cs *chores) read(p *peer, o *Op) (over, blocked bool) {
	if o.number == noNumber {
		number, ok := cs.self.add(o)
		if !ok {
			return false, true
		}
		o.number = number
	}
	if o.checking {
		cs.readWord(p, o)
		return true, false
	}
	at, n := o.asked, min(o.length-o.asked, readMax)
	if o.split.of != nil {
		if at, n = o.split.first(o.length, (o.split.pieces+1)/2); n == 0 {
			o.asked = o.length
			if o.pending == 0 {
				cs.splits = append(cs.splits, o.number)
			}
			return true, false
		}
	}
	if o.split.of == nil {
		o.asked += n
	}
	over = o.asked == o.length
	cs.readPart(p, o, at, n)
	return over, false
}

// readPart posts a read of a part of a receive.
func (cs *chores) readPart(p *peer, o *Op, at, n int) {
	cs.links.sge[0] = rdma.SGE{Addr: address(o.buf) + uint64(at), Length: uint32(n), LKey: o.lkey}
	cs.links.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: cs.links.sge[:], RemoteAddr: o.address + uint64(at), RKey: o.rkey}
	o.pending++
	cs.links.post(p, whatRead, o.number) // a failure fails the peer, and o with it
}

// writePiece writes the next piece of a send and tells whether there is none. The send
// queue has room.
func (cs *chores) writePiece(p *peer, id uint32) (over bool) {
	o := cs.self.get(id)
	if o == nil || o.peer != p || o.state != sent || o.split.of == nil {
		return true
	}
	at, n := o.split.last(o.length)
	if n == 0 {
		return true
	}
	cs.links.sge[0] = rdma.SGE{Addr: address(o.buf) + uint64(at), Length: uint32(n), LKey: o.lkey}
	cs.links.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: cs.links.sge[:], RemoteAddr: o.address + uint64(at), RKey: o.rkey}
	cs.links.post(p, whatHelp, id) // a failure fails the peer, and o with it
	return false
}

// pieceWritten counts a piece that is where it belongs.
func (cs *chores) pieceWritten(id uint32) {
	if o := cs.self.get(id); o != nil && o.state == sent && o.split.of != nil {
		o.split.taken++
		arch.StoreRelease64(&o.split.of.moved, uint64(o.split.taken))
	}
}
