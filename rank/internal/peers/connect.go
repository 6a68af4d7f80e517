package peers

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rdma"
)

// This is how queue pairs come about when they are first needed ([Config.OnDemand]).
//
// A queue pair takes both sides. Their offers go through the inboxes of mapped peers, as
// lines of messages, and by mail to others. Whatever call the peer is in takes them in; each side
// sends its number when it has made its queue pair, and once more, ready, when it has
// connected that:
//
//	none --wanted here, or an offer came--> made, offer{number} has left if wanted here
//	made --the peer's offer came--> connected: in RTS, offer{number, ready} has left
//	connected --the peer's offer said ready--> up
//
// Both sides run the same machine, so it does not matter which begins, or that both do.
// Neither posts before it is up: the peer's queue pair is in RTS then, and no request has
// to be sent again. An offer that comes twice changes nothing. What takes the offers from
// rank to rank must lose none of them: an inbox does not, nor does the mail. Mail may be
// overtaken by the peer's first message, which says as well that the peer's queue pair is
// in RTS.

// A Use is what a queue pair to a peer is for. Each has queue pairs of its own, so that an
// error of one ends no request of the other.
type Use uint8

const (
	Messages Use = iota
	Collectives
	Uses
)

const uses = Uses

// Traffic is the messages between ranks, which carry offers to mapped peers.
type Traffic interface {
	// Meet gets ready to talk with a peer.
	Meet(peer int) error
	// Offer takes an offer to a mapped peer, now or later.
	Offer(peer int, use Use, id uint64)
	// Connected says that requests can be posted for messages.
	Connected(peer int, qp rdma.QP)
	// Fail ends all traffic with a peer, and gives the error that says so.
	Fail(peer int, err error) error
}

// Serve names the traffic. Before the first peer is met.
func (s *Set) Serve(t Traffic) { s.messages = t }

// Make names what makes the own half of a use's connection.
func (s *Set) Make(use Use, half func(peer int) (rdma.QP, error)) { s.makers[use] = half }

// ErrGone fails a peer that has given this rank up, and does not say why.
var ErrGone = errors.New("the peer has given up its connections with this rank")

// ErrDamaged fails a peer that sends offers which make no sense.
var ErrDamaged = errors.New("it sent a damaged offer of a connection")

// A pair is the own half of a connection.
type pair struct {
	qp      rdma.QP
	offered bool // the peer has been told the number
	ready   bool // the queue pair is in RTS, and the peer has been told so
	theirs  bool // the peer's is in RTS
}

func (p *pair) up() bool { return p.ready && p.theirs }

// offerReady, in an offer's id, stands above the number.
const offerReady = 1 << 32

// Queue is the queue pair of a use to a peer once it is connected, nil while it is not:
// progress of both ranks sees to that.
func (s *Set) Queue(peer int, use Use) (rdma.QP, error) {
	if err := s.messages.Meet(peer); err != nil {
		return nil, err
	}
	p, err := s.half(peer, use)
	if err != nil {
		return nil, s.messages.Fail(peer, err)
	}
	if p.up() {
		return p.qp, nil
	}
	if !p.offered {
		s.offer(peer, use, p)
	}
	return nil, nil
}

// Begun is the queue pair of a use to a peer, connected or not, nil if there is none.
func (s *Set) Begun(peer int, use Use) rdma.QP {
	if pairs := s.peers[peer].pairs; pairs != nil {
		return pairs[use].qp
	}
	return nil
}

// Begin makes the own half of a connection before the cards are known, which may show its
// number. Where all do, the caller connects it in Init, and Up follows.
func (s *Set) Begin(peer int, use Use) error {
	_, err := s.half(peer, use)
	return err
}

// Up says that all queue pairs of a use have been made and are in RTS, here and at the peers.
func (s *Set) Up(use Use) {
	for peer := range s.peers {
		if pairs := s.peers[peer].pairs; pairs != nil {
			p := &pairs[use]
			p.offered, p.ready, p.theirs = true, true, true
			s.isUp(peer, use, p)
		}
	}
}

// half is the own half, made if there is none.
func (s *Set) half(peer int, use Use) (*pair, error) {
	if s.peers[peer].pairs == nil {
		s.peers[peer].pairs = new([uses]pair)
	}
	p := &s.peers[peer].pairs[use]
	if p.qp != nil {
		return p, nil
	}
	if s.makers[use] == nil {
		return nil, ErrDamaged
	}
	qp, err := s.makers[use](peer)
	if err != nil {
		return nil, fmt.Errorf("queue pair on demand: %w", err)
	}
	if p.qp = qp; s.IsPath(peer) {
		p.offered, p.ready, p.theirs = true, true, true
		s.isUp(peer, use, p)
	}
	return p, nil
}

