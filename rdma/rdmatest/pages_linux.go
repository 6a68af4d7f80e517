package rdmatest

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// mapPages maps n bytes of fresh zeroed pages, which stay mapped. None is
// touched, and what is not touched costs nothing.
func mapPages(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, (n+pageSize-1)&^(pageSize-1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return b, nil
}

// describe makes memory behind a descriptor, as /dev/udmabuf takes it, and maps
// it for the program.
func describe(n int) (fd int, b []byte, err error) {
	if fd, err = unix.MemfdCreate("rdmatest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, nil, err
	}
	size := (n + pageSize - 1) &^ (pageSize - 1)
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err == nil {
		b, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		closeFD(fd)
	}
	return fd, b, err
}

func closeFD(fd int) { _ = unix.Close(fd) }

// turnPages does to pages what op says. pagesCount gives how many of them are
// in memory.
func turnPages(b []byte, op pageOp) (resident int, err error) {
	switch op {
	case pagesDiscard:
		return 0, unix.Madvise(b, unix.MADV_DONTNEED)
	case pagesHide:
		return 0, unix.Mprotect(b, unix.PROT_NONE)
	case pagesReadOnly:
		return 0, unix.Mprotect(b, unix.PROT_READ)
	case pagesReadWrite:
		return 0, unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
	case pagesUnmap:
		return 0, unix.Munmap(b)
	case pagesCount:
		in := make([]byte, (len(b)+pageSize-1)/pageSize)
		if err := mincore(b, in); err != nil {
			return 0, err
		}
		for _, v := range in {
			resident += int(v & 1)
		}
		return resident, nil
	}
	return 0, syscall.EINVAL
}
