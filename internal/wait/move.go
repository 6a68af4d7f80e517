package wait

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// A mover moves the thread of a waiting rank to another CPU, on a goroutine of its own
// that lives for one move. sched_setaffinity returns when the kernel has moved the
// thread, and where other programs keep all CPUs busy it was seen to take 4.9 s: a rank
// that called it itself would serve nobody meanwhile.
type mover struct {
	moving, stuck atomic.Bool
	thread, cpu   int    // of the move that is under way
	begun         func() // run, kept: where all CPUs are busy a thread moves every few milliseconds, and allocates nothing for it
}

func newMover() *mover {
	m := new(mover)
	m.begun = m.run
	return m
}

// move begins a move of the calling thread, unless one is under way. It is false when an
// earlier one has failed.
func (m *mover) move(cpu int) bool {
	if m.stuck.Load() {
		return false
	}
	if m.moving.CompareAndSwap(false, true) {
		m.thread, m.cpu = arch.Thread(), cpu
		go m.begun()
	}
	return true
}

func (m *mover) run() {
	if !arch.MoveTo(m.thread, m.cpu) {
		m.stuck.Store(true)
	}
	m.moving.Store(false)
}
