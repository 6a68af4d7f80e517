package host

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// letter is something that another goroutine has for the loop.
type letter struct {
	command  Command
	local    int  // rank, descriptor or user of those below
	ended    bool // the process of that rank has ended
	heard    bool // and those that had connected before were let in
	guest    bool // that descriptor is a connection to the port
	stranger bool // that user was not let in
	fence    *fenced
	started  *started
}

// mailbox carries letters to the loop and wakes it.
type mailbox struct {
	fd int // eventfd

	mu      sync.Mutex
	letters []letter
	closed  bool
}

func (m *mailbox) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	m.fd = fd
	return nil
}

// Send gives the host a command. After Done it does nothing.
func (h *Host) Send(c Command) { h.mail.post(letter{command: c}) }

// Close frees a host that was never run.
func (h *Host) Close() { h.mail.close() }

func (m *mailbox) post(l letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.letters = append(m.letters, l)
	if len(m.letters) == 1 {
		one := [8]byte{1} // above 0 in either byte order
		// It cannot fail but when the counter is full, and then it wakes.
		_, _ = unix.Write(m.fd, one[:])
	}
}

// take empties the box.
func (m *mailbox) take() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	var count [8]byte
	_, _ = unix.Read(m.fd, count[:])
	letters := m.letters
	m.letters = nil
	return letters
}

func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.letters = nil
	unix.Close(m.fd)
}
