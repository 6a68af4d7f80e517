package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// input is what rank 0 is still to read. fd is the writing end of its pipe.
type input struct {
	fd    int
	queue [][]byte
	last  bool // nothing comes after the queue
	stuck bool // the pipe is full
}

// openInput makes what rank 0 has as standard input; null stands for nothing.
func (h *Host) openInput(null int) (int, error) {
	h.input.fd = -1
	if h.spec.local(0) < 0 {
		return null, nil
	}
	switch h.spec.Stdin {
	case StdinFile:
		// As os/exec does, Fd makes a file blocking that Go had opened
		// non-blocking: the mode is shared with the rank.
		return int(h.cfg.Stdin.Fd()), nil
	case StdinPump:
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return -1, os.NewSyscallError("pipe2", err)
		}
		if err := unix.SetNonblock(ends[1], true); err != nil {
			unix.Close(ends[0])
			unix.Close(ends[1])
			return -1, os.NewSyscallError("fcntl", err)
		}
		h.input.fd = ends[1]
		return ends[0], h.watch(ends[1], 0, sourceInput, 0)
	}
	return null, nil
}

// takeInput queues what the controller has read.
func (h *Host) takeInput(data []byte, last bool) {
	if h.input.fd < 0 {
		return
	}
	if len(data) > 0 {
		h.input.queue = append(h.input.queue, data)
	}
	h.input.last = h.input.last || last
	if !h.input.stuck {
		h.feed()
	}
}

// inputReady is called when rank 0's pipe takes more, or nobody will read it.
func (h *Host) inputReady(events uint32) {
	if events&unix.EPOLLERR != 0 {
		h.inputUnread()
		return
	}
	h.feed()
}

// inputUnread drops what nobody will read.
func (h *Host) inputUnread() {
	if h.input.fd < 0 {
		return
	}
	h.unwatch(&h.input.fd)
	h.input.queue = nil
	h.emit(Event{Kind: StdinTaken, N: -1})
}

// feed writes to rank 0 what its pipe takes.
func (h *Host) feed() {
	in := &h.input
	if in.fd < 0 {
		return
	}
	written := 0
	stuck := false
	for len(in.queue) > 0 && !stuck {
		n, err := unix.Write(in.fd, in.queue[0])
		switch {
		case err == nil:
			written += n
			if in.queue[0] = in.queue[0][n:]; len(in.queue[0]) == 0 {
				in.queue = in.queue[1:]
			}
		case err == unix.EAGAIN:
			stuck = true
		case err != unix.EINTR:
			h.inputUnread() // EPIPE
			return
		}
	}
	if written > 0 {
		h.emit(Event{Kind: StdinTaken, N: written})
	}
	if len(in.queue) == 0 && in.last {
		h.unwatch(&in.fd)
		return
	}
	if stuck != in.stuck {
		in.stuck = stuck
		events := uint32(0) // the reader's end is reported all the same
		if stuck {
			events = unix.EPOLLOUT
		}
		h.rewatch(in.fd, events, sourceInput, 0)
	}
}
