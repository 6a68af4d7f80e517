package topo

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// A Hold is a CPU of this machine that a process has taken for a thread of its own. No other
// process takes it until Release, or until the last process has ended that has the Hold.
type Hold struct{ fd int }

// TakeCPU takes a CPU by the kernel's number; false if another Hold has it. It binds nothing to the CPU. The lock is the name
// of an abstract socket, so no file is left, whatever dies. A CPU whose lock cannot be made is
// taken without one.
func TakeCPU(cpu int) (h Hold, taken bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Hold{-1}, true
	}
	switch err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@gorun-cpu-" + strconv.Itoa(cpu)}); err {
	case nil:
		return Hold{fd}, true
	case unix.EADDRINUSE:
		unix.Close(fd)
		return Hold{-1}, false
	}
	unix.Close(fd)
	return Hold{-1}, true
}

// Release gives the CPU back.
func (h Hold) Release() {
	if h.fd >= 0 {
		unix.Close(h.fd)
	}
}
