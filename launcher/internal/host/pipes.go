package host

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// The buffer for reads starts small, since most ranks say little, and becomes
// large once one fills it. Large ones are handed to the receiver of what was read
// into them, and come back: nothing is copied between read and write.
const (
	bufLeast = 4 << 10
	bufMost  = 256 << 10
)

// pipe is one stream of one rank.
type pipe struct {
	fd    int
	tty   bool // a terminal, whose other end is the rank's
	wide  bool // the kernel was asked for a large one
	lines stdio.Lines
	tail  *stdio.Tail // of stderr
	owed  int         // bytes that were in the pipe when the output was cut
	since time.Time   // when the begin of a line came that is held; zero: none, or nobody waits for it
	slot  int         // where the begin of a long line is aside, from 1; 0: nowhere
	waits bool        // a long line waits for GoOn, and the pipe is not read
	last  bool        // that line is the end of the stream
}

// stream is all ranks' output of one number.
type stream struct {
	ahead  int  // bytes that the controller has not taken yet
	paused bool // the pipes are not read
}

// room makes the buffer large enough for what is held and a read behind it.
func (h *Host) room(held int) {
	if len(h.buf)-held < bufLeast {
		h.buf = h.large()
	}
}

// large is a buffer of bufMost bytes.
func (h *Host) large() []byte {
	if b, ok := h.buffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, bufMost)
}

// readPipe reads what a rank has written. The pipe is in blocking mode, since a
// mode of our end costs a system call more; epoll says that it will not block.
func (h *Host) readPipe(local, number int, events uint32) {
	p := &h.ranks[local].pipes[number]
	if p.fd < 0 || p.waits || h.streams[number].paused {
		return
	}
	if events&unix.EPOLLIN == 0 && !p.tty { // a terminal may still be passing on what it took
		h.closePipe(local, number)
		return
	}
	h.room(p.lines.Held())
	held := p.lines.Begin(h.buf)
	n, err := unix.Read(p.fd, h.buf[held:])
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return
	case err != nil || n <= 0:
		h.closePipe(local, number)
		return
	}
	data := h.buf[:held+n]
	h.brought++
	p.owed -= n
	if p.tail != nil {
		p.tail.Add(data[held:])
		h.heardCrash(local, data)
	}
	h.sort(local, number, data, n, h.pass)
	h.spoke(local) // it may read the rank's socket into h.buf, which holds data until here
	if len(data) == len(h.buf) && len(h.buf) < bufMost {
		h.buf = h.large()
	}
	if n >= 64<<10 && !p.wide && !p.tty {
		// It has filled the pipe. What a user may have of pipes is limited, so
		// a refusal is no failure.
		p.wide = true
		_, _ = unix.FcntlInt(uintptr(p.fd), unix.F_SETPIPE_SZ, bufMost)
	}
}

// pass sends on what stands at the begin of the buffer.
func (h *Host) pass(local, number int, data []byte) {
	switch {
	case len(data) == 0:
	case len(h.buf) < bufMost || len(data) < bufMost/8:
		h.output(local, number, Event{Data: bytes.Clone(data)})
	default:
		buf := h.buf
		h.output(local, number, Event{Data: data, Free: func() { h.buffers.Put(&buf) }})
		h.buf = h.large()
	}
}

// closePipe ends a pipe whose writers have all gone.
func (h *Host) closePipe(local, number int) {
	p := &h.ranks[local].pipes[number]
	h.unwatch(&p.fd)
	h.open--
	h.endLines(local, number)
}

// endLines passes on what is held, at the end of a stream.
func (h *Host) endLines(local, number int) {
	p := &h.ranks[local].pipes[number]
	p.since = time.Time{}
	data, within := p.lines.End()
	h.lineEnded()
	if p.last = p.lines.Due() > 0; p.last {
		h.asks(local, number)
	} else if within {
		h.output(local, number, Event{Data: data, Last: true})
	}
}

// output sends an event's data on; it is the receiver's from here.
func (h *Host) output(local, number int, e Event) {
	if h.discard {
		if e.Free != nil {
			e.Free()
		}
		return
	}
	e.Kind, e.Rank, e.Stream = Output, h.rankOf(local), number
	if h.spec.Stamp {
		e.Time = time.Now().UnixNano()
	}
	h.streams[number].ahead += len(e.Data)
	h.emit(e)
	if s := &h.streams[number]; !s.paused && s.ahead >= Window {
		h.pause(number, true)
	}
}

