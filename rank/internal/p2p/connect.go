package p2p

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rdma"
)

// This is how connections come about when they are first needed (Config.Contact).
//
// To reach a mapped peer takes no help of it: whoever has its card maps its region, and
// stores lines into its inbox. So a link is unmet until a message goes to the peer or
// comes from it.
//
// A queue pair takes both sides. Their offers are lines of the link, taken in by whatever
// call the peer is in; each side sends its number when it has made its queue pair, and
// once more, ready, when it has connected that:
//
//	none --wanted here, or an offer came--> made, offer{number} has left if wanted here
//	made --the peer's offer came--> connected: in RTS, offer{number, ready} has left
//	connected --the peer's offer said ready--> up
//
// Both sides run the same machine, so it does not matter who begins, or that both do.
// A side posts only when it is up: the peer's queue pair is in RTS then, and no request has
// to be sent again. An offer that comes twice changes nothing. What takes the offers from
// rank to rank must lose none of them: an inbox does not, nor does the mail between ranks
// that do not map each other. Mail may be overtaken by the peer's first message, which says
// as well that the peer's queue pair is in RTS.

// A Purpose is what a queue pair to a peer is for.
type Purpose uint8

const (
	// Messages: long messages in ordinary memory.
	Messages Purpose = iota
	// Collectives: what Config.Queue makes.
	Collectives
	purposes
)

// A pair is the own half of a connection on demand.
type pair struct {
	qp      rdma.QP
	offered bool // the peer has been told the number
	ready   bool // the queue pair is in RTS, and the peer has been told so
	theirs  bool // the peer's is in RTS
}

func (p *pair) up() bool { return p.ready && p.theirs }

// offerReady, in an offer's id, stands above the number.
const offerReady = 1 << 32

// meet gets ready to talk with a peer; false: the link has failed.
func (e *Engine) meet(l *link) bool {
	if l.met || l.far != nil || e.contact == nil || l.err != nil {
		return l.err == nil
	}
	l.met = true
	var err error
	if e.dead != nil {
		err = e.dead(int(l.peer))
	}
	if err == nil {
		err = e.contact(int(l.peer))
	}
	if err == nil && l.far == nil && l.mapped {
		err = errors.New("its memory cannot be mapped")
	}
	if err != nil {
		e.fail(l, err)
	}
	return err == nil
}

// Queue is the queue pair of a purpose to a peer once it is connected, nil while it is
// not: Progress sees to that, here and in the peer.
func (e *Engine) Queue(peer int, purpose Purpose) (rdma.QP, error) {
	l := &e.links[peer]
	if !e.meet(l) {
		return nil, l.err
	}
	p, err := e.pair(l, purpose)
	if err != nil {
		e.fail(l, err)
		return nil, l.err
	}
	if p.up() {
		return p.qp, nil
	}
	if !p.offered {
		e.offer(l, purpose, p)
	}
	return nil, nil
}

// connected tells whether requests can be posted on a link, and sees to it that they can.
func (e *Engine) connected(l *link) bool {
	if l.qp == nil {
		_, _ = e.Queue(int(l.peer), Messages) // a failure fails the link
	}
	return l.qp != nil
}

// pair is the link's queue pair of a purpose, made if there is none.
func (e *Engine) pair(l *link, purpose Purpose) (*pair, error) {
	if l.pairs == nil {
		l.pairs = new([purposes]pair)
	}
	p := &l.pairs[purpose]
	if p.qp != nil {
		return p, nil
	}
	var err error
	dynamic := e.isDynamic(l)
	switch {
	case purpose == Collectives:
		p.qp, err = e.makeQueue(int(l.peer))
	case dynamic:
		p.qp, err = e.path(l)
	case l.mapped:
		p.qp, err = e.createQP(0, false)
	default:
		p.qp, err = e.receiving(l)
	}
	if err != nil {
		return nil, fmt.Errorf("queue pair on demand: %w", err)
	}
	if dynamic {
		p.offered, p.ready, p.theirs = true, true, true
		if purpose == Messages {
			l.qp = p.qp
		}
	}
	return p, nil
}

