package rank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rank/internal/agree"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

// A World is a rank's membership in its job, from [Init] to [World.Finalize].
//
//	Init -> joined -> Finalize -> finalized
//	          |---> Abort: the job ends
type World struct {
	rank, size  int
	log         func(string) // nil: silent
	launcher    launcher
	tuning      *coll.Table // nil: built in
	place       *place
	device      *peers.Device
	collective  *peers.Collective
	watch       *watch
	waiter      *wait.Waiter
	messages    *p2p.Engine
	mesh        *coll.Mesh
	regions     regions
	elements    elements
	comm        *Comm
	self        *Comm
	peers       *peers.Set
	adversarial bool

	final  bool
	inside inside
	// offload is the way to the host's daemon, nil without one.
	offload *coll.Offload
	// beside is the progress thread, nil without one.
	beside *beside
	// turns excludes the program's calls from each other, where they may come at the same
	// time; nil: a second one is an error.
	turns       *turns
	makings     makings
	comms       []*Comm // open, the world's own first
	past        coll.Counters
	collectives collectives

	narrator   *narrator       // nil: silent
	recorder   *calls.Recorder // nil: nobody wants to know where time goes
	packings   packings
	sendBuffer SendBuffer
	// partitions is the next tag of a send in partitions.
	partitions int
	continuous bool      // the job goes on when a rank fails
	leaving    time.Time // since when leaveSurvivors waits

	windows  windows
	news     news
	requests requests
	traffic  traffic
	looks    looks
}

// inside says who is inside: the calls of the program and the progress thread exclude
// each other. The thread looks at it often, so it has a cache line of its own.
type inside struct {
	_  [arch.CacheLine]byte
	by uint32 // busyNot, busyCall, busyThread
	_  [arch.CacheLine - 4]byte
}

// A launcher is what started the rank: a PMI server, Run, or nothing.
type launcher interface {
	wireup.Exchange
	// Abort ends the job; it does not return.
	Abort(code int, message string)
	// Finalize says that the rank is through.
	Finalize() error
	// Close gives up the connection, after Finalize or instead of it.
	Close() error
}

// Init joins the job that the environment describes (MPI_Init). All ranks call it once, and
// it returns when all have. A process without a launcher is a world of one rank. If another
// launcher has started the process as one of several, but serves no PMI-1, Init fails, unless
// the process is the child of a rank of another MPI or GORUN_ALONE=1 is in the environment.
func Init(ctx context.Context, cfg Config) (*World, error) {
	env, err := cfg.environment()
	if err != nil {
		return nil, &Error{Op: "init", Peer: -1, Err: err}
	}
	cfg.Environment = &env
	if err = cfg.checkSecure(); err == nil {
		cfg.Tuning, err = cfg.tuning(&env)
	}
	if err == nil {
		err = FindDevices(cfg)
	}
	if err != nil {
		e := &Error{Op: "init", Peer: -1, Host: env.Host, Err: err}
		if env.PMI != nil {
			e.Rank = max(env.PMI.Rank, 0)
		}
		return nil, e
	}
	if env.PMI == nil && env.Foreign != "" && !childOfRank() {
		return nil, &Error{Op: "init", Peer: -1, Host: env.Host, Err: errors.New(env.Foreign)}
	}
	if env.PMI == nil {
		return join(ctx, cfg, alone{}, 0, 1, wait.Config{})
	}
	client, err := pmi.DialContext(ctx, env.Server())
	if err != nil {
		return nil, &Error{Op: "init", Rank: max(env.PMI.Rank, 0), Host: env.Host, Peer: -1, Err: err}
	}
	return join(ctx, cfg, served{client}, client.Rank(), client.Size(), wait.Config{})
}

// join makes the world. waiting says how the rank waits, as far as that does not
// follow from its place; the launcher is closed when join fails.
func join(ctx context.Context, cfg Config, l launcher, rank, size int, waiting wait.Config) (*World, error) {
	w := &World{rank: rank, size: size, log: cfg.Log, launcher: l, tuning: cfg.Tuning, continuous: cfg.Environment.Continuous}
	if err := w.join(ctx, &cfg, waiting); err != nil {
		host := ""
		if w.place != nil {
			host = w.place.host
		}
		_ = w.close()
		_ = l.Close()
		return nil, &Error{Op: "init", Rank: rank, Host: host, Peer: -1, Err: err}
	}
	return w, nil
}