// awaitNewline notes whether a pipe holds the begin of a line, which is passed on
// after some silence: somebody may look at the screen for a prompt.
func (h *Host) awaitNewline(p *pipe) {
	p.since = time.Time{}
	if !p.lines.Within() {
		h.lineEnded()
	}
	if p.waits || p.lines.Held()+p.lines.Aside() == 0 {
		return
	}
	p.since = time.Now()
	h.timeSilence(p.since)
}

// timeSilence has promptsOnTime look in time.
func (h *Host) timeSilence(now time.Time) {
	if h.prompt.IsZero() {
		h.prompt, h.heard = now.Add(h.spec.Prompt), h.brought
	}
}

// lineEnded has the begins of other ranks' lines passed on that waited for the end of this one.
func (h *Host) lineEnded() {
	if h.crowded {
		h.crowded = false
		h.timeSilence(time.Now())
	}
}

// mayPrompt tells whether the begin of a line may be passed on, under spec.Alone: where output goes to a file or to a
// program, it would cut a line for nothing if other ranks went on with theirs.
func (h *Host) mayPrompt(now time.Time) bool {
	if h.brought != h.heard {
		h.timeSilence(now)
		return false
	}
	within := 0
	for _, r := range h.up() {
		if r.pipes[Stdout].lines.Within() || r.pipes[Stderr].lines.Within() {
			within++
		}
	}
	h.crowded = within > 1
	return !h.crowded
}

// stopped tells whether some rank may be silent since its pipe is not read.
func (h *Host) stopped() bool { return h.paused() || h.aside.waiting > 0 }

// awaitAll begins to wait for all ends of lines anew, when ranks may write again.
func (h *Host) awaitAll() {
	if h.spec.Prompt == 0 || h.stopped() {
		return
	}
	for _, r := range h.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if r.pipes[s].fd >= 0 {
				h.awaitNewline(&r.pipes[s])
			}
		}
	}
}

// promptsOnTime passes on the begins of lines that have been held for long
// enough. A rank is not silent while a stream is paused, which keeps it from
// writing, or while there is more in its pipe.
func (h *Host) promptsOnTime(now time.Time) {
	if h.prompt.IsZero() || now.Before(h.prompt) {
		return
	}
	h.prompt = time.Time{}
	if h.spec.Alone && !h.mayPrompt(now) {
		return
	}
	for i, r := range h.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			p := &r.pipes[s]
			if h.stopped() {
				return // awaitAll comes when it is over
			}
			if p.since.IsZero() {
				continue
			}
			if n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ); err == nil && n > 0 {
				p.since = now
			}
			due := p.since.Add(h.spec.Prompt)
			if !now.Before(due) {
				p.since = time.Time{}
				if data := p.lines.Flush(); len(data) > 0 {
					h.output(i, s, Event{Data: data})
				}
				h.asks(i, s)
			} else if h.prompt.IsZero() || due.Before(h.prompt) {
				h.prompt, h.heard = due, h.brought
			}
		}
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
	h.goOnAll()
}

// pause stops or resumes the reading of all pipes of a stream.
func (h *Host) pause(number int, paused bool) {
	h.streams[number].paused = paused
	for i, r := range h.up() {
		p := &r.pipes[number]
		if p.fd < 0 || p.waits {
			continue
		}
		if !paused {
			if err := h.watch(p.fd, unix.EPOLLIN, source(number), i); err != nil {
				h.log("%v", err)
			}
			// Watching for nothing would still report the other end's
			// closing, again and again, so the descriptor is taken out.
		} else if err := unix.EpollCtl(h.poll.fd, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
			h.log("epoll_ctl: %v", err)
		}
	}
	h.awaitAll()
}

func (h *Host) paused() bool { return h.streams[Stdout].paused || h.streams[Stderr].paused }

// drained tells whether no more output will come, or is waited for.
func (h *Host) drained() bool {
	switch {
	case h.discard:
		return true
	case h.aside.waiting > 0:
		return false
	case h.open == 0:
		return true
	case !h.linger.cut || h.paused():
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
	for i, r := range h.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if r.pipes[s].fd >= 0 {
				h.endLines(i, s)
			}
		}
	}
}
