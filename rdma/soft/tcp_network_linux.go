package soft

import (
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

// network is a provider's TCP: a listener and the links, all in one epoll set
// that the owner's polling looks at. When the owner does not poll, a goroutine
// does, which sleeps on the set itself in Go's netpoller.
//
// Locks: mu before any queue pair's mu before a link's mu.
type network struct {
	p        *Provider
	listener *os.File
	secret   []byte // of the links
	address  string
	port     uint16
	epoll    int
	file     *os.File // owns epoll
	polled   atomic.Bool

	mu     sync.Mutex    // guards reading from the links and what follows:
	links  map[int]*link // by descriptor
	events [64]unix.EpollEvent
	buf    []byte // what is being read
	closed bool

	halfMu sync.Mutex // guards what follows
	half   []*os.File // accepted and in the handshake, oldest first
	dialed []*os.File // dialled and in the handshake
	shut   bool

	quit   chan struct{}
	server sync.Once // starts serve with the first link
	ended  sync.WaitGroup
}

// halfMost bounds the connections that have not proved anything yet. One more
// drives out the oldest, so that strangers cannot keep members of the job out.
const halfMost = 128

// newNetwork listens for links, whose two sides prove to each other that they know
// the secret.
func newNetwork(p *Provider, secret []byte) (*network, error) {
	at := cmp.Or(p.cfg.Listen, "127.0.0.1:0")
	l, bound, err := listen(at)
	if err != nil {
		return nil, &rdma.OpError{Op: "soft.New", Detail: "listen for TCP links on " + at, Err: err}
	}
	n := &network{p: p, secret: secret, port: bound.Port(), listener: l, links: make(map[int]*link), quit: make(chan struct{})}
	if n.address, err = advertised(bound, p.cfg.Advertise); err != nil {
		l.Close()
		return nil, &rdma.OpError{Op: "soft.New", Detail: err.Error(), Err: rdma.ErrInvalid}
	}
	n.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen for TCP links: epoll: %w", err)
	}
	// Only a non-blocking descriptor goes into Go's netpoller.
	if err := unix.SetNonblock(n.epoll, true); err != nil {
		l.Close()
		unix.Close(n.epoll)
		return nil, fmt.Errorf("listen for TCP links: %w", err)
	}
	n.file = os.NewFile(uintptr(n.epoll), "links")
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
			from, err := welcome(c, n.secret, n.p.gids)
			if n.whole(&n.half, c) && err == nil && keep(c) == nil {
				l := &link{n: n, from: from}
				n.join(l, c)
			}
			c.Close()
		}()
	}
}

// whole takes a connection out of one of the lists of those in the handshake.
// It is false when it was driven out.
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

