package rank

import (
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// A watch knows which peers share the rank's host and whether they live. It is
// also what the rank sleeps on, and counts the sleeps: a rank that has slept has
// waited for long enough to look after its peers.
type watch struct {
	sleeper wait.Sleeper // nil: naps
	sleeps  uint32
	nap     time.Duration

	// tell says what the rank waits for; nil: nobody reads it.
	tell func()

	segment *shm.Segment
	flags   bool    // a launcher sets the segment's dead flags
	pid     int     // the own one
	peers   []local // by rank in the world
}

// local is a peer on the same host; pid 0: another host.
type local struct {
	pid   int
	index int   // in the segment
	next  int64 // when its process may be looked at again, ns
}

const (
	napLeast = 50 * time.Microsecond
	napMost  = time.Millisecond
	// processEvery bounds how often /proc is asked about a peer, for each
	// peer there is.
	processEvery = int64(time.Millisecond)
)

var _ wait.Sleeper = (*watch)(nil)

// Prepare, Sleep and Cancel are the device's, or naps without one.
func (w *watch) Prepare() {
	if w.sleeper != nil {
		w.sleeper.Prepare()
	}
}

func (w *watch) Sleep(nanoseconds int64) (woken bool) {
	w.sleeps++
	if w.sleeper != nil {
		woken = w.sleeper.Sleep(nanoseconds)
		if !woken && w.tell != nil { // no part of traffic
			w.tell()
		}
		return woken
	}
	w.nap = min(max(2*w.nap, napLeast), napMost)
	time.Sleep(min(w.nap, time.Duration(nanoseconds)))
	return true // so that the rank polls again
}

func (w *watch) Cancel() {
	if w.sleeper != nil {
		w.sleeper.Cancel()
	}
}

// learn takes in which rank is where.
func (w *watch) learn(p *place, cards []wireup.Card) {
	w.segment, w.flags, w.pid = p.segment, p.watched, os.Getpid()
	w.peers = make([]local, len(cards))
	if p.segment == nil {
		return
	}
	for i := range cards {
		if cards[i].Place == p.identity && cards[i].Local < p.segment.Ranks() {
			w.peers[i] = local{pid: cards[i].PID, index: cards[i].Local}
		}
	}
}

// remote tells whether a peer is on another host, where the connection alone
// shows that it is gone, unless the launcher says so before.
func (w *watch) remote(peer int) bool { return w.peers[peer].pid == 0 }

// errDeadElsewhere is of a peer that the launcher has given up: of its process it has heard, or of its host nothing.
var errDeadElsewhere = fmt.Errorf("%w, or its host is lost", ErrPeerDied)

// lost tells whether the launcher has given up a peer on another host. Any goroutine may ask, when the cards are known.
func (w *watch) lost(peer int) bool { return w.segment != nil && w.segment.DeadElsewhere(peer) }

// dead is ErrPeerDied when a peer is known to have ended.
func (w *watch) dead(peer int) error {
	p := &w.peers[peer]
	if p.pid == 0 {
		if w.lost(peer) {
			return errDeadElsewhere
		}
		return nil
	}
	if w.segment.Dead(p.index) {
		return ErrPeerDied
	}
	if w.flags || p.pid == w.pid {
		return nil
	}
	// Nobody tells: ask the kernel, now and then.
	if now := time.Now().UnixNano(); now >= p.next {
		p.next = now + processEvery*int64(len(w.peers))
		if !proc.Alive(p.pid) {
			w.segment.SetDead(p.index)
			return ErrPeerDied
		}
	}
	return nil
}

// mark is a word that is 0 until a peer dies, nil where only dead tells.
func (w *watch) mark(peer int) *uint32 {
	if p := &w.peers[peer]; p.pid != 0 && (w.flags || p.pid == w.pid) {
		return w.segment.DeadMark(p.index)
	}
	return nil
}
