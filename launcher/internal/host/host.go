package host

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/guard"
	"github.com/gorun-mpi/gorun/launcher/internal/orphan"
	"github.com/gorun-mpi/gorun/launcher/internal/sidecar"
	"github.com/gorun-mpi/gorun/pmi"
)

// Config is what a host needs beside its Spec.
type Config struct {
	// Emit takes events, one after the other; it must not block.
	Emit func(Event)
	// Stdin is what the ranks read that read StdinFile.
	Stdin *os.File
	// Store completes fences with the other hosts; nil if there are none. It
	// must outlive this host's ranks by as long as others may need what they
	// had put, so its owner closes it, after Run.
	Store Store
	// Lease is how long the ranks live after the last call of Alive, if this process is stopped, else several times that; 0: for ever. It is for
	// machines that nobody else may reach.
	Lease time.Duration
	// Fetch gives a piece of a program's Preload, from an offset on; ErrNotWanted ends the host. It may block
	// until then. nil: there are none.
	Fetch func(app int, offset int64) ([]byte, error)
	// Elder is a host of this process whose PMIx server serves these ranks too; nil: this host has its own. Somebody holds
	// it until Run returns.
	Elder *Host
	// CPUs is how many this machine can keep busy at once; 0: the host looks.
	CPUs int
	// Adopted: this process adopts orphans, and somebody kills them later.
	Adopted bool
	// Lead starts a rank that leads a session, by a call of its argument. nil: no rank does, so that all keep
	// the terminal that gorun may have.
	Lead func(start func() (pid int, err error)) (pid int, err error)
	// Log may be nil.
	Log *slog.Logger
}

// A Store completes the fences of a job over all its hosts.
type Store interface {
	// Expect says that a rank speaks, so that fences may follow. It does not block, and may be called again.
	Expect()
	// Begin enters the fence of an epoch with this host's contribution, which the store keeps, and then is told of those of
	// all hosts, by host index, or of an error that names the lost host. Each host calls it once per epoch, in any order,
	// and several epochs may be open. then is called on any goroutine, and does not block.
	Begin(epoch uint64, contribution []byte, then func(all [][]byte, err error))
}

// Host runs the ranks of one host.
type Host struct {
	spec Spec
	cfg  Config

	ranks    []rank
	running  int  // ranks that were started and have not ended
	complete bool // no more will start
	starter  *starter
	async    *spare // CPUs of progress threads
	binder   binder // of the loop's thread
	startErr error  // why a rank could not be started

	guard      *guard.Guard
	held       atomic.Pointer[guard.Guard] // guard, for Alive
	dir        string                      // the job directory
	filesDir   string                      // where MPIs make files: dir, or a directory in it that all users may write to
	laid       []string                    // what was put into dir, which is removed without a look
	rankDir    string                      // that ranks are told of: dir, or "" if it could not be made
	preloaded  []string                    // files of programs that came from the controller, by program; "": it has not
	temp       tempFiles
	began      syscall.Timespec // by the clock of files
	cgroup     cgroup
	segment    *shm.Segment
	daemon     daemon
	worlds     []*pmi.Engine // see engine
	fences     uint64        // that were emitted, of all worlds
	singletons singletonSearch
	libraries  libraries
	linked     map[int]mpiLibrary // by program
	records    records
	pmix       *sidecar.Server // nil: programs of Open MPI are not served
	holding    atomic.Int32    // groups that need it
	port       port
	dialers    []bool  // by program: its ranks connect to the port
	alone      []bool  // by program: it is the one of its rank that speaks PMI
	cgo        []bool  // by program: it is one of Go that was built with cgo
	denied     [2]bool // a rank's program was not let in there, or somebody else, and that was told
	input      input
	streams    [3]stream // by number; 0 is unused
	aside      lineFile
	discard    bool // nobody wants output any more
	ending     ending
	// abandoned: the controller is gone, and this process may be killed next.
	abandoned bool
	// quitting: ranks were made to write their stacks and end.
	quitting  bool
	buf       []byte    // what one read returns
	buffers   sync.Pool // of bufMost bytes
	prompt    time.Time // when the begin of a line may be due; zero: none is
	crowded   bool      // several ranks are within a line, and spec.Alone has the begins wait until one of these ends
	brought   uint64    // how often a pipe was read
	heard     uint64    // brought, when the silence was begun to be timed
	stall     stallWatch
	moves     atomic.Uint64 // events of the ranks' pipes, sockets and processes, and what their PMIx server asks for
	sample    time.Time     // when to look at the ranks; zero: never
	open      int           // pipes of output that may bring more
	linger    linger
	left      bool      // leave was called
	served    int       // events of the last turn
	holds     int       // PMI sockets that ended before their rank
	crashLook time.Time // when to look at ranks that report a crash; zero: never
	oom       int       // processes that had been killed for want of memory before this host began

	poll    poller
	ctx     context.Context // of fences; ends with Run
	cancel  context.CancelFunc
	workers sync.WaitGroup // goroutines that send letters

	mail mailbox
}

