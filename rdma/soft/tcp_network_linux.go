package soft

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// network is a provider's TCP: a listener and the links. The owner's polling reads
// the sockets itself. When the owner does not poll, a goroutine does (tcp_guard_linux.go),
// which sleeps on an epoll set of the links. The set is not in Go's netpoller: that
// would wake a thread for everything that comes, beside an owner that polls.
//
// Locks: mu before any queue pair's mu before a link's mu.
type network struct {
	p        *Provider
	listener *os.File
	secret   []byte    // of the links
	secure   Handshake // and their encryption; nil: none
	address  string
	port     uint16
	patience time.Duration // no try to bring a link up begins later
	epoll    int           // the set, of the links and the guard's eventfd
	guard    guard

	mu      sync.Mutex    // guards reading from the links and what follows:
	links   map[int]*link // by descriptor
	ring    []*link       // the same, for the owner's looks
	owing   []*link       // some of those whose acknowledgements wait
	events  [64]unix.EpollEvent
	corked  corked // scratch
	buf     []byte // what is being read
	records []byte // and of what was encrypted, before that
	closed  bool

	halfMu sync.Mutex         // guards what follows
	half   []*os.File         // accepted and without proof yet, oldest first
	proven []*os.File         // accepted, the other end knows the secret; in what is left of the handshake
	dialed []*os.File         // dialled and in the handshake
	byGID  map[rdma.GID]*link // the newest link with each peer, which may still be made
	shut   bool

	quit   chan struct{}
	counts wireCounts

	first sync.Once // starts the guard with the first link
	ended sync.WaitGroup
}

// wireCounts are the system calls of a network, for tests.
type wireCounts struct {
	reads, writes, epolls atomic.Uint64
	sleeps                atomic.Uint64 // of the guard on the set
}

// halfMost bounds the connections that have not proved anything yet. One more
// drives out the oldest, so that strangers cannot keep members of the job out.
const halfMost = 128

// provenMost bounds those that have, and nothing drives them out: with encryption the rest of the
// handshake takes CPU time. One more is refused, and dials again. With more at once each would take longer,
// until none is done within handshakeLimit.
const provenMost = 64

// newNetwork listens for links, whose two sides prove to each other that they know
// the secret. secure encrypts them, unless it is nil.
func newNetwork(p *Provider, secret []byte, secure Handshake) (*network, error) {
	at := cmp.Or(p.cfg.Listen, "127.0.0.1:0")
	l, bound, err := listen(at)
	if err != nil {
		return nil, &rdma.OpError{Op: "soft.New", Detail: "listen for TCP links on " + at, Err: err}
	}
	n := &network{p: p, secret: secret, secure: secure, port: bound.Port(), patience: dialLimit, listener: l, links: make(map[int]*link), byGID: make(map[rdma.GID]*link), quit: make(chan struct{})}
	if n.address, err = advertised(bound, p.cfg.Advertise); err != nil {
		l.Close()
		return nil, &rdma.OpError{Op: "soft.New", Detail: err.Error(), Err: rdma.ErrInvalid}
	}
	n.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen for TCP links: epoll: %w", err)
	}
	if err := n.guard.init(n.epoll); err != nil {
		l.Close()
		unix.Close(n.epoll)
		return nil, fmt.Errorf("listen for TCP links: %w", err)
	}
	n.ended.Add(1)
	go n.accept()
	return n, nil
}

// accept takes connections and leaves each to a handshake.
func (n *network) accept() {
	defer n.ended.Done()
	for {
		c, err := accept(n.listener)
		if err != nil {
			select {
			case <-n.quit:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors, perhaps
				continue
			}
		}
		n.halfMu.Lock()
		if n.shut {
			n.halfMu.Unlock()
			c.Close()
			return
		}
		if len(n.half) >= halfMost {
			n.half[0].Close()
			n.half = n.half[1:]
		}
		n.half = append(n.half, c)
		n.ended.Add(1)
		n.halfMu.Unlock()
		go func() {
			defer n.ended.Done()
			n.greeted(c)
			c.Close()
		}()
	}
}

