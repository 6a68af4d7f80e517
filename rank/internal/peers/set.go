// Package peers is a rank's way to its peers: the [Device], what their cards say, their mapped
// memory, and the queue pairs towards them, which are made when they are first needed. Messages,
// collectives and windows stand on one [Set]. Read this file first, then connect.go; device.go
// opens the device, and collective.go has the queue pairs of collectives.
//
//	OpenDevice -> Open -> Show (the own card) -> Learn (those of all) -> Memory, Queue, Half, Connect -> Close
//
// A peer is unmet until it is reached for: by Memory, Connect or Queue, here or there. Then
// its endpoint is known to the device, and its memory is mapped where that can be.
//
// A Set belongs to its rank's goroutine. Only what dc and mail call back may come from
// others: the endpoint of a peer, under a lock.
//
//	peers/wireup  cards, and the states that queue pairs pass through
//	peers/mail    letters between ranks that do not map each other
//	peers/dc      paths: many connections over a few dynamically connected initiators
package peers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

// Config describes a Set.
type Config struct {
	Rank, Size int
	PD         rdma.PD
	Port       wireup.Port
	GID        rdma.GID
	// Maps tells whether the memory of the rank with a card can be mapped; nil: of no rank.
	Maps func(card *wireup.Card) bool
	// OnDemand has connections made when they are first needed, which takes Mail where a
	// peer is not mapped. Otherwise the caller connects the queue pairs of all peers.
	OnDemand, Mail bool
	// Dead tells whether a peer is known to have died, cheaply; nil: never.
	Dead func(peer int) error
	// Lost tells whether the launcher has said that a peer on another host has died, on any goroutine; nil: never.
	Lost func(peer int) bool
}

// A Set is a rank's peers. The zero Set is that of a rank alone.
type Set struct {
	cfg    Config
	cards  []wireup.Card
	memory []rdma.PeerMemory // of the peers that are reached for; nil: no peer is mapped
	peers  []peer
	mail   *mail.Office // nil: no letters
	looks  uint32       // at the mail

	pool      *dc.Pool // nil: no paths
	targetKey uint64   // the access key of the target that paths lead to

	messages Traffic
	makers   [uses]func(peer int) (rdma.QP, error)

	adding sync.Mutex // one endpoint is added at a time
}

// peer is what the Set keeps of one.
type peer struct {
	pairs *[uses]pair // on demand, nil: none
	met   bool
	cut   bool
}

// Open makes the Set of a rank, whose peers are not known yet.
func Open(cfg Config) (s *Set, err error) {
	s = &Set{cfg: cfg, peers: make([]peer, cfg.Size)}
	if cfg.Maps != nil {
		s.memory = make([]rdma.PeerMemory, cfg.Size)
	}
	if cfg.Mail {
		s.mail, err = mail.Open(cfg.PD, cfg.Rank, cfg.Size, cfg.Lost)
	}
	return s, err
}

// UsePaths has paths take the place of queue pairs, to the peers that have a target too.
func (s *Set) UsePaths() (err error) {
	s.targetKey = rand.Uint64()
	s.pool, err = dc.New(dc.Config{PD: s.cfg.PD, Port: s.cfg.Port, Inline: collectiveInline, Find: func(peer int) (rdma.AV, wireup.Target, error) {
		_, err := s.Memory(peer)
		card := &s.cards[peer]
		return wireup.AVOf(card), card.Target, err
	}})
	return err
}

// Show fills in what peers need of this rank: where the device is, its mail, its target.
func (s *Set) Show(card *wireup.Card, target rdma.QP) {
	card.GID, card.MTU = s.cfg.GID, s.cfg.Port.MTU
	if e, ok := s.device().(rdma.Endpointer); ok {
		card.Endpoint = e.Endpoint()
	}
	if s.mail != nil {
		card.Mail = s.mail.Address()
	}
	if target != nil {
		card.Target = wireup.Target{Number: target.Num(), Key: s.targetKey}
	}
}

// Learn takes in the cards of all ranks. From then on peers are reached for.
func (s *Set) Learn(cards []wireup.Card) {
	s.cards = cards
	if s.mail != nil {
		s.mail.Start(s.mailPort)
	}
}

// Size is how many ranks there are.
func (s *Set) Size() int { return s.cfg.Size }

// Card is that of a rank.
func (s *Set) Card(rank int) *wireup.Card { return &s.cards[rank] }

// OnDemand tells whether connections are made when they are first needed.
func (s *Set) OnDemand() bool { return s.cfg.OnDemand }

// HasMail tells whether there are letters to peers.
func (s *Set) HasMail() bool { return s.mail != nil }

// Mapping tells whether memory of peers can be mapped at all.
func (s *Set) Mapping() bool { return s.memory != nil }

// Maps tells whether a peer's memory is mapped, or will be when it is reached for.
func (s *Set) Maps(peer int) bool { return s.memory != nil && s.cfg.Maps(&s.cards[peer]) }

// Met tells whether a peer was reached for.
func (s *Set) Met(peer int) bool { return s.peers[peer].met }

func (s *Set) device() rdma.Context { return s.cfg.PD.Context() }

