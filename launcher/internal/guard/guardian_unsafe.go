package guard

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ledger is the memory that starter and guardian share, and the guardian's
// scratch space. It is mapped, not of the Go heap: the guardian must see stores
// made after the fork. Pages that are never touched take no memory.
type ledger struct {
	released uint32
	done     uint32 // what there was to do has been done
	era      uint32 // how often the guardian was replaced, once the new one is there
	length   uint32 // of marker, with the zero byte after it
	marker   [maxMarker + 1]byte
	proc     [8]byte  // "/proc"
	name     [16]byte // the guardian's, for ps
	path     [32]byte // "/proc/PID/environ"
	dirents  [16 << 10]byte
	environ  [64 << 10]byte
	named    uint32       // dir holds a path
	dir      [maxDir]byte // to be removed, ended by a zero byte
	grouped  uint32       // cgroup and kill hold paths
	cgroup   [maxDir]byte // a control group that holds nobody but the guarded
	kill     [maxDir]byte // the file in it that kills them
	one      [2]byte      // what is written there
	starter  uintptr
	lease    int64 // ns that the starter may live without a beat; 0: for ever
	beat     int64 // when it last called Alive, as ticks
	clock    syscall.Timespec
	left     leftovers
	groups   [MaxGroups]int32
}

const ledgerSize = unsafe.Sizeof(ledger{})

// newLedger maps a ledger, with all constants in it that the guardian needs.
func newLedger(marker string) (*ledger, error) {
	mem, err := unix.MmapPtr(-1, 0, nil, ledgerSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	l := (*ledger)(mem)
	copy(l.marker[:], marker)
	l.length = uint32(len(marker) + 1)
	copy(l.proc[:], "/proc")
	copy(l.path[:], "/proc/")
	copy(l.name[:], "gorun-guardian")
	copy(l.one[:], "1")
	l.left.since = now()
	return l, nil
}

// ticks is the time in nanoseconds by the clock that starter and guardian share.
func ticks() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it cannot fail
	return t.Nano()
}

func (l *ledger) free() {
	// The error could only be that of an address which was never mapped.
	_ = unix.MunmapPtr(unsafe.Pointer(l), ledgerSize)
}

// fork makes the guardian: a child without exec, which saves the start-up of
// another program. Why this is safe in a Go program, as it is in
// syscall.forkAndExecInChild, whose rules these are:
//
//   - The child is a copy of this thread alone. Locks of the runtime may be
//     held for ever by threads that it does not have. So it takes none: it
//     allocates nothing, grows no stack, calls no scheduler and runs only
//     functions marked nosplit that make raw system calls.
//   - All signals are blocked in this thread before and stay so in the child,
//     so that no handler of the runtime runs there. For the same reason the
//     runtime cannot preempt this thread between here and the child's first
//     instruction, and nosplit functions have no other point of preemption.
//   - The room that these functions need on the stack is there before the clone
//     (grow). They call their largest parts through parameters, since the linker
//     would add all frames up against the 800 bytes that nosplit functions are
//     promised, which those of a build for a debugger (-N -l) exceed.
//   - It stores no pointer, so there is no write barrier, and it writes only to
//     the ledger and its own copy of this stack.
//   - Unlike with vfork, its memory is a copy: nothing that it does to the
//     stack reaches the starter.
//
// The flags ask for no signal when the child ends, so that it disturbs neither
// os/exec nor signal.Notify in this process.
func fork(l *ledger, pipe int, era uint32) (pid int, err error) {
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	runtime.LockOSThread() // whose signals are blocked
	defer runtime.UnlockOSThread()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, err
	}
	// From here to the clone nothing can take the room away again: that would
	// need a point of preemption.
	grow()
	r, errno := clone(l, uintptr(pipe), &roles{era, guardian, second, clean, sweep, remove, claim, disband})
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// grow leaves several times the stack that the guardian needs.
//
//go:noinline
func grow() byte {
	var room [8 << 10]byte
	return room[unix.Getpid()&1]
}