// greeted makes a link of a connection that was accepted.
func (n *network) greeted(c *os.File) {
	from, seal, err := welcome(c, n.secret, n.secure, n.p.gids, func() error { return n.prove(c) })
	n.whole(&n.half, c)
	if !n.whole(&n.proven, c) || err != nil {
		return
	}
	l, dials := n.expect(from)
	if l == nil {
		_ = say(c, seal, saidCrossed)
		return
	}
	if err := say(c, seal, saidKept); err == nil {
		l.sealed = sealedBy(seal)
		n.join(l, c)
		n.p.self.bell.Ring() // the goroutine that waits for the link may be asleep
	} else {
		n.halfMu.Lock()
		if l.dials = dials; !dials {
			l.state.Store(linkBroken)
		}
		n.halfMu.Unlock()
	}
}

// Two processes that dial each other at the same time would have two connections. The one with the lower
// GID decides which is the link, and nothing else does:
//
//	lower:  refuses a connection while it has a link, or is making one
//	higher: takes every connection, also in place of its own, which it is dialling and which is refused
//
// expect gives the link that a connection from a peer becomes, nil where it is refused. dials: this side has been
// dialling the peer, and would go on if the connection came to nothing.
func (n *network) expect(from rdma.GID) (l *link, dials bool) {
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	if l = n.byGID[from]; l != nil && l.state.Load() != linkBroken {
		if bytes.Compare(n.p.gids[0][:], from[:]) < 0 {
			return nil, l.dials
		}
		if l.dials {
			l.dials = false
			return l, true
		}
	}
	l = &link{n: n, from: from}
	n.byGID[from] = l
	return l, false
}

// prove keeps a connection whose other end knows the secret from being driven out.
func (n *network) prove(c *os.File) error {
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	i := slices.Index(n.half, c)
	if i < 0 || len(n.proven) >= provenMost {
		return errNoPlace
	}
	n.half = slices.Delete(n.half, i, i+1)
	n.proven = append(n.proven, c)
	return nil
}

var errNoPlace = errors.New("too many are in the handshake")

// whole takes a connection out of one of the lists of those in the handshake.
// It is false when it is not there.
func (n *network) whole(list *[]*os.File, c *os.File) bool {
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	i := slices.Index(*list, c)
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}

// dial gives the link with a peer, and starts one where there is none. It is used while it is being made.
func (n *network) dial(s *peer) *link {
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	if l := n.byGID[s.gids[0]]; l != nil && l.state.Load() != linkBroken {
		return l
	}
	l := &link{n: n, peer: s, from: s.gids[0], dials: true}
	n.byGID[l.from] = l
	n.start(l)
	return l
}

// start begins to dial. Called with halfMu held.
func (n *network) start(l *link) {
	if n.shut {
		l.state.Store(linkBroken)
		return
	}
	n.ended.Add(1)
	go func() {
		defer n.ended.Done()
		begin := time.Now()
		for pause := dialPause; ; pause *= 2 {
			err := n.call(l)
			if err == nil || l.state.Load() != linkDialling {
				break
			}
			if errors.Is(err, errNotYet) && !l.peer.checkDead() {
				begin, pause = time.Now(), min(pause, dialPause/2) // as long as it lives
			}
			// A listener that is not there, or is another one, stays so. A
			// busy one has driven us out, or was too slow, and may do better.
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errStranger) || errors.Is(err, errNowhere) || time.Since(begin) > n.patience || l.peer.lost.Load() {
				if n.giveUp(l) {
					break
				}
			}
			select {
			case <-n.quit:
				l.state.Store(linkBroken)
				return
			case <-time.After(pause + rand.N(pause)):
			}
		}
		// The goroutine that waits for the link may be asleep.
		n.p.self.bell.Ring()
	}()
}

// giveUp ends a link that could not be dialled. It is false where the peer's connection is just becoming the link.
func (n *network) giveUp(l *link) bool {
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	if !l.dials {
		return false
	}
	l.peer.gone.Store(true)
	l.state.Store(linkBroken)
	return true
}

const (
	dialPause = 5 * time.Millisecond // before the second try, twice that before the third ...
	dialLimit = 20 * time.Second     // see network.patience
)

