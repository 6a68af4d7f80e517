package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// What a rank inherits beside its standard streams.
const (
	pmiFD     = 3
	segmentFD = 4
)

// pollEvery is after how many starts the loop has a look at what happens: a
// large job whose first ranks fail need not be started to its end.
const pollEvery = 16

// A second thread starts ranks too where there are many and it can run: a start
// waits for the kernel to load the program.
const helpFrom = 4 // ranks

// starter starts ranks; several threads may.
type starter struct {
	*base
	server *server
	output *output
	left   *leftovers

	preloaded []string // files of programs that came from the controller, by program; "": it has not
	null      int
	stdin     map[int]int // by local rank, where it is not null
	env       *environment
	async     *spare // CPUs of progress threads
	binder    binder // of the loop's thread
	err       error  // why a rank could not be started
	next      atomic.Int32
	stop      atomic.Bool
	// outside: ranks cannot be started in the control group.
	outside atomic.Bool
}

// take is the next rank to start; done when there is none.
func (s *starter) take() (local int, done bool) {
	local = int(s.next.Add(1)) - 1
	return local, s.stop.Load() || local >= len(s.ranks)
}

// started is a rank that was started, or was not.
type started struct {
	local int
	err   error
}

// start starts all ranks.
func (h *Host) start() error {
	s := &h.starter
	files, err := s.programs()
	if err != nil {
		return err
	}
	h.files = files
	library, err := s.chooseMPI(files)
	if err != nil {
		return err
	}
	if err := h.server.chooseDialers(files); err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	stdin, mine, err := h.input.open()
	if err != nil {
		return err
	}
	defer func() {
		for _, fd := range mine {
			unix.Close(fd)
		}
	}()

	h.ranks = make([]rank, len(h.spec.Ranks))
	s.async = spareCPUs(&h.spec, topo.Here)
	s.async.tell(func(format string, args ...any) { h.logAt(slog.LevelInfo, format, args...) })
	recorder := ""
	if h.spec.Profile > 0 {
		recorder, h.records.lacks = findRecorder(h.spec.Hosting.ProfileLibrary)
	}
	verbs, err := s.findVerbs()
	if err != nil {
		return err
	}
	s.null, s.stdin = null, stdin
	s.env = newEnvironment(&h.spec, surroundings{cpus: h.cfg.CPUs, segment: h.segment.FD() >= 0, dir: h.rankDir, files: h.filesDir,
		server: h.pmix.server, ports: h.server.ports(), python: s.layPython(), library: library, recorder: recorder, verbs: verbs, alone: h.server.alone, cgo: h.server.cgo, linked: h.server.verbs})
	s.env.async = s.async.cpus
	h.leads = make([]bool, len(files))
	for i := range files {
		h.leads[i] = h.cfg.Lead != nil && h.linkedWith(i).polls
	}
	done := make(chan struct{})
	if len(h.ranks) >= helpFrom && runtime.GOMAXPROCS(0) > 1 {
		h.workers.Go(func() { s.help(done) })
	} else {
		close(done)
	}
	err = h.startSome()
	s.binder.restore()
	s.stop.Store(true)
	<-done
	h.readMail()
	if err == nil {
		err = s.err
	}
	return err
}

// help starts ranks on a thread of its own, which stays until the job is over:
// the kernel kills them when it ends.
func (s *starter) help(done chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var b binder
	defer b.restore()
	for local, none := s.take(); !none; local, none = s.take() {
		err := s.start(local, &b)
		s.mail.post(letter{started: &started{local, err}})
		if err != nil {
			break
		}
	}
	close(done)
	<-s.ctx.Done()
}

// startSome starts ranks on the loop's thread until there are none left to start
// or there is a reason to start no more.
func (h *Host) startSome() error {
	for n := 1; ; n++ {
		local, none := h.starter.take()
		if none {
			return nil
		}
		h.rankStarted(started{local, h.starter.start(local, &h.starter.binder)})
		if n%pollEvery == 0 {
			if err := h.turn(0); err != nil {
				return err
			}
		}
		if h.starter.err != nil || h.toEnd {
			return nil
		}
	}
}

