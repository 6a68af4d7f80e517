package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guard is the goroutine that stands in for an owner that does not poll:
//
//	OFF  the owner polls. The guard sleeps by the clock, and looks every tick whether
//	     the owner has looked at the sockets since. Nothing that comes wakes it.
//	ON   the owner has not for a tick, or it sleeps. The guard sleeps on the set, serves
//	     what comes, and rings the owner's bell.
//
//	OFF -> ON   a tick without a look of the owner, or its takeOver, before it sleeps
//	ON -> OFF   something has come, and the owner is inside a poll
//	ON -> OFF   relieveAfter looks of the owner: it is back for longer than the one look
//	            between two sleeps
//
// Either side announces itself before it looks for the other (polled, on), by
// atomics in sequence: so they never both believe that the other one reads.
type guard struct {
	event  int           // eventfd in the set, which ends the sleep on it
	polled atomic.Bool   // the owner has looked since the guard asked
	on     atomic.Bool   // asleep on the set, or about to be
	looks  atomic.Uint32 // of the owner, while on
	over   chan struct{} // of takeOver
}

// relieveAfter is how many looks of the owner end the guard's.
const relieveAfter = 16

func (g *guard) init(epoll int) (err error) {
	if g.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, g.event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(g.event)}); err != nil {
		g.close()
		return fmt.Errorf("epoll: %w", err)
	}
	g.over = make(chan struct{}, 1)
	return nil
}

func (g *guard) close() { unix.Close(g.event) }

// wake ends the sleep on the set.
func (g *guard) wake() { _, _ = unix.Write(g.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// relieve says that the owner is about to look. It costs two loads.
func (g *guard) relieve() {
	if !g.polled.Load() {
		g.polled.Store(true)
	}
	if g.on.Load() && g.looks.Add(1) > relieveAfter && g.on.CompareAndSwap(true, false) {
		g.wake()
	}
}

// takeOver says that the owner is about to sleep. What comes from now on, and what
// has come since its last look, wakes the guard, which rings the owner's bell.
func (g *guard) takeOver() {
	g.polled.Store(false)
	if g.on.Load() {
		g.looks.Store(0)
		return
	}
	select {
	case g.over <- struct{}{}:
	default:
	}
}

// stand is the guard.
func (n *network) stand() {
	defer n.ended.Done()
	g := &n.guard
	t := time.NewTimer(tick)
	defer t.Stop()
	inside := false // the owner was, when the guard was to stand in
	for {
		if g.polled.Swap(false) || inside {
			inside = false
			t.Reset(tick)
			select {
			case <-t.C:
			case <-g.over:
			case <-n.quit:
				return
			}
			continue
		}
		g.looks.Store(0)
		g.on.Store(true)
		if g.polled.Load() {
			g.on.Store(false)
			continue
		}
		// What the owner's last look left. A look that begins behind this finds the
		// guard on and leaves nothing.
		n.flushAll()
		relieved, ok := n.sleepOnSet()
		if !ok {
			return
		}
		if relieved {
			continue
		}
		inside = !n.standIn()
	}
}

// standIn does what a poll of the owner would, and wakes it if that changed anything. It is
// false where the owner is inside such a poll, perhaps without a CPU: what has come is still there, and
// would end a sleep on the set at once.
func (n *network) standIn() bool {
	moved, turn := n.p.work.advance(true)
	if moved {
		n.p.self.bell.Ring()
	}
	return turn
}

// sleepOnSet waits for a socket. relieved: the owner has ended it. ok is false when the
// network closes.
func (n *network) sleepOnSet() (relieved, ok bool) {
	var events [1]unix.EpollEvent
	for {
		_, err := unix.EpollWait(n.epoll, events[:], -1)
		n.counts.sleeps.Add(1)
		if err == nil {
			break
		}
		if err != syscall.EINTR {
			return false, false
		}
	}
	relieved = !n.guard.on.Swap(false)
	if relieved || events[0].Fd == int32(n.guard.event) {
		var b [8]byte
		_, _ = unix.Read(n.guard.event, b[:])
	}
	select {
	case <-n.quit:
		return relieved, false
	default:
		return relieved, true
	}
}
