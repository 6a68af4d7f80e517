package soft

import (
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// allowReach lets any process that may otherwise trace us do so under Yama's
// ptrace_scope 1 too (linux/prctl.h: PR_SET_PTRACER, PR_SET_PTRACER_ANY): that
// is what process_vm_readv asks for.
func (p *Provider) allowReach() {
	// Without Yama it fails, and is not needed.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
}

// processStart is when a process began, in clock ticks since boot; 0 unknown.
func processStart(pid int) uint64 {
	s, _ := proc.Of(pid)
	return s.Start
}

// processAlive tells whether a process exists and is no zombie.
func processAlive(pid int) bool { return proc.Alive(pid) }

// deviceHz is the rate of deviceTime.
const deviceHz = 1e9

// deviceTime is the device's clock, one for all processes of a host.
func deviceTime() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // which is always there
	return uint64(t.Nano())
}

// discardFrom is the size from which freed memory is worth a system call.
const discardFrom = 1 << 20

// noPidfd is what watchProcess gives where the kernel has no pidfds.
const noPidfd = -2

// watchProcess opens a pidfd, and says whether the process of that start is alive.
func watchProcess(pid int, started uint64) (fd int, alive bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return -1, false
	}
	if err != nil {
		fd = noPidfd
	}
	if now := processStart(pid); started != 0 && now != 0 && now != started {
		unwatchProcess(fd)
		return -1, false
	}
	return fd, true
}

func unwatchProcess(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// processEnded tells whether a watched process has ended, reaped or not.
func processEnded(fd, pid int, started uint64) bool {
	if fd < 0 {
		return !processAlive(pid) || started != 0 && processStart(pid) != started
	}
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n == 1
}

// readProcess fills dst from a process's memory at addr.
func readProcess(pid int, dst []byte, addr uint64) error { return moveProcess(pid, dst, addr, false) }

// writeProcess copies src to a process's memory at addr.
func writeProcess(pid int, src []byte, addr uint64) error { return moveProcess(pid, src, addr, true) }

// moveProcess repeats a partial transfer: the kernel stops where a page is
// missing and says so only when it is the first.
func moveProcess(pid int, b []byte, addr uint64, write bool) error {
	for len(b) > 0 {
		local := [1]unix.Iovec{{Base: &b[0]}}
		local[0].SetLen(len(b))
		remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
		var n int
		var err error
		if write {
			n, err = unix.ProcessVMWritev(pid, local[:], remote[:], 0)
		} else {
			n, err = unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return unix.EFAULT
		}
		b, addr = b[n:], addr+uint64(n)
	}
	return nil
}

// discard gives the pages of freed memory back to the kernel, if there are
// many. They read as zero afterwards, or as they were where it is refused:
// allocating them clears them in any case.
func discard(b []byte) {
	if len(b) >= discardFrom {
		_ = unix.Madvise(b, unix.MADV_REMOVE)
	}
}

// networkNamespace names the network namespace of this process, 0 where it is not known. gVisor gives /proc/self/ns/net
// another number whenever it is asked (runsc 20221219): that is no name, and by it no two ranks would be in one network.
func networkNamespace() uint64 { return steady(askNamespace) }

// steady is what ask says, 0 if it says two things.
func steady(ask func() uint64) uint64 {
	if was := ask(); was == ask() {
		return was
	}
	return 0
}

func askNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}
