package rank

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/internal/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

// A World is a rank's membership in its job, from [Init] to Finalize.
//
//	Init -> joined -> Finalize -> finalized
//	          |---> Abort: the job ends
type World struct {
	rank, size int
	log        func(string)
	launcher   launcher
	place      *place
	fabric     *fabric
	watch      *watch
	waiter     *wait.Waiter
	messages   *p2p.Engine
	mesh       *coll.Mesh
	cards      []wireup.Card
	regions    regions
	comm       *Comm
	device     string

	// busy is set while a call runs.
	busy  atomic.Bool
	final bool
	// context is the next communicator's, unless a member has used it.
	context uint32
	comms   []*Comm // open, the world's own first
	past    coll.Counters
}

// A launcher is who started the rank: a PMI server, Run, or nobody.
type launcher interface {
	wireup.Exchange
	// Abort ends the job; it does not return.
	Abort(code int, message string)
	// Finalize says that the rank is through.
	Finalize() error
	// Close gives up the connection, after Finalize or instead of it.
	Close() error
}

// Init joins the job that the environment names, as a rank of its own (MPI_Init).
// All ranks call it, once; it returns when they are connected.
func Init(ctx context.Context, cfg Config) (*World, error) {
	env, err := cfg.environment()
	if err != nil {
		return nil, &Error{Op: "init", Peer: -1, Err: err}
	}
	cfg.Environment = &env
	if err := FindDevices(cfg); err != nil {
		e := &Error{Op: "init", Peer: -1, Host: env.Host, Err: err}
		if env.PMI != nil {
			e.Rank = max(env.PMI.Rank, 0)
		}
		return nil, e
	}
	if env.PMI == nil {
		return join(ctx, cfg, alone{}, 0, 1, wait.Config{})
	}
	client, err := pmi.DialContext(ctx, *env.PMI)
	if err != nil {
		return nil, &Error{Op: "init", Rank: max(env.PMI.Rank, 0), Host: env.Host, Peer: -1, Err: err}
	}
	return join(ctx, cfg, served{client}, client.Rank(), client.Size(), wait.Config{})
}

// join makes the world. waiting says how the rank waits, as far as that does not
// follow from its place; the launcher is closed when join fails.
func join(ctx context.Context, cfg Config, l launcher, rank, size int, waiting wait.Config) (*World, error) {
	w := &World{rank: rank, size: size, log: cfg.Log, launcher: l}
	if w.log == nil {
		w.log = func(string) {}
	}
	if err := w.join(ctx, &cfg, waiting); err != nil {
		host := ""
		if w.place != nil {
			host = w.place.host
		}
		w.close()
		_ = l.Close()
		return nil, &Error{Op: "init", Rank: rank, Host: host, Peer: -1, Err: err}
	}
	return w, nil
}

func (w *World) join(ctx context.Context, cfg *Config, waiting wait.Config) (err error) {
	names, err := softNames(*cfg)
	if err != nil {
		return err
	}
	if p := cfg.place; p != nil {
		w.place = p
	} else if w.place, err = findPlace(ctx, cfg.Environment, w.launcher, w.rank, w.size); err != nil {
		return err
	}
	if w.fabric, err = openFabric(cfg, names, w.place, w.rank, w.size); err != nil {
		return err
	}
	w.device = w.fabric.context.Device().Name()
	w.watch = &watch{peers: make([]local, w.size)}
	if s, ok := w.fabric.context.(rdma.Sleeper); ok {
		w.watch.sleeper = s
	}
	waiting.Sleeper = w.watch
	waiting.Oversubscribed = waiting.Oversubscribed || w.place.size > w.place.cpus
	w.waiter = wait.New(waiting)
	w.log(fmt.Sprintf("rank %d of %d on host %s, %d of %d there, %d CPUs, device %s (%s)",
		w.rank, w.size, w.place.host, w.place.local, w.place.size, w.place.cpus, w.device, w.fabric.provider))
	return w.connect(ctx)
}