// rank is a rank on this host. Its descriptors are -1 when closed.
type rank struct {
	up                bool // it was started; nothing else counts before
	pid               int
	pidfd             int
	socket            int // PMI
	pipes             [3]pipe
	send              []byte // to the socket, when it is full
	hearing, heard    bool   // its process has ended, and what was said before is being, or was, taken in
	gone              bool   // that was taken in
	goneAt            int64  // when, as sharedClock tells it; 0: nobody wants to know
	bad               bool   // and not well
	aborted           bool   // it has asked for the end of the job
	how               end    // once it is gone
	leaves            bool   // it was on its way out when the others were told to end
	came              bool   // to the PMIx server
	speaker           int    // the process that said init on the socket; 0: unknown
	joined, finalized bool   // what met tells when it is gone
	crash             crash
	silent            time.Time
	stuck             bool   // the socket takes no more at the moment
	spoken            bool   // it has written
	linked            string // MPI library that it was seen with

	connected bool // to the port
	world     int  // that it is in, or was last
}

// Alive renews Config.Lease. Any goroutine may call it, at any time.
func (h *Host) Alive() {
	if g := h.held.Load(); g != nil {
		g.Alive()
	}
}

// New makes a host. Run starts it.
func New(spec Spec, cfg Config) (*Host, error) {
	h := &Host{spec: spec, cfg: cfg, poll: poller{fd: -1}, port: port{fd: -1}, cgroup: cgroup{fd: -1}}
	if err := h.mail.open(); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// Run starts the ranks and returns when nothing is left of them. The last event
// is Done.
func (h *Host) Run() {
	// The kernel kills the ranks when the thread ends that started them, so
	// that thread has to be this one until the end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer h.mail.close()

	err := h.prepare()
	if err == nil {
		err = h.start()
	}
	var start *startError
	switch {
	case errors.Is(err, ErrNotWanted):
		err = nil
	case errors.As(err, &start):
		h.emit(Event{Kind: StartFailed, Status: start.status, Field: start.field, Value: start.value, Text: start.err.Error()})
		err = nil
	case err == nil:
		err = h.serve()
	}
	if err != nil {
		h.emit(Event{Kind: Failed, Text: err.Error()})
	}
	h.finish()
}

// prepare makes what the ranks share.
func (h *Host) prepare() error {
	h.buf = make([]byte, bufLeast)
	var err error
	if err := inheritNothing(); err != nil {
		return err
	}
	if err := h.poll.open(h.cfg.Store != nil); err != nil {
		return err
	}
	if err := h.watch(h.mail.fd, unix.EPOLLIN, sourceMail, 0); err != nil {
		return err
	}
	h.oom = topo.OOMKills()
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &clock) // it cannot fail, and the time 0 is not too late
	h.began.Sec, h.began.Nsec = clock.Sec, clock.Nsec
	if h.guard, err = guard.Start(Marker(&h.spec), h.cfg.Lease); err != nil {
		return err
	}
	h.held.Store(h.guard)
	h.watchGuard()
	if err := h.guard.RemoveUnused(tempPrefixes[:]...); err != nil {
		return err
	}
	if err := h.makeDirectory(); err != nil {
		return err
	}
	if err := h.fetchPrograms(); err != nil {
		return err
	}
	h.openGroup()
	for _, next := range []func() error{h.openPMIx, h.checkDaemon, h.openSegment, h.openDaemon} {
		if err := next(); err != nil {
			return err
		}
	}
	h.openWorld()
	return nil
}

