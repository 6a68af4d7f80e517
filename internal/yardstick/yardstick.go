// Package yardstick measures what a machine charges for the things that all programs pay
// for: it makes figures of two machines comparable, and tells tests how long to wait.
package yardstick

import (
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Costs are what each takes, here and now; 0 where it could not be measured.
type Costs struct {
	Call  time.Duration // a system call
	Fault time.Duration // the first touch of a page of memory
	Hand  time.Duration // a byte through a pipe to another thread and back
	Line  time.Duration // a cache line to another CPU and back
	Fork  time.Duration // a process that starts, does nothing and ends
}

const (
	calls, pages, hands, lines, forks = 1000, 256, 20, 2000, 3
	// linesMost ends the exchange of a line where the other CPU has other work.
	linesMost = 20 * time.Millisecond
)

// Take takes some ten milliseconds on an idle machine.
func Take() Costs {
	return Costs{Call: Call(), Fault: Fault(), Hand: Hand(), Line: Line(), Fork: Fork()}
}

// each is what one of n calls took.
func each(n int, f func()) time.Duration {
	begin := time.Now()
	for range n {
		f()
	}
	return time.Since(begin) / time.Duration(n)
}

// Fault measures Costs.Fault.
func Fault() time.Duration {
	size := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Munmap(b) }()
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // one fault would bring them all
	at := 0
	return each(pages, func() {
		b[at] = 1
		at += size
	})
}

// Call measures Costs.Call.
func Call() time.Duration { return each(calls, func() { unix.Getppid() }) }

// Hand measures Costs.Hand.
func Hand() time.Duration {
	there, err := pipe()
	if err != nil {
		return 0
	}
	back, err := pipe()
	if err != nil {
		_ = unix.Close(there[0])
		_ = unix.Close(there[1])
		return 0
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for b := make([]byte, 1); ; {
			if n, _ := unix.Read(there[0], b); n != 1 {
				_ = unix.Close(there[0])
				_ = unix.Close(back[1])
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
	_ = unix.Close(there[1])
	_, _ = unix.Read(back[0], b) // its other end is closed by the thread, which is done then
	_ = unix.Close(back[0])
	return hand
}

func pipe() (p [2]int, err error) {
	err = unix.Pipe2(p[:], unix.O_CLOEXEC)
	return p, err
}

// Line measures Costs.Line: two threads take turns at a word. Where they have no CPU each,
// it cannot.
func Line() time.Duration {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	var line struct {
		_    [64]byte
		turn atomic.Int64
		_    [64]byte
	}
	done := make(chan struct{})
	begin := time.Now()
	late := func(polls int) bool { return polls%1024 == 1023 && time.Since(begin) > linesMost }
	// turns waits for each number that is parity modulo 2 and writes the next.
	turns := func(parity int64) (n int) {
		for polls := 0; n < lines && !late(polls); polls++ {
			if line.turn.Load() == int64(2*n)+parity {
				line.turn.Add(1)
				n++
				polls = 0
			}
		}
		return n
	}
	go func() {
		defer close(done)
		turns(1)
	}()
	n := turns(0)
	took := time.Since(begin)
	<-done
	if n < lines {
		return 0
	}
	return took / lines
}

// Fork measures Costs.Fork.
func Fork() time.Duration {
	failed := false
	took := each(forks, func() { failed = exec.Command("/bin/true").Run() != nil || failed })
	if failed {
		return 0
	}
	return took
}
