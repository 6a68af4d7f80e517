package host

import (
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// A job hangs, as far as can be seen from outside, when nothing moves on any host for
// Spec.Hang: no rank writes, reads its input, ends or talks to its PMI server, and none uses
// a CPU, which here is a twentieth of the time. A rank that has said
// what it waits for, and still waits for it, does not move whatever CPU its polls take.
type stallWatch struct {
	next  time.Time             // when it is looked at again; zero: never
	since time.Time             // nothing has moved
	seen  uint64                // of Host.moves
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

func (h *Host) beginStallWatch() {
	if h.spec.Hang > 0 {
		now := time.Now()
		h.stall = stallWatch{next: now, since: now, at: now}
	}
}

// stallOnTime looks whether anything has moved.
func (h *Host) stallOnTime(now time.Time) {
	s := &h.stall
	if s.next.IsZero() || now.Before(s.next) {
		return
	}
	s.next = now.Add(min(max(h.spec.Hang/stallLooks, stallLeast), stallMost))
	if h.hasMoved(now) {
		s.since = now
		if s.told {
			s.told = false
			h.emit(Event{Kind: Stalled})
		}
		return
	}
	if !s.told && h.running > 0 && !h.ending.begun && now.Sub(s.since) >= h.spec.Hang {
		s.told = true
		h.emit(Event{Kind: Stalled, N: 1})
	}
}

// hasMoved tells whether anything has since it was called last.
func (h *Host) hasMoved(now time.Time) bool {
	s := &h.stall
	moves := h.moves.Load()
	moved := s.seen != moves
	took := now.Sub(s.at)
	s.seen, s.at = moves, now
	clock := sharedClock()
	cpu := make(map[int]time.Duration)
	for local, list := range h.processes() {
		for _, p := range list {
			cpu[local] += p.CPU
		}
		if cpu[local]-s.cpu[local] <= took/stallDivisor+proc.Tick {
			continue
		}
		w, ok := h.segment.Waits(local, clock)
		if !ok || w.Since < clock-s.clock || w.Looked > clock-s.clock {
			moved = true
		}
	}
	s.cpu, s.clock = cpu, clock
	return moved
}
