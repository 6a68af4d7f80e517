package testenv

import (
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/yardstick"
)

// Limit is how long a test waits for something before it takes it for hung: d, stretched
// for this machine. A limit is no verdict on speed: what must be fast is counted
// (system calls, wake-ups, packets, allocations), or is a benchmark.
//
// All limits of tests are stretched here and nowhere else. Deadline, Await and Holds do
// so themselves.
func Limit(d time.Duration) time.Duration { return time.Duration(float64(d) * stretch()) }

// stretch is by how much this machine stretches limits. Tests run beside other work, so
// it is never less than leastStretch; a machine that is slow by itself stretches more. It
// is measured when first asked for: a rank that is the test's own program seldom waits, and
// to measure takes as long as all else of its start.
var stretch = sync.OnceValue(func() float64 { return min(max(leastStretch, slowness()), mostStretch) })

const (
	leastStretch = 5
	mostStretch  = 30

	// What these cost on an idle machine with cheap kernel entries.
	usualCall = 200 * time.Nanosecond // a system call
	usualHand = 20 * time.Microsecond // a byte through a pipe to another thread and back
	usualFork = time.Millisecond      // a process that starts, does nothing and ends
)

// slowness is how many times as much a system call, a hand-over between threads or a
// process costs here and now: the worst of the three.
func slowness() float64 {
	return max(ratio(yardstick.Call(), usualCall), ratio(yardstick.Hand(), usualHand), ratio(yardstick.Fork(), usualFork))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
