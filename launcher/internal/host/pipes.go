package host

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
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

// output is what ranks write, until all of it is passed on.
type output struct {
	*base
	streams [3]stream // by number; 0 is unused
	aside   lineFile
	discard bool      // nobody wants output any more
	open    int       // pipes that may bring more
	prompt  time.Time // when the begin of a line may be due; zero: none is
	crowded bool      // several ranks are within a line, and spec.Output.Alone has the begins wait until one of these ends
	brought uint64    // how often a pipe was read
	heard   uint64    // brought, when the silence was begun to be timed
	linger  linger
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
	if p.fd < 0 || p.waits || h.output.streams[number].paused {
		return
	}
	if events&unix.EPOLLIN == 0 && !p.tty { // a terminal may still be passing on what it took
		h.output.closePipe(local, number)
		return
	}
	h.room(p.lines.Held())
	held := p.lines.Begin(h.buf)
	n, err := unix.Read(p.fd, h.buf[held:])
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return
	case err != nil || n <= 0:
		h.output.closePipe(local, number)
		return
	}
	data := h.buf[:held+n]
	h.output.brought++
	p.owed -= n
	if p.tail != nil {
		p.tail.Add(data[held:])
		h.watcher.heardCrash(local, data)
	}
	h.output.sort(local, number, data, n, h.output.pass)
	h.watcher.spoke(local) // it may read the rank's socket into h.buf, which holds data until here
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
func (o *output) pass(local, number int, data []byte) {
	switch {
	case len(data) == 0:
	case len(o.buf) < bufMost || len(data) < bufMost/8:
		o.send(local, number, Event{Data: bytes.Clone(data)})
	default:
		buf := o.buf
		o.send(local, number, Event{Data: data, Free: func() { o.buffers.Put(&buf) }})
		o.buf = o.large()
	}
}

// closePipe ends a pipe whose writers have all gone.
func (o *output) closePipe(local, number int) {
	p := &o.ranks[local].pipes[number]
	o.unwatch(&p.fd)
	o.open--
	o.endLines(local, number)
}

// endLines passes on what is held, at the end of a stream.
func (o *output) endLines(local, number int) {
	p := &o.ranks[local].pipes[number]
	p.since = time.Time{}
	data, within := p.lines.End()
	o.lineEnded()
	if p.last = p.lines.Due() > 0; p.last {
		o.asks(local, number)
	} else if within {
		o.send(local, number, Event{Data: data, Last: true})
	}
}

// send sends an event's data on; it is the receiver's from here.
func (o *output) send(local, number int, e Event) {
	if o.discard {
		if e.Free != nil {
			e.Free()
		}
		return
	}
	e.Kind, e.Rank, e.Stream = Output, o.rankOf(local), number
	if o.spec.Output.Stamp {
		e.Time = time.Now().UnixNano()
	}
	o.streams[number].ahead += len(e.Data)
	o.emit(e)
	if s := &o.streams[number]; !s.paused && s.ahead >= Window {
		o.pause(number, true)
	}
}

// awaitNewline notes whether a pipe holds the begin of a line, which is passed on
// after some silence: somebody may look at the screen for a prompt.
func (o *output) awaitNewline(p *pipe) {
	p.since = time.Time{}
	if !p.lines.Within() {
		o.lineEnded()
	}
	if p.waits || p.lines.Held()+p.lines.Aside() == 0 {
		return
	}
	p.since = time.Now()
	o.timeSilence(p.since)
}

// timeSilence has promptsOnTime look in time.
func (o *output) timeSilence(now time.Time) {
	if o.prompt.IsZero() {
		o.prompt, o.heard = now.Add(o.spec.Output.Prompt), o.brought
	}
}

// lineEnded has the begins of other ranks' lines passed on that waited for the end of this one.
func (o *output) lineEnded() {
	if o.crowded {
		o.crowded = false
		o.timeSilence(time.Now())
	}
}

