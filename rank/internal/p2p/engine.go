package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rdma"
)

const (
	// rendezvousMax is how many announcements and synchronous messages to one
	// peer may be unanswered; more wait in line.
	rendezvousMax = 4
	// unexpectedMax is how many bytes of one peer wait for a receive before
	// their credit is held back.
	unexpectedMax = 1 << 20
	// readMax is the longest single read; longer messages take several.
	readMax = 1 << 30
	// sendSlots is the size of the pool of send slots, which all peers share.
	sendSlots = 64
	// inlineMost is the most that is posted inline: beyond, building the
	// message in a slot costs as much.
	inlineMost = 256
	// pollBatch is how many completions one look takes.
	pollBatch = 16
	// pollEvery is how many looks there are to one at the completion queue
	// while nothing is expected there, so that a provider that works when it
	// is polled does.
	pollEvery = 32
)

// ErrCut fails a peer when a long message was given up: it may hold the
// announcement, or be in the middle of it, and must not reach memory that is the caller's
// again.
var ErrCut = errors.New("a long message was given up before all of it had been received")

// ErrRefused is what a long send ends with when its receiver has freed the
// communicator or left the job instead of receiving the message.
var ErrRefused = errors.New("the receiver has freed the communicator or finalized without receiving the message")

// ErrLost is what a PeerError also is whose peer has died, or is out of reach.
var ErrLost = errors.New("nothing reaches the rank any more")

// A PeerError says with which rank something failed.
type PeerError struct {
	Peer int
	Err  error
	lost bool
}

// Is tells whether target is ErrLost, and the peer is.
func (e *PeerError) Is(target error) bool { return target == ErrLost && e.lost }

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Peer, e.Err) }
func (e *PeerError) Unwrap() error { return e.Err }

// Config describes an Engine.
type Config struct {
	Rank, Size int
	PD         rdma.PD
	// Any is the implicit on-demand region, nil where the device has none.
	Any rdma.MR
	// Waiter is used by the engine's calls.
	Waiter *wait.Waiter
	// Dead tells whether a peer is known to have died, cheaply; nil: never.
	Dead func(peer int) error
	// Remote tells that a peer's death shows on the connection only; nil: of none.
	Remote func(peer int) bool
	// Idle counts how often the rank has gone to sleep; a wait looks after its
	// peers when the count has changed.
	Idle *uint32
	// Peers is the rank's way to the others. The engine serves it, and makes the halves of
	// connections for messages.
	Peers *peers.Set
	// Alone tells that each rank of the host has a CPU, so that two may move one
	// message at the same time.
	Alone bool
	// PoolMost bounds the receives of queue pairs, in bytes, on a device with shared
	// receive queues; 0 is 4 MiB. OwnMost is how many connections do not share one; 0 is
	// 16, -1 none.
	PoolMost, OwnMost int
	// Land tells of a peer that its messages of middle length may come into a zone, as from another host; nil: of none.
	Land func(peer int) bool
	// Control takes what peers send in context [Control], during progress: data is valid until it
	// returns, and it calls nothing of the engine. nil: nobody takes it.
	Control func(source int, tag int32, data []byte)
	// Progress moves other traffic on while a call waits; nil: there is none.
	// It must not call the engine's waiting calls.
	Progress func()
}

// An Engine is a rank's end of its connections, in parts that the package doc lists. Each
// has pointers to those before it that it needs, and reaches no other.
type Engine struct {
	self    ops      // the rank, its memory and operations
	lines   failures // what ranks store into each other's memory
	wire    chores   // queue pairs
	traffic outbound // messages
	waits   waits    // the call that waits
}