// roles are the larger parts of a guardian, which are called through here.
type roles struct {
	era     uint32 // its own; not shared
	first   func(*ledger, uintptr, *roles)
	second  func(l *ledger, pipe, mate, first uintptr, r *roles)
	clean   func(*ledger, *roles)
	sweep   func(*ledger) bool
	remove  func(l *ledger, path uintptr, full syscall.Errno) bool
	claim   func(*ledger) bool
	disband func(*ledger, *roles)
}

// clone returns in the starter only.
//
//go:noinline
//go:nosplit
//go:norace
func clone(l *ledger, pipe uintptr, r *roles) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	r.first(l, pipe, r)
	return 0, 0
}

// How the guardian looks for processes by their marker: one pass after the
// other until two in a row find none, for a process that was just being made
// may not show its new environment yet; and some seconds at most.
const (
	sweepPause = 10e6 // ns
	sweepLimit = 300  // passes
	sweepQuiet = 2    // passes that must find nothing
	claimLimit = 20   // passes over files that somebody uses
)

// The two guardians. A job that is over sooner than secondAfter has one.
const (
	secondAfter = 5e6  // ns
	firstLimit  = 10e9 // ns that the second gives the first to do its work
	lookEvery   = 10e6 // ns, at whether a first that died was replaced
	lookLimit   = 1000 // looks
)

// pollFD is struct pollfd.
type pollFD struct {
	fd              int32
	events, revents int16
}

// poll waits until one of two descriptors is ready or has ended, or for so many
// nanoseconds if they are not negative, and tells which. A descriptor below 0 is
// never ready.
//
//go:noinline
//go:nosplit
//go:norace
func poll(a, b uintptr, ns int64) (isA, isB bool) {
	fds := [2]pollFD{{int32(a), unix.POLLIN, 0}, {int32(b), unix.POLLIN, 0}}
	limit := syscall.Timespec{Sec: ns / 1e9, Nsec: ns % 1e9}
	timeout := uintptr(unsafe.Pointer(&limit))
	if ns < 0 {
		timeout = 0
	}
	_, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 2, timeout, 0, 0, 0)
	if errno != 0 && errno != syscall.EINTR {
		return true, false // it cannot watch, so it acts
	}
	return fds[0].revents != 0, fds[1].revents != 0
}

const nobody = ^uintptr(0) // no descriptor, -1

// guardian is the life of the first. It does not return.
//
//go:noinline
//go:nosplit
//go:norace
func guardian(l *ledger, pipe uintptr, r *roles) {
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&l.name)), 0)
	closeAllBut(pipe)
	// No directory is kept busy by it: /proc is where it may have to look.
	syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(&l.proc)), 0, 0)
	mate, mates := nobody, uintptr(0) // descriptor and process of the second
	looked := int64(0)                // at the lease
	for {
		wait := int64(secondAfter)
		if mate != nobody {
			wait = -1
			if l.lease > 0 {
				wait = l.lease / leaseLooks
			}
		}
		over, lost := poll(pipe, mate, wait)
		if over {
			break
		}
		looked = l.hold(looked)
		if lost {
			syscall.RawSyscall(syscall.SYS_CLOSE, mate, 0, 0)
			syscall.RawSyscall6(syscall.SYS_WAIT4, mates, 0, unix.WALL, 0, 0, 0)
			mate, mates = nobody, 0
		}
		if mate != nobody {
			continue
		}
		var pair [2]int32
		if _, _, errno := syscall.RawSyscall6(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, uintptr(unsafe.Pointer(&pair)), 0, 0); errno != 0 {
			continue
		}
		self, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(pair[0]), 0, 0)
			r.second(l, pipe, uintptr(pair[1]), self, r)
		}
		syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(pair[1]), 0, 0)
		if errno != 0 {
			syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(pair[0]), 0, 0)
			continue
		}
		mate, mates = uintptr(pair[0]), pid
	}
	// Plain accesses: the starter has gone, or stored before it closed the pipe, and
	// the second waits for this process's end.
	if l.released == 0 {
		r.clean(l, r)
		l.done = 1
	}
	if mates != 0 {
		syscall.RawSyscall(syscall.SYS_KILL, mates, uintptr(syscall.SIGKILL), 0)
		syscall.RawSyscall6(syscall.SYS_WAIT4, mates, 0, unix.WALL, 0, 0, 0)
	}
	exit()
}

