package soft

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// The calls of a link's socket, which never block. They are raw: the scheduler's books
// would add to each look of an owner that polls. A caller that looks again and
// again has safe points in between, as in package wait.

// crossed tells the race detector what a socket orders, as package syscall does for its own
// calls: what was before a send is before what comes after a receive.
var crossed atomic.Uint64

// readSocket fills b, which is not empty, with what the socket has.
func readSocket(fd int, b []byte) (int, unix.Errno) {
	k, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if arch.RaceEnabled && errno == 0 {
		crossed.Load()
	}
	return int(k), errno
}

// scatterSocket fills first, and then second, with what the socket has.
func scatterSocket(fd int, first, second []byte) (int, unix.Errno) {
	iov := [2]unix.Iovec{{Base: &first[0], Len: uint64(len(first))}, {Base: &second[0], Len: uint64(len(second))}}
	m := unix.Msghdr{Iov: &iov[0], Iovlen: 2}
	k, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_DONTWAIT)
	if arch.RaceEnabled && errno == 0 {
		crossed.Load()
	}
	return int(k), errno
}

// writeSocket sends what the socket takes of bufs. iov is scratch.
func writeSocket(fd int, bufs [][]byte, iov *vectors) (int, unix.Errno) {
	if arch.RaceEnabled {
		crossed.Add(1)
	}
	if len(bufs) == 1 && len(bufs[0]) > 0 { // it costs less
		k, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&bufs[0][0])), uintptr(len(bufs[0])), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		return int(k), errno
	}
	list := (*iov)[:0]
	for _, b := range bufs[:min(len(bufs), iovMost)] {
		if len(b) == 0 {
			continue
		}
		list = append(list, unix.Iovec{Base: &b[0], Len: uint64(len(b))})
	}
	if *iov = list; len(list) == 0 {
		return 0, 0
	}
	m := unix.Msghdr{Iov: &list[0], Iovlen: uint64(len(list))}
	k, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	clear(list) // what was sent is the program's
	return int(k), errno
}

// vectors is the scratch of writeSocket.
type vectors []unix.Iovec

// iovMost is IOV_MAX.
const iovMost = 1024
