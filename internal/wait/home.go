package wait

import (
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// A thread looks at least this often, and at most that often, whether it still runs on
// the CPU of its place.
const homeMost, homeLeast = 128 * time.Millisecond, time.Millisecond

// A Home is the CPU of a thread's place, to which the thread returns from time to time.
// The kernel gathers threads that hand over to each other, or that one event wakes, on
// one CPU and leaves others idle. A thread is not bound to its home: where another program
// needs that CPU the kernel may move the thread away, for up to 128 ms.
//
// It belongs to the thread.
type Home struct {
	cpu    int // -1: moving there is in vain
	looked time.Time
	stay   time.Duration // from looked to the next look
	at     func(cpu int) bool
	move   func(cpu int) bool
}

// NewHome makes the home of a thread: the cpu-th, counted round, of the CPUs that it may use.
func NewHome(cpu int) *Home {
	return &Home{cpu: cpu, stay: homeLeast, at: arch.At, move: newMover().move}
}

// Look begins to move the calling thread home if it is away, unless the last look was a
// short time ago. It looks less often where the thread does not stay. It does not block:
// a goroutine that lives for one move moves the thread.
func (h *Home) Look(now time.Time) {
	if h.cpu < 0 || now.Sub(h.looked) < h.stay {
		return
	}
	h.looked = now
	switch {
	case h.at(h.cpu):
		h.stay = max(h.stay/2, homeLeast)
	case h.move(h.cpu):
		h.stay = min(2*h.stay, homeMost)
	default:
		h.cpu = -1
	}
}
