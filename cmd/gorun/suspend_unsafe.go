package main

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction of 64-bit systems, of which only the
// first word, the handler, matters here: 0 is the default.
type sigaction [4]uint64

// suspend stops this process as SIGTSTP would have, had it not been caught:
// where no shell could continue it the kernel does not. It returns when the
// process is continued, and then SIGCONT is on its way to the ranks too.
//
// The handler is taken away with a system call, since signal.Reset leaves the
// runtime's there, which does nothing (Go 1.26, runtime.sigdisable: the handler
// stays for every signal that it may install one for). It is put back as it was,
// so the runtime does not notice.
func suspend() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, ours sigaction
	if setHandler(unix.SIGTSTP, &none, &ours) {
		// To this thread, so that it is delivered before the call returns.
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
		setHandler(unix.SIGTSTP, &ours, nil)
	}
}

func setHandler(s unix.Signal, to, from *sigaction) bool {
	const maskSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), maskSize, 0, 0)
	return errno == 0
}
