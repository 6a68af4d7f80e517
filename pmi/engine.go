package pmi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
)

// Kinds of violations, together with ErrSyntax and ErrLine.
var (
	ErrLeft    = errors.New("left the job")         // the rank's connection ended, or it sent finalize, although other ranks need it
	ErrOrder   = errors.New("command out of order") // a command that is not permitted in the rank's state
	ErrCommand = errors.New("unknown command")      // a command that this server does not implement
	ErrLimit   = errors.New("over the limit")       // longer than a limit of the wire
	ErrFence   = errors.New("fence failed")         // the store could not complete the fence
	ErrSecure  = errors.New("not encrypted")        // the client does not say that it encrypts what it sends to other hosts
)

// EngineConfig describes the job to the server of one host.
type EngineConfig struct {
	KVSName  string            // name of the job's key-value space; "gorun" if empty
	World    int               // number of MPI programs that each rank has run before this one, for messages
	Size     int               // ranks of the job
	Ranks    []int             // ranks of this host, by their number in the job
	AppNum   []int             // number of the program, by index in Ranks; nil: all 0
	Universe int               // answer to get_universe_size; 0: unknown
	Mapping  string            // PMI_process_mapping, see [Mapping]; if empty or over ValLenMax it is not sent, and clients exchange host names instead
	Preset   map[string]string // keys that exist from the start
	Spawner  string            // job of the rank that spawned this one, for PMI-2; "": none
	Secure   bool              // only clients with Env.Secure are served; others get a violation, ErrSecure
}

// An Engine serves PMI-1 and PMI-2 to the ranks of one host, without I/O: see the package
// comment. It must not be called concurrently. Calls for a rank that it does not serve panic.
type Engine struct {
	kvsName  string
	world    int
	size     int
	universe int
	spawner  string
	secure   bool
	peers    []*peer
	index    []int32 // by global rank: index in peers, or -1

	store      storage
	attributes attributes

	epoch   uint64     // of the fence that ranks enter now
	kind    fenceKind  // of that fence, once one rank is in
	inside  int        // ranks in it
	pending bool       // it was emitted and is not done
	left    int        // ranks that finalized or went
	leaver  *RankError // the first that did
	closing bool       // the closing fence was emitted
	broken  error      // no fence can complete any more

	events []Event // of the call in progress
	out    []byte  // replies to the rank that it serves, not yet an event
}

type state uint8

const (
	fresh   state = iota
	greeted       // of PMI-2: it has said init, and not yet fullinit
	up
	inFence
	asking // the owner is to answer a Spawn or Name
	finalized
	gone
	violated // broke the protocol: its bytes are dropped
)

// A peer is a rank served here.
type peer struct {
	rank   int
	appnum int
	state  state

	joined, finalized bool // whatever came after
	shown             bool // a card, as ranks of package rank do

	put     bool // something since its last fence
	parting bool // its last command is a fence before which it has put nothing

	wire    codec
	partial []byte // an unfinished line or command
	card    []byte // its card for the fence, being received when need > 0
	need    int    // bytes of the card still to come
	seated  bool   // cmd=init of PMI-2 was answered before the engine had it

	spawn *spawning // of which blocks are still to come
	asked NameOp    // with asking a Name

	thread string    // of PMI-2: whose command the rank waits for
	later  []Message // and what it has sent since that has to wait
}

// forget frees what was kept of a rank that is served no more.
func (e *Engine) forget(p *peer) {
	p.partial, p.card, p.spawn, p.later = nil, nil, nil, nil
	e.forgetWaits(p)
}

// NewEngine makes the engine of a host. It panics if Ranks are not distinct numbers below Size.
func NewEngine(cfg EngineConfig) *Engine {
	cfg.KVSName = cmp.Or(cfg.KVSName, "gorun")
	if len(cfg.KVSName) >= KVSNameMax {
		panic("pmi: EngineConfig.KVSName is too long")
	}
	e := &Engine{
		kvsName:  cfg.KVSName,
		world:    cfg.World,
		size:     cfg.Size,
		universe: cfg.Universe,
		spawner:  cfg.Spawner,
		secure:   cfg.Secure,
		index:    make([]int32, cfg.Size),
		epoch:    1,
	}
	for i := range e.index {
		e.index[i] = -1
	}
	for i, rank := range cfg.Ranks {
		if rank < 0 || rank >= cfg.Size || e.index[rank] >= 0 {
			panic(fmt.Sprintf("pmi: EngineConfig.Ranks: %d of size %d", rank, cfg.Size))
		}
		e.index[rank] = int32(i)
		p := &peer{rank: rank, wire: pmi1{}}
		if i < len(cfg.AppNum) {
			p.appnum = cfg.AppNum[i]
		}
		e.peers = append(e.peers, p)
	}
	e.store.init()
	maps.Copy(e.store.all, cfg.Preset)
	if cfg.Mapping != "" && len(cfg.Mapping) <= ValLenMax {
		e.store.all["PMI_process_mapping"] = cfg.Mapping
	}
	return e
}