// shape is how deep the queues of a job of so many ranks are, and how long an
// eager message: the receive slots of all peers together stay below 16 MiB or so where
// each has its own, and are touched only when used. Between registered memory a message of 4 KiB
// takes 1.7 us eagerly, one of 8 KiB 2.4 eagerly and 1.5 by announcement (ping-pong
// of two processes, half of the way there and back), so 4 KiB is long enough.
func shape(size int) (depth, eager int) {
	switch {
	case size <= 32:
		return 32, 4096 - slotHeader
	case size <= 128:
		return 16, 4096 - slotHeader
	}
	return 8, 2048 - slotHeader
}

// QueueAttr is how queue pairs for messages are made in a job of so many ranks, with receive
// queues of their own, but for their completion queue.
func QueueAttr(d rdma.DeviceAttr, size int) rdma.QPInitAttr {
	depth, _ := shape(size)
	return rdma.QPInitAttr{Type: rdma.RC, Cap: rdma.QPCap{
		MaxSendWR: 2*depth + 16, MaxRecvWR: depth + rendezvousMax, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: min(d.MaxInlineData, inlineMost)}}
}

// newEngine tells the parts of each other.
func newEngine() *Engine {
	e := new(Engine)
	self, lines, wire := &e.self, &e.lines, &e.wire
	lines.self, wire.self, e.traffic.self, e.waits.self = self, self, self, self
	wire.lines, e.traffic.lines, e.waits.lines = lines, lines, lines
	e.traffic.wire, e.waits.wire, e.waits.traffic = wire, wire, &e.traffic
	return e
}

// New makes the queue pairs in INIT, with their receives posted. The caller
// connects them ([Engine.QP]) and tells the peers' control words ([Engine.Attach]).
func New(cfg Config) (e *Engine, err error) {
	e = newEngine()
	e.self.ranks = ranks{rank: cfg.Rank, size: cfg.Size, set: cfg.Peers, peers: make([]peer, cfg.Size), mapping: cfg.Peers.Mapping()}
	e.self.pd, e.self.all, e.lines.alone, e.lines.dead = cfg.PD, cfg.Any, cfg.Alone, cfg.Dead
	e.waits.waiter, e.waits.remote, e.waits.idle, e.waits.other, e.waits.forever = cfg.Waiter, cfg.Remote, cfg.Idle, cfg.Progress, context.Background()
	e.traffic.control, e.wire.lends, e.wire.left = cfg.Control, cfg.Land, zonesMost
	e.self.matches = match.New[*Op, arrival](cfg.Size)
	e.self.depth, e.self.eager = shape(cfg.Size)
	init := QueueAttr(cfg.PD.Context().QueryDevice(), cfg.Size)
	e.self.queue = init.Cap.MaxSendWR
	e.wire.most = max(1, cmp.Or(cfg.PoolMost, poolMost)/(e.self.receives()*e.self.slotSize()))
	e.wire.own = min(max(0, cmp.Or(cfg.OwnMost, OwnMost)), e.wire.most)
	if e.self.inline = init.Cap.MaxInlineData; e.self.inline < eagerHeader {
		return nil, fmt.Errorf("the device sends at most %d bytes inline, and messages need %d", e.self.inline, eagerHeader)
	}
	made := e // a return of nil with an error has e be that
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if e.wire.cq, err = cfg.PD.Context().CreateCQ(max(1, (cfg.Size-1)*(e.self.queue+e.self.receives()))); err != nil {
		return nil, err
	}
	e.wire.in = e.self.set.CQ(e.wire.cq)
	e.self.set.Serve(e)
	e.self.set.Make(peers.Messages, e.wire.half)
	if err := e.self.layOut(); err != nil {
		return nil, err
	}
	if e.self.mapping {
		e.lines.layOut(newGeometry(e.self.size), e.self.mem)
	}
	if err := e.wire.answers(); err != nil {
		return nil, err
	}
	for peer := range e.self.peers {
		p := &e.self.peers[peer]
		p.rank, p.depth, p.most, p.eager = int32(peer), e.self.depth, rendezvousMax, e.self.eager
		switch {
		case peer == e.self.rank || e.self.set.OnDemand(): // Survey tells more
		default:
			qp, err := e.wire.receiving(p)
			if err != nil {
				return nil, fmt.Errorf("queue pair for rank %d: %w", peer, err)
			}
			e.Connected(peer, qp)
			e.wire.distant++
		}
	}
	return e, nil
}

