package soft

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
)

// How ordinary memory of a peer is reached.
type reach uint8

const (
	reachNone reach = iota // the kernel refuses
	reachSame              // it is memory of this process
	reachVM                // process_vm_readv and process_vm_writev
)

// A peer is another provider as this one sees it, and also the provider itself.
// In the segment it is a view of the peer's arena, through which requests are
// executed; every index and offset read there is checked before it is used.
type peer struct {
	p      *Provider
	ep     endpoint
	gids   [gidTable]rdma.GID
	own    bool // is the provider itself
	inside bool // shares the segment; what follows is valid
	rank   int
	tables        // of its arena
	base   uint64 // address of the arena in the peer's process
	locks  []lockWord
	bell   *shm.Bell
	alarm  *shm.Bell
	reach  reach
	lost   atomic.Bool  // its process has ended
	gone   atomic.Bool  // no process listens for TCP where it did
	called atomic.Int64 // when it was first connected to because it cannot connect, in nanoseconds since 1970; 0: never

	mu    sync.Mutex // guards what follows
	pidfd int        // -1 until asked for
	link  *link      // where requests to it go over TCP
}

// newSelf is the peer for loopback, and for what comes in over TCP.
func (p *Provider) newSelf() *peer {
	s := &peer{p: p, ep: p.endpoint(), gids: p.gids, own: true, rank: p.cfg.Rank, pidfd: -1, reach: reachSame}
	s.attach(p.arena)
	return s
}

// attach makes the views of an arena in the segment.
func (s *peer) attach(arena []byte) {
	l := s.p.layout // all arenas of a segment have one size
	s.tables = tablesOf(arena, l)
	s.base = at[arenaHeader](arena, 0).base
	s.locks = tableAt[lockWord](arena, l.lockAt, lockWords)
	s.bell, s.alarm = s.p.segment.Bell(s.rank), s.p.segment.Alarm(s.rank)
	s.inside = true
}

// addEndpoint learns of a peer.
func (p *Provider) addEndpoint(gid rdma.GID, blob []byte) error {
	e, gids, ok := located(gid)
	if len(blob) == 0 && !ok {
		return &rdma.OpError{Op: "add_endpoint", Detail: fmt.Sprintf("found no endpoint of %v, which says no address: expected a GID of a provider with Config.Located", gid), Err: rdma.ErrInvalid}
	}
	e.secure = p.cfg.Secure != nil // else the handshake fails
	if len(blob) > 0 {
		var err error
		if e, err = parseEndpoint(blob); err == nil {
			gids, err = e.gids()
		}
		if err != nil {
			return &rdma.OpError{Op: "add_endpoint", Detail: fmt.Sprintf("%v: %v (%d bytes)", gid, err, len(blob)), Err: rdma.ErrInvalid}
		}
	}
	if gid != gids[0] && gid != gids[1] {
		return &rdma.OpError{Op: "add_endpoint", Detail: fmt.Sprintf("found the endpoint of %v, expected that of %v", gids[0], gid), Err: rdma.ErrInvalid}
	}
	if gids == p.gids {
		return nil
	}
	p.mu.Lock()
	_, known := p.peers[gids[0]]
	closed := p.closed
	p.mu.Unlock()
	if known {
		return nil
	}
	if closed {
		return &rdma.OpError{Op: "add_endpoint", Detail: "the provider is closed", Err: rdma.ErrNoDevice}
	}
	s := &peer{p: p, ep: e, gids: gids, pidfd: -1}
	if err := s.meet(); err != nil {
		return err
	}
	if !s.inside && (p.tcp.Load() == nil || e.address == "") {
		return &rdma.OpError{Op: "add_endpoint", Detail: fmt.Sprintf("%v (rank %d of host %q, this is %q) shares no segment with this rank, and one of the two has no secret for TCP: expected Config.Secret on both", gid, e.rank, e.host, p.host), Err: rdma.ErrNotSupported}
	}
	if !s.inside && e.secure != (p.cfg.Secure != nil) {
		return &rdma.OpError{Op: "add_endpoint", Detail: fmt.Sprintf("%v (rank %d of host %q) and this rank (of host %q) do not agree on the encryption of TCP: expected Config.Secure on both or on neither", gid, e.rank, e.host, p.host), Err: rdma.ErrNotSupported}
	}
	if s.inside && (s.reach == reachNone || s.refused()) && s.callable() {
		if err := p.openNetwork(); err != nil && !errors.Is(err, rdma.ErrNotSupported) {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.peers[gids[0]]; !known && !p.closed {
		p.peers[gids[0]], p.peers[gids[1]] = s, s
	}
	return nil
}

// meet finds the peer in the segment, if it is there.
func (s *peer) meet() error {
	p := s.p
	if s.ep.host != p.host || int(s.ep.rank) >= p.segment.Ranks() || p.segment.Ranks() == 1 {
		return nil
	}
	arena, err := p.segment.Arena(int(s.ep.rank))
	if err != nil {
		return &rdma.OpError{Op: "add_endpoint", Detail: err.Error(), Err: rdma.ErrNoMemory}
	}
	h := at[arenaHeader](arena, 0)
	// Two hosts may have one name, or a rank two lives: only the nonce says
	// that this is the arena of the process that made the endpoint.
	if h == nil || atomic.LoadUint64(&h.magic) != arenaMagic || h.nonce != s.ep.nonce {
		return nil
	}
	s.rank = int(s.ep.rank)
	s.attach(arena)
	s.reach = p.reachOf(&s.ep)
	return nil
}

// reachOf finds out how the ordinary memory of the process behind e is reached,
// by reading the nonce that e says is there. A filter may refuse reads or writes alone: then neither is used.
func (p *Provider) reachOf(e *endpoint) reach {
	var got [16]byte
	if atomic.LoadUint32(&p.head.refused) == 1 || readProcess(int(e.pid), got[:], e.probe) != nil || got != e.nonce {
		// The kernel does not let this process ask itself: only it can have a local segment.
		if int(e.pid) == os.Getpid() && e.started == processStart(os.Getpid()) && p.segment.FD() < 0 {
			return reachSame
		}
		return reachNone
	}
	if int(e.pid) == os.Getpid() {
		return reachSame
	}
	return reachVM
}

// find gives the peer behind a GID, nil for none.
func (p *Provider) find(gid rdma.GID) *peer {
	if gid == p.gids[0] || gid == p.gids[1] {
		return p.self
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers[gid]
}

// dead tells what is known about the peer's end: cheap.
func (s *peer) dead() bool { return s.lost.Load() || s.inside && s.p.segment.Dead(s.rank) }

// checkDead finds out: a system call or two.
func (s *peer) checkDead() bool {
	if s.dead() {
		return true
	}
	if !s.inside || int(s.ep.pid) == s.p.pid {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pidfd == -1 {
		fd, alive := watchProcess(int(s.ep.pid), s.ep.started)
		if !alive {
			s.lost.Store(true)
			return true
		}
		s.pidfd = fd
	}
	if processEnded(s.pidfd, int(s.ep.pid), s.ep.started) {
		s.lost.Store(true)
		return true
	}
	return false
}

// mourn notes that the peer's process has ended, and breaks the link to it.
func (s *peer) mourn() {
	s.lost.Store(true)
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil || !l.state.CompareAndSwap(linkDialling, linkBroken) && l.state.Load() != linkUp {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd >= 0 {
		l.breakOff()
	}
}

func (s *peer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	unwatchProcess(s.pidfd)
	s.pidfd = -1
}
