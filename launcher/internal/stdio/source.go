package stdio

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Window is how much of its input a Source reads ahead.
const Window = 256 << 10

// chunk is how much it reads at once.
const chunk = 32 << 10

// Source reads the launcher's input and sends it on, at most Window bytes ahead
// of what Credit gave back.
type Source struct {
	r    io.Reader
	send func(data []byte, end bool)
	wake int           // eventfd that ends a poll; -1 when r is no file
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	more   sync.Cond // of mu: credit or stop
	credit int
	stop   bool
}

// NewSource starts to read r. send gets each piece from the source's goroutine,
// and at last end without data, at the end of the input or at its failure.
func NewSource(r io.Reader, send func(data []byte, end bool)) (*Source, error) {
	s := &Source{r: r, send: send, wake: -1, done: make(chan struct{}), credit: Window}
	s.more.L = &s.mu
	if _, ok := r.(*os.File); ok {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return nil, os.NewSyscallError("eventfd", err)
		}
		s.wake = fd
	}
	go s.run()
	return s, nil
}

// Credit says that the receiver has done with n bytes.
func (s *Source) Credit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit += n
	s.more.Signal()
}

// End ends the reading, and waits for nothing: Stop has still to come.
func (s *Source) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// end tells the goroutine to end. The caller holds mu.
func (s *Source) end() {
	s.more.Signal()
	if s.stop {
		return
	}
	s.stop = true
	if s.wake >= 0 {
		one := [8]byte{1} // a number above 0 in either byte order
		_, _ = unix.Write(s.wake, one[:])
	}
}

// Stop ends the reading. It waits for the goroutine of a file; that of another
// reader ends when its Read returns.
func (s *Source) Stop() {
	s.mu.Lock()
	s.end()
	wake := s.wake
	s.mu.Unlock()
	if wake < 0 {
		return
	}
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake >= 0 {
		unix.Close(s.wake)
		s.wake = -1
	}
}

func (s *Source) run() {
	defer close(s.done)
	buf := make([]byte, chunk)
	for {
		n := s.allowed()
		if n == 0 || !s.wait() {
			return
		}
		n, err := s.r.Read(buf[:min(n, len(buf))])
		if n > 0 {
			s.mu.Lock()
			s.credit -= n
			stop := s.stop
			s.mu.Unlock()
			if stop {
				return
			}
			s.send(append([]byte(nil), buf[:n]...), false)
		}
		if err != nil {
			s.send(nil, true)
			return
		}
	}
}

// allowed waits for credit and returns it; 0 when stopped.
func (s *Source) allowed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit <= 0 && !s.stop {
		s.more.Wait()
	}
	if s.stop {
		return 0
	}
	return s.credit
}

// How often a job in the background looks whether it has come to the
// foreground, where it may read the terminal.
const background = 300 // ms

// wait blocks until a file can be read, and tells whether it should be. A
// process in the background that read the terminal would be stopped by it, so
// the terminal is left alone until it is in the foreground.
func (s *Source) wait() bool {
	f, ok := s.r.(*os.File)
	if !ok {
		return true
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return true // Read will say what is wrong
	}
	ready := true
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(s.wake), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
		for {
			set, limit := fds, -1
			if inBackground(int(fd)) {
				set, limit = fds[:1], background
			}
			fds[0].Revents, fds[1].Revents = 0, 0
			_, err := unix.Poll(set, limit)
			switch {
			case err == unix.EINTR:
			case err != nil:
				return
			case fds[0].Revents != 0:
				ready = false
				return
			case fds[1].Revents != 0:
				return
			}
		}
	})
	return ready
}

// Terminal tells whether a reader is a terminal.
func Terminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	_ = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		is = err == nil
	})
	return is
}

// inBackground tells whether fd is the controlling terminal and another process
// group has it.
func inBackground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}