func (w *World) join(ctx context.Context, cfg *Config, waiting wait.Config) (err error) {
	w.recorder = newRecord(cfg, w.rank, w.size)
	if p := cfg.place; p != nil {
		w.place = p
	} else if w.place, err = findPlace(ctx, cfg.Environment, w.launcher, w.rank, w.size); err != nil {
		return err
	}
	if j, ok := w.launcher.(joined); ok {
		w.place.secret = j.Secret(w.place.secret)
		if j.listed && w.place.why != "" {
			w.place.why = "that is its address in the list of members"
		}
	}
	waiting.Scheduler = waiting.Scheduler || w.place.together
	if w.device, err = openDevice(cfg, w.place, w.rank, w.size); err != nil {
		return err
	}
	w.adversarial = cfg.adversary != 0
	w.watch = &watch{peers: make([]local, w.size)}
	if err = w.openPeers(cfg); err != nil {
		return err
	}
	transport, err := w.chooseTransport(cfg)
	if err != nil {
		return err
	}
	if s, ok := w.device.Context.(rdma.Sleeper); ok {
		w.watch.sleeper = s
	}
	if cfg.Concurrent {
		w.turns, waiting.SleepMost = newTurns(w, cfg.Turn)
		waiting.Turns = w.turns
	}
	waiting.Sleeper = w.watch
	waiting.CPU = w.place.seat
	waiting.Oversubscribed = waiting.Oversubscribed || cmp.Or(w.place.sharers, w.place.size) > w.place.cpus
	w.waiter = wait.New(waiting)
	watched := w.place.watched && w.place.segment != nil
	switch {
	case cfg.Waiting != nil:
		long := longWaits{after: cmp.Or(cfg.longWait, longWait), say: cfg.Waiting}
		w.watch.tell = func() {
			if watched {
				w.tellWait()
			}
			long.tell(w)
		}
	case watched:
		w.watch.tell = w.tellWait
	}
	if w.log != nil {
		w.log(fmt.Sprintf("rank %d of %d on host %s, %d of %d there, %d CPUs, device %s (%s)",
			w.rank, w.size, w.place.host, w.place.local, w.place.size, w.place.cpus, w.device.Name, w.device.Provider))
	}
	w.narrator = newNarrator(w, cfg)
	tell := func(line string) {
		if w.log != nil {
			w.log(fmt.Sprintf("rank %d: %s", w.rank, line))
		}
		if w.narrator != nil && !w.narrator.logs {
			w.narrator.say(line)
		}
	}
	if why := w.place.why; why != "" {
		tell(fmt.Sprintf("other hosts reach it at %s: %s", strings.TrimSuffix(w.place.listen, ":0"), why))
	}
	if cfg.Environment.Secure && w.place.secret != nil {
		transport += "; TLS 1.3 encrypts what goes to other hosts (--secure)"
	}
	if w.size > 1 {
		tell(transport)
	}
	if err = w.openOffload(ctx, cfg); err != nil {
		return err
	}
	if err = w.connect(ctx, cfg.Verbs); err != nil {
		return err
	}
	if err = w.openBeside(cfg); err == nil && w.recorder != nil {
		w.recorder.End() // Init
	}
	return err
}

// The values of inside.by.
const (
	busyNot uint32 = iota
	busyCall
	busyThread
)

// enter begins a call; leave ends it.
func (w *World) enter() error {
	if w.turns != nil {
		w.turns.begin()
	}
	if !atomic.CompareAndSwapUint32(&w.inside.by, busyNot, busyCall) && !w.beside.takeOver() {
		return ErrConcurrent // never in turns
	}
	return w.entered()
}

// enterShort is enter for a call that starts something and does not wait. It does not
// wait for the stores of the message before either, as a compare-and-swap does: two
// calls that begin within the same hundred nanoseconds may both pass, so that a
// program that calls from two goroutines finds out a little later.
//
// With a progress thread it is enter: the thread must not pass beside a call.
func (w *World) enterShort() error {
	if w.beside != nil || w.turns != nil {
		return w.enter()
	}
	if atomic.LoadUint32(&w.inside.by) != busyNot {
		return ErrConcurrent
	}
	arch.StoreRelease32(&w.inside.by, busyCall)
	return w.entered()
}

func (w *World) entered() error {
	if w.recorder != nil {
		w.recorder.Begin()
	}
	if w.final {
		w.leave()
		return ErrFinalized
	}
	if w.beside != nil {
		w.beside.entered()
		if err := w.beside.failed.Load(); err != nil {
			w.leave()
			return *err
		}
	}
	return nil
}

// leave publishes what the call did to the next one, on whatever goroutine.
func (w *World) leave() {
	if w.recorder != nil {
		w.recorder.End()
	}
	arch.StoreRelease32(&w.inside.by, busyNot)
	if w.beside != nil {
		w.beside.left()
	}
	if w.turns != nil {
		w.turns.end()
	}
}