// Memory reaches for a rank, and gives its memory, nil where that is not mapped.
func (s *Set) Memory(rank int) (rdma.PeerMemory, error) {
	if s.memory != nil && s.memory[rank] != nil {
		return s.memory[rank], nil
	}
	card := &s.cards[rank]
	if rank == s.cfg.Rank {
		// Where peers are not mapped the own memory is not either: then the device alone
		// orders the accesses to it. Neither is it beside an adversary.
		if s.memory != nil {
			if own, err := s.device().(rdma.Mapper).Peer(s.cfg.GID); err == nil {
				return own, nil
			}
		}
		return nil, s.addEndpoint(card)
	}
	s.peers[rank].met = true
	if err := s.addEndpoint(card); err != nil || !s.Maps(rank) {
		return nil, err
	}
	mapped, err := s.device().(rdma.Mapper).Peer(card.GID)
	if err == nil {
		s.memory[rank], card.Endpoint = mapped, nil
	}
	return mapped, err
}

// addEndpoint passes on to the device what a peer's endpoint said.
func (s *Set) addEndpoint(card *wireup.Card) error {
	e, ok := s.device().(rdma.Endpointer)
	if !ok {
		return nil
	}
	s.adding.Lock()
	defer s.adding.Unlock()
	return e.AddEndpoint(card.GID, card.Endpoint)
}

// mailPort is where a peer's mail goes. Other goroutines ask it too, about peers whose
// cards do not change any more.
func (s *Set) mailPort(peer int) (mail.Port, error) {
	card := &s.cards[peer]
	if s.Maps(peer) {
		return mail.Port{}, fmt.Errorf("rank %d (host %s) sent a datagram, expected only messages through the memory that it shares", peer, card.Host)
	}
	return wireup.MailPort(card), s.addEndpoint(card)
}

// Connect takes a queue pair in INIT to RTS with a peer's of that number.
func (s *Set) Connect(qp rdma.QP, peer int, number uint32) error {
	if _, err := s.Memory(peer); err != nil {
		return err
	}
	return wireup.Connect(qp, s.cfg.Port, &s.cards[peer], number)
}

// Create makes a queue pair in INIT that lets a peer access memory.
func (s *Set) Create(attr rdma.QPInitAttr, access rdma.Access) (rdma.QP, error) {
	qp, err := s.cfg.PD.CreateQP(attr)
	if err != nil {
		return nil, err
	}
	if err := Initialise(qp, access); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return qp, nil
}

// Initialise takes a queue pair from RESET to INIT.
func Initialise(qp rdma.QP, access rdma.Access) error {
	return qp.Modify(rdma.QPAttr{State: rdma.StateInit, PortNum: 1, AccessFlags: access},
		rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPAccessFlagsMask)
}

// Half makes the own half of a connection with a peer: a queue pair in INIT, or a path,
// which needs no other half. Completions of paths come to in, which CQ has made of attr's.
func (s *Set) Half(peer int, attr rdma.QPInitAttr, access rdma.Access, in rdma.CQ) (qp rdma.QP, path bool, err error) {
	what := "queue pair"
	if path = s.IsPath(peer); path {
		what = "path"
		qp, err = s.Path(peer, in, attr.Cap.MaxSendWR)
	} else {
		qp, err = s.Create(attr, access)
	}
	if err != nil {
		return nil, path, fmt.Errorf("%s for rank %d: %w", what, peer, err)
	}
	return qp, path, nil
}

// Paths tells whether paths may take the place of queue pairs.
func (s *Set) Paths() bool { return s.pool != nil }

// IsPath tells whether they do with a peer: both have a target then.
func (s *Set) IsPath(peer int) bool { return s.pool != nil && s.cards[peer].Target.Number != 0 }

// Path makes a path to a peer.
func (s *Set) Path(peer int, in rdma.CQ, depth int) (rdma.QP, error) {
	path, err := s.pool.Path(peer, in.(*dc.CQ), depth)
	if err != nil {
		return nil, err
	}
	return path, nil
}

// CQ gives a completion queue to which the completions of paths come too.
func (s *Set) CQ(cq rdma.CQ) rdma.CQ {
	if s.pool == nil || cq == nil {
		return cq
	}
	return s.pool.CQ(cq)
}

// Target makes the queue pair that paths of peers lead to.
func (s *Set) Target(srq rdma.SRQ, cq rdma.CQ) (rdma.QP, error) {
	return dc.Target(s.cfg.PD, s.cfg.Port, s.cfg.GID, srq, cq, s.targetKey)
}

// Initiators are the queue pairs that paths go over.
func (s *Set) Initiators() []rdma.QP {
	if s.pool == nil {
		return nil
	}
	return s.pool.Queues()
}

// MailCounts are those of the letters.
func (s *Set) MailCounts() (n mail.Counts) {
	if s.mail != nil {
		n = s.mail.Counts()
	}
	return n
}

// CloseMail ends the letters; Close gives the rest back, when all queue pairs and paths are
// closed.
func (s *Set) CloseMail() error {
	if s.mail == nil {
		return nil
	}
	return s.mail.Close()
}

// Close gives back what paths need.
func (s *Set) Close() error {
	if s.pool == nil {
		return nil
	}
	err := s.pool.Close()
	s.pool = nil
	return err
}
