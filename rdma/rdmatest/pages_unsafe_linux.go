package rdmatest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore sets the low bit of in[i] when page i of b is in memory.
func mincore(b, in []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&in[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
