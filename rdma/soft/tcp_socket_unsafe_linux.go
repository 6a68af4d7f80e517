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
func readSocket(fd int, b []byte) (int, error) {
	k, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if arch.RaceEnabled {
		crossed.Load()
	}
	return int(k), nil
}

// scatterSocket fills first, and then second, with what the socket has.
func scatterSocket(fd int, first, second []byte) (int, error) {
	iov := [2]unix.Iovec{{Base: &first[0], Len: uint64(len(first))}, {Base: &second[0], Len: uint64(len(second))}}
	m := unix.Msghdr{Iov: &iov[0], Iovlen: 2}
	k, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_DONTWAIT)
	if errno != 0 {
		return 0, errno
	}
	if arch.RaceEnabled {
		crossed.Load()
	}
	return int(k), nil
}

// writeSocket sends what the socket takes of bufs. iov is scratch.
func writeSocket(fd int, bufs [][]byte, iov *vectors) (int, error) {
	list := (*iov)[:0]
	for _, b := range bufs[:min(len(bufs), iovMost)] {
		if len(b) == 0 {
			continue
		}
		list = append(list, unix.Iovec{Base: &b[0], Len: uint64(len(b))})
	}
	if *iov = list; len(list) == 0 {
		return 0, nil
	}
	if arch.RaceEnabled {
		crossed.Add(1)
	}
	var k uintptr
	var errno unix.Errno
	if len(list) == 1 { // it costs the kernel less
		k, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(list[0].Base)), uintptr(list[0].Len), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	} else {
		m := unix.Msghdr{Iov: &list[0], Iovlen: uint64(len(list))}
		k, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	clear(list) // what was sent is the program's
	if errno != 0 {
		return 0, errno
	}
	return int(k), nil
}

// vectors is the scratch of writeSocket.
type vectors []unix.Iovec

// iovMost is IOV_MAX.
const iovMost = 1024
