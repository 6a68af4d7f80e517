package soft

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// A dma-buf is a file descriptor that stands for memory. This device maps it.
// It takes a memfd too, under the conditions under which /dev/udmabuf makes a
// dma-buf of one: it cannot shrink, and writing is not sealed off. So memory by
// descriptor is there on machines without any exporter of dma-bufs.

const dmaBufMagic = 0x444d4142 // linux/magic.h: DMA_BUF_MAGIC

// RegDMABufMR gives EINVAL for a descriptor of anything else, and EBADF for none.
func (d *domain) RegDMABufMR(offset, length, iova uint64, fd int, access rdma.Access) (rdma.MR, error) {
	const op = "reg_dmabuf_mr"
	if err := rdma.CheckAccess(access); err != nil {
		return nil, err
	}
	fail := func(err error, f string, a ...any) (rdma.MR, error) { return nil, opError(op, err, f, a...) }
	if access&(rdma.AccessZeroBased|rdma.AccessOnDemand) != 0 {
		return fail(rdma.ErrInvalid, "found %v, expected no zero-based and no on-demand access to a descriptor's memory", access)
	}
	size, err := sizeOfDMABuf(fd)
	if err != nil {
		return fail(err, "descriptor %d", fd)
	}
	if length == 0 || offset > size || length > size-offset {
		return fail(rdma.ErrInvalid, "found %d bytes at %d, expected 1 or more within descriptor %d, which has %d", length, offset, fd, size)
	}
	if iova+(length-1) < iova || (iova^offset)%pageSize != 0 {
		return fail(rdma.ErrInvalid, "found IOVA %#x for %d bytes at offset %#x, expected one at the same offset of a page, and no wrap", iova, length, offset)
	}
	prot := unix.PROT_READ
	if access&rdma.AccessLocalWrite != 0 {
		prot |= unix.PROT_WRITE
	}
	skip := offset % pageSize
	whole, err := unix.Mmap(fd, int64(offset-skip), int(skip+length), prot, unix.MAP_SHARED)
	if err != nil {
		return fail(err, "map %d bytes of descriptor %d", length, fd)
	}
	mem := whole[skip : skip+length : skip+length]
	r := &region{access: access, kind: kindOrdinary, guard: true, mem: mem, addr: iova, va: addressOf(mem), length: length}
	m, err := d.enter(op, r, func() { _ = unix.Munmap(whole) })
	if err != nil {
		_ = unix.Munmap(whole)
		return nil, err
	}
	return m, nil
}

// sizeOfDMABuf gives how many bytes the memory behind a descriptor has.
func sizeOfDMABuf(fd int) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, err
	}
	if fs.Type == dmaBufMagic {
		n, err := unix.Seek(fd, 0, unix.SEEK_END)
		if err != nil {
			return 0, err
		}
		return uint64(n), nil
	}
	// Only what memfd_create made has seals.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 || seals&unix.F_SEAL_WRITE != 0 {
		return 0, syscall.EINVAL
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return uint64(st.Size), nil
}

// supportsDMABuf makes the memory that the device takes. It is no answer when
// there are too many descriptors.
func supportsDMABuf() error {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	switch err {
	case nil:
		return unix.Close(fd)
	case unix.ENOSYS:
		return fmt.Errorf("this kernel has no memfd: %w", rdma.ErrNotSupported)
	}
	return os.NewSyscallError("memfd_create", err)
}
