package soft

import (
	"cmp"
	"fmt"
	"net/netip"
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
	corked  corked // scratch of link.stream
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

// newNetwork listens for links, whose two sides prove to each other that they know
// the secret. secure encrypts them, unless it is nil.
func newNetwork(p *Provider, secret []byte, secure Handshake) (*network, error) {
	at := cmp.Or(p.cfg.Listen, "127.0.0.1:0")
	l, bound, err := listen(at, p.cfg.Ports)
	if err != nil {
		return nil, &rdma.OpError{Op: "soft.New", Detail: "listen for TCP links on " + at, Err: err}
	}
	n := &network{p: p, secret: secret, secure: secure, port: bound.Port(), patience: max(dialLimit, p.cfg.Silence), listener: l, links: make(map[int]*link), byGID: make(map[rdma.GID]*link), quit: make(chan struct{})}
	if n.address, err = advertised(bound, p.cfg.Advertise); err != nil {
		l.Close()
		return nil, &rdma.OpError{Op: "soft.New", Detail: err.Error(), Err: rdma.ErrInvalid}
	}
	if p.cfg.Located {
		at, err := netip.ParseAddrPort(n.address)
		if err != nil || !at.Addr().Is4() {
			l.Close()
			return nil, &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found the address %s, expected one of IPv4: GIDs have no room for another", n.address), Err: rdma.ErrInvalid}
		}
		p.gids = locate(p.gids, at)
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
	// An owner that looks beside the guard may not look again soon, see network.stand.
	moved = n.lookLocked(all || n.guard.on.Load())
	n.mu.Unlock()
	return moved, true
}

// lookLocked is look with mu held.
func (n *network) lookLocked(all bool) (moved bool) {
	if n.closed || len(n.ring) == 0 {
		return false
	}
	if n.few() {
		return n.lookAtAll(all)
	}
	return n.lookAtReady(all)
}

// ringMost is up to how many links a look tries to read each of them: a read of
// nothing costs as much as asking the set, which only tells where to read.
const ringMost = 3

// few tells whether each look tries all links. Called with mu held.
func (n *network) few() bool { return len(n.ring) <= ringMost }

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
	if l.stirs.Load() || l.owes() {
		l.age(all)
	}
	if l.replied < len(l.replies) {
		l.resume()
	}
	if l.late && !l.catchUp() {
		l.state.Store(linkBroken)
	} else {
		l.receive(all)
	}
	if l.stirs.Load() || all && l.owes() {
		l.flush(all)
	}
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
	if n.catchUp() {
		n.p.self.bell.Ring()
	}
	for _, l := range n.ring {
		l.flush(true)
	}
}

// catchUp acts on what links have kept for another look. Called with mu held.
func (n *network) catchUp() (moved bool) {
	for _, l := range n.ring {
		if l.late {
			moved = true
			if !l.catchUp() {
				l.state.Store(linkBroken)
			}
		}
	}
	return moved
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
	out = out || l.replying.Load() // the socket may have taken all since the last piece: it has room for the next
	if l.stirs.Store(out); out {
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
		l.n.counts.writes.Add(1) // before what it sends can be seen
		k, err := writeSocket(l.fd, bufs, &l.iov)
		switch err {
		case 0:
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
		case err != 0 || k <= 0:
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
		case err != 0 || k <= 0:
			return 0, true, false
		}
		return k, false, false
	}
}

// shutdown makes the socket ready for the look that drops it.
func (l *link) shutdown() { _ = unix.Shutdown(l.fd, unix.SHUT_RDWR) }
