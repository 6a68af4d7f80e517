package host

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is what waitid fills in on 64-bit Linux: the three numbers of every
// siginfo, four bytes to align the union, and of the union the child's part.
type siginfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [100]byte
}

// ended tells whether a child has ended and how, without reaping it: status is
// its exit status, or signal is what ended it.
func ended(pid int) (over bool, status int, signal syscall.Signal, err error) {
	var info siginfo
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case 0:
		default:
			return false, 0, 0, os.NewSyscallError("waitid", errno)
		}
		break
	}
	const exited = 1 // CLD_EXITED; else CLD_KILLED or CLD_DUMPED
	switch {
	case info.pid == 0:
		return false, 0, 0, nil
	case info.code == exited:
		return true, int(info.status), 0, nil
	}
	return true, 128 + int(info.status), syscall.Signal(info.status), nil
}
