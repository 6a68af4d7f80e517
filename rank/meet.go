package rank

import (
	"context"
	"fmt"
	"math"
	"os"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/group"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

// connect has the rank meet the others. It reaches for each when that is first needed
// (dialer), where their memory is mapped or the device carries mail between them; else it
// makes queue pairs here, and connects them with those of all ranks.
func (w *World) connect(ctx context.Context) (err error) {
	messages := p2p.Config{Rank: w.rank, Size: w.size, PD: w.fabric.pd, Any: w.fabric.all, Waiter: w.waiter,
		Dead: w.watch.dead, Remote: w.watch.remote, Idle: &w.watch.sleeps, Peers: w.peers, Alone: w.place.size <= w.place.cpus, Progress: w.progressOthers}
	if w.onDemand {
		messages.Contact, messages.Connect, messages.Queue, messages.Mail = w.contact, w.connectQueue, w.openQueue, w.mail
	}
	if w.fabric.dynamic != nil {
		messages.Dynamic, messages.Reaches, messages.Answers = w.fabric.dynamic, w.isDynamic, w.answer
	}
	if w.adversarial && w.rank%2 == 1 {
		messages.OwnMost = -1 // so that the suites run over shared receives too
	}
	if w.messages, err = p2p.New(messages); err != nil {
		return err
	}
	if err := w.fabric.openCQ(w.size); err != nil {
		return err
	}
	mesh := coll.MeshConfig{PD: w.fabric.pd, CQ: w.fabric.in, Peers: w.peers}
	if w.onDemand {
		mesh.OnDemand = (*dialer)(w)
	} else {
		for peer := range w.size {
			if peer == w.rank {
				continue
			}
			if _, err := w.fabric.openQueue(peer); err != nil {
				return err
			}
		}
		mesh.QPs = w.fabric.queues
	}
	if w.mesh, err = coll.NewMesh(mesh); err != nil {
		return err
	}
	everybody := group.All(w.size)
	c := &Comm{world: w, name: worldName, rank: w.rank, size: w.size, local: everybody, peers: everybody, members: everybody}
	w.context = 2 // after the world's own and self
	w.startedContext = firstStarted
	exchanged := false
	exchange := func(ctx context.Context, mine []byte) ([][]byte, error) {
		exchanged = true
		return w.meet(ctx, mine)
	}
	if c.team, err = coll.NewTeam(ctx, w.teamConfig(c, exchange)); err != nil {
		return err
	}
	if !exchanged { // a team of one has nothing to exchange
		if _, err := w.meet(ctx, nil); err != nil {
			return err
		}
	}
	w.comm = c
	w.comms = append(w.comms, c)
	alone, err := w.Group().Incl([]int{w.rank})
	if err != nil {
		return err
	}
	w.self = c.child("self", 1, alone.set, nil)
	if w.self.team, err = coll.NewTeam(ctx, w.teamConfig(w.self, nil)); err != nil {
		return err
	}
	w.comms = append(w.comms, w.self)
	return nil
}

// earlyMost is the size of the largest world whose ranks begin to connect in Init.
const earlyMost = 16

// offerEarly begins to connect with all ranks that are not mapped, where these are few
// and the program wants its data to go through the device: the first collective finds most
// of it done. A connection takes a rank and its peer three turns on a CPU, and where other
// programs keep the CPUs busy each turn is waited for.
func (w *World) offerEarly() {
	if w.mail == nil || w.size > earlyMost {
		return
	}
	for peer := range w.size {
		if peer != w.rank && !w.maps(peer) {
			_, _ = w.messages.Queue(peer, p2p.Collectives) // an error shows when it is needed
		}
	}
}

// teamConfig describes the collectives' team of a communicator.
func (w *World) teamConfig(c *Comm, exchange func(context.Context, []byte) ([][]byte, error)) coll.TeamConfig {
	cfg := coll.TeamConfig{
		Rank: c.base + c.rank, Size: c.members.Size(), Mesh: w.mesh, Waiter: w.waiter, ODP: w.fabric.all, Exchange: exchange,
		Progress: w.progress, Table: w.tuning,
		PeerDead: func(member int) bool { return w.messages.Check(c.members.Rank(member)) != nil },
	}
	if c.members.Ranks() != nil {
		cfg.Members = make([]int, cfg.Size)
		for i := range cfg.Members {
			cfg.Members[i] = c.members.Rank(i)
		}
	}
	return cfg
}

// meet shows the rank's card to all others and connects with them. team is the
// card of the world's team; the result are those of all.
func (w *World) meet(ctx context.Context, team []byte) ([][]byte, error) {
	f := w.fabric
	own := wireup.Card{Host: w.place.host, Place: w.place.identity, Local: w.place.local, PID: os.Getpid(),
		Device: w.device, Provider: f.provider, GID: f.gid, Endpoint: f.endpoint(), MTU: f.port.MTU, Team: team}
	own.Control, own.ControlKey = w.messages.Control()
	if w.mail != nil {
		own.Mail = w.mail.Address()
	}
	if t := w.messages.Target(); t != nil {
		own.Target = wireup.Target{Number: t.Num(), Key: w.targetKey}
	}
	for peer := range w.size {
		if peer != w.rank && !w.onDemand {
			own.Messages.Add(w.messages.QP(peer).Num())
			own.Collectives.Add(f.queues[peer].Num())
		}
	}
	packed, err := w.launcher.AllGather(ctx, own.Pack())
	if err != nil {
		return nil, fmt.Errorf("exchange of cards: %w", err)
	}
	if len(packed) != w.size {
		return nil, fmt.Errorf("exchange of cards: %d cards in a job of %d ranks", len(packed), w.size)
	}
	if w.cards, err = wireup.ParseCards(packed); err != nil {
		return nil, err
	}
	teams := make([][]byte, w.size)
	for peer := range w.cards {
		card := &w.cards[peer]
		if err := w.check(peer, card); err != nil {
			return nil, err
		}
		teams[peer] = card.Team
	}
	w.watch.learn(w.place, w.cards)
	if w.size > 1 && w.log != nil {
		defer func() { w.log(fmt.Sprintf("rank %d: %s", w.rank, w.way())) }()
	}
	if w.onDemand {
		// Who has shown its card is ready for whatever comes.
		if w.mail != nil {
			w.messages.Survey(w.maps)
			w.mail.Start(w.mailPort)
		}
		return teams, nil
	}
	for peer := range w.cards {
		if peer == w.rank {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		card := &w.cards[peer]
		if err := w.connectPeer(peer, card); err != nil {
			return nil, fmt.Errorf("connect rank %d (host %s): %w", peer, card.Host, err)
		}
		// The rest of the card is needed once; a job has many.
		card.Endpoint, card.Team, card.Messages, card.Collectives = nil, nil, wireup.Numbers{}, wireup.Numbers{}
	}
	// Nobody sends before all can receive.
	if err := w.launcher.Barrier(ctx); err != nil {
		return nil, fmt.Errorf("barrier after connecting: %w", err)
	}
	return teams, nil
}

// check refuses a card that does not fit this job.
func (w *World) check(peer int, card *wireup.Card) error {
	n := w.size - 1
	if w.onDemand {
		n = 0
	}
	if card.Provider != w.fabric.provider {
		return fmt.Errorf("rank %d (host %s) uses device %s (%s), which cannot talk to %s (%s) here", peer, card.Host, card.Device, card.Provider, w.device, w.fabric.provider)
	}
	if card.Messages.Len() != n || card.Collectives.Len() != n || (card.Mail != mail.Address{}) != (w.mail != nil) {
		return fmt.Errorf("card of rank %d (host %s, device %s): it has %d and %d queue pairs and takes mail at %d, and %d of each are expected here on %s, and mail: %t",
			peer, card.Host, card.Device, card.Messages.Len(), card.Collectives.Len(), card.Mail.Number, n, w.device, w.mail != nil)
	}
	return nil
}

func (w *World) connectPeer(peer int, card *wireup.Card) error {
	if _, err := w.reach(peer); err != nil {
		return err
	}
	if err := wireup.Connect(w.messages.QP(peer), w.fabric.port, card, card.Messages.For(peer, w.rank)); err != nil {
		return err
	}
	if err := w.messages.Attach(peer, card.Control, card.ControlKey); err != nil {
		return err
	}
	return wireup.Connect(w.fabric.queues[peer], w.fabric.port, card, card.Collectives.For(peer, w.rank))
}

// reach makes a peer's endpoint known, and gives its memory where that can be mapped and
// the rank wants it: a device that was named gets all the traffic.
func (w *World) reach(peer int) (rdma.PeerMemory, error) {
	if w.peers != nil && w.peers[peer] != nil {
		return w.peers[peer], nil
	}
	card := &w.cards[peer]
	if err := w.fabric.addEndpoint(card); err != nil || !w.maps(peer) {
		return nil, err
	}
	mapped, err := w.fabric.context.(rdma.Mapper).Peer(card.GID)
	if err == nil {
		w.peers[peer], card.Endpoint = mapped, nil
	}
	return mapped, err
}

// maps tells whether a peer's memory is mapped, or will be on demand: ranks that share a
// segment see each other, and an adversary lets nobody see anything.
func (w *World) maps(peer int) bool {
	return w.peers != nil && !w.adversarial && w.place.segment != nil && w.cards[peer].Place == w.place.identity && w.cards[peer].Local < w.place.segment.Ranks()
}

// mailPort is where a peer's mail goes. Other goroutines ask it too, about peers whose
// cards do not change any more.
func (w *World) mailPort(peer int) (mail.Port, error) {
	card := &w.cards[peer]
	if w.maps(peer) {
		return mail.Port{}, fmt.Errorf("rank %d (host %s) sends mail though it shares memory", peer, card.Host)
	}
	return wireup.MailPort(card), w.fabric.addEndpoint(card)
}

// contact gets messages ready for a peer, on demand.
func (w *World) contact(peer int) error {
	if _, err := w.reach(peer); err != nil {
		return err
	}
	return w.messages.Attach(peer, w.cards[peer].Control, w.cards[peer].ControlKey)
}

// connectQueue connects a queue pair with a peer's of that number, on demand.
func (w *World) connectQueue(peer int, qp rdma.QP, number uint32) error {
	if _, err := w.reach(peer); err != nil {
		return err
	}
	return wireup.Connect(qp, w.fabric.port, &w.cards[peer], number)
}

// A dialer is a world that reaches for its ranks on demand, as its collectives see it.
type dialer World

var _ coll.Dialer = (*dialer)(nil)

func (d *dialer) Size() int                                { return d.size }
func (d *dialer) Maps(peer int) bool                       { return (*World)(d).maps(peer) }
func (d *dialer) Memory(peer int) (rdma.PeerMemory, error) { return (*World)(d).reach(peer) }
func (d *dialer) Queue(peer int) (rdma.QP, error)          { return d.messages.Queue(peer, p2p.Collectives) }

func (d *dialer) Inline() int {
	if d.mail == nil {
		return math.MaxInt
	}
	return d.fabric.inline()
}