// leaseLooks is how often in a lease the guardian looks whether it is over.
const leaseLooks = 16

// hangLeases is after how many leases a starter hangs that is not stopped: one that has no CPU gets some by then.
const hangLeases = 8

// hold ends a starter whose lease is over and that is stopped, or that hangs, and what it has started
// runs on unattended. It returns the time for the next call. A guardian that stood still
// itself, with its machine perhaps, lets the starter have half of its lease anew.
//
//go:noinline
//go:nosplit
//go:norace
func (l *ledger) hold(looked int64) int64 {
	if l.lease == 0 {
		return 0
	}
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&l.clock)), 0)
	now := l.clock.Sec*1e9 + l.clock.Nsec
	beat := atomic.LoadInt64(&l.beat)
	if looked > 0 && now-looked > l.lease/4 && now-beat > l.lease/2 {
		atomic.CompareAndSwapInt64(&l.beat, beat, now-l.lease/2) // it may have called just now
		return now
	}
	if now-beat > l.lease && (l.stopped() || now-beat > hangLeases*l.lease) {
		syscall.RawSyscall(syscall.SYS_KILL, l.starter, uintptr(syscall.SIGKILL), 0)
	}
	return now
}

// stopped tells whether the starter is, by the letter behind its name in /proc/PID/stat.
//
//go:noinline
//go:nosplit
//go:norace
func (l *ledger) stopped() bool {
	const open = syscall.O_RDONLY | syscall.O_CLOEXEC
	const tail = "/stat\x00"
	at := uintptr(len("/proc/"))
	for unit := uintptr(1e9); unit > 0; unit /= 10 {
		if digit := l.starter / unit; digit > 0 {
			l.path[at%uintptr(len(l.path))] = '0' + byte(digit%10)
			at++
		}
	}
	for k := uintptr(0); k < uintptr(len(tail)); k++ {
		l.path[(at+k)%uintptr(len(l.path))] = tail[k]
	}
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, 0, uintptr(unsafe.Pointer(&l.path)), open, 0, 0, 0)
	if errno != 0 {
		return false
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&l.environ)), 128)
	syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	if errno != 0 || n > 128 {
		return false
	}
	state := byte(0)
	for i := uintptr(0); i+2 < n; i++ {
		if l.environ[i] == ')' && l.environ[i+1] == ' ' {
			state = l.environ[i+2] // of the last one: a name may hold such
		}
	}
	return state == 'T' || state == 't'
}

// second is the life of the second, which does the work if the first does not. first
// is that process, and mate ends with it.
//
//go:noinline
//go:nosplit
//go:norace
func second(l *ledger, pipe, mate, first uintptr, r *roles) {
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	for looks := 0; ; {
		wait := int64(-1)
		if mate == nobody && looks < lookLimit {
			wait, looks = lookEvery, looks+1
		}
		over, lost := poll(pipe, mate, wait)
		if over {
			break
		}
		if lost {
			syscall.RawSyscall(syscall.SYS_CLOSE, mate, 0, 0)
			mate = nobody
		}
		if mate == nobody && int32(atomic.LoadUint32(&l.era)-r.era) > 0 {
			exit() // the starter has made a new first, which has a second of its own
		}
	}
	if l.released != 0 || int32(atomic.LoadUint32(&l.era)-r.era) > 0 {
		exit()
	}
	if mate != nobody {
		// One that is stopped goes on; one that does not is ended.
		syscall.RawSyscall(syscall.SYS_KILL, first, uintptr(syscall.SIGCONT), 0)
		if _, gone := poll(nobody, mate, firstLimit); !gone {
			syscall.RawSyscall(syscall.SYS_KILL, first, uintptr(syscall.SIGKILL), 0)
			poll(nobody, mate, firstLimit)
		}
	}
	if l.done == 0 {
		r.clean(l, r)
		l.done = 1
	}
	exit()
}

