//go:build linux

package arch

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// current is the CPU that the calling thread runs on.
func current() (cpu int, known bool) {
	var n uint32
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0)
	return int(n), errno == 0
}
