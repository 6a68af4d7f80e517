package host

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A poller is an epoll. Where other hosts take part in fences, its goroutine waits for it as others do that read, in the
// runtime's own epoll: a thread that sleeps in a system call is watched by the runtime's monitor, which wakes every 20 us for
// that, and what comes from other hosts would have to wake that thread. Elsewhere a thread sleeps in it, because the runtime would start two
// more threads, 0.6 ms of CPU time, for nothing.
type poller struct {
	fd     int      // -1: closed
	file   *os.File // nil: a thread sleeps in it
	raw    syscall.RawConn
	look   func(fd uintptr) bool // takes what is ready
	events [64]unix.EpollEvent
	n      int // of events, that are ready
	err    error
	timed  bool // file has a deadline
}

func (p *poller) open(shared bool) error {
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if !shared {
		return nil
	}
	if err := unix.SetNonblock(p.fd, true); err != nil { // or the runtime does not take it
		closeFD(&p.fd)
		return os.NewSyscallError("fcntl", err)
	}
	p.file = os.NewFile(uintptr(p.fd), "epoll")
	p.look = func(uintptr) bool { return p.take(0) }
	p.raw, err = p.file.SyscallConn()
	return err
}

func (p *poller) close() {
	if p.file == nil {
		closeFD(&p.fd)
		return
	}
	_ = p.file.Close()
	p.fd, p.file = -1, nil
}

// take takes what is ready within some milliseconds; -1: without end.
func (p *poller) take(ms int) bool {
	if p.n, p.err = unix.EpollWait(p.fd, p.events[:], ms); p.err == unix.EINTR {
		p.n, p.err = 0, nil
	}
	return p.n != 0 || p.err != nil
}

// wait waits for events, at most for d, for ever if d < 0; a signal may end it before. They are the caller's until the next call.
func (p *poller) wait(d time.Duration) ([]unix.EpollEvent, error) {
	p.n, p.err = 0, nil
	if p.file == nil || d == 0 {
		ms := -1
		if d >= 0 {
			ms = int((d + time.Millisecond - 1) / time.Millisecond)
		}
		p.take(ms)
		return p.events[:max(0, p.n)], os.NewSyscallError("epoll_wait", p.err)
	}
	if d > 0 || p.timed {
		var until time.Time // none
		if p.timed = d > 0; p.timed {
			until = time.Now().Add(d)
		}
		if err := p.file.SetReadDeadline(until); err != nil {
			return nil, err
		}
	}
	err := p.raw.Read(p.look)
	switch {
	case p.err != nil:
		return nil, os.NewSyscallError("epoll_wait", p.err)
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return nil, err
	}
	return p.events[:p.n], nil
}