// rankStarted takes a rank into the loop.
func (h *Host) rankStarted(s started) {
	err := s.err
	if err == nil {
		h.running++
		h.ranks[s.local].up = true
		h.emit(Event{Kind: Started, Rank: h.rankOf(s.local), PID: h.ranks[s.local].pid})
		if h.toEnd {
			// The wish to end was uttered before it was there to hear it.
			_ = unix.Kill(-h.ranks[s.local].pid, unix.SIGKILL)
		}
		if err = h.watchRank(s.local); err == nil {
			return
		}
	}
	if h.starter.err == nil {
		h.starter.err = h.starter.failure(s.local, err)
	}
}

// failure explains why a rank could not be started. Those before it are
// killed by finish.
func (s *starter) failure(local int, err error) error {
	status, text := 1, err
	var be *bindError
	switch {
	case errors.As(err, &be):
		return &startError{1, "Placing.Bind", be.what(), fmt.Errorf("rank %d: %w", s.rankOf(local), err)}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		// It was there a moment ago, so its interpreter is not.
		name := "its dynamic loader (readelf -l shows it)"
		if found := interpreter(s.appOf(local).Dir, s.files[s.spec.Ranks[local].App]); found != "" {
			name = strconv.Quote(found) + ", which its first line names as its interpreter,"
			if strings.HasSuffix(found, "\r") {
				name = strconv.Quote(found) + ", which its first line names (with a carriage return, as Windows ends lines)"
			}
		}
		status, text = statusNotFound, fmt.Errorf("%s does not exist: %w", name, err)
	case errors.Is(err, unix.ENOEXEC):
		status, text = statusNotExecutable, fmt.Errorf("no program for this machine, and no script: %w", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		status = statusNotExecutable
	case errors.Is(err, unix.E2BIG):
		status, text = statusNotExecutable, fmt.Errorf("arguments and environment are too long for the kernel: %w", err)
	case errors.Is(err, unix.EMFILE):
		text = fmt.Errorf("rank %d: %w (4 descriptors a rank; see ulimit -Hn)", s.rankOf(local), err)
		return &startError{1, "NP", fmt.Sprint(s.spec.NP), text}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		text = fmt.Errorf("rank %d: %w (see ulimit -u, ulimit -v and the pids limit of the control group)", s.rankOf(local), err)
		return &startError{1, "NP", fmt.Sprint(s.spec.NP), text}
	}
	return &startError{status, "Argv", s.appOf(local).Argv[0], text}
}

// start starts one rank. Its ends of the pipes are closed again in any case,
// ours are closed by finish.
func (s *starter) start(local int, b *binder) (err error) {
	r, app := &s.ranks[local], s.appOf(local)
	r.pidfd, r.socket = -1, -1
	r.pipes[Stdout].fd, r.pipes[Stderr].fd = -1, -1
	stdin, ok := s.stdin[local]
	if !ok {
		stdin = s.null
	}
	theirs := [...]int{stdin, -1, -1, -1}
	defer func() {
		for _, fd := range theirs[1:] {
			closeFD(&fd)
		}
		if err != nil {
			closeFD(&r.socket)
			closeFD(&r.pipes[Stdout].fd)
			closeFD(&r.pipes[Stderr].fd)
		}
	}()
	for _, n := range [...]int{Stdout, Stderr} {
		if n == Stderr && s.spec.Output.Merge {
			break
		}
		if theirs[n], err = s.output.openStream(&r.pipes[n], n); err != nil {
			return err
		}
	}
	if !s.server.dials(local) { // else its descriptor stays closed
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socketpair", err)
		}
		r.socket, theirs[pmiFD] = pair[0], pair[1]
		// Where the kernel does not tell who has written, a child's words are the rank's.
		_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}
	r.pipes[Stderr].tail = new(stdio.Tail)
	stderr := theirs[Stderr]
	if s.spec.Output.Merge {
		stderr, r.pipes[Stdout].tail = theirs[Stdout], r.pipes[Stderr].tail
	}

	files := []uintptr{uintptr(stdin), uintptr(theirs[Stdout]), uintptr(stderr), uintptr(theirs[pmiFD])}
	if fd := s.segment.FD(); fd >= 0 {
		files = append(files, uintptr(fd))
	}
	if err := b.bind(s.spec.Ranks[local].CPUs); err != nil {
		return err
	}
	pidfd, leads := -1, s.leads[s.spec.Ranks[local].App]
	attr := &syscall.ProcAttr{
		Dir:   app.Dir,
		Env:   s.env.of(local),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: !leads, Setsid: leads, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd},
	}
	var pid int
	if leads {
		pid, err = s.cfg.Lead(func() (int, error) { return s.fork(app, s.files[s.spec.Ranks[local].App], attr) })
	} else {
		pid, err = s.fork(app, s.files[s.spec.Ranks[local].App], attr)
	}
	if errors.Is(err, unix.EBADF) {
		// Ours are all good: the child moves them above the highest, and
		// dup3(2) beyond the limit on descriptors fails with this.
		err = unix.EMFILE
	}
	if err != nil {
		return err
	}
	r.pid, r.pidfd = pid, pidfd
	// Until here the guardian knows the rank by its environment only.
	s.guard.Add(pid)
	return nil
}

