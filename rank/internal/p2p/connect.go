package p2p

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// This is what the engine does for connections that are made on demand: it carries offers
// to mapped peers, and makes the halves of connections for messages. A link is unmet until
// a message goes to the peer or comes from it. To reach a mapped peer takes no help of it:
// the rank maps its region, and stores lines into its inbox.

var _ peers.Traffic = (*Engine)(nil)

// Meet gets ready to talk with a peer.
func (e *Engine) Meet(peer int) error {
	l := &e.links[peer]
	if !e.meet(l) {
		return l.err
	}
	return nil
}

// meet is Meet; false: the link has failed.
func (e *Engine) meet(l *link) bool {
	if l.met || l.far != nil || !e.set.OnDemand() || l.err != nil {
		return l.err == nil
	}
	l.met = true
	var err error
	if e.dead != nil {
		err = e.dead(int(l.peer))
	}
	if err == nil {
		err = e.Attach(int(l.peer))
	}
	if err == nil && l.far == nil && l.mapped {
		err = errors.New("its memory cannot be mapped")
	}
	if err != nil {
		e.fail(l, err)
	}
	return err == nil
}

// connected tells whether requests can be posted on a link, and sees to it that they can.
func (e *Engine) connected(l *link) bool {
	if l.qp == nil {
		_, _ = e.set.Queue(int(l.peer), peers.Messages) // a failure fails the link
	}
	return l.qp != nil
}

// half makes the own half of a connection for messages. It has receives where the peer is
// not mapped.
func (e *Engine) half(peer int) (rdma.QP, error) {
	switch l := &e.links[peer]; {
	case e.isPath(l):
		return e.path(l)
	case l.mapped:
		return e.createQP(0, false)
	default:
		return e.receiving(l)
	}
}

// Offer puts an offer into a mapped peer's inbox, at once or ahead of what may be waiting
// for this very connection.
func (e *Engine) Offer(peer int, use peers.Use, id uint64) {
	l := &e.links[peer]
	if !e.put(l, offer, uint64(use), id, nil) {
		l.todo = append(l.todo, chore{})
		copy(l.todo[1:], l.todo)
		l.todo[0] = chore{answer: offer, use: use, offer: id}
		e.later(l)
	}
}

// Connected gives a link its queue pair; catchUp goes on with what waits for it.
func (e *Engine) Connected(peer int, qp rdma.QP) { e.links[peer].qp = qp }

// Fail fails a link.
func (e *Engine) Fail(peer int, err error) error {
	l := &e.links[peer]
	if errors.Is(err, peers.ErrGone) {
		err = ErrCut
	}
	e.fail(l, err)
	return l.err
}

// Survey takes in which peers will be mapped, when all cards are known.
func (e *Engine) Survey() {
	for peer := range e.links {
		l := &e.links[peer]
		switch {
		case peer == e.rank:
		case e.set.Maps(peer):
			l.mapped = true
			l.expect(&e.own.geometry)
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
	for i := range e.links {
		if qp := e.queueOf(&e.links[i]); qp != nil {
			qps = append(qps, qp)
		}
	}
	return qps
}

// queueOf is a link's queue pair, connected or not.
func (e *Engine) queueOf(l *link) rdma.QP {
	if l.qp != nil {
		return l.qp
	}
	return e.set.Begun(int(l.peer), peers.Messages)
}