func (s *Set) isUp(peer int, use Use, p *pair) {
	if use == Messages && p.up() {
		s.messages.Connected(peer, p.qp)
	}
}

// offer tells the peer about a queue pair.
func (s *Set) offer(peer int, use Use, p *pair) {
	id := uint64(p.qp.Num())
	if p.offered = true; p.ready {
		id |= offerReady
	}
	if s.Maps(peer) {
		s.messages.Offer(peer, use, id)
	} else {
		s.mail.Send(peer, mail.Letter{What: uint64(use), ID: id})
	}
}

// Offered handles a peer's offer, of which nothing is believed.
func (s *Set) Offered(peer int, use, id uint64) {
	if err := s.offered(peer, use, id); err != nil {
		_ = s.messages.Fail(peer, err)
	}
}

func (s *Set) offered(peer int, use, id uint64) error {
	if use >= uint64(uses) || !s.cfg.OnDemand || id >= 2*offerReady {
		return ErrDamaged
	}
	p, err := s.half(peer, Use(use))
	if err != nil {
		return err
	}
	if id&offerReady != 0 {
		p.theirs = true
	}
	if !p.ready {
		if err := s.Connect(p.qp, peer, uint32(id)); err != nil {
			return err
		}
		p.ready = true
		s.offer(peer, Use(use), p)
	}
	s.isUp(peer, Use(use), p)
	return nil
}

// Overtaken takes a connection for messages up whose peer has sent over it before its offer
// has said ready; false: there is none.
func (s *Set) Overtaken(peer int) bool {
	pairs := s.peers[peer].pairs
	if pairs == nil || !pairs[Messages].ready {
		return false
	}
	pairs[Messages].theirs = true
	s.isUp(peer, Messages, &pairs[Messages])
	return true
}

// Cut notes that the traffic with a peer has failed here. The peer of a path would not find
// out by itself, and is told.
func (s *Set) Cut(peer int) {
	s.peers[peer].cut = true
	if s.mail != nil && !s.Maps(peer) && s.IsPath(peer) && (s.cfg.Dead == nil || s.cfg.Dead(peer) == nil) {
		s.mail.Send(peer, mail.Letter{What: letterGone})
	}
}

// Mourn tells whether the launcher has said that a peer on another host has died, and if so passes it on to the device.
func (s *Set) Mourn(peer int) bool {
	if s.cfg.Lost == nil || !s.cfg.Lost(peer) {
		return false
	}
	if m, ok := s.device().(rdma.Mourner); ok {
		m.Mourn(s.cards[peer].GID)
	}
	return true
}

// letterGone is the letter of a rank whose traffic with the other one has failed.
const letterGone = uint64(uses)

// lookEvery is how many calls of Progress there are to one look at the mail that is not
// thorough.
const lookEvery = 32

// Moves tells whether Progress has anything to do, ever.
func (s *Set) Moves() bool { return s.mail != nil || s.pool != nil }

// Progress handles the letters of peers, and tells whether there were any. Nothing in them
// is believed. thorough has it look at the mail in any case.
func (s *Set) Progress(thorough bool) (came bool) {
	if s.pool != nil {
		s.pool.Advance()
	}
	if s.mail == nil {
		return false
	}
	if s.looks++; s.looks%lookEvery == 0 || thorough {
		s.mail.Look()
	}
	for {
		peer, letter, ok := s.mail.Take()
		if !ok {
			return came
		}
		came = true
		switch {
		case s.peers[peer].cut:
			if letter.What != letterGone {
				s.mail.Send(peer, mail.Letter{What: letterGone})
			}
		case s.Maps(peer):
			_ = s.messages.Fail(peer, ErrDamaged)
		case letter.What == letterGone:
			_ = s.messages.Fail(peer, ErrGone)
		case s.messages.Meet(peer) == nil:
			s.Offered(peer, letter.What, letter.ID)
		}
	}
}

// Failed is the error of a peer that answers no letters.
func (s *Set) Failed(peer int) error {
	if s.mail == nil || s.Maps(peer) {
		return nil
	}
	return s.mail.Failed(peer)
}

// Probe asks a peer that is not connected for an answer, so that Failed tells if it is gone.
func (s *Set) Probe(peer int) {
	if s.mail != nil && !s.Maps(peer) {
		s.mail.Probe(peer)
	}
}