// offer tells the peer about a queue pair.
func (e *Engine) offer(l *link, purpose Purpose, p *pair) {
	id := uint64(p.qp.Num())
	if p.offered = true; p.ready {
		id |= offerReady
	}
	if !l.mapped {
		e.mail.Send(int(l.peer), mail.Letter{What: uint64(purpose), ID: id})
	} else if !e.put(l, offer, uint64(purpose), id, nil) {
		// Ahead of what may be waiting for this very connection.
		l.todo = append(l.todo, chore{})
		copy(l.todo[1:], l.todo)
		l.todo[0] = chore{answer: offer, purpose: purpose, offer: id}
		e.later(l)
	}
}

// offered handles a peer's offer.
func (e *Engine) offered(l *link, purpose Purpose, id uint64) {
	if purpose >= purposes || e.contact == nil || id >= 2*offerReady {
		e.damaged(l)
		return
	}
	p, err := e.pair(l, purpose)
	if err != nil {
		e.fail(l, err)
		return
	}
	if id&offerReady != 0 {
		p.theirs = true
	}
	if !p.ready {
		if err := e.connect(int(l.peer), p.qp, uint32(id)); err != nil {
			e.fail(l, err)
			return
		}
		p.ready = true
		e.offer(l, purpose, p)
	}
	if p.up() && purpose == Messages {
		l.qp = p.qp // catchUp goes on with what waits for it
	}
}

// overtaken takes a link up whose peer has sent over it before its offer has said ready;
// false: there is no such link.
func (e *Engine) overtaken(l *link) bool {
	if l.pairs == nil || !l.pairs[Messages].ready {
		return false
	}
	l.pairs[Messages].theirs = true
	l.qp = l.pairs[Messages].qp
	return true
}

// letterGone is the letter of a rank whose link has failed to one that offers.
const letterGone = uint64(purposes)

// readMail handles the letters of peers that are not mapped, and tells whether there were
// any. Nothing in them is believed.
func (e *Engine) readMail() (came bool) {
	if e.mailLooks++; e.mailLooks%pollEvery == 0 || e.waiter.Thorough() {
		e.mail.Look()
	}
	for {
		peer, letter, ok := e.mail.Take()
		if !ok {
			return came
		}
		came = true
		l := &e.links[peer]
		switch {
		case l.err != nil:
			if letter.What != letterGone {
				e.mail.Send(peer, mail.Letter{What: letterGone})
			}
		case l.mapped:
			e.damaged(l)
		case letter.What == letterGone:
			e.fail(l, ErrCut)
		case e.meet(l):
			e.offered(l, Purpose(min(letter.What, letterGone)), letter.ID)
		}
	}
}

// Survey tells which peers will be mapped. Where there is Config.Mail it is called before
// the first message.
func (e *Engine) Survey(mapped func(peer int) bool) {
	for peer := range e.links {
		l := &e.links[peer]
		switch {
		case peer == e.rank:
		case mapped(peer):
			l.mapped = true
			l.expect(&e.own.geometry)
		default:
			e.distant++
		}
	}
}

// Met tells whether Config.Contact has been called for a peer.
func (e *Engine) Met(peer int) bool { return e.links[peer].met }

// Queues are the queue pairs and paths of the engine's own making.
func (e *Engine) Queues() (qps []rdma.QP) {
	if e.target != nil {
		qps = append(qps, e.target)
	}
	for i := range e.links {
		l := &e.links[i]
		switch {
		case l.pairs != nil && l.pairs[Messages].qp != nil:
			qps = append(qps, l.pairs[Messages].qp)
		case l.qp != nil:
			qps = append(qps, l.qp)
		}
	}
	return qps
}
