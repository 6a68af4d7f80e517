package host

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// drainSilence is how long the pipes are read on, after the last of what the
// ranks had written, before they are left to whoever still holds them.
const drainSilence = 100 * time.Millisecond

// pipe is one stream of one rank.
type pipe struct {
	fd    int
	lines stdio.Lines
	tail  *stdio.Tail // of stderr
	owed  int         // bytes that were in the pipe when the last rank had ended
}

// stream is all ranks' output of one number.
type stream struct {
	ahead  int  // bytes that the controller has not taken yet
	paused bool // the pipes are not read
}

// readPipe reads what a rank has written. The pipe is in blocking mode, since a
// mode of our end costs a system call more; epoll says that it will not block.
func (h *Host) readPipe(local, number int, events uint32) {
	p := &h.ranks[local].pipes[number]
	if p.fd < 0 || h.streams[number].paused {
		return
	}
	if events&unix.EPOLLIN == 0 {
		h.closePipe(p, number)
		return
	}
	n, err := unix.Read(p.fd, h.buf)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
	case err != nil || n == 0:
		h.closePipe(p, number)
	default:
		if p.owed > 0 {
			p.owed -= n
			h.quiet = time.Now()
		}
		if p.tail != nil {
			p.tail.Add(h.buf[:n])
		}
		h.spoke(local)
		h.output(number, p.lines.Add(h.buf[:n]))
		h.grow(n)
	}
}

// closePipe ends a pipe whose writers have all gone.
func (h *Host) closePipe(p *pipe, number int) {
	h.unwatch(&p.fd)
	h.open--
	h.output(number, p.lines.End())
}

// output sends data on; it is the receiver's from here.
func (h *Host) output(number int, data []byte) {
	if len(data) == 0 || h.discard {
		return
	}
	h.streams[number].ahead += len(data)
	h.emit(Event{Kind: Output, Stream: number, Data: data})
	if s := &h.streams[number]; !s.paused && s.ahead >= Window {
		h.pause(number, true)
	}
}

// credit says that the controller has taken n bytes of a stream.
func (h *Host) credit(number, n int) {
	if number != Stdout && number != Stderr {
		return
	}
	s := &h.streams[number]
	if s.ahead -= n; s.paused && s.ahead < Window/2 {
		h.pause(number, false)
	}
}

// discardOutput lets ranks that still write do so, for nobody.
func (h *Host) discardOutput() {
	h.discard = true
	for _, s := range [...]int{Stdout, Stderr} {
		if h.streams[s].paused {
			h.pause(s, false)
		}
	}
}

// pause stops or resumes the reading of all pipes of a stream.
func (h *Host) pause(number int, paused bool) {
	h.streams[number].paused = paused
	for i, r := range h.up() {
		p := &r.pipes[number]
		if p.fd < 0 {
			continue
		}
		if !paused {
			if err := h.watch(p.fd, unix.EPOLLIN, source(number), i); err != nil {
				h.log("%v", err)
			}
			// Watching for nothing would still report the other end's
			// closing, again and again, so the descriptor is taken out.
		} else if err := unix.EpollCtl(h.poll, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
			h.log("epoll_ctl: %v", err)
		}
	}
}

func (h *Host) paused() bool { return h.streams[Stdout].paused || h.streams[Stderr].paused }

// count notes what the ranks have left in their pipes; all have ended.
func (h *Host) count() {
	h.quiet = time.Now()
	for _, r := range h.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			p := &r.pipes[s]
			if p.fd < 0 {
				continue
			}
			n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
			if err != nil {
				h.log("TIOCINQ: %v", err)
			}
			p.owed = n
		}
	}
}

// drained tells whether nothing more that a rank wrote will come, and what
// others add need not be waited for. A process that left its group may hold a
// pipe for ever, and write to it for ever.
func (h *Host) drained() bool {
	if h.open == 0 || h.discard {
		return true
	}
	if h.paused() || time.Since(h.quiet) < drainSilence {
		return false
	}
	for _, r := range h.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if p := &r.pipes[s]; p.fd >= 0 && p.owed > 0 {
				return false
			}
		}
	}
	return true
}

// flushLines sends the beginnings of lines of pipes that are still open.
func (h *Host) flushLines() {
	for _, r := range h.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if p := &r.pipes[s]; p.fd >= 0 {
				h.output(s, p.lines.End())
			}
		}
	}
}