// mayPrompt tells whether the begin of a line may be passed on, under spec.Output.Alone: where output goes to a file or to a
// program, it would cut a line for nothing if other ranks went on with theirs.
func (o *output) mayPrompt(now time.Time) bool {
	if o.brought != o.heard {
		o.timeSilence(now)
		return false
	}
	within := 0
	for _, r := range o.up() {
		if r.pipes[Stdout].lines.Within() || r.pipes[Stderr].lines.Within() {
			within++
		}
	}
	o.crowded = within > 1
	return !o.crowded
}

// stopped tells whether some rank may be silent since its pipe is not read.
func (o *output) stopped() bool { return o.paused() || o.aside.waiting > 0 }

// awaitAll begins to wait for all ends of lines anew, when ranks may write again.
func (o *output) awaitAll() {
	if o.spec.Output.Prompt == 0 || o.stopped() {
		return
	}
	for _, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if r.pipes[s].fd >= 0 {
				o.awaitNewline(&r.pipes[s])
			}
		}
	}
}

// promptsOnTime passes on the begins of lines that have been held for long
// enough. A rank is not silent while a stream is paused, which keeps it from
// writing, or while there is more in its pipe.
func (o *output) promptsOnTime(now time.Time) {
	if o.prompt.IsZero() || now.Before(o.prompt) {
		return
	}
	o.prompt = time.Time{}
	if o.spec.Output.Alone && !o.mayPrompt(now) {
		return
	}
	for i, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			p := &r.pipes[s]
			if o.stopped() {
				return // awaitAll comes when it is over
			}
			if p.since.IsZero() {
				continue
			}
			if n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ); err == nil && n > 0 {
				p.since = now
			}
			due := p.since.Add(o.spec.Output.Prompt)
			if !now.Before(due) {
				p.since = time.Time{}
				if data := p.lines.Flush(); len(data) > 0 {
					o.send(i, s, Event{Data: data})
				}
				o.asks(i, s)
			} else if o.prompt.IsZero() || due.Before(o.prompt) {
				o.prompt, o.heard = due, o.brought
			}
		}
	}
}

// credit says that the controller has taken n bytes of a stream.
func (o *output) credit(number, n int) {
	if number != Stdout && number != Stderr {
		return
	}
	s := &o.streams[number]
	if s.ahead -= n; s.paused && s.ahead < Window/2 {
		o.pause(number, false)
	}
}

// discardOutput lets ranks that still write do so, for nobody.
func (o *output) discardOutput() {
	o.discard = true
	for _, s := range [...]int{Stdout, Stderr} {
		if o.streams[s].paused {
			o.pause(s, false)
		}
	}
	o.goOnAll()
}

// pause stops or resumes the reading of all pipes of a stream.
func (o *output) pause(number int, paused bool) {
	o.streams[number].paused = paused
	for i, r := range o.up() {
		p := &r.pipes[number]
		if p.fd < 0 || p.waits {
			continue
		}
		if !paused {
			if err := o.watch(p.fd, unix.EPOLLIN, source(number), i); err != nil {
				o.log("%v", err)
			}
			// Watching for nothing would still report the other end's
			// closing, again and again, so the descriptor is taken out.
		} else if err := unix.EpollCtl(o.poll.fd, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
			o.log("epoll_ctl: %v", err)
		}
	}
	o.awaitAll()
}

func (o *output) paused() bool { return o.streams[Stdout].paused || o.streams[Stderr].paused }

// drained tells whether no more output will come, or is waited for.
func (o *output) drained() bool {
	switch {
	case o.discard:
		return true
	case o.aside.waiting > 0:
		return false
	case o.open == 0:
		return true
	case !o.linger.cut || o.paused():
		return false
	}
	for _, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if p := &r.pipes[s]; p.fd >= 0 && p.owed > 0 {
				return false
			}
		}
	}
	return true
}

// flushLines sends the beginnings of lines of pipes that are still open.
func (o *output) flushLines() {
	for i, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if r.pipes[s].fd >= 0 {
				o.endLines(i, s)
			}
		}
	}
}