// Joined reports whether a rank has sent init.
func (e *Engine) Joined(rank int) bool { return e.peer(rank).joined }

// Finalized reports whether a rank has sent finalize. A rank that joined
// and did not send it has failed, whatever its exit status.
func (e *Engine) Finalized(rank int) bool { return e.peer(rank).finalized }

// Part has a rank finalize whose last word is a fence in which it brought nothing, if it is through that. So a program of
// MPICH ends MPI_Finalize, and since 4.2 it sends finalize no sooner than in its exit handlers, which _exit leaves out. In
// MPI_Init a fence follows what the rank has put, and it looks others' up behind it.
func (e *Engine) Part(rank int) []Event {
	p := e.peer(rank)
	if !p.parting || p.state != up {
		return nil
	}
	e.finalize(p)
	return e.take(p)
}

// note keeps what Part needs to know of a command.
func (p *peer) note(cmd string) {
	switch cmd {
	case "put", "kvs-put":
		p.put, p.parting = true, false
	case "barrier_in", "kvs-fence":
		p.put, p.parting = false, !p.put
	default:
		p.parting = false
	}
}

// Shown reports whether a rank has sent a card: it is a rank of package
// rank, whose calls return an error when they need a rank that has died.
func (e *Engine) Shown(rank int) bool { return e.peer(rank).shown }

// InFence reports whether a rank waits in a fence.
func (e *Engine) InFence(rank int) bool { return e.peer(rank).state == inFence }

// Waiting is the number of ranks that wait in a fence.
func (e *Engine) Waiting() int { return e.inside }

func (e *Engine) peer(rank int) *peer { return e.peers[e.index[rank]] }

// Receive takes bytes from a rank's socket, in pieces of any length. It copies the data that it keeps.
func (e *Engine) Receive(rank int, data []byte) []Event {
	p := e.peer(rank)
	for len(data) > 0 && p.state != violated && p.state != gone {
		data = p.wire.receive(e, p, data)
	}
	if p.state == violated || p.state == gone {
		e.forget(p)
	}
	return e.take(p)
}

// Disconnect reports that a rank's socket was closed.
func (e *Engine) Disconnect(rank int) []Event {
	p := e.peer(rank)
	was := p.state
	if was == gone {
		return nil
	}
	p.state = gone
	e.forget(p)
	switch was {
	case finalized, violated:
		return e.take(p)
	case greeted, up, asking:
		e.leave(p, "its connection ended without finalize")
	case inFence:
		e.inside--
		e.leave(p, fmt.Sprintf("its connection ended in fence %d", e.epoch))
	default:
		why := "its process ended before init"
		if e.world > 0 {
			why = fmt.Sprintf("its process ended after MPI program %d, before init of program %d", e.world, e.world+1)
		}
		e.leave(p, why)
	}
	// A rank that said init owes a finalize. leave has told already if someone waits.
	if was != fresh && e.broken == nil {
		e.breakFences(&RankError{Rank: p.rank, Kind: ErrLeft, Detail: e.leaverDetail(p)})
	}
	return e.take(p)
}

// reply adds a line to what the rank being served gets.
func (e *Engine) reply(parts ...string) {
	for _, s := range parts {
		e.out = append(e.out, s...)
	}
	e.out = append(e.out, '\n')
}

// flush makes an event of the replies so far, so that later events follow it.
func (e *Engine) flush(p *peer) {
	if len(e.out) > 0 {
		e.events = append(e.events, Reply{p.rank, e.out})
		e.out = nil
	}
}

func (e *Engine) emit(p *peer, ev Event) {
	e.flush(p)
	e.events = append(e.events, ev)
}

// take gives the call's events away.
func (e *Engine) take(p *peer) []Event {
	e.flush(p)
	e.settleAttributes()
	events := e.events
	e.events = nil
	return events
}

// violate ends the service for a rank.
func (e *Engine) violate(p *peer, kind error, detail string) {
	was := p.state
	if was == inFence {
		e.inside--
	}
	p.state = violated
	err := &RankError{Rank: p.rank, Kind: kind, Detail: detail}
	e.emit(p, Violation{p.rank, err})
	e.failFence(err)
	if was != finalized {
		e.countLeft(err)
	}
}
