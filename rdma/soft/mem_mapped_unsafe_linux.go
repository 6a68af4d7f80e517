package soft

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapping is struct procmap_query of linux/fs.h.
type mapping struct {
	size                        uint64 // of the struct
	ask                         uint64
	at                          uint64 // the address asked for
	start, end                  uint64
	flags                       uint64
	page, offset, inode         uint64
	major, minor                uint32
	nameSize, buildSize         uint32
	nameAddress, buildIDAddress uint64
}

const (
	mappingReadable = 1 << 0
	mappingWritable = 1 << 1
	mappingSize     = 104
	// PROCMAP_QUERY is _IOWR('f', 17, struct procmap_query).
	procmapQuery = 3<<30 | mappingSize<<16 | 'f'<<8 | 17
)

var _ = [1]struct{}{}[unsafe.Sizeof(mapping{})-mappingSize]

// queryMapping asks for the mapping that holds an address: ENOENT for none.
func queryMapping(maps *os.File, at uint64) (mapping, error) {
	v := mapping{size: mappingSize, at: at}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, maps.Fd(), procmapQuery, uintptr(unsafe.Pointer(&v)))
	runtime.KeepAlive(maps)
	if errno != 0 {
		return v, errno
	}
	return v, nil
}

// syncMapped is nil when all pages between two addresses are mapped, else
// EFAULT. MS_ASYNC does nothing but look.
func syncMapped(from, end uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_MSYNC, uintptr(from), uintptr(end-from), unix.MS_ASYNC)
	if errno == unix.ENOMEM {
		return syscall.EFAULT
	}
	return nil
}

// populate brings the pages of n bytes at addr in, for writing if write is set.
// Kernels before 5.14 cannot, and it is a hint there.
func populate(addr, n uint64, write bool) error {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(addr&^(pageSize-1)), 0, uintptr(advice)); errno == unix.EINVAL {
		return nil
	}
	first := addr &^ (pageSize - 1)
	for {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(first), uintptr(addr+n-first), uintptr(advice))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return syscall.EFAULT
	}
}
