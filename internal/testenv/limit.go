package testenv

import (
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Limit is how long a test waits for something before it takes it for hung: d, stretched
// for this machine. A limit is no verdict on speed: what must be fast is counted
// (system calls, wake-ups, packets, allocations), or is a benchmark.
//
// All limits of tests are stretched here and nowhere else. Deadline, Await and Holds do
// so themselves.
func Limit(d time.Duration) time.Duration { return time.Duration(float64(d) * stretch) }

// stretch is by how much this machine stretches limits. Tests run beside other work, so
// it is never less than leastStretch; a machine that is slow by itself stretches more.
var stretch = min(max(leastStretch, slowness()), mostStretch)

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
	const calls, hands, forks = 1000, 20, 3
	call := each(calls, func() { unix.Getppid() })
	there, back := pipe(), pipe()
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for b := make([]byte, 1); ; {
			if n, _ := unix.Read(there[0], b); n != 1 {
				unix.Close(there[0])
				unix.Close(back[1])
				return
			}
			_, _ = unix.Write(back[1], b)
		}
	}()
	b := make([]byte, 1)
	hand := each(hands, func() {
		_, _ = unix.Write(there[1], b)
		_, _ = unix.Read(back[0], b)
	})
	unix.Close(there[1])
	_, _ = unix.Read(back[0], b) // its other end is closed by the thread, which is done then
	unix.Close(back[0])
	fork := each(forks, func() { _ = exec.Command("/bin/true").Run() })
	return max(ratio(call, usualCall), ratio(hand, usualHand), ratio(fork, usualFork))
}

func pipe() (p [2]int) {
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		panic(os.NewSyscallError("pipe2", err))
	}
	return p
}

// each is what one of n calls took.
func each(n int, f func()) time.Duration {
	begin := time.Now()
	for range n {
		f()
	}
	return time.Since(begin) / time.Duration(n)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
