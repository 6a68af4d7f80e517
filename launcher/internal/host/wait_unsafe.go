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

// end is how a child has ended.
type end struct {
	over   bool // it has
	status int  // its exit status; 128+N for signal N
	signal syscall.Signal
	core   bool // and the kernel has dumped core, or had it dumped
}

// ended tells whether a child has ended and how, without reaping it.
func ended(pid int) (end, error) {
	var info siginfo
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case 0:
		default:
			return end{}, os.NewSyscallError("waitid", errno)
		}
		break
	}
	const (
		exited = 1 // CLD_EXITED; else CLD_KILLED
		dumped = 3 // or CLD_DUMPED
	)
	switch {
	case info.pid == 0:
		return end{}, nil
	case info.code == exited:
		return end{over: true, status: int(info.status)}, nil
	}
	return end{over: true, status: 128 + int(info.status), signal: syscall.Signal(info.status), core: info.code == dumped}, nil
}
