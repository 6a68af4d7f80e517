package sidecar

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// run starts the helper and is its reader.
func (s *Server) run() {
	// The kernel kills the helper when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.mu.Lock()
	if s.state == starting {
		s.start()
	}
	control := s.control
	pid := s.pid
	s.mu.Unlock()
	if pid == 0 {
		return
	}
	if raw, err := control.SyscallConn(); err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.receive(fd)
		})
	}
	s.mu.Lock()
	s.reaping = true // from here on its number may become another process's
	s.mu.Unlock()
	how := s.reap()
	// Its last words, unless a process that it left behind holds the pipe.
	_ = s.errors.SetReadDeadline(time.Now().Add(time.Second))
	<-s.heard
	s.mu.Lock()
	s.fail("%s %s", s.name(), how)
	s.mu.Unlock()
}

// start starts the helper. What goes wrong is told.
func (s *Server) start() {
	if s.cfg.Refuse != "" {
		s.fail("%s", s.cfg.Refuse)
		return
	}
	s.cfg.Log("a rank connects to the PMIx port: starting %s", s.cfg.Program)
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil { // it is there, or this says why not
		s.fail("directory for Open MPI: %v", err)
		return
	}
	if err := s.fork(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			s.fail("a rank asks for a PMIx server, as programs of Open MPI do, but %s does not exist: build it with make build, or CGO_ENABLED=1 go install ./cmd/gorun-pmix, on a machine with gcc, and put it beside gorun", s.cfg.Program)
			return
		}
		s.fail("a rank asks for a PMIx server, as programs of Open MPI do: %v", err)
		return
	}
	s.buf = make([]byte, 16<<10)
	s.waiting = true
	s.clock.last = time.Now()
	s.timer = time.AfterFunc(s.cfg.Patience/looks, s.watch)
	for i, space := range s.spaces {
		server := &link.Server{Space: space}
		if i == 0 {
			server.Dir, server.Host = s.cfg.Dir, s.cfg.Host
		}
		s.send(&link.Message{Kind: link.Setup, Server: server, Wait: i+1 < len(s.spaces)})
	}
	s.workers.Go(s.write)
	s.heard = make(chan struct{})
	s.workers.Go(s.listen)
}

// fork makes the helper's process.
func (s *Server) fork() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[1])
	var errs [2]int
	if err := unix.Pipe2(errs[:], unix.O_CLOEXEC); err != nil {
		unix.Close(pair[0])
		return os.NewSyscallError("pipe2", err)
	}
	defer unix.Close(errs[1])
	// Only our ends: the mode of the others is their own.
	_ = unix.SetNonblock(pair[0], true)
	_ = unix.SetNonblock(errs[0], true)
	s.control = os.NewFile(uintptr(pair[0]), "gorun-pmix")
	s.errors = os.NewFile(uintptr(errs[0]), "standard error of gorun-pmix")
	pid, err := syscall.ForkExec(s.cfg.Program, []string{s.cfg.Program}, &syscall.ProcAttr{
		Env:   s.cfg.Env(),
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(errs[1]), uintptr(pair[1]), uintptr(s.listener), uintptr(s.first)},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		_ = s.control.Close()
		_ = s.errors.Close()
		return &os.PathError{Op: "exec", Path: s.cfg.Program, Err: err}
	}
	s.pid = pid
	unix.Close(s.first)
	s.first = -1
	return nil
}

// recv reads from the helper without waiting.
func (s *Server) recv(fd uintptr) (n int, err error) {
	if fd != 0 {
		n, _, err = unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT)
		return n, err
	}
	raw, err := s.control.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT)
	}); cerr != nil {
		return 0, cerr
	}
	return n, err
}

// listen keeps what the helper, and libpmix in it, complain about.
func (s *Server) listen() {
	defer close(s.heard)
	buf := make([]byte, 4<<10)
	for {
		n, err := s.errors.Read(buf)
		s.mu.Lock()
		s.tail.Add(buf[:n])
		if n > 0 {
			s.cfg.Log("gorun-pmix: %s", buf[:n])
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// reap waits for the helper, whose stream has ended and which is killed if it does
// not end with it, and tells how it ended.
func (s *Server) reap() string {
	kill := time.AfterFunc(time.Second, func() { _ = unix.Kill(s.pid, unix.SIGKILL) })
	defer kill.Stop()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(s.pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if status.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%v)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}