// receives is how many receives a connection has posted.
func (r *ranks) receives() int { return r.depth + rendezvousMax }

func (r *ranks) slotSize() int { return slotHeader + r.eager }

// Close destroys the queue pairs and the region. Peers must have stopped.
func (e *Engine) Close() error {
	errs := []error{dc.CloseQPs(e.Queues())}
	e.wire.target = nil
	for i := range e.self.peers {
		e.self.peers[i].QP = nil
	}
	errs = append(errs, peers.Close(e.wire.srq))
	for _, c := range e.wire.chunks {
		errs = append(errs, c.mr.Close())
	}
	for _, mr := range e.wire.given {
		errs = append(errs, mr.Close())
	}
	e.wire.srq, e.wire.chunks, e.wire.given = nil, nil, nil
	errs = append(errs, peers.Close(e.wire.cq), peers.Close(e.self.stages), peers.Close(e.self.mr))
	e.wire.cq, e.self.stages, e.self.mr, e.self.mem, e.self.credit = nil, nil, nil, nil, nil
	e.lines.inbox, e.lines.given, e.lines.active, e.lines.tickets, e.lines.states, e.lines.slots = nil, nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// Explain says by which protocol a message of some bytes would go to a peer, and why.
func (e *Engine) Explain(peer, bytes int) string {
	p := &e.self.peers[peer]
	if peer != e.self.rank && p.mapped {
		e.wire.meet(p)
	}
	way, how := "by RDMA", "the receiver reads it by RDMA"
	if peer != e.self.rank && e.wire.isPath(p) {
		way, how = "by RDMA over dynamic connections", "the receiver reads it over dynamic connections"
	}
	switch {
	case peer == e.self.rank:
		return "copied within the rank"
	case p.far != nil:
		way, how = "through mapped memory", "the receiver copies it, out of mapped memory where it is registered and by an RDMA read elsewhere"
		if bytes <= stagedMost {
			how = "the receiver copies it, out of registered memory to where the sender has copied it if it was not there"
		} else if e.wire.isPath(p) {
			how += ", over dynamic connections"
		} else if e.lines.alone && e.lines.geometry.splits && bytes >= splitFrom {
			how += ", of which a sender that waits writes a half"
		}
	}
	if bytes <= p.eager {
		return fmt.Sprintf("eager, %s (up to %d bytes)", way, p.eager)
	}
	if bytes <= landMost && p.zone != nil {
		return fmt.Sprintf("written by RDMA into memory that the receiver has lent, its header with it (longer than %d bytes, up to %d)", p.eager, landMost)
	}
	if bytes <= landMost && !p.mapped && e.wire.lends != nil && e.wire.lends(peer) && !e.wire.isPath(p) {
		how += fmt.Sprintf(", as the first of up to %d bytes, after which it lends memory that the next ones are written into", landMost)
	}
	return fmt.Sprintf("rendezvous: announced %s, and %s (longer than %d bytes)", way, how, p.eager)
}

// Meet gets ready to talk with a peer.
func (e *Engine) Meet(peer int) error {
	p := &e.self.peers[peer]
	if !e.wire.meet(p) {
		return p.Err()
	}
	return nil
}

// Connected gives a peer its queue pair; catchUp goes on with what waits for it.
func (e *Engine) Connected(peer int, qp rdma.QP) { e.self.peers[peer].Open(qp, e.self.queue) }

// Fail fails a peer.
func (e *Engine) Fail(peer int, err error) error {
	p := &e.self.peers[peer]
	if errors.Is(err, peers.ErrGone) {
		err = ErrCut
	}
	e.lines.fail(p, err)
	return p.Err()
}
