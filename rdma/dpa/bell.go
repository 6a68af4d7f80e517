package dpa

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
)

// A bell wakes the goroutines of this process that sleep until a word changes. No wake-up is lost: a
// sleeper counts itself and then looks at the word, a publisher stores the word and then looks at
// the count, each by atomic operations that Go orders, so one of them sees the other.
type bell struct {
	waiting atomic.Int32
	mu      sync.Mutex
	asleep  []*sleeper // those that ring wakes
}

// ring is called after the store. It costs a load while nobody sleeps.
func (b *bell) ring() {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	for _, s := range b.asleep {
		s.rung <- struct{}{} // it is in the list once, with room
	}
	b.asleep = b.asleep[:0]
	b.mu.Unlock()
}

// sleepMost bounds the sleep of one that is not patient, and with it how late a device that progresses
// by its program's calls gets one.
const sleepMost = 10 * time.Millisecond

// A sleeper sleeps on one bell at a time. It keeps what it sleeps by, so that a sleep allocates nothing.
type sleeper struct {
	on      *bell
	patient bool // all that it waits for rings: it sleeps until then
	rung    chan struct{}
	timer   *time.Timer
}

var _ wait.Sleeper = (*sleeper)(nil)

func (s *sleeper) Prepare() {
	if s.rung == nil {
		s.rung = make(chan struct{}, 1)
	}
	s.on.waiting.Add(1)
	s.on.mu.Lock()
	s.on.asleep = append(s.on.asleep, s)
	s.on.mu.Unlock()
}

func (s *sleeper) Sleep(nanoseconds int64) (woken bool) {
	if s.patient {
		<-s.rung
		s.Cancel()
		return true
	}
	d := min(time.Duration(nanoseconds), sleepMost)
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	select {
	case <-s.rung:
		woken = true
	case <-s.timer.C:
	}
	s.timer.Stop()
	s.Cancel()
	return woken
}

// Cancel leaves the bell, and forgets that it has rung.
func (s *sleeper) Cancel() {
	s.on.waiting.Add(-1)
	s.on.mu.Lock()
	if i := slices.Index(s.on.asleep, s); i >= 0 {
		s.on.asleep = slices.Delete(s.on.asleep, i, i+1)
	}
	s.on.mu.Unlock()
	select {
	case <-s.rung:
	default:
	}
}
