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

// Meet gets ready to talk with a peer.
func (e *Engine) Meet(peer int) error {
	p := &e.peers[peer]
	if !e.meet(p) {
		return p.Err()
	}
	return nil
}

// meet is Meet; false: the peer has failed.
func (e *Engine) meet(p *peer) bool {
	if p.met || p.far != nil || !e.set.OnDemand() || p.Err() != nil {
		return p.Err() == nil
	}
	p.met = true
	var err error
	if e.dead != nil {
		err = e.dead(int(p.rank))
	}
	if err == nil {
		err = e.Attach(int(p.rank))
	}
	if err == nil && p.far == nil && p.mapped {
		err = errors.New("its memory cannot be mapped")
	}
	if err != nil {
		e.fail(p, err)
	}
	return err == nil
}

// connected tells whether requests can be posted to a peer, and sees to it that they can.
func (e *Engine) connected(p *peer) bool {
	if p.QP == nil {
		_, _ = e.set.Queue(int(p.rank), peers.Messages) // a failure fails the peer
	}
	return p.QP != nil
}

// half makes the own half of a connection for messages. It has receives where the peer is
// not mapped.
func (e *Engine) half(peer int) (rdma.QP, error) {
	switch p := &e.peers[peer]; {
	case e.isPath(p):
		return e.path(p)
	case p.mapped:
		return e.createQP(0, false)
	default:
		return e.receiving(p)
	}
}

// Offer puts an offer into a mapped peer's inbox, at once or ahead of what may be waiting
// for this very connection.
func (e *Engine) Offer(peer int, use peers.Use, id uint64) {
	p := &e.peers[peer]
	if !e.put(p, offer, uint64(use), id, nil) {
		p.todo = append(p.todo, chore{})
		copy(p.todo[1:], p.todo)
		p.todo[0] = chore{answer: offer, use: use, offer: id}
		e.later(p)
	}
}

// Connected gives a peer its queue pair; catchUp goes on with what waits for it.
func (e *Engine) Connected(peer int, qp rdma.QP) { e.peers[peer].Open(qp, e.queue) }

// Fail fails a peer.
func (e *Engine) Fail(peer int, err error) error {
	p := &e.peers[peer]
	if errors.Is(err, peers.ErrGone) {
		err = ErrCut
	}
	e.fail(p, err)
	return p.Err()
}

// Survey takes in which peers will be mapped, when all cards are known.
func (e *Engine) Survey() {
	for peer := range e.peers {
		p := &e.peers[peer]
		switch {
		case peer == e.rank:
		case e.set.Maps(peer):
			p.mapped = true
			p.expect(&e.own.geometry)
		default:
			e.distant++
		}
	}
}

// Queues are the queue pairs and paths of the engine's own making.
func (e *Engine) Queues() (qps []rdma.QP) {
	if e.target != nil {
		qps = append(qps, e.target)
	}
	for i := range e.peers {
		if qp := e.queueOf(&e.peers[i]); qp != nil {
			qps = append(qps, qp)
		}
	}
	return qps
}

// queueOf is a peer's queue pair, connected or not.
func (e *Engine) queueOf(p *peer) rdma.QP {
	if p.QP != nil {
		return p.QP
	}
	return e.set.Begun(int(p.rank), peers.Messages)
}
