package host

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/mpilib"
	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/launcher/internal/guard"
)

// base is what all parts of a host know: its ranks and what they share, the loop's epoll and mailbox, and where
// events and notes go. The loop alone uses it, but for mail and moves, and what does not change.
type base struct {
	spec Spec
	cfg  Config

	ranks    []rank
	running  int  // ranks that were started and have not ended
	complete bool // no more will start
	toEnd    bool // they were told to end, or killed

	files  []string           // to execute, by program; "" where no rank here runs it
	leads  []bool             // by program: its ranks lead sessions
	linked map[int]mpiLibrary // by program

	guard    *guard.Guard
	segment  *shm.Segment
	dir      string // the job directory
	filesDir string // where MPIs make files: dir, or a directory in it that all users may write to
	rankDir  string // that ranks are told of: dir, or "" if it could not be made

	ctx     context.Context // of fences; ends with Run
	poll    poller
	mail    mailbox
	served  int           // events of the last turn
	moves   atomic.Uint64 // events of the ranks' pipes, sockets and processes, and what their PMIx server asks for
	buf     []byte        // what one read returns
	buffers sync.Pool     // of bufMost bytes
}

func (b *base) emit(e Event) { b.cfg.Emit(e) }

func (b *base) log(format string, args ...any) { b.logAt(slog.LevelDebug, format, args...) }

func (b *base) logAt(level slog.Level, format string, args ...any) {
	if b.cfg.Log != nil {
		b.cfg.Log.Log(context.Background(), level, fmt.Sprintf(format, args...), "host", b.spec.Host)
	}
}

// rankOf is a rank's number in the job, by its local one.
func (b *base) rankOf(local int) int { return b.spec.Ranks[local].Rank }

// appOf is the program of a rank.
func (b *base) appOf(local int) *AppSpec { return &b.spec.Apps[b.spec.Ranks[local].App] }

// up are the ranks that were started, by local number.
func (b *base) up() iter.Seq2[int, *rank] {
	return func(yield func(int, *rank) bool) {
		for i := range b.ranks {
			if r := &b.ranks[i]; r.up && !yield(i, r) {
				return
			}
		}
	}
}

// watch enters a descriptor in the loop. An epoll event carries 64 bits of its
// owner's choice: here the source and the rank's local number.
func (b *base) watch(fd int, events uint32, s source, local int) error {
	e := unix.EpollEvent{Events: events, Fd: int32(s), Pad: int32(local)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(b.poll.fd, unix.EPOLL_CTL_ADD, fd, &e))
}

// rewatch changes what a descriptor is watched for.
func (b *base) rewatch(fd int, events uint32, s source, local int) {
	e := unix.EpollEvent{Events: events, Fd: int32(s), Pad: int32(local)}
	if err := unix.EpollCtl(b.poll.fd, unix.EPOLL_CTL_MOD, fd, &e); err != nil {
		b.log("epoll_ctl: %v", err)
	}
}

// unwatch takes a descriptor out and closes it. Closing alone would not do: a
// child that is just being made may still hold it.
func (b *base) unwatch(fd *int) {
	if *fd < 0 {
		return
	}
	if err := unix.EpollCtl(b.poll.fd, unix.EPOLL_CTL_DEL, *fd, nil); err != nil {
		b.log("epoll_ctl: %v", err)
	}
	closeFD(fd)
}

// signalGroups signals the groups of all ranks, also of those that have ended:
// what they left in the background belongs to the job.
func (b *base) signalGroups(sig syscall.Signal) {
	for i := range b.up() {
		b.signalGroup(i, sig)
	}
}

// signalGroup signals the group of a rank. By TSTP the kernel stops no group whose processes all have parents in other sessions,
// since no shell could continue it. So a rank that leads a session gets STOP instead, unless it catches or ignores TSTP.
func (b *base) signalGroup(local int, sig syscall.Signal) {
	pid := b.ranks[local].pid
	if sig == unix.SIGTSTP && b.leads[b.spec.Ranks[local].App] {
		status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if !hasSignal(string(status), "SigCgt", sig) && !hasSignal(string(status), "SigIgn", sig) {
			sig = unix.SIGSTOP
		}
	}
	// That a group holds nothing but its ended leader is no failure, and
	// neither is a member that has become another user.
	_ = unix.Kill(-pid, sig)
}

// signalRanks signals the groups of some of the ranks.
func (b *base) signalRanks(sig syscall.Signal, ranks []int) {
	for i := range b.up() {
		if slices.Contains(ranks, b.rankOf(i)) {
			b.signalGroup(i, sig)
		}
	}
}

func (b *base) killGroups() { b.signalGroups(syscall.SIGKILL) }

// processes are those of this machine by the rank of this host whose group they
// are in, by local number.
func (b *base) processes() map[int][]proc.Stat {
	leaders := make(map[int]int)
	for i, r := range b.up() {
		if !r.gone {
			leaders[r.pid] = i
		}
	}
	found := make(map[int][]proc.Stat)
	for _, pid := range proc.All() {
		p, ok := proc.Of(pid) // if not, it has ended
		if local, ours := leaders[p.Group]; ok && ours {
			found[local] = append(found[local], p)
		}
	}
	return found
}

// linkedWith is the MPI library that a program is linked with, looked up once.
func (b *base) linkedWith(app int) mpiLibrary {
	if b.linked == nil {
		b.linked = make(map[int]mpiLibrary)
	}
	found, known := b.linked[app]
	if known {
		return found
	}
	if file := b.files[app]; file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(b.spec.Apps[app].Dir, file)
		}
		if f, err := os.Open(file); err == nil {
			found, _ = findMPI(slices.Values(mpilib.Read(f).Needed))
			_ = f.Close()
		}
	}
	b.linked[app] = found
	return found
}

// The buffer for reads starts small, since most ranks say little, and becomes
// large once one fills it. Large ones are handed to the receiver of what was read
// into them, and come back: nothing is copied between read and write.
const (
	bufLeast = 4 << 10
	bufMost  = 256 << 10
)

// room makes the buffer large enough for what is held and a read behind it.
func (b *base) room(held int) {
	if len(b.buf)-held < bufLeast {
		b.buf = b.large()
	}
}

// large is a buffer of bufMost bytes.
func (b *base) large() []byte {
	if buf, ok := b.buffers.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, bufMost)
}