// openSegment makes the memory that the ranks share. Where the kernel gives none it is gorun's own, and no rank
// inherits it.
func (h *Host) openSegment() (err error) {
	g := h.geometry(shm.Limit())
	if h.segment, err = shm.Create(g); errors.Is(err, errors.ErrUnsupported) {
		if len(h.spec.Ranks) > 1 {
			h.emit(Event{Kind: Unshared, Rank: -1, Text: fmt.Sprintf("%v: Go ranks of one host share no memory, and their data goes over TCP; a filter of system calls that permits memfd_create avoids this", err)})
		}
		h.segment, err = shm.NewLocal(g)
	}
	if err != nil {
		return fmt.Errorf("shared segment of %d ranks: %w", g.Ranks, err)
	}
	return nil
}

// finish undoes what prepare, start and loop did, in reverse. No rank is alive
// unless something failed.
func (h *Host) finish() {
	h.cancel()
	if !h.left {
		h.lookBeforeSignal()
		h.killGroups()
	}
	h.endDaemon()
	h.closePMIx()
	if !h.cfg.Adopted {
		orphan.Sweep(Marker(&h.spec))
	}
	tails, reasons := make(map[int][]string), make(map[int]string)
	for i, r := range h.up() {
		used := reap(r.pid)
		if h.spec.Profile > 0 && h.filesDir != "" {
			h.tellRecord(i, used)
		}
		if reason, lines := r.lastWords(); r.bad && len(lines) > 0 {
			tails[h.rankOf(i)] = lines
			if reason != "" {
				reasons[h.rankOf(i)] = reason
			}
		}
		closeFD(&r.pidfd)
		closeFD(&r.socket)
		closeFD(&r.pipes[Stdout].fd)
		closeFD(&r.pipes[Stderr].fd)
	}
	if err := h.records.lines.Close(); err != nil {
		h.log("%v", err)
	}
	h.temp.remove(h.log)
	if h.pmix != nil && !h.pmix.Idle() {
		removeForgotten(memoryDirectory, h.began, h.log)
	}
	h.removeGroup()
	h.removeDirectory()
	switch {
	case h.guard == nil:
	case h.abandoned:
		if err := h.guard.Strike(); err != nil {
			h.log("guardian: %v", err)
		}
		h.guard = nil
	default:
		h.guard.Release()
	}
	h.closeInput()
	h.closePort()
	h.aside.close()
	h.poll.close()
	h.workers.Wait()
	if h.async != nil {
		h.async.release()
	}
	if h.segment != nil {
		if err := h.segment.Close(); err != nil {
			h.log("%v", err)
		}
	}
	if h.guard != nil {
		if err := h.guard.Wait(); err != nil {
			h.log("guardian: %v", err)
		}
	}
	if len(tails) > 0 {
		h.emit(Event{Kind: Tails, Tails: tails, Reasons: reasons})
	}
	h.emit(Event{Kind: Done})
}

// watchGuard has the loop see the guardian's end.
func (h *Host) watchGuard() {
	if fd := h.guard.FD(); fd >= 0 {
		if err := h.watch(fd, unix.EPOLLIN, sourceGuard, 0); err != nil {
			h.log("guardian: %v", err)
		}
	}
}

// guardEnded replaces a guardian that somebody has killed.
func (h *Host) guardEnded() {
	if h.guard == nil || h.guard.Released() {
		return
	}
	h.log("the guardian (pid %d) has ended and is replaced", h.guard.PID())
	if err := h.guard.Replace(); err != nil {
		h.log("%v", err)
		return
	}
	h.watchGuard()
}

func (h *Host) emit(e Event) { h.cfg.Emit(e) }

func (h *Host) log(format string, args ...any) { h.logAt(slog.LevelDebug, format, args...) }

func (h *Host) logAt(level slog.Level, format string, args ...any) {
	if h.cfg.Log != nil {
		h.cfg.Log.Log(context.Background(), level, fmt.Sprintf(format, args...), "host", h.spec.Host)
	}
}

// rankOf is a rank's number in the job, by its local one.
func (h *Host) rankOf(local int) int { return h.spec.Ranks[local].Rank }

// appOf is the program of a rank.
func (h *Host) appOf(local int) *AppSpec { return &h.spec.Apps[h.spec.Ranks[local].App] }

// up are the ranks that were started, by local number.
func (h *Host) up() iter.Seq2[int, *rank] {
	return func(yield func(int, *rank) bool) {
		for i := range h.ranks {
			if r := &h.ranks[i]; r.up && !yield(i, r) {
				return
			}
		}
	}
}

// reap takes a process that has ended, or soon has, out of the process table, and tells what it has used.
func reap(pid int) (used unix.Rusage) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, &used); err != unix.EINTR {
			return used
		}
	}
}

func closeFD(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}
