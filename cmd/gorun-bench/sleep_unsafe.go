package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleep sleeps as a C program does. The thread keeps its processor of Go's scheduler: Go's monitor takes
// that of a thread which sleeps call after call, and looks every 20 us from then on, and on a virtual
// machine each of these timers takes 10 to 40 us of what is measured.
func sleep(length unix.Timespec) {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&length)), uintptr(unsafe.Pointer(&length)), 0)
		if errno != unix.EINTR { // a signal of the runtime's: the rest is in length
			return
		}
	}
}
