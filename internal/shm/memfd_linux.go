package shm

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// sealed is what keeps a mapping valid for as long as it exists: the size never
// changes. Contents stay writable.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes a segment in a new memfd, which no other process has yet: it is
// closed on exec, so a launcher hands FD on by name. The error is errors.ErrUnsupported
// where the kernel, or a filter, gives no memfd.
func Create(g Geometry) (*Segment, error) {
	s, err := create(g)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	return s, nil
}

func create(g Geometry) (*Segment, error) {
	l, err := g.lay(uint64(os.Getpagesize()))
	if err != nil {
		return nil, err
	}
	// Growing a file beyond ulimit -f raises SIGXFSZ, which kills a Go program.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && l.total > limit.Cur {
		return nil, fmt.Errorf("%d ranks with %d bytes each make a file of %d bytes, and the limit of file sizes (ulimit -f) is %d",
			l.Ranks, l.ArenaSize, l.total, limit.Cur)
	}
	fd, err := memfd()
	if err != nil {
		return nil, err
	}
	if err := format(fd, l); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s, err := attach(fd, l)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return s, nil
}

// memfd makes an empty one.
func memfd() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// Linux before 6.3 does not know MFD_NOEXEC_SEAL (EINVAL); since then a
	// system may insist on it (vm.memfd_noexec=2) or complain without it.
	fd, err := unix.MemfdCreate("gorun", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("gorun", flags)
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES): // a filter of system calls
		return -1, fmt.Errorf("memfd_create: %w (%w)", err, errors.ErrUnsupported)
	case err != nil:
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	return fd, nil
}

// format gives the file its size and its header, then seals the size.
func format(fd int, l layout) error {
	if err := unix.Ftruncate(fd, int64(l.total)); err != nil {
		return fmt.Errorf("size memfd to %d bytes: %w", l.total, err)
	}
	if n, err := unix.Pwrite(fd, l.appendTo(nil), 0); err != nil || n != headerUsed {
		return fmt.Errorf("write header of memfd: %d bytes of %d: %w", n, headerUsed, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	return nil
}

// Open takes over a descriptor of a segment that another process created, and
// marks it close-on-exec. With an error the descriptor stays the caller's, as it
// may be anything; the error wraps ErrNotSegment when it is no segment.
func Open(fd int) (*Segment, error) {
	s, err := open(fd)
	if err != nil {
		return nil, fmt.Errorf("open segment on descriptor %d: %w", fd, err)
	}
	return s, nil
}

func open(fd int) (*Segment, error) {
	// The seal is asked for first: without it the file could shrink between
	// any check and any access, and an access beyond its end is a SIGBUS.
	// Only memfds can have it; others answer EINVAL.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case errors.Is(err, unix.EBADF):
		return nil, err
	case err != nil || seals&unix.F_SEAL_SHRINK == 0:
		return nil, fmt.Errorf("%w: its size is not sealed", ErrNotSegment)
	case seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0:
		return nil, fmt.Errorf("%w: it is sealed against writing", ErrNotSegment)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	var header [headerUsed]byte
	n, err := unix.Pread(fd, header[:], 0)
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	l, err := parseHeader(header[:n], st.Size, uint64(os.Getpagesize()))
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	return attach(fd, l)
}

// OpenPeer opens the segment that process pid has as its descriptor fd, which a
// process of the same user may where /proc is mounted.
func OpenPeer(pid, fd int) (*Segment, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(fd)
	// What is there may be anything: a FIFO must not block, a terminal must
	// not become ours.
	own, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open segment of process %d: %w", pid, &os.PathError{Op: "open", Path: path, Err: err})
	}
	s, err := open(own)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open segment of process %d: %s: %w", pid, path, err), unix.Close(own))
	}
	return s, nil
}

// attach maps the header. The descriptor becomes the segment's if there is no
// error.
func attach(fd int, l layout) (*Segment, error) {
	head, err := unix.Mmap(fd, 0, int(l.header), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map header of %d bytes: %w", l.header, err)
	}
	keepOutOfDumps(head)
	s := &Segment{layout: l, fd: fd, head: head, mapArena: mapFile, unmapArena: unmapFile}
	s.serve(entriesIn(head, l.Ranks), marksIn(head, l.Geometry))
	return s, nil
}

// mapFile cuts an arena out of a mapping of the whole file, which the first one makes:
// if each rank mapped each arena by itself the kernel would keep an area for every
// pair. Where the address space has no room for all, arenas are mapped one by one.
func mapFile(s *Segment, rank int) ([]byte, error) {
	if s.whole == nil && !s.apart {
		var err error
		s.whole, err = mapRange(s.fd, 0, int(s.layout.total))
		s.apart = err != nil
	}
	at, size := s.arena(rank), int(s.layout.ArenaSize)
	if s.apart {
		return mapRange(s.fd, at, size)
	}
	return s.whole[at:][:size:size], nil
}

func mapRange(fd int, offset int64, length int) ([]byte, error) {
	b, err := unix.Mmap(fd, offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		keepOutOfDumps(b)
	}
	return b, err
}

// unmapFile undoes mapFile for an arena; closeFile sees to the whole.
func unmapFile(s *Segment, arena []byte) error {
	if !s.apart {
		return nil
	}
	return unix.Munmap(arena)
}

// keepOutOfDumps spares a core dump the gigabytes of a segment. Where the kernel
// cannot, dumps are larger, and that is all.
func keepOutOfDumps(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTDUMP) }

// closeFile undoes attach.
func (s *Segment) closeFile() error {
	if s.fd < 0 {
		return nil
	}
	err := errors.Join(unix.Munmap(s.head), unix.Close(s.fd))
	if s.whole != nil {
		err = errors.Join(err, unix.Munmap(s.whole))
	}
	s.head, s.whole, s.entries, s.elsewhere, s.fd = nil, nil, nil, nil, -1
	return err
}

// Limit is the address space that segments may count on in this process and
// those it starts, for DefaultGeometry: the lower one of ulimit -v and, because
// a memfd is a file, ulimit -f. It is the largest uint64 without limits.
func Limit() uint64 { return min(softLimit(unix.RLIMIT_AS), softLimit(unix.RLIMIT_FSIZE)) }

func softLimit(resource int) uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Cur
}

// limitText says which limit Limit is.
func limitText() string {
	option := "ulimit -v"
	if softLimit(unix.RLIMIT_FSIZE) < softLimit(unix.RLIMIT_AS) {
		option = "ulimit -f"
	}
	return fmt.Sprintf("%s allows %d kB", option, Limit()>>10)
}

// whyNoRoom is the likely cause of a mapping that fails.
func whyNoRoom() string {
	limit := softLimit(unix.RLIMIT_AS)
	if limit == unix.RLIM_INFINITY {
		return " (the limit of overcommit may be too low)"
	}
	return fmt.Sprintf(" (ulimit -v allows %d kB of address space, and the rest of it is too small: raise it; for a program built with cgo, MALLOC_ARENA_MAX=1 saves 64 MiB a thread)", limit>>10)
}
