package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leftovers is the guardian's part of the ledger for files that MPIs make in
// directories of all jobs.
type leftovers struct {
	count  uint32 // of kinds
	user   uint32
	since  syscall.Timespec // Start, by the clock that files have their times from
	kinds  [maxLeftovers]leftover
	status syscall.Stat_t // of the file that is looked at
}

// leftover is where files of a kind are, and how their names begin.
type leftover struct {
	dir    [48]byte // ended by a zero byte
	prefix [48]byte
	length uint32 // of prefix
}

// maxLeftovers is how many kinds of files a guardian looks for.
const maxLeftovers = 8

// RemoveUnused has the guardian remove, once it has killed what it guards, the
// files whose paths begin with one of these: those of this user, made since Start,
// that no process has open or mapped. Only the first call counts.
//
// That nobody uses a file is known by a write lease on it, which the kernel grants
// to no one while another has the file open, through whatever name, in whatever
// namespace. So a file of another job that lives is safe, however like this job's
// it looks; one of a job that has died in the meantime goes too.
func (g *Guard) RemoveUnused(prefixes ...string) error {
	l := &g.ledger.left
	if atomic.LoadUint32(&l.count) != 0 {
		return nil
	}
	if len(prefixes) > maxLeftovers {
		return fmt.Errorf("guardian: %d kinds of files, want %d or fewer", len(prefixes), maxLeftovers)
	}
	for i, p := range prefixes {
		k := &l.kinds[i]
		dir, prefix := filepath.Split(p)
		if !filepath.IsAbs(p) || prefix == "" || len(dir) >= len(k.dir) || len(prefix) > len(k.prefix) {
			return fmt.Errorf("guardian: files %q: want a short absolute path and the begin of a name", p)
		}
		copy(k.dir[:], dir)
		k.length = uint32(copy(k.prefix[:], prefix))
	}
	l.user = uint32(os.Geteuid())
	atomic.StoreUint32(&l.count, uint32(len(prefixes)))
	return nil
}

// now is the time that a file made now has.
func now() (t syscall.Timespec) {
	var clock unix.Timespec
	// It cannot fail, and the time 0 is not too late.
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &clock)
	t.Sec, t.Nsec = clock.Sec, clock.Nsec
	return t
}

// claim removes what it may of all kinds, and tells whether a file was in use:
// perhaps by a process that has been killed and is still on its way out.
//
//go:noinline
//go:nosplit
//go:norace
func claim(l *ledger) (used bool) {
	const open = syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_DIRECTORY
	for i := uint32(0); i < l.left.count && i < maxLeftovers; i++ {
		dir, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, 0, uintptr(unsafe.Pointer(&l.left.kinds[i].dir)), open, 0, 0, 0)
		if errno != 0 {
			continue
		}
		for {
			n, _, errno := syscall.RawSyscall(syscall.SYS_GETDENTS64, dir, uintptr(unsafe.Pointer(&l.dirents)), unsafe.Sizeof(l.dirents))
			if errno != 0 || n == 0 || n > unsafe.Sizeof(l.dirents) {
				break
			}
			for at := uintptr(0); at+19 < n; {
				length := uintptr(l.dirents[at+16]) | uintptr(l.dirents[at+17])<<8
				if length < 20 || at+length > n {
					break
				}
				if l.begins(at+19, at+length, i) && l.unlink(dir, at+19) {
					used = true
				}
				at += length
			}
		}
		syscall.RawSyscall(syscall.SYS_CLOSE, dir, 0, 0)
	}
	return used
}

// begins tells whether a directory entry's name begins as those of a kind.
//
//go:nosplit
//go:norace
func (l *ledger) begins(from, to uintptr, kind uint32) bool {
	k := &l.left.kinds[kind%maxLeftovers]
	for i := uintptr(0); i < uintptr(k.length) && i < uintptr(len(k.prefix)); i++ {
		if from+i >= to || from+i >= uintptr(len(l.dirents)) || l.dirents[from+i] != k.prefix[i] {
			return false
		}
	}
	return true
}

// unlink removes the file whose name is at l.dirents[at:], if it is this user's, of
// this job's time, and nobody has it; it tells whether somebody has it.
//
//go:nosplit
//go:norace
func (l *ledger) unlink(dir, at uintptr) (used bool) {
	// Without waiting for a process that holds a lease, or the other end of a FIFO.
	const open = syscall.O_RDWR | syscall.O_CLOEXEC | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	name := uintptr(unsafe.Pointer(&l.dirents[at]))
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, dir, name, open, 0, 0, 0)
	if errno != 0 {
		return errno == syscall.EAGAIN
	}
	s := &l.left.status
	if _, _, errno := syscall.RawSyscall(syscall.SYS_FSTAT, fd, uintptr(unsafe.Pointer(s)), 0); errno == 0 &&
		s.Mode&syscall.S_IFMT == syscall.S_IFREG && s.Uid == l.left.user &&
		(s.Ctim.Sec > l.left.since.Sec || s.Ctim.Sec == l.left.since.Sec && s.Ctim.Nsec >= l.left.since.Nsec) {
		_, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, fd, unix.F_SETLEASE, syscall.F_WRLCK)
		if errno == 0 {
			syscall.RawSyscall(syscall.SYS_UNLINKAT, dir, name, 0)
		}
		used = errno == syscall.EAGAIN
	}
	syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0) // the lease goes with it
	return used
}