// call tries once to bring a link up.
func (n *network) call(l *link) error {
	n.halfMu.Lock()
	dials := l.dials
	n.halfMu.Unlock()
	if !dials {
		return errCrossed
	}
	address, secret, err := l.peer.listener()
	if err != nil {
		return err
	}
	var begun *os.File
	c, err := dial(address, handshakeLimit, func(c *os.File) {
		n.halfMu.Lock()
		defer n.halfMu.Unlock()
		if begun = c; n.shut {
			c.Close()
			return
		}
		n.dialed = append(n.dialed, c) // so that close need not wait for a host that does not answer
	})
	if err != nil {
		n.whole(&n.dialed, begun)
		return err
	}
	defer c.Close()
	seal, err := greet(c, secret, l.peer.secure(), n.p.gids[0], l.peer.gids[0])
	n.whole(&n.dialed, c)
	if err != nil {
		return err
	}
	n.halfMu.Lock()
	dials, l.dials = l.dials, false
	n.halfMu.Unlock()
	if !dials {
		return errCrossed
	}
	l.sealed = sealedBy(seal)
	n.join(l, c)
	return nil
}

// join gives a connection that has passed the handshake to the epoll set.
func (n *network) join(l *link, c *os.File) {
	fd := -1
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(have uintptr) {
			tune(int(have))
			// The copy shares the non-blocking mode; the original is closed.
			fd, _ = unix.FcntlInt(have, unix.F_DUPFD_CLOEXEC, 0)
		})
	}
	if err != nil || fd < 0 {
		l.state.Store(linkBroken)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}) != nil {
		unix.Close(fd)
		l.state.Store(linkBroken)
		return
	}
	l.fd, l.seen = fd, unix.EPOLLIN
	if len(n.links) == 0 {
		n.p.work.busy.Add(1)
	}
	n.links[fd] = l
	n.ring = append(n.ring, l)
	l.state.Store(linkUp)
	n.first.Do(func() {
		n.ended.Add(1)
		go n.stand()
	})
}

// poll is the owner's look. It tells whether anything came, and whether it looked
// at all: it gives way to another goroutine's look.
func (n *network) poll() (moved, looked bool) {
	n.guard.relieve()
	return n.look(false)
}

// look serves the links, unless another goroutine does. all: acknowledgements do not
// wait for another look, since there may be none.
func (n *network) look(all bool) (moved, looked bool) {
	if !n.mu.TryLock() {
		return false, false
	}
	defer n.mu.Unlock()
	// An owner that looks beside the guard may not look again soon, see network.stand.
	return n.lookLocked(all || n.guard.on.Load()), true
}

// lookLocked is look with mu held.
func (n *network) lookLocked(all bool) (moved bool) {
	if n.closed || len(n.ring) == 0 {
		return false
	}
	if len(n.ring) <= ringMost {
		return n.lookAtAll(all)
	}
	return n.lookAtReady(all)
}

// ringMost is up to how many links a look tries to read each of them: a read of
// nothing costs as much as asking the set, which only tells where to read.
const ringMost = 3

// lookAtAll tries every link. Called with mu held.
func (n *network) lookAtAll(all bool) (moved bool) {
	for i := len(n.ring) - 1; i >= 0; i-- { // a link that has broken leaves
		moved = n.serve(n.ring[i], all) || moved
	}
	return moved
}

// lookAtReady serves the links that the set tells of, and those whose
// acknowledgements wait. Called with mu held.
func (n *network) lookAtReady(all bool) (moved bool) {
	for i := len(n.owing) - 1; i >= 0; i-- {
		if l := n.owing[i]; l.age(all) {
			n.owing = slices.Delete(n.owing, i, i+1)
		}
	}
	k, err := unix.EpollWait(n.epoll, n.events[:], 0)
	n.counts.epolls.Add(1)
	if err != nil {
		return false
	}
	for _, ev := range n.events[:max(k, 0)] {
		if l := n.links[int(ev.Fd)]; l != nil {
			moved = true
			n.serve(l, all)
			if l.owes() && !slices.Contains(n.owing, l) {
				n.owing = append(n.owing, l)
			}
		}
	}
	return moved
}

// serve reads and writes what a link's socket has and takes, and drops a link that has
// broken. It tells whether anything moved. Called with mu held.
func (n *network) serve(l *link, all bool) (moved bool) {
	heard := l.heard.Load()
	l.age(all)
	l.resume()
	l.receive()
	l.flush(all)
	if l.state.Load() == linkBroken {
		n.drop(l)
		return true
	}
	return l.heard.Load() != heard
}