// Finalize leaves the job (MPI_Finalize). It waits until all ranks have called it,
// and frees everything. All ranks call it after all their other calls have
// returned. Short messages that were not received are lost, and the Send of a long
// one fails. Memory from [Alloc] is not valid afterwards, even if Finalize fails.
// Under gorun --continuous it is an agreement of the ranks that live, and does not wait for the others.
// A rank that they could not reach gets [ErrOutcast].
func (w *World) Finalize(ctx context.Context) error {
	if err := w.enter(); err != nil {
		return w.comm.fail("finalize", -1, err)
	}
	var deleted error
	if len(w.self.attributes)+len(w.comm.attributes) > 0 {
		w.leave() // for the callbacks
		deleted = errors.Join(w.self.deleteAttributes(), w.comm.deleteAttributes())
		if err := w.enter(); err != nil {
			return w.comm.fail("finalize", -1, errors.Join(err, deleted))
		}
	}
	defer w.leave()
	if w.final = true; w.recorder != nil {
		w.recorder.As("Finalize")
	}
	var errs []error
	if err := w.leaveTogether(ctx); err != nil {
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
	err := errors.Join(append(errs, deleted)...)
	if e, ok := errors.AsType[*Error](err); ok {
		return e // of leaveTogether, and then there is no other
	}
	if err != nil {
		return w.comm.fail("finalize", -1, err)
	}
	return nil
}

// leaveTogether waits until all ranks have called Finalize and what is under way
// has arrived, serving peers meanwhile, as the launcher's barrier does not. It
// also finds out when the last collectives of the ranks did not match.
func (w *World) leaveTogether(ctx context.Context) error {
	w.messages.Leave()
	if err := w.settle(ctx); err != nil {
		return err
	}
	// What is on its way, buffered sends among it, needs its receivers' help,
	// which they give until the barrier.
	if err := w.messages.Drain(ctx); err != nil {
		return err
	}
	// Where the communicator is revoked others may not be told yet, and the
	// launcher's barrier is what is left. Where no rank has called a collective a
	// barrier would only make connections.
	if w.continuous {
		return w.leaveSurvivors(ctx)
	}
	if w.comm.revoked == nil && w.comm.team.Counters().Calls > 0 {
		if err := w.meetLast(ctx); err != nil {
			return err
		}
	}
	if err := w.messages.Drain(ctx); err != nil {
		return err
	}
	began := time.Now()
	heard := began
	return w.launcher.BarrierServing(ctx, func() (time.Duration, error) {
		came := w.messages.Progress()
		w.progressOthers()
		waited := time.Since(began)
		if waited > missedAfter && w.comm.revoked == nil && w.comm.team.Missed() {
			// A barrier of theirs and this one match, and then they come again.
			if err := w.meetLast(ctx); err != nil {
				return 0, err
			}
		}
		if came {
			heard = time.Now()
		}
		if came || waited < serveLazily {
			return serveSoon, nil
		}
		return min(max(time.Since(heard)/serveDivisor, serveLazily), serveMost), nil
	})
}

// leaveSurvivors is the rest of leaveTogether in a job that goes on when a rank fails. The launcher's barrier
// would wait for the dead. A rank that has left counts as dead for those that are still here.
func (w *World) leaveSurvivors(ctx context.Context) error {
	w.leaving = time.Now()
	if _, err := w.comm.agreeOn(ctx, agree.Value{}); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return e // of meetMissed
		}
		return w.comm.fail("finalize", -1, err)
	}
	return w.messages.Drain(ctx)
}

// missed tells whether Finalize has waited for a while for survivors, others are in a collective, and no death
// is known that explains it.
func (w *World) missed() bool {
	return !w.leaving.IsZero() && time.Since(w.leaving) > missedAfter && w.comm.revoked == nil && w.comm.team.Missed() && len(w.comm.failed()) == 0
}

// meetMissed is meetLast among survivors: a death that it finds is no error of theirs.
func (w *World) meetMissed(ctx context.Context) error {
	if err := w.meetLast(ctx); err != nil && !procFailed(err) {
		return err
	}
	return ctx.Err()
}

// meetLast is the barrier that finds out which collectives of the ranks did not match.
func (w *World) meetLast(ctx context.Context) error {
	if err := w.comm.team.Barrier(ctx); err != nil && !errors.Is(err, coll.ErrRevoked) {
		return w.comm.failCollective("finalize", err)
	}
	return nil
}

const (
	// serveSoon is how long a rank in Finalize leaves peers alone that it has heard
	// of just now, and serveLazily those that it has not: for longer, an eighth of the
	// silence, the longer they are silent, so that hundreds of ranks wait at little cost.
	serveSoon, serveLazily, serveMost = time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond
	serveDivisor                      = 8
	// missedAfter is when it looks whether they are in a collective: that takes a
	// look at some memory of each.
	missedAfter = 100 * time.Millisecond
)

// close gives everything back in the reverse order of join.
func (w *World) close() error {
	closeRecord(w.recorder, w.device)
	w.recorder = nil
	errs := []error{w.endBeside()}
	for _, c := range slices.Backward(w.comms) {
		errs = append(errs, c.team.Close())
	}
	w.comms = nil
	if w.peers != nil {
		errs = append(errs, w.peers.CloseMail())
	}
	errs = append(errs, peers.Close(w.collective), peers.Close(w.mesh), peers.Close(w.messages), w.windows.close())
	for _, r := range w.regions.list {
		errs = append(errs, r.mr.Close())
	}
	w.regions = regions{}
	if w.turns != nil {
		w.turns.close()
	}
	errs = append(errs, peers.Close(w.peers), peers.Close(w.device))
	if w.place != nil {
		errs = append(errs, w.place.close())
	}
	return errors.Join(errs...)
}

// Abort ends the job with an exit code (MPI_Abort). It ends this process too, and does not return. An
// exit status has only 8 bits; a code whose low 8 bits are 0 counts as 1, because the job has failed.
func (w *World) Abort(code int, message string) {
	if code&0xff == 0 {
		code = 1
	}
	w.launcher.Abort(code, message)
}
