package host

import (
	"context"
	"errors"
	"fmt"
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

// Host runs the ranks of one host. Each of its parts has the state of one task, and reaches another part only
// where it has a field for it. Host itself turns the loop and does what concerns several parts.
type Host struct {
	base
	starter starter
	output  output
	input   input
	server  server
	pmix    pmixServer
	daemon  daemon
	watcher watcher
	ending  ending
	left    leftovers
	records records

	held    atomic.Pointer[guard.Guard] // guard, for Alive
	holding atomic.Int32                // groups that need the PMIx server
	// abandoned: the controller is gone, and this process may be killed next.
	abandoned bool
	hasLeft   bool             // leave was called
	oom       int              // processes that had been killed for want of memory before this host began
	began     syscall.Timespec // by the clock of files

	cancel  context.CancelFunc
	workers sync.WaitGroup // goroutines that send letters
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
	h := assemble(spec, cfg)
	if err := h.mail.open(); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// assemble joins the parts.
func assemble(spec Spec, cfg Config) *Host {
	h := &Host{base: base{spec: spec, cfg: cfg, poll: poller{fd: -1}}}
	b := &h.base
	h.output = output{base: b}
	h.input = input{base: b}
	h.pmix = pmixServer{base: b}
	h.daemon = daemon{base: b, pidfd: -1}
	h.server = server{base: b, daemon: &h.daemon, port: port{fd: -1}}
	h.watcher = watcher{base: b, server: &h.server, pmix: &h.pmix}
	h.ending = ending{base: b, output: &h.output}
	h.left = leftovers{base: b, cgroup: cgroup{fd: -1}}
	h.starter = starter{base: b, server: &h.server, output: &h.output, left: &h.left}
	return h
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
	h.left.watchGuard()
	if err := h.guard.RemoveUnused(tempPrefixes[:]...); err != nil {
		return err
	}
	if err := h.left.makeDirectory(); err != nil {
		return err
	}
	if err := h.starter.fetchPrograms(); err != nil {
		return err
	}
	h.left.openGroup()
	for _, next := range []func() error{h.pmix.open, h.daemon.check, h.openSegment, h.daemon.open} {
		if err := next(); err != nil {
			return err
		}
	}
	h.server.openWorld()
	return nil
}

// openSegment makes the memory that the ranks share. Where the kernel gives none it is gorun's own, and no rank
// inherits it.
func (h *Host) openSegment() (err error) {
	g := h.spec.geometry(shm.Limit())
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
	if !h.hasLeft {
		h.ending.lookBeforeSignal()
		h.killGroups()
	}
	h.daemon.end()
	h.pmix.close()
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
	h.ending.temp.remove(h.log)
	if h.pmix.server != nil && !h.pmix.server.Idle() {
		removeForgotten(memoryDirectory, h.began, h.log)
	}
	h.left.removeGroup()
	h.left.removeDirectory()
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
	h.input.close()
	h.server.closePort()
	h.output.aside.close()
	h.poll.close()
	h.workers.Wait()
	if h.starter.async != nil {
		h.starter.async.release()
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
