package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// A Segment is the memory that the ranks of one host share.
type Segment struct {
	layout
	fd         int    // -1 for local
	head       []byte // the mapped header; nil for local
	whole      []byte // all of the file, once an arena was asked for; nil for local
	apart      bool   // it cannot be mapped as a whole: each arena is
	entries    []rankEntry
	elsewhere  []uint64 // the marks of ranks of other hosts, a bit for each
	bells      []Bell
	alarms     []Bell
	besides    []Bell
	nobody     uint32 // the second word of bells that have none
	covered    coverage
	arenas     []atomic.Pointer[[]byte] // nil until asked for; published under mu
	mapArena   func(s *Segment, rank int) ([]byte, error)
	unmapArena func(s *Segment, arena []byte) error

	mu     sync.Mutex // guards the mapping of arenas, and
	mapped int        // how many were asked for
	closed bool
}

// NewLocal makes a segment for ranks that are goroutines of this process:
// anonymous memory, or the Go heap in builds with the race detector, which sees
// no other.
func NewLocal(g Geometry) (*Segment, error) {
	l, err := g.lay(uint64(os.Getpagesize()))
	if err != nil {
		return nil, fmt.Errorf("create local segment: %w", err)
	}
	s := &Segment{layout: l, fd: -1, mapArena: newArena, unmapArena: freeArena}
	s.serve(make([]rankEntry, l.Ranks), make([]uint64, l.markWords()))
	for i := range s.bells {
		s.bells[i].wake = make(chan struct{}, 1)
		s.alarms[i].wake = make(chan struct{}, 1)
		s.besides[i].wake = make(chan struct{}, 1)
	}
	return s, nil
}

// serve sets up what stands on the rank entries, and the marks.
func (s *Segment) serve(entries []rankEntry, elsewhere []uint64) {
	s.entries, s.elsewhere = entries, elsewhere
	s.arenas = make([]atomic.Pointer[[]byte], len(entries))
	s.bells = make([]Bell, len(entries))
	s.alarms = make([]Bell, len(entries))
	s.besides = make([]Bell, len(entries))
	for i := range s.bells {
		s.bells[i].word, s.alarms[i].word, s.besides[i].word = &entries[i].bell, &entries[i].alarm, &entries[i].beside
		for _, b := range []*Bell{&s.bells[i], &s.alarms[i], &s.besides[i]} {
			b.covered, b.second = &s.covered, &s.nobody
		}
		s.bells[i].second, s.bells[i].beside = &entries[i].beside, &s.besides[i]
	}
}

// FD is the segment's descriptor, which the Segment keeps owning; -1 for a
// local one.
func (s *Segment) FD() int { return s.fd }

// Ranks is the number of local ranks.
func (s *Segment) Ranks() int { return s.layout.Ranks }

// ArenaSize is the size of each rank's arena in bytes.
func (s *Segment) ArenaSize() uint64 { return s.layout.ArenaSize }

// Arena is a rank's arena, zeroed at the job's start and page aligned. It is
// mapped when one is first asked for, and stays until Close. It is left out of
// core dumps.
func (s *Segment) Arena(rank int) ([]byte, error) {
	if rank < 0 || rank >= len(s.arenas) {
		return nil, fmt.Errorf("map arena %d: the segment has %d", rank, len(s.arenas))
	}
	if a := s.arenas[rank].Load(); a != nil {
		return *a, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("map arena %d: %w", rank, os.ErrClosed)
	}
	if a := s.arenas[rank].Load(); a != nil {
		return *a, nil
	}
	if s.mapped++; s.mapped > 1 {
		s.covered.begin()
	}
	a, err := s.mapArena(s, rank)
	if err != nil {
		return nil, fmt.Errorf("map arena %d of %d bytes: %w%s", rank, s.layout.ArenaSize, err, whyNoRoom())
	}
	s.arenas[rank].Store(&a)
	return a, nil
}

// SetDead notes that a rank's process has ended and wakes every rank that
// sleeps. The launcher calls it after the end and before the PID is free again.
func (s *Segment) SetDead(rank int) {
	s.MarkDead(rank)
	s.ringAll(rank)
}

// MarkDead is SetDead that wakes nobody: where all ranks are told to end, each would be woken by the end
// of each other.
func (s *Segment) MarkDead(rank int) { atomic.StoreUint32(&s.entries[rank].dead, 1) }

// ringAll wakes every rank that sleeps but one; -1: every one.
func (s *Segment) ringAll(but int) {
	for i := range s.bells {
		if i != but {
			s.bells[i].Ring()
			s.alarms[i].Ring()
		}
	}
}

// Dead tells whether a rank's process has ended.
func (s *Segment) Dead(rank int) bool { return atomic.LoadUint32(&s.entries[rank].dead) != 0 }

// DeadMark is the word by which Dead tells, for those that ask often: not 0 when the process has ended.
func (s *Segment) DeadMark(rank int) *uint32 { return &s.entries[rank].dead }

// SetDeadElsewhere notes that ranks of the world are dead which are on other hosts, and wakes every rank that sleeps.
// The launcher calls it. Ranks that have no mark ([Geometry].World) are passed over.
func (s *Segment) SetDeadElsewhere(ranks []int) {
	for _, rank := range ranks {
		if rank >= 0 && rank < s.World {
			atomic.OrUint64(&s.elsewhere[rank/64], 1<<(rank%64)) // in front of ringAll, as Bell wants it
		}
	}
	s.ringAll(-1)
}

// DeadElsewhere tells whether a rank of the world is known to be dead on another host. It costs a load.
func (s *Segment) DeadElsewhere(rank int) bool {
	return rank >= 0 && rank < s.World && atomic.LoadUint64(&s.elsewhere[rank/64])>>(rank%64)&1 != 0
}

// SetUsed is told by a daemon when it is first given something to do, and Used tells
// whether it was, when all is over.
func (s *Segment) SetUsed(number int) { atomic.StoreUint32(&s.entries[number].used, 1) }

// Used tells whether [Segment.SetUsed] was told so.
func (s *Segment) Used(number int) bool { return atomic.LoadUint32(&s.entries[number].used) != 0 }

// Beat is told by a thread of a daemon, by its operating system's number, that it is well: before
// each piece of work, and before each sleep.
func (s *Segment) Beat(number, thread int) {
	e := &s.entries[number].beat
	atomic.StoreUint64(e, uint64(uint32(thread))<<32|uint64(uint32(atomic.LoadUint64(e)+1)))
}

// Beats is the last thread that has told so, 0 if none has, and a count that changes with each Beat.
func (s *Segment) Beats(number int) (thread int, count uint32) {
	w := atomic.LoadUint64(&s.entries[number].beat)
	return int(uint32(w >> 32)), uint32(w)
}

// Bell is a rank's bell: its own to sleep on, a peer's to ring.
func (s *Segment) Bell(rank int) *Bell { return &s.bells[rank] }

// Beside is the bell of a second thread of the rank. A Ring of the rank's Bell rings it too.
func (s *Segment) Beside(rank int) *Bell { return &s.besides[rank] }

// Alarm is a rank's other bell, on which its device sleeps for events that its
// program waits for without polling.
func (s *Segment) Alarm(rank int) *Bell { return &s.alarms[rank] }

// Close unmaps the segment and closes its descriptor. Arenas and bells must not
// be used any more. Closing twice is no error.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.covered.end()
	var errs []error
	for i := range s.arenas {
		if a := s.arenas[i].Swap(nil); a != nil {
			errs = append(errs, s.unmapArena(s, *a))
		}
	}
	errs = append(errs, s.closeFile())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close segment: %w", err)
	}
	return nil
}
