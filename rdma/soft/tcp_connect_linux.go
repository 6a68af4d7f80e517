package soft

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// How connections become links: dialled or accepted, proven, and joined to the set.

// halfMost bounds the connections that have not proved anything yet. One more
// drives out the oldest, so that strangers cannot keep members of the job out.
const halfMost = 128

// provenMost bounds those that have, and nothing drives them out: with encryption the rest of the
// handshake takes CPU time. One more is refused, and dials again. With more at once each would take longer,
// until none is done within handshakeLimit.
const provenMost = 64

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

// greeted makes a link of a connection that was accepted. Whether the other side has it nobody can know before its first
// frame has come: it may have given up just before the verdict reached it. So nothing is sent over the link until then, and
// what waits for one that has broken before goes over another: see advanceWire. A dialler has a frame for that (call).
func (n *network) greeted(c *os.File) {
	from, err := welcome(c, n.secret, n.secure, n.p.gids, func() error { return n.prove(c) })
	n.whole(&n.half, c)
	if !n.whole(&n.proven, c) || err != nil {
		return
	}
	if from.carried != nil && n.p.addEndpoint(from.gid, from.carried) == nil && n.callBack(from.gid) {
		_ = say(c, from.seal, saidCrossed)
		return
	}
	l, dials := n.expect(from.gid)
	if l == nil {
		_ = say(c, from.seal, saidCrossed)
		return
	}
	if err := say(c, from.seal, saidKept); err == nil {
		l.sealed = sealedBy(from.seal)
		l.unmet.Store(true)
		n.join(l, c)
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
//	lower:  refuses a connection while it has a link, or has begun to greet the other side for one
//	higher: takes every connection, also in place of its own, which it is dialling and which is refused
//
// A peer that connects back where a connection is carried refuses that, too: the lower one then greets no more until its next try.
//
// A lower one whose own connection is still on its way to the other side, which a firewall may drop, greets no more when it
// has taken the other one's.
//
// expect gives the link that a connection from a peer becomes, nil where it is refused. dials: this side has been
// dialling the peer, and would go on if the connection came to nothing.
func (n *network) expect(from rdma.GID) (l *link, dials bool) {
	n.halfMu.Lock()
	defer n.halfMu.Unlock()
	if l = n.byGID[from]; l != nil && l.state.Load() != linkBroken {
		if bytes.Compare(n.p.gids[0][:], from[:]) < 0 && (l.greets || !l.dials) {
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
			// A listener that is not there, or is another one, stays so. A
			// busy one has driven us out, or was too slow, and may do better.
			final := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errStranger) || errors.Is(err, errNowhere)
			if l.peer.inside && !final && !l.peer.checkDead() {
				begin, pause = time.Now(), min(pause, dialPauseMost) // as long as it lives
				if errors.Is(err, errNotYet) {
					pause = min(pause, dialPause/2) // it will at its next poll, and nothing is sent to ask
				}
			}
			if final || time.Since(begin) > n.patience || l.peer.lost.Load() {
				if n.giveUp(l) {
					if f := n.p.cfg.Unreached; f != nil && !l.peer.lost.Load() {
						f(l.from, err)
					}
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
	dialPause     = 5 * time.Millisecond // before the second try, twice that before the third ...
	dialPauseMost = time.Second          // to a peer in the segment, which is asked as long as it lives
	dialLimit     = 20 * time.Second     // see network.patience
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
	c, isCarried, err := n.reach(address, func(c *os.File) {
		n.whole(&n.dialed, begun)
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
	n.halfMu.Lock()
	dials = l.dials
	l.greets = l.greets || dials
	n.halfMu.Unlock()
	if !dials {
		n.whole(&n.dialed, c)
		return errCrossed
	}
	var own []byte
	if isCarried {
		e := n.p.endpoint()
		own = e.append(nil)
	}
	seal, err := greet(c, secret, l.peer.secure(), n.p.gids[0], l.peer.gids[0], own)
	n.whole(&n.dialed, c)
	if err != nil {
		if isCarried && errors.Is(err, errCrossed) {
			n.halfMu.Lock()
			l.greets = false
			n.halfMu.Unlock()
		}
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
	l.uncork()
	return nil
}

// met has a link that this side has dialled be up. The other side waits for a frame: it gets the end of a call that there never
// was, before any other or together with it.
func (l *link) met() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.state.CompareAndSwap(linkDialling, linkUp) {
		return false
	}
	l.corked.add(&frame{kind: frameHangUp})
	return true
}

// join gives a connection that has passed the handshake to the epoll set.
func (n *network) join(l *link, c *os.File) {
	fd := -1
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(have uintptr) {
			tune(int(have), n.p.cfg.silence())
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
	l.fd, l.seen = fd, unix.EPOLLIN
	if n.closed || unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}) != nil ||
		l.state.Load() != linkDialling || !l.unmet.Load() && !l.met() { // it was given up meanwhile
		unix.Close(fd)
		l.fd = -1
		l.state.Store(linkBroken)
		return
	}
	if len(n.links) == 0 {
		n.p.work.busy.Add(1)
	}
	n.links[fd] = l
	n.ring = append(n.ring, l)
	if len(n.ring) == ringMost+1 {
		n.owing = slices.Clone(n.ring) // lookAtAll does not note which of them do
		n.catchUp()                    // nor does lookAtReady come back to what is kept
	}
	n.first.Do(func() {
		n.ended.Add(1)
		go n.stand()
	})
}