// dial starts a link for requests to a peer. It is used while it is being made.
func (n *network) dial(s *peer) *link {
	l := &link{n: n, peer: s, from: s.gids[0]}
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	if n.shut {
		l.state.Store(linkBroken)
		return l
	}
	n.ended.Add(1)
	go func() {
		defer n.ended.Done()
		begin := time.Now()
		for pause := dialPause; ; pause *= 2 {
			err := n.call(l)
			if err == nil {
				break
			}
			if errors.Is(err, errNotYet) && !l.peer.checkDead() {
				begin, pause = time.Now(), min(pause, dialPause/2) // as long as it lives
			}
			// A listener that is not there, or is another one, stays so. A
			// busy one has driven us out, or was too slow, and may do better.
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errStranger) || errors.Is(err, errNowhere) || time.Since(begin) > dialLimit {
				l.peer.gone.Store(time.Since(begin) <= dialLimit)
				l.state.Store(linkBroken)
				break
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
	return l
}

const (
	dialPause = 5 * time.Millisecond // before the second try, twice that before the third ...
	dialLimit = 20 * time.Second     // no try begins later
)

// call tries once to bring a link up.
func (n *network) call(l *link) error {
	address, secret, err := l.peer.listener()
	if err != nil {
		return err
	}
	c, err := dial(address, handshakeLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	n.halfMu.Lock()
	if n.shut {
		n.halfMu.Unlock()
		return errStranger
	}
	n.dialed = append(n.dialed, c)
	n.halfMu.Unlock()
	err = greet(c, secret, n.p.gids[0], l.peer.gids[0])
	n.whole(&n.dialed, c)
	if err == nil {
		n.join(l, c)
	}
	return err
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
	l.state.Store(linkUp)
	n.server.Do(func() {
		n.ended.Add(1)
		go n.serve()
	})
}

// poll serves the links that are ready. It tells whether there were any, and
// whether it looked at all: it gives way to another goroutine's look.
func (n *network) poll() (moved, looked bool) {
	if !n.polled.Load() {
		n.polled.Store(true)
	}
	return n.look()
}

func (n *network) look() (moved, looked bool) {
	if !n.mu.TryLock() {
		return false, false
	}
	defer n.mu.Unlock()
	return n.lookLocked(), true
}

// lookLocked is look with mu held.
func (n *network) lookLocked() (moved bool) {
	if n.closed || len(n.links) == 0 {
		return false
	}
	k, err := unix.EpollWait(n.epoll, n.events[:], 0)
	if err != nil {
		return false
	}
	for _, ev := range n.events[:max(k, 0)] {
		l := n.links[int(ev.Fd)]
		if l == nil {
			continue
		}
		moved = true
		if ev.Events&unix.EPOLLOUT != 0 {
			l.flush()
			l.resume()
		}
		if ev.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			if ev.Events&unix.EPOLLHUP != 0 && l.paused() {
				l.state.Store(linkBroken) // there is no peer to go on for
			} else {
				l.receive()
			}
		}
		l.flush()
		if l.state.Load() == linkBroken {
			n.drop(l)
		}
	}
	return moved
}

// drop takes a link out. Called with mu held.
func (n *network) drop(l *link) {
	if n.links[l.fd] != l {
		return
	}
	delete(n.links, l.fd)
	if len(n.links) == 0 {
		n.p.work.busy.Add(-1)
	}
	l.mu.Lock()
	l.state.Store(linkBroken)
	unix.Close(l.fd)
	l.fd = -1
	l.out = nil
	l.mu.Unlock()
	if l.peer == nil {
		l.n.p.abandon(l)
	}
}

// serve is the goroutine that stands in for an owner that does not poll.
func (n *network) serve() {
	defer n.ended.Done()
	raw, err := n.file.SyscallConn()
	if err != nil {
		return
	}
	t := time.NewTimer(tick)
	defer t.Stop()
	for {
		if n.polled.Swap(false) {
			t.Reset(tick)
			select {
			case <-t.C:
				continue
			case <-n.quit:
				return
			}
		}
		if moved, _ := n.look(); moved {
			n.p.self.bell.Ring()
			continue
		}
		waited := false
		err := raw.Read(func(uintptr) bool {
			if waited {
				return true
			}
			waited = true
			// Read has just forgotten the edges before, so this look must
			// not give way to anybody: what it finds nothing of is what the
			// next edge tells of.
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.lookLocked()
		})
		if err != nil {
			return
		}
		n.p.self.bell.Ring()
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
	for _, c := range append(n.half, n.dialed...) {
		c.Close()
	}
	n.halfMu.Unlock()
	n.listener.Close()
	n.mu.Lock()
	n.closed = true
	for _, l := range n.links {
		n.drop(l)
	}
	n.mu.Unlock()
	n.file.Close()
	n.ended.Wait()
}

// watch asks for a word when the link can be written again, or not. Called
// with the link's mu held.
func (l *link) watch(out bool) {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.fd)}
	if out {
		ev.Events |= unix.EPOLLOUT
	}
	if l.paused() {
		ev.Events &^= unix.EPOLLIN
	}
	if ev.Events != l.seen {
		l.seen = ev.Events
		_ = unix.EpollCtl(l.n.epoll, unix.EPOLL_CTL_MOD, l.fd, &ev)
	}
}

// write sends what the socket takes of bufs.
func (l *link) write(bufs [][]byte) (int, error) {
	for {
		k, err := unix.Writev(l.fd, bufs)
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

// read fills b with what the socket has; 0 is nothing yet.
func (l *link) read(b []byte) (k int, end bool) {
	for {
		k, err := unix.Read(l.fd, b)
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

// shutdown makes the socket ready for the look that drops it.
func (l *link) shutdown() { _ = unix.Shutdown(l.fd, unix.SHUT_RDWR) }