//go:nosplit
//go:norace
func exit() {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// clean ends what is guarded, and removes what it leaves.
//
//go:noinline
//go:nosplit
//go:norace
func clean(l *ledger, r *roles) {
	// An entry may be reserved and not yet made, so all are looked at.
	for i := range l.groups {
		if g := l.groups[i]; g > 1 {
			syscall.RawSyscall(syscall.SYS_KILL, uintptr(-g), uintptr(syscall.SIGKILL), 0)
		}
	}
	if l.grouped != 0 {
		r.disband(l, r)
	}
	pause := syscall.Timespec{Nsec: sweepPause}
	quiet := 0
	for i := 0; i < sweepLimit && quiet < sweepQuiet; i++ {
		if quiet++; r.sweep(l) {
			quiet = 0
		}
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
	if l.named != 0 {
		r.remove(l, uintptr(unsafe.Pointer(&l.dir)), syscall.ENOTEMPTY) // nobody of the job is left to write there
	}
	for i := 0; i < claimLimit && r.claim(l); i++ {
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
}

// disband kills all in the control group, and in those below it, and removes them
// when the processes are gone.
//
//go:noinline
//go:nosplit
//go:norace
func disband(l *ledger, r *roles) {
	here := ^uintptr(99) // AT_FDCWD, -100
	pause := syscall.Timespec{Nsec: sweepPause}
	for i := 0; i < sweepLimit; i++ {
		fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, here, uintptr(unsafe.Pointer(&l.kill)), syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0)
		if errno != 0 {
			return // it is gone
		}
		syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&l.one)), 1)
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		if r.remove(l, uintptr(unsafe.Pointer(&l.cgroup)), syscall.EBUSY) {
			return
		}
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
}

// closeAllBut leaves one file descriptor open. Kernels before 5.9 have no
// close_range; there the descriptors are closed one by one.
//
//go:nosplit
//go:norace
func closeAllBut(keep uintptr) {
	_, _, errno := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, keep+1, ^uintptr(0)>>32, 0)
	if errno == 0 && keep > 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 0, keep-1, 0)
	}
	if errno == 0 {
		return
	}
	for fd := uintptr(0); fd < 1<<16; fd++ {
		if fd != keep {
			syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		}
	}
}

// sweep kills all processes that carry the marker and tells whether there was
// one. /proc is read as getdents64 gives it: records of inode (8 bytes), offset
// (8), length (2), type (1), name up to a zero byte.
//
//go:noinline
//go:nosplit
//go:norace
func sweep(l *ledger) (found bool) {
	const open = syscall.O_RDONLY | syscall.O_CLOEXEC
	dir, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, 0, uintptr(unsafe.Pointer(&l.proc)), open|syscall.O_DIRECTORY, 0, 0, 0)
	if errno != 0 {
		return false
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
			if pid := l.number(at+19, at+length); pid > 1 && l.marked() {
				syscall.RawSyscall(syscall.SYS_KILL, pid, uintptr(syscall.SIGKILL), 0)
				found = true
			}
			at += length
		}
	}
	syscall.RawSyscall(syscall.SYS_CLOSE, dir, 0, 0)
	return found
}

// number reads the name of a directory entry: the process of that number, whose
// environment's path is then in l.path, or 0 when it is no process.
//
//go:nosplit
//go:norace
func (l *ledger) number(from, to uintptr) (pid uintptr) {
	const prefix = uintptr(len("/proc/"))
	const tail = "/environ"
	i := uintptr(0)
	for ; from+i < to && from+i < uintptr(len(l.dirents)) && i < 10; i++ {
		c := l.dirents[from+i]
		if c == 0 {
			break
		}
		if c < '0' || c > '9' {
			return 0
		}
		l.path[prefix+i] = c
		pid = pid*10 + uintptr(c-'0')
	}
	for k := uintptr(0); k < uintptr(len(tail)); k++ {
		l.path[prefix+i+k] = tail[k]
	}
	l.path[prefix+i+uintptr(len(tail))] = 0
	return pid
}

