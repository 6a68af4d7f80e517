//go:build linux

package shm

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// The futex operations (linux/futex.h), without FUTEX_PRIVATE_FLAG: the word is
// shared between processes.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// futexWait sleeps while *word is value, until a futexWake, a signal or the end
// of d. The word is compared and the thread queued in one step, so a wake that
// comes with a change of the word is not missed.
//
// The runtime knows that the thread is away, so collections and other goroutines go
// on; with keep it does not, see [Bell.KeepProcessor].
func futexWait(word *uint32, value uint32, d time.Duration, keep bool) {
	ts := syscall.NsecToTimespec(int64(d))
	// Whatever the result (EAGAIN, EINTR, ETIMEDOUT), the caller looks again.
	if keep {
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value),
			uintptr(unsafe.Pointer(&ts)), 0, 0)
		return
	}
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWake wakes all that sleep on word.
func futexWake(word *uint32) {
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, math.MaxInt32, 0, 0, 0)
}
