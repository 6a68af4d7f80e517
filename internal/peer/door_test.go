package peer

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// hall is a door with a listener, and what came in.
type hall struct {
	*Door
	t       *testing.T
	address string
	in      chan int
	refused chan int
}

func newHall(t *testing.T, most int, welcome func(int) bool, in func(fd int) bool) *hall {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{t: t, address: l.Addr().String(), in: make(chan int, 10_000), refused: make(chan int, 10_000)}
	fd := int(file.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	h.Door, err = Open(Config{Listener: fd, Most: most, Welcome: welcome,
		In:      func(fd int) bool { h.in <- fd; return in == nil || in(fd) },
		Refused: func(uid int) { h.refused <- uid }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		file.Close()
		for len(h.in) > 0 {
			unix.Close(<-h.in)
		}
	})
	return h
}

func mine(uid int) bool { return uid == os.Getuid() }

func (h *hall) connect() net.Conn {
	h.t.Helper()
	c, err := net.Dial("tcp4", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// after waits until all who have connected are in or refused.
func (h *hall) after() {
	h.t.Helper()
	done := make(chan struct{})
	h.After(func() { close(done) })
	select {
	case <-done:
	case <-time.After(testenv.Limit(20 * time.Second)):
		h.t.Fatal("After is never called")
	}
}

func TestDoorLetsInUpToMost(t *testing.T) {
	testenv.NoLeaks(t)
	h := newHall(t, 3, mine, nil)
	for range 5 {
		h.connect()
	}
	h.after()
	if len(h.in) != 3 || len(h.refused) != 0 {
		t.Fatalf("%d are in, %d refused, want 3, 0", len(h.in), len(h.refused))
	}
	unix.Close(<-h.in)
	h.Left()
	h.after()
	if len(h.in) != 3 {
		t.Errorf("%d are in when one of three has left and two wait, want 3", len(h.in))
	}
}

func TestDoorRefusesStrangers(t *testing.T) {
	testenv.NoLeaks(t)
	h := newHall(t, 3, func(int) bool { return false }, nil)
	c := h.connect()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it is answered")
	}
	h.after()
	if len(h.in) != 0 || len(h.refused) != 1 {
		t.Errorf("%d are in, %d refused, want 0, 1", len(h.in), len(h.refused))
	}
}

func TestDoorThatClosesItself(t *testing.T) {
	testenv.NoLeaks(t)
	h := newHall(t, 3, mine, func(int) bool { return false })
	h.connect()
	unix.Close(<-h.in)
	h.connect()
	h.after()
	if len(h.in) != 0 {
		t.Error("one came in after the last")
	}
}

// A connection that is closed before anybody looks is nobody's, and the kernel's table
// of all sockets is not read for it: a machine with thousands of sockets takes
// milliseconds for each look.
func TestDoorDoesNotReadTheTableOfAllSockets(t *testing.T) {
	testenv.NoLeaks(t)
	h := newHall(t, 8, mine, nil)
	h.connect()
	h.after() // the kernel answers for one that is open
	if !h.kernel.answers.Load() {
		testenv.Unsupported(t, "this kernel has no sock_diag(7) for TCP")
	}
	h.Left()
	unix.Close(<-h.in)
	before := reads(t)
	for range 1000 {
		c, err := net.Dial("tcp4", h.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
		for len(h.in) > 0 {
			unix.Close(<-h.in)
			h.Left()
		}
	}
	h.after()
	// An eventfd is read each time, of eight bytes; the table has 150 bytes a socket.
	if n := reads(t) - before; n > 200_000 {
		t.Errorf("%d bytes were read for 1000 connections that were closed at once", n)
	}
}

// reads is how many bytes this process has read.
func reads(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		testenv.Unsupported(t, err.Error())
	}
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(line, "rchar: "); ok {
			n := 0
			for _, c := range strings.TrimSpace(s) {
				n = n*10 + int(c-'0')
			}
			return n
		}
	}
	return 0
}

// A kernel that says of every socket that it knows none is one that does not answer.
func TestKernelKnowsItsListener(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	k := new(Kernel)
	if !k.knows(at) {
		testenv.Unsupported(t, "this kernel has no sock_diag(7) for TCP")
	}
	l.Close()
	if k := new(Kernel); k.knows(at) {
		t.Error("it knows a listener that is closed")
	}
}

// Where descriptors are short nobody is let in, and the door is there afterwards.
func TestDoorWithoutDescriptors(t *testing.T) {
	testenv.NoLeaks(t)
	h := newHall(t, 3, mine, nil)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	c := h.connect()
	h.after()
	unix.Close(<-h.in)
	h.Left()
	runtime.GC()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	top := uint64(0)
	_ = raw.Control(func(fd uintptr) {
		n, _ := syscall.Dup(int(fd))
		syscall.Close(n)
		top = uint64(n) + 1 // room for the connection itself, not for the other end
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: top, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	second := h.connect()
	h.after()
	got := len(h.in)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if got != 0 {
		t.Errorf("%d came in without a descriptor", got)
	}
	select {
	case fd := <-h.in:
		unix.Close(fd)
	case <-time.After(testenv.Limit(20 * time.Second)):
		t.Error("it does not come in when there are descriptors again")
	}
	second.Close()
}
