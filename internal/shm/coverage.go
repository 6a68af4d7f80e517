package shm

import (
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// coverageDelay is how long a process has others' arenas before it registers.
const coverageDelay = 30 * time.Millisecond

// coverage tells whether sleepers' barriers reach this process: then its own
// [Bell.Ring] needs none.
//
// Registering takes 7-10 ms in a process with threads (Linux 6.18), during which
// the process cannot even exit. So it waits until the process has shown that it
// lives longer than a start-up, and happens on a goroutine of its own; until
// then Ring pays for a full barrier each time.
type coverage struct {
	on       atomic.Bool
	timer    *time.Timer   // nil when there is nothing to wait for
	finished chan struct{} // closed when the timer's goroutine is done
}

// begin starts the clock, or finds that the process is registered. It is called
// when a process has asked for a second arena, with the segment's mu held: one that
// only made the segment, as a launcher does, or has no arena but its own, as a rank
// that has not talked with others yet, has nothing to ring for.
func (c *coverage) begin() {
	if c.finished != nil || c.on.Load() {
		return
	}
	if arch.MembarrierRegistered() {
		c.on.Store(true)
		return
	}
	c.finished = make(chan struct{})
	c.timer = time.AfterFunc(coverageDelay, func() {
		defer close(c.finished)
		if arch.RegisterMembarrier() {
			c.on.Store(true)
		}
	})
}

// end stops the clock and waits for the goroutine. It may be called again.
func (c *coverage) end() {
	if c.timer != nil && !c.timer.Stop() {
		<-c.finished
	}
	c.timer = nil
}