// marked tells whether the environment at l.path holds the marker as an entry.
// An environment may be longer than the space: each read overlaps the one
// before by the length of a marker.
//
//go:nosplit
//go:norace
func (l *ledger) marked() bool {
	const open = syscall.O_RDONLY | syscall.O_CLOEXEC
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, 0, uintptr(unsafe.Pointer(&l.path)), open, 0, 0, 0)
	if errno != 0 {
		return false // another user's, or gone
	}
	found := false
	for offset := uintptr(0); !found; {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, fd, uintptr(unsafe.Pointer(&l.environ)), unsafe.Sizeof(l.environ), offset, 0, 0)
		if errno != 0 || n == 0 || n > unsafe.Sizeof(l.environ) {
			break
		}
		found = l.search(n)
		if n <= maxMarker+2 {
			break
		}
		offset += n - maxMarker - 2
	}
	syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	return found
}

// search looks for the marker in the first n bytes of l.environ, where it must
// follow a zero byte or begin, and end with one. What begins a later piece
// without being the begin of an entry may pass for one; a marker's name and
// random value make that an accident of no practical odds.
//
//go:nosplit
//go:norace
func (l *ledger) search(n uintptr) bool {
	length := uintptr(l.length)
	for i := uintptr(0); i+length <= n && i+length <= uintptr(len(l.environ)); i++ {
		if i > 0 && l.environ[i-1] != 0 {
			continue
		}
		k := uintptr(0)
		for k < length && k < uintptr(len(l.marker)) && l.environ[i+k] == l.marker[k] {
			k++
		}
		if k == length {
			return true
		}
	}
	return false
}

// remove removes the directory at a path and all in it, and tells whether it is
// gone. full is the error of one that is not empty: control groups have another. A
// directory is emptied from the bottom: each pass goes down to the first one that has
// none in it and unlinks what it meets on the way, until the top is gone or a pass
// achieves nothing.
// Links are unlinked, never followed. What other guardians remove at the same
// time is no error.
//
//go:noinline
//go:nosplit
//go:norace
func remove(l *ledger, path uintptr, full syscall.Errno) (gone bool) {
	const open = syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_DIRECTORY | syscall.O_NOFOLLOW
	here := ^uintptr(99) // AT_FDCWD, -100
	for achieved := true; achieved; {
		achieved = false
		_, _, errno := syscall.RawSyscall(syscall.SYS_UNLINKAT, here, path, unix.AT_REMOVEDIR)
		if errno == 0 || errno == syscall.ENOENT {
			return true
		}
		dir, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, here, path, open, 0, 0, 0)
		for errno == 0 {
			n, _, err := syscall.RawSyscall(syscall.SYS_GETDENTS64, dir, uintptr(unsafe.Pointer(&l.dirents)), unsafe.Sizeof(l.dirents))
			if err != 0 || n == 0 || n > unsafe.Sizeof(l.dirents) {
				syscall.RawSyscall(syscall.SYS_CLOSE, dir, 0, 0)
				break
			}
			for at := uintptr(0); at+19 < n; {
				length := uintptr(l.dirents[at+16]) | uintptr(l.dirents[at+17])<<8
				if length < 20 || at+length > n {
					break
				}
				name := uintptr(unsafe.Pointer(&l.dirents[at+19]))
				dots := l.dirents[at+19] == '.' && (l.dirents[at+20] == 0 || l.dirents[at+20] == '.' && l.dirents[at+21] == 0)
				at += length
				if dots {
					continue
				}
				if _, _, err := syscall.RawSyscall(syscall.SYS_UNLINKAT, dir, name, 0); err == 0 {
					achieved = true
					continue
				}
				_, _, err := syscall.RawSyscall(syscall.SYS_UNLINKAT, dir, name, unix.AT_REMOVEDIR)
				if err == 0 {
					achieved = true
				}
				if err != full && (err != syscall.EEXIST || full != syscall.ENOTEMPTY) {
					continue
				}
				if below, _, err := syscall.RawSyscall6(syscall.SYS_OPENAT, dir, name, open, 0, 0, 0); err == 0 {
					syscall.RawSyscall(syscall.SYS_CLOSE, dir, 0, 0)
					dir = below
					break // dirents is overwritten
				}
			}
		}
	}
	return false
}