// connect makes the queue pairs and connects them with those of all ranks.
func (w *World) connect(ctx context.Context) (err error) {
	w.messages, err = p2p.New(p2p.Config{Rank: w.rank, Size: w.size, PD: w.fabric.pd, Any: w.fabric.all, Waiter: w.waiter,
		Dead: w.watch.dead, Remote: w.watch.remote, Idle: &w.watch.sleeps})
	if err != nil {
		return err
	}
	if err := w.fabric.openQueues(w.rank, w.size); err != nil {
		return err
	}
	if w.mesh, err = coll.NewMesh(coll.MeshConfig{PD: w.fabric.pd, CQ: w.fabric.cq, QPs: w.fabric.queues}); err != nil {
		return err
	}
	c := &Comm{world: w, name: worldName, rank: w.rank, size: w.size, context: 0}
	w.context = 1
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
	return nil
}

// teamConfig describes the collectives' team of a communicator.
func (w *World) teamConfig(c *Comm, exchange func(context.Context, []byte) ([][]byte, error)) coll.TeamConfig {
	cfg := coll.TeamConfig{
		Rank: c.rank, Size: c.size, Mesh: w.mesh, Waiter: w.waiter, ODP: w.fabric.all, Exchange: exchange,
		Progress: func() { w.messages.Progress() },
		PeerDead: func(member int) bool { return w.messages.Check(c.worldRank(member)) != nil },
	}
	if c.ranks != nil {
		cfg.Members = make([]int, c.size)
		for i, r := range c.ranks {
			cfg.Members[i] = int(r)
		}
	}
	if c.size > 64 {
		// Every member keeps a ring for every other one.
		cfg.EagerBytes = 512
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
	for peer := range w.size {
		if peer != w.rank {
			own.Messages.Add(w.messages.QP(peer).Num())
			own.Collectives.Add(f.queues[peer].Num())
		}
	}
	packed, err := w.launcher.AllGather(ctx, own.Append(nil))
	if err != nil {
		return nil, fmt.Errorf("exchange of cards: %w", err)
	}
	if len(packed) != w.size {
		return nil, fmt.Errorf("exchange of cards: %d cards in a job of %d ranks", len(packed), w.size)
	}
	w.cards = make([]wireup.Card, w.size)
	teams := make([][]byte, w.size)
	for peer, b := range packed {
		card := &w.cards[peer]
		if *card, err = wireup.ParseCard(b); err != nil {
			return nil, fmt.Errorf("card of rank %d: %w", peer, err)
		}
		if err := w.check(peer, card); err != nil {
			return nil, err
		}
		teams[peer] = card.Team
	}
	w.watch.learn(w.place, w.cards)
	for peer := range w.cards {
		if peer == w.rank {
			continue
		}
		card := &w.cards[peer]
		if err := w.connectPeer(ctx, peer, card); err != nil {
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
	if n := w.size - 1; card.Messages.Len() != n || card.Collectives.Len() != n {
		return fmt.Errorf("card of rank %d (host %s): %d and %d queue pairs, %d of each are expected", peer, card.Host, card.Messages.Len(), card.Collectives.Len(), n)
	}
	if card.Provider != w.fabric.provider {
		return fmt.Errorf("rank %d (host %s) uses device %s (%s), which cannot talk to %s (%s) here", peer, card.Host, card.Device, card.Provider, w.device, w.fabric.provider)
	}
	return nil
}

func (w *World) connectPeer(ctx context.Context, peer int, card *wireup.Card) error {
	if err := w.fabric.addEndpoint(ctx, card); err != nil {
		return err
	}
	if err := wireup.Connect(w.messages.QP(peer), w.fabric.port, card, card.Messages.For(peer, w.rank)); err != nil {
		return err
	}
	w.messages.Attach(peer, card.Control, card.ControlKey)
	return wireup.Connect(w.fabric.queues[peer], w.fabric.port, card, card.Collectives.For(peer, w.rank))
}

// Comm is the communicator of all ranks (MPI_COMM_WORLD).
func (w *World) Comm() *Comm { return w.comm }

// Host is the name of the rank's host.
func (w *World) Host() string { return w.place.host }

// HostOf is the name of a rank's host.
func (w *World) HostOf(rank int) string { return w.cards[rank].Host }

// LocalRank is the rank's number among those that share its host's memory.
func (w *World) LocalRank() int { return w.place.local }

// LocalSize is how many ranks share the host's memory.
func (w *World) LocalSize() int { return w.place.size }

// DeviceInfo names a device.
type DeviceInfo struct {
	Name     string // "soft0"
	Provider string // "soft"
	// OneSided: a peer's memory is reached without the peer's help.
	OneSided bool
}

// Device is the device that the rank uses.
func (w *World) Device() DeviceInfo {
	return DeviceInfo{Name: w.device, Provider: w.fabric.provider, OneSided: w.fabric.port.Attr.OneSided}
}

// Counters count what a rank did since Init.
type Counters struct {
	Device     rdma.Counters // all work requests, messages and collectives alike
	Collective coll.Counters // of all communicators, freed ones too
}

// Counters reads the counters. After Finalize they are zero.
func (w *World) Counters() Counters {
	if w.final {
		return Counters{}
	}
	n := Counters{Device: w.fabric.context.Counters(), Collective: w.past}
	for _, c := range w.comms {
		add(&n.Collective, c.team.Counters())
	}
	return n
}

func add(sum *coll.Counters, n coll.Counters) {
	sum.Calls += n.Calls
	sum.Puts += n.Puts
	sum.PutBytes += n.PutBytes
	sum.Signals += n.Signals
	sum.Descriptors += n.Descriptors
	sum.Credits += n.Credits
	sum.Copies += n.Copies
	sum.CopyBytes += n.CopyBytes
	sum.Unpacks += n.Unpacks
	sum.UnpackBytes += n.UnpackBytes
	sum.Reductions += n.Reductions
	sum.ReduceBytes += n.ReduceBytes
}

// enter begins a call; leave ends it.
func (w *World) enter() error {
	if !w.busy.CompareAndSwap(false, true) {
		return ErrConcurrent
	}
	if w.final {
		w.busy.Store(false)
		return ErrFinalized
	}
	return nil
}

func (w *World) leave() { w.busy.Store(false) }

// Finalize leaves the job (MPI_Finalize): it waits until all ranks have called
// it, and gives everything back. All ranks call it, when all their calls have
// returned; messages that were sent and never received are lost. Memory from
// Alloc is gone afterwards, also when Finalize fails.
func (w *World) Finalize(ctx context.Context) error {
	if err := w.enter(); err != nil {
		return w.comm.fail("finalize", -1, err)
	}
	defer w.leave()
	w.final = true
	var errs []error
	// What is under way must arrive before this process stops serving it.
	if err := w.messages.Drain(ctx); err != nil {
		errs = append(errs, err)
	} else if err := w.launcher.Barrier(ctx); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, w.close(), w.launcher.Finalize(), w.launcher.Close())
	} else {
		// Peers may be anywhere: the launcher learns from the closed
		// connection that this rank did not end well.
		_ = w.close()
		_ = w.launcher.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return w.comm.fail("finalize", -1, err)
	}
	return nil
}

// close gives everything back in the reverse order of join.
func (w *World) close() error {
	var errs []error
	for i := len(w.comms) - 1; i >= 0; i-- {
		errs = append(errs, w.comms[i].team.Close())
	}
	w.comms = nil
	if w.fabric != nil {
		errs = append(errs, w.fabric.closeQueues())
	}
	if w.mesh != nil {
		errs = append(errs, w.mesh.Close())
	}
	if w.messages != nil {
		errs = append(errs, w.messages.Close())
	}
	for _, r := range w.regions.list {
		errs = append(errs, r.mr.Close())
	}
	w.regions = regions{}
	if w.fabric != nil {
		errs = append(errs, w.fabric.close())
	}
	if w.place != nil {
		errs = append(errs, w.place.close())
	}
	return errors.Join(errs...)
}

// Abort ends the job with an exit code (MPI_Abort), and this process with it: it
// does not return. Code 0 counts as 1, for a job that is aborted has failed.
func (w *World) Abort(code int, message string) {
	if code == 0 {
		code = 1
	}
	w.launcher.Abort(code, message)
}

// alloc is Alloc in bytes.
func (w *World) alloc(n, size int) ([]byte, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer w.leave()
	if n > (math.MaxInt-cacheLine)/size {
		return nil, badArgument("too large")
	}
	const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
	// Not less than a line, so that an empty slice has an address of its own.
	mr, err := w.fabric.pd.AllocMR(max(n*size, cacheLine), access)
	if err != nil {
		return nil, err
	}
	w.regions.add(mr)
	return mr.Bytes()[:n*size], nil
}

const cacheLine = 64

// free is Free in bytes.
func (w *World) free(mem []byte) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	mr := w.regions.remove(address(mem))
	if mr == nil {
		return badArgument("this memory does not come from Alloc, or is free already")
	}
	return mr.Close()
}
