package host

import (
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// watcher looks at the ranks from outside.
type watcher struct {
	*base
	server     *server
	pmix       *pmixServer
	singletons singletonSearch
	stall      stallWatch
	sample     time.Time // when to look at what ranks use; zero: never
	crashLook  time.Time // when to look at ranks that report a crash; zero: never
	quitting   bool      // ranks were made to write their stacks and end
}

// A job hangs, as far as can be seen from outside, when nothing moves on any host for
// Spec.Hang: no rank writes, reads its input, ends or talks to its PMI server, and none uses
// a CPU, which here is a twentieth of the time. A rank that has said
// what it waits for, and still waits for it, does not move whatever CPU its polls take.
type stallWatch struct {
	next  time.Time             // when it is looked at again; zero: never
	since time.Time             // nothing has moved
	seen  uint64                // of base.moves
	cpu   map[int]time.Duration // used, by local rank
	at    time.Time             // when they were read
	told  bool                  // that nothing moves
	clock time.Duration         // of the ranks' records, then
}

const (
	// stallDivisor: a rank that does nothing takes at most one CPU by this number.
	stallDivisor = 20
	// stallLooks is how often the host looks in the time that is a hang.
	stallLooks = 5
	// stallLeast and stallMost bound the time between two looks.
	stallLeast, stallMost = 50 * time.Millisecond, 10 * time.Second
)

func (w *watcher) beginStallWatch() {
	if w.spec.Hang > 0 {
		now := time.Now()
		w.stall = stallWatch{next: now, since: now, at: now}
	}
}

// stallOnTime looks whether anything has moved.
func (w *watcher) stallOnTime(now time.Time) {
	s := &w.stall
	if s.next.IsZero() || now.Before(s.next) {
		return
	}
	s.next = now.Add(min(max(w.spec.Hang/stallLooks, stallLeast), stallMost))
	if w.hasMoved(now) {
		s.since = now
		if s.told {
			s.told = false
			w.emit(Event{Kind: Stalled})
		}
		return
	}
	if !s.told && w.running > 0 && !w.toEnd && now.Sub(s.since) >= w.spec.Hang {
		s.told = true
		w.emit(Event{Kind: Stalled, N: 1})
	}
}

// hasMoved tells whether anything has since it was called last.
func (w *watcher) hasMoved(now time.Time) bool {
	s := &w.stall
	moves := w.moves.Load()
	moved := s.seen != moves
	took := now.Sub(s.at)
	s.seen, s.at = moves, now
	clock := sharedClock()
	cpu := make(map[int]time.Duration)
	for local, list := range w.processes() {
		for _, p := range list {
			cpu[local] += p.CPU
		}
		if cpu[local]-s.cpu[local] <= took/stallDivisor+proc.Tick {
			continue
		}
		wait, ok := w.segment.Waits(local, clock)
		if !ok || wait.Since < clock-s.clock || wait.Looked > clock-s.clock {
			moved = true
		}
	}
	s.cpu, s.clock = cpu, clock
	return moved
}
