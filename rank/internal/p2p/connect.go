package p2p

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// This is what the engine does for connections that are made on demand: it carries offers
// to mapped peers, and makes the halves of connections for messages. A peer is unmet until
// a message goes to it or comes from it. To reach a mapped peer takes no help of it:
// the rank maps its region, and stores lines into its inbox.

var _ peers.Traffic = (*Engine)(nil)

// links is the ways to peers: their mapped memory, queue pairs and paths.
type links struct {
	zones
	cq      rdma.CQ
	in      rdma.CQ // cq, and what comes of paths
	target  rdma.QP // of peers with paths, nil where there are none
	distant int     // peers whose messages come over queue pairs, connected or not
	flying  int     // posted requests that are not known to be complete

	// Scratch of one call at a time, here so that it does not escape anew.
	wr    [1]rdma.SendWR
	short [1]rdma.SendWR // of postInline
	two   [2]rdma.SendWR
	sge   [1]rdma.SGE
	small [inlineMost]byte
	word  [8]byte
}

// meet is Meet; false: the peer has failed.
func (l *links) meet(p *peer) bool {
	if p.met || p.far != nil || !l.self.set.OnDemand() || p.Err() != nil {
		return p.Err() == nil
	}
	p.met = true
	var err error
	if l.lines.dead != nil {
		err = l.lines.dead(int(p.rank))
	}
	if err == nil {
		err = l.attach(int(p.rank))
	}
	if err == nil && p.far == nil && p.mapped {
		err = errors.New("its memory cannot be mapped")
	}
	if err != nil {
		l.lines.fail(p, err)
	}
	return err == nil
}

// connected tells whether requests can be posted to a peer, and sees to it that they can.
func (l *links) connected(p *peer) bool { return p.QP != nil || l.connect(p) }

// connect is the part of connected that is not inlined, so that the other is.
//
//go:noinline
func (l *links) connect(p *peer) bool {
	_, _ = l.self.set.Queue(int(p.rank), peers.Messages) // a failure fails the peer
	return p.QP != nil
}

// half makes the own half of a connection for messages. It has receives where the peer is
// not mapped.
func (l *links) half(peer int) (rdma.QP, error) {
	switch p := &l.self.peers[peer]; {
	case l.isPath(p):
		return l.path(p)
	case p.mapped:
		return l.createQP(0, false)
	default:
		return l.receiving(p)
	}
}

// Survey takes in which peers will be mapped, when all cards are known.
func (e *Engine) Survey() {
	for peer := range e.self.peers {
		p := &e.self.peers[peer]
		switch {
		case peer == e.self.rank:
		case e.self.set.Maps(peer):
			p.mapped = true
			p.expect(&e.lines.geometry)
		default:
			e.wire.distant++
		}
	}
}

// Queues are the queue pairs and paths of the engine's own making.
func (e *Engine) Queues() (qps []rdma.QP) {
	if e.wire.target != nil {
		qps = append(qps, e.wire.target)
	}
	for i := range e.self.peers {
		if qp := e.lines.queueOf(&e.self.peers[i]); qp != nil {
			qps = append(qps, qp)
		}
	}
	return qps
}

// receiving makes the queue pair for a peer's messages, with its receives posted.
func (l *links) receiving(p *peer) (rdma.QP, error) {
	var err error
	if p.pooled, err = l.pool.pooled(); err != nil {
		return nil, err
	}
	qp, err := l.createQP(l.self.receives(), p.pooled)
	if err != nil {
		return nil, err
	}
	if err := l.pool.bring(p, qp); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	p.number = qp.Num()
	return qp, nil
}

// createQP makes a queue pair in INIT, with room for so many receives, or with the shared
// queue's.
func (l *links) createQP(receives int, pooled bool) (rdma.QP, error) {
	init := QueueAttr(l.self.pd.Context().QueryDevice(), l.self.size)
	init.SendCQ, init.RecvCQ = l.cq, l.cq
	if init.Cap.MaxRecvWR = receives; pooled {
		init.SRQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = l.pool.srq, 0, 0
	}
	return l.self.set.Create(init, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
}

// QP is the queue pair for a peer, nil for the rank itself, and while there is none.
func (e *Engine) QP(peer int) rdma.QP { return e.self.peers[peer].QP }

// attach is Engine.Attach.
func (l *links) attach(peer int) error {
	p, card := &l.self.peers[peer], l.self.set.Card(peer)
	p.control, p.controlKey = card.Control+8*uint64(l.self.rank), card.ControlKey
	memory, err := l.self.set.Memory(peer)
	if err != nil || memory == nil {
		return err
	}
	if err = l.lines.attach(p, memory, card.Control, card.ControlKey); err == nil && !l.self.set.OnDemand() {
		l.distant--
	}
	return err
}

// post posts wr[0], filled in but for id and signal. A request of its own kind
// (what other than whatMark) is signalled. The caller has seen to room. A failure fails
// the peer, with all operations that concern it.
func (l *links) post(p *peer, what uint64, index uint32) {
	if err := p.Post(l.wr[:], idOf(what, p.rank, index), what != whatMark); err != nil {
		l.lines.fail(p, err)
		return
	}
	l.flying++
}

// postInline posts a send of small[:n]. Only what differs from one to the next is written.
func (l *links) postInline(p *peer, n int) {
	wr := &l.short[0]
	wr.Opcode, wr.Flags, wr.Inline = rdma.WRSend, rdma.SendInline, l.small[:n]
	if err := p.Post(l.short[:], idOf(whatMark, p.rank, 0), false); err != nil {
		l.lines.fail(p, err)
		return
	}
	l.flying++
}

// postSlot posts a send of n bytes of a send slot.
func (l *links) postSlot(p *peer, slot int32, n int) {
	l.sge[0] = rdma.SGE{Addr: l.self.mr.Addr() + uint64(l.self.slotAt(slot)), Length: uint32(n), LKey: l.self.mr.LKey()}
	l.wr[0] = rdma.SendWR{Opcode: rdma.WRSend, SGL: l.sge[:]}
	l.post(p, whatSlot, uint32(slot))
}

// probePeer posts an empty write, whose completion tells whether the peer is there.
func (l *links) probePeer(p *peer) {
	if p.Err() != nil || p.QP == nil || p.Room() <= 0 || p.Tells() {
		return
	}
	l.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, RemoteAddr: p.control, RKey: p.controlKey}
	l.post(p, whatProbe, 0)
}

// sender is the peer whose queue pair took a shared receive, nil if that is gone.
func (l *links) sender(number uint32) *peer {
	for i := range l.self.peers {
		if p := &l.self.peers[i]; p.pooled && p.number == number {
			return p
		}
	}
	return nil
}

// comesFrom tells whether a peer's messages come over the queue pair of that number.
func (l *links) comesFrom(p *peer, number uint32) bool {
	if p.number == number {
		return true
	}
	return l.target != nil && number == l.target.Num() && int(p.rank) != l.self.rank && !p.mapped && l.isPath(p)
}
