package peer

import (
	"errors"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Door lets in those that connect to a port of the loopback address, after a look at
// whose they are, on a goroutine of its own: a flood of strangers costs its owner
// nothing.
type Door struct {
	cfg    Config
	server netip.AddrPort
	kernel Kernel
	wake   int // eventfd
	done   chan struct{}

	mu     sync.Mutex
	inside int
	after  []func()
	closed bool
	ended  bool // nobody is let in any more
}

// Config is what a door needs. Its functions are called on the door's goroutine and
// must not block.
type Config struct {
	Listener int // a listening socket of TCP that does not block; it stays the caller's
	// Most is how many may be inside at once. Beyond it nobody is let in before Left.
	Most int
	// Welcome tells whether processes of a user are let in.
	Welcome func(uid int) bool
	// In takes a connection, which does not block and is closed on exec. If it
	// returns false, the door lets nobody else in.
	In func(fd int) bool
	// Refused is told of each connection of another user, which is closed.
	Refused func(uid int)
}

// pass is how many connections are let in, or not, before the door looks at what else
// it is asked for. It is the length of the queue of a listener too: what was in it when
// a pass began has been let in when it ends.
const pass = 4096

// Open begins to let in.
func Open(cfg Config) (*Door, error) {
	name, err := unix.Getsockname(cfg.Listener)
	if err != nil {
		return nil, os.NewSyscallError("getsockname", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	d := &Door{cfg: cfg, server: address(name), wake: wake, done: make(chan struct{})}
	go d.run()
	return d, nil
}

func address(name unix.Sockaddr) netip.AddrPort {
	if a, ok := name.(*unix.SockaddrInet4); ok {
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// Left says that one that was let in is inside no more.
func (d *Door) Left() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside--; d.inside == d.cfg.Most-1 {
		d.ring()
	}
}

// After calls f when all that had connected before it were let in or refused, as far as
// there is room. f must not block. After Close it is not called.
func (d *Door) After(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
	case d.ended:
		f()
	default:
		d.after = append(d.after, f)
		d.ring()
	}
}

// Close lets nobody in any more. No function of Config is called after it.
func (d *Door) Close() {
	d.mu.Lock()
	d.closed = true
	d.ring()
	d.mu.Unlock()
	<-d.done
	unix.Close(d.wake)
}

// ring wakes the goroutine.
func (d *Door) ring() {
	one := [8]byte{1} // above 0 in either byte order
	_, _ = unix.Write(d.wake, one[:])
}

// end calls what waits for those that had connected.
func (d *Door) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if !d.closed {
		for _, f := range d.after {
			f()
		}
	}
	d.after = nil
	close(d.done)
}

func (d *Door) run() {
	defer d.end()
	for pause := -1; ; {
		d.mu.Lock()
		after, full := d.after, d.inside >= d.cfg.Most
		d.after = nil
		d.mu.Unlock()
		if len(after) == 0 {
			fds := []unix.PollFd{{Fd: int32(d.wake), Events: unix.POLLIN}, {Fd: int32(d.cfg.Listener), Events: unix.POLLIN}}
			if full || pause >= 0 {
				fds = fds[:1]
			}
			if _, err := unix.Poll(fds, pause); err != nil && err != unix.EINTR {
				return
			}
			var count [8]byte
			_, _ = unix.Read(d.wake, count[:])
		}
		var open bool
		if open, pause = d.letIn(); !open {
			return
		}
		for _, f := range after {
			f()
		}
	}
}

// letIn lets in what has connected, and tells whether the door stays open, and how many
// milliseconds it waits where the system has no descriptor for another connection.
func (d *Door) letIn() (open bool, pause int) {
	for range pass {
		d.mu.Lock()
		closed, full := d.closed, d.inside >= d.cfg.Most
		d.mu.Unlock()
		if closed || full {
			return !closed, -1
		}
		fd, name, err := unix.Accept4(d.cfg.Listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == unix.EAGAIN:
			return true, -1
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			return true, 10
		case err == unix.EINVAL, err == unix.EBADF, err == unix.ENOTSOCK, err == unix.EOPNOTSUPP:
			return false, -1
		case err != nil:
			continue // of that one connection
		}
		uid, err := d.kernel.Owner(address(name), d.server)
		if err != nil || !d.cfg.Welcome(uid) {
			unix.Close(fd)
			if err == nil {
				d.cfg.Refused(uid)
			}
			continue
		}
		d.mu.Lock()
		d.inside++
		d.mu.Unlock()
		if !d.cfg.In(fd) {
			return false, -1
		}
	}
	return true, -1
}
