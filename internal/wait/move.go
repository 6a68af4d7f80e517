package wait

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// A mover moves the thread of a waiting rank to another CPU, on a goroutine of its own
// that lives for one move. sched_setaffinity returns when the kernel has moved the
// thread, and where other programs keep all CPUs busy it was seen to take 4.9 s: a rank
// that called it itself would serve nobody meanwhile.
type mover struct{ moving, stuck atomic.Bool }

// move begins a move of the calling thread, unless one is under way. It is false when an
// earlier one has failed.
func (m *mover) move(cpu int) bool {
	if m.stuck.Load() {
		return false
	}
	if thread := arch.Thread(); m.moving.CompareAndSwap(false, true) {
		go func() {
			if !arch.MoveTo(thread, cpu) {
				m.stuck.Store(true)
			}
			m.moving.Store(false)
		}()
	}
	return true
}