// fork starts a program, in the control group if there is one.
func (s *starter) fork(app *AppSpec, file string, attr *syscall.ProcAttr) (pid int, err error) {
	if fd := s.left.cgroup.fd; fd >= 0 && !s.outside.Load() {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
	}
	pid, err = syscall.ForkExec(file, app.Argv, attr)
	if err != nil && attr.Sys.UseCgroupFD {
		// Kernels before 5.7, and sandboxes, do not start processes there; the error
		// may as well be the program's.
		attr.Sys.UseCgroupFD = false
		if pid, err = syscall.ForkExec(file, app.Argv, attr); err == nil {
			s.outside.Store(true)
		}
	}
	if errors.Is(err, unix.ENOEXEC) {
		if shell := script(app.Dir, file); shell != "" {
			pid, err = syscall.ForkExec(shell, append([]string{shell, file}, app.Argv[1:]...), attr)
		}
	}
	return pid, err
}

// watchRank enters a rank's descriptors in the loop.
func (h *Host) watchRank(local int) error {
	r := &h.ranks[local]
	if r.pidfd < 0 {
		// A kernel before 5.4, or a sandbox without pidfds.
		h.workers.Add(1)
		go h.await(local, r.pid)
	} else if err := h.watch(r.pidfd, unix.EPOLLIN, sourceProcess, local); err != nil {
		return err
	}
	for _, s := range [...]int{Stdout, Stderr} {
		if r.pipes[s].fd < 0 {
			continue
		}
		h.output.open++
		if h.output.streams[s].paused {
			continue
		}
		if err := h.watch(r.pipes[s].fd, unix.EPOLLIN, source(s), local); err != nil {
			return err
		}
	}
	if h.server.dials(local) {
		h.server.seatGuests(local)
		return nil
	}
	return h.watch(r.socket, unix.EPOLLIN, sourcePMI, local)
}

// await waits for the end of a process that has no pidfd.
func (h *Host) await(local, pid int) {
	defer h.workers.Done()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	h.mail.post(letter{local: local, ended: true})
}

// inheritNothing marks every descriptor close-on-exec that this process was
// given by the process that started it: ranks and helpers get what they are meant to have. Those
// that Go opened are marked already.
func inheritNothing() error {
	err := unix.CloseRange(3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("find inherited descriptors: %w", err)
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
