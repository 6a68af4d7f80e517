package rank

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/group"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

// openPeers decides how the rank reaches the others: memory is mapped among ranks that share
// a segment, unless a device was named, which gets all the traffic then, or an adversary lets nobody see anything, and connections are
// made on demand where all are mapped or the device carries mail to the others.
func (w *World) openPeers(cfg *Config) (err error) {
	d := w.device
	pc := peers.Config{Rank: w.rank, Size: w.size, PD: d.PD, Port: d.Port, GID: d.GID, Dead: w.watch.dead, Lost: w.watch.lost}
	if _, ok := d.Context.(rdma.Mapper); ok && (len(cfg.Devices) == 0 || cfg.Offload) && !cfg.Verbs {
		pc.Maps = func(card *wireup.Card) bool { return !w.adversarial && w.place.maps(card) }
		pc.OnDemand = w.place.whole && !w.adversarial
	}
	if !pc.OnDemand && w.size > 1 && mail.Supported(d.Context) {
		pc.OnDemand, pc.Mail = true, true
	}
	w.peers, err = peers.Open(pc)
	return err
}

// connect has the rank meet the others. It reaches for each when that is first needed
// (peers.Set), where their memory is mapped or the device carries mail between them; else it
// makes queue pairs here, and connects them with those of all ranks. The collectives' are made
// here too in a small world whose program wants its data to go through the device (verbs).
func (w *World) connect(ctx context.Context, verbs bool) (err error) {
	messages := p2p.Config{Rank: w.rank, Size: w.size, PD: w.device.PD, Any: w.device.All, Waiter: w.waiter,
		Dead: w.watch.dead, Remote: w.watch.remote, Idle: &w.watch.sleeps, Peers: w.peers, Control: w.news.hear, Alone: cmp.Or(w.place.sharers, w.place.size) <= w.place.cpus, Progress: w.progressOthers}
	if !w.device.Port.Attr.OneSided { // the peer's process takes part in every way
		messages.Land = w.watch.remote
	}
	if w.adversarial && w.rank%2 == 1 {
		messages.OwnMost = -1 // so that the suites run over shared receives too
	}
	if w.messages, err = p2p.New(messages); err != nil {
		return err
	}
	if w.collective, err = w.peers.Collective(); err != nil {
		return err
	}
	early := verbs && w.size <= earlyMost && w.peers.HasMail() && !w.peers.Paths()
	for peer := range w.size {
		switch {
		case peer == w.rank:
		case early:
			err = w.peers.Begin(peer, peers.Collectives)
		case !w.peers.OnDemand():
			_, err = w.collective.Open(peer)
		}
		if err != nil {
			return err
		}
	}
	if w.mesh, err = coll.NewMesh(coll.MeshConfig{PD: w.device.PD, CQ: w.collective.CQ, Peers: w.collective}); err != nil {
		return err
	}
	everybody := group.All(w.size)
	c := &Comm{world: w, name: worldName, rank: w.rank, size: w.size, local: everybody, peers: everybody, members: everybody}
	w.makings.next = 2 // after the world's own and self
	w.makings.nextStarted = firstStarted
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

// earlyMost is the size of the largest world whose collectives are connected in Init where
// the program wants its data to go through the device. A connection on demand takes a rank and
// its peer three turns on a CPU and a letter for each; this takes one and a barrier for all.
const earlyMost = 16

// teamConfig describes the collectives' team of a communicator.
func (w *World) teamConfig(c *Comm, exchange func(context.Context, []byte) ([][]byte, error)) coll.TeamConfig {
	cfg := coll.TeamConfig{
		Rank: c.base + c.rank, Size: c.members.Size(), Host: cmp.Or(w.place.identity, w.place.host), Mesh: w.mesh, Waiter: w.waiter, ODP: w.device.All, Exchange: exchange,
		Progress: w.progress, Table: w.tuning, Offload: w.offload,
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
// intro of the world's team; the result are those of all.
func (w *World) meet(ctx context.Context, team []byte) ([][]byte, error) {
	own := wireup.Card{Host: w.place.host, Place: w.place.identity, Local: w.place.local, PID: os.Getpid(),
		Device: w.device.Name, Provider: w.device.Provider, Team: team}
	own.Control, own.ControlKey = w.messages.Control()
	w.peers.Show(&own, w.messages.Target())
	for peer := range w.size {
		if peer != w.rank && !w.peers.OnDemand() {
			own.Messages.Add(w.messages.QP(peer).Num())
		}
		if qp := w.collective.Queues[peer]; qp != nil {
			own.Collectives.Add(qp.Num())
		}
	}
	packed, err := w.launcher.AllGather(ctx, own.Pack())
	if err != nil {
		return nil, fmt.Errorf("exchange of addresses: %w", err)
	}
	if len(packed) != w.size {
		return nil, fmt.Errorf("exchange of addresses: got %d addresses in a job of %d ranks", len(packed), w.size)
	}
	cards, err := wireup.ParseCards(packed)
	if err != nil {
		return nil, err
	}
	teams, begun := make([][]byte, w.size), true
	for peer := range cards {
		card := &cards[peer]
		if err := w.check(peer, card); err != nil {
			return nil, err
		}
		teams[peer], begun = card.Team, begun && card.Collectives.Len() > 0
	}
	w.watch.learn(w.place, cards)
	w.peers.Learn(cards)
	if w.size > 1 && w.log != nil {
		defer func() { w.log(fmt.Sprintf("rank %d: %s", w.rank, w.way())) }()
	}
	if w.peers.OnDemand() {
		w.messages.Survey() // a rank that has shown its card is ready for whatever comes
		if !begun {         // all ranks see the same cards
			return teams, nil
		}
	}
	for peer := range cards {
		if peer == w.rank {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		card := &cards[peer]
		if err := w.connectPeer(peer, card); err != nil {
			return nil, fmt.Errorf("connect rank %d (host %s): %w", peer, card.Host, err)
		}
		// The rest of the card is needed once; a job has many.
		if card.Messages, card.Collectives = (wireup.Numbers{}), (wireup.Numbers{}); !w.peers.OnDemand() {
			card.Endpoint, card.Team = nil, nil
		}
	}
	// Nobody sends before all can receive.
	if err := w.launcher.Barrier(ctx); err != nil {
		return nil, fmt.Errorf("barrier after connecting: %w", err)
	}
	if w.peers.OnDemand() {
		w.peers.Up(peers.Collectives)
	}
	return teams, nil
}

// check refuses a card that does not fit this job.
func (w *World) check(peer int, card *wireup.Card) error {
	n, collectives := w.size-1, card.Collectives.Len()
	if w.peers.OnDemand() {
		if n = 0; collectives == w.size-1 { // it begins to connect them
			collectives = 0
		}
	}
	if card.Provider != w.device.Provider {
		return fmt.Errorf("rank %d (host %s) uses device %s (%s), which cannot connect to this rank's %s (%s)", peer, card.Host, card.Device, card.Provider, w.device.Name, w.device.Provider)
	}
	if card.Messages.Len() != n || collectives != n || (card.Mail != mail.Address{}) != w.peers.HasMail() {
		return fmt.Errorf("address of rank %d (host %s, device %s): %d and %d queue pairs and datagram queue pair %d, but this rank on %[8]s expects %[7]d of each, and datagrams: %[9]t",
			peer, card.Host, card.Device, card.Messages.Len(), card.Collectives.Len(), card.Mail.Number, n, w.device.Name, w.peers.HasMail())
	}
	return nil
}

func (w *World) connectPeer(peer int, card *wireup.Card) error {
	if !w.peers.OnDemand() {
		if err := w.peers.Connect(w.messages.QP(peer), peer, card.Messages.For(peer, w.rank)); err != nil {
			return err
		}
		if err := w.messages.Attach(peer); err != nil {
			return err
		}
	}
	return w.peers.Connect(w.collective.Queues[peer], peer, card.Collectives.For(peer, w.rank))
}