// drop takes a link out. Called with mu held.
func (n *network) drop(l *link) {
	if n.links[l.fd] != l {
		return
	}
	delete(n.links, l.fd)
	gone := func(have *link) bool { return have == l }
	n.ring, n.owing = slices.DeleteFunc(n.ring, gone), slices.DeleteFunc(n.owing, gone)
	if len(n.links) == 0 {
		n.p.work.busy.Add(-1)
	}
	l.mu.Lock()
	l.state.Store(linkBroken)
	unix.Close(l.fd)
	l.fd = -1
	l.out, l.gone, l.ack = nil, 0, -1
	if l.sealed != nil {
		l.sealed.out, l.sealed.gone = nil, 0
	}
	l.corked.reset()
	l.mu.Unlock()
	l.replies, l.replied = nil, 0
	l.replying.Store(false)
	n.halfMu.Lock()
	if n.byGID[l.from] == l {
		delete(n.byGID, l.from)
	}
	n.halfMu.Unlock()
	l.n.p.abandon(l)
}

// rest says that the owner is about to sleep: the guard takes over.
func (n *network) rest() { n.guard.takeOver() }

// flushAll sends what waits for another look of the owner.
func (n *network) flushAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.ring {
		l.flush(true)
	}
}

// settle returns when everything that was being executed for peers, when it
// was called, is done.
func (n *network) settle() {
	n.mu.Lock()
	n.mu.Unlock() //nolint:staticcheck // SA2001: taking the lock is the wait
}

func (n *network) close() {
	n.halfMu.Lock()
	n.shut = true
	close(n.quit)
	for _, c := range slices.Concat(n.half, n.proven, n.dialed) {
		c.Close()
	}
	n.halfMu.Unlock()
	n.listener.Close()
	n.mu.Lock()
	n.closed = true
	for _, l := range n.links {
		l.flush(true)
		n.drop(l)
	}
	n.mu.Unlock()
	n.guard.wake()
	n.ended.Wait()
	n.guard.close()
	unix.Close(n.epoll)
}

// watch asks for a word when the link can be written again, or not. Called
// with the link's mu held.
func (l *link) watch(out bool) {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.fd)}
	if out || l.replying.Load() { // the socket may have taken all since the last piece: it has room for the next
		ev.Events |= unix.EPOLLOUT
	}
	if ev.Events != l.seen {
		l.seen = ev.Events
		_ = unix.EpollCtl(l.n.epoll, unix.EPOLL_CTL_MOD, l.fd, &ev)
	}
}

// toSocket sends what the socket takes of bufs.
func (l *link) toSocket(bufs [][]byte) (int, error) {
	for {
		k, err := writeSocket(l.fd, bufs, &l.iov)
		l.n.counts.writes.Add(1)
		switch err {
		case nil:
			return k, nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, nil
		}
		return 0, err
	}
}

// unheard tells whether the other host has acknowledged nothing for d, though something was sent
// so many times again: a link that was idle may have heard its last word long ago. A process
// that is stopped, as by a debugger, does not matter: its kernel answers.
func (l *link) unheard(d time.Duration, again uint8) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return false // a poll will say that it has broken
	}
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || time.Duration(info.Last_ack_recv)*time.Millisecond < d {
		return false
	}
	// A receiver without room is asked for it at ever longer intervals, by probes, of which it
	// answers one in half a second (tcp_invalid_ratelimit), or by sending again.
	return info.Probes > 2 || info.Retransmits >= again && info.Last_ack_recv > info.Last_data_sent
}

// fromSocket fills b with what the socket has; 0 is nothing yet.
func (l *link) fromSocket(b []byte) (k int, end bool) {
	for {
		k, err := readSocket(l.fd, b)
		l.n.counts.reads.Add(1)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return 0, false
		case err != nil || k <= 0:
			return 0, true
		}
		return k, false
	}
}

// scatterSocket fills a and then b with what the socket has; 0 is nothing yet. fault: it has
// something, for memory that is not mapped.
func (l *link) scatterSocket(a, b []byte) (k int, end, fault bool) {
	for {
		k, err := scatterSocket(l.fd, a, b)
		l.n.counts.reads.Add(1)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return 0, false, false
		case err == syscall.EFAULT:
			return 0, false, true
		case err != nil || k <= 0:
			return 0, true, false
		}
		return k, false, false
	}
}

// shutdown makes the socket ready for the look that drops it.
func (l *link) shutdown() { _ = unix.Shutdown(l.fd, unix.SHUT_RDWR) }
