package dpa

import (
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
	rung    chan struct{} // closed by ring; nil: nobody has slept since
}

// ring is called after the store. It costs a load while nobody sleeps.
func (b *bell) ring() {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
	b.mu.Unlock()
}

// sleepMost bounds the sleep of one that is not patient, and with it how late a device that progresses
// by its program's calls gets one.
const sleepMost = 10 * time.Millisecond

// A sleeper sleeps on one bell at a time.
type sleeper struct {
	on      *bell
	patient bool // all that it waits for rings: it sleeps until then
	rung    chan struct{}
	timer   *time.Timer
}

var _ wait.Sleeper = (*sleeper)(nil)

func (s *sleeper) Prepare() {
	s.on.waiting.Add(1)
	s.on.mu.Lock()
	if s.on.rung == nil {
		s.on.rung = make(chan struct{})
	}
	s.rung = s.on.rung
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

func (s *sleeper) Cancel() {
	s.on.waiting.Add(-1)
	s.rung = nil
}
