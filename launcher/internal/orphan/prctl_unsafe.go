package orphan

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getSubreaper tells whether this process is a subreaper: not 0.
func getSubreaper(is *int32) error {
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(is)), 0, 0, 0)
}
