package host

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// A line of more than stdio.Limit bytes is kept in a file until it has ended, so
// that a rank takes no more memory for it than for a short one. The file has no
// name: nothing is left of it when this process ends. It is not in the job
// directory, which is in memory. All pipes share it, each with a slot of its own.
//
//	           Cut wants it aside         its end came, or LineMax
//	in memory --------------------> kept -------------------------> waiting
//	    ^                                                             |
//	    +----------------- read, and sent as one event ---------------+ GoOn
//
// It goes to the controller as one piece, since other ranks' lines stand between
// pieces. All hosts' long lines could fill the controller's memory, so a host asks
// with the event Long and waits for the command GoOn.
type lineFile struct {
	file    int     // descriptor; 0: not opened yet, -1: it cannot be
	err     error   // why a line could not be kept
	limit   uint64  // of the file's size
	slots   []bool  // those in use
	waiting int     // lines that wait for GoOn
	told    [2]bool // the user was told of a line that is too long, or that could not be kept
}

// slotSize has room for the longest line and one read behind it.
const slotSize = stdio.LineMax + 2*bufMost

// sort passes on what may be of the bytes that a pipe has brought, behind what is
// held, and keeps the rest. send takes what is passed on first.
func (o *output) sort(local, number int, data []byte, fresh int, send func(local, number int, data []byte)) {
	p := &o.ranks[local].pipes[number]
	if o.spec.Output.Raw {
		send(local, number, data)
		return
	}
	for {
		pass, aside := p.lines.Cut(data, fresh)
		kept := o.keep(local, number, data[pass:pass+aside]) // send hands the buffer on
		send(local, number, data[:pass])
		if kept || p.lines.Due() > 0 {
			break
		}
		data = p.lines.Passed()
		fresh, send = len(data), o.sendOwn
	}
	o.asks(local, number)
	if o.spec.Output.Prompt > 0 {
		o.awaitNewline(p)
	}
}

// sendOwn passes on what nobody else holds.
func (o *output) sendOwn(local, number int, data []byte) {
	if len(data) > 0 {
		o.send(local, number, Event{Data: data})
	}
}

// keep puts the begin of a line aside, behind what is there of it. Where that is
// not possible the line is passed on in parts, and that is told.
func (o *output) keep(local, number int, data []byte) bool {
	p := &o.ranks[local].pipes[number]
	if len(data) == 0 {
		return true
	}
	err := o.put(p, data, p.lines.Aside()-len(data))
	switch {
	case err != nil:
		p.lines.Refused(data)
		o.torn(local, number, err, fmt.Sprintf("lines of more than %d KiB are passed on in parts, between which other ranks' lines may stand, as they cannot be kept: %v; TMPDIR may name a directory with room", stdio.Limit>>10, err))
	case p.lines.Torn():
		o.torn(local, number, nil, fmt.Sprintf("a line of more than %d MiB is passed on in parts, between which other ranks' lines may stand", stdio.LineMax>>20))
	}
	return err == nil
}

// torn tells once of each reason for which lines are not whole. Where there is one
// rank nothing comes between.
func (o *output) torn(local, number int, err error, text string) {
	told := &o.aside.told[0]
	if err != nil {
		told = &o.aside.told[1]
	}
	if *told || o.spec.NP == 1 {
		return
	}
	*told = true
	o.emit(Event{Kind: Torn, Rank: o.rankOf(local), Stream: number, Text: "of its " + stdio.StreamName(number) + " " + text})
}

// put writes to the file.
func (o *output) put(p *pipe, data []byte, at int) error {
	if o.aside.file == 0 {
		o.aside.open(o.spec.users())
	}
	if o.aside.file < 0 {
		return o.aside.err
	}
	if p.slot == 0 {
		p.slot = o.aside.take()
	}
	offset := int64(p.slot-1)*slotSize + int64(at)
	if uint64(offset)+uint64(len(data)) > o.aside.limit { // SIGXFSZ would end this process
		return fmt.Errorf("%w (ulimit -f)", unix.EFBIG)
	}
	for len(data) > 0 {
		n, err := unix.Pwrite(o.aside.file, data, offset)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("write", err)
		case n == 0:
			return os.NewSyscallError("write", unix.ENOSPC)
		default:
			data, offset = data[n:], offset+int64(n)
		}
	}
	return nil
}

// open makes the file, in TMPDIR or where a disk is.
func (l *lineFile) open(env []string) {
	l.file, l.limit = -1, 1<<63-1
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil {
		l.limit = min(l.limit, limit.Cur)
	}
	dirs := []string{"/var/tmp", "/tmp"}
	if dir := envvar.Get(env, "TMPDIR"); filepath.IsAbs(dir) {
		dirs = []string{dir}
	}
	for _, dir := range dirs {
		if l.file, l.err = nameless(dir); l.err == nil {
			return
		}
	}
}

// nameless makes a file without a name.
func nameless(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return fd, nil
	}
	// A file system that has none, as overlayfs before Linux 6.3.
	f, err := os.CreateTemp(dir, "gorun-line-")
	if err != nil {
		return -1, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return -1, err
	}
	fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	return fd, os.NewSyscallError("fcntl", err)
}

// take is a slot that is free, from 1.
func (l *lineFile) take() int {
	at := slices.Index(l.slots, false)
	if at < 0 {
		at = len(l.slots)
		l.slots = append(l.slots, false)
	}
	l.slots[at] = true
	return at + 1
}

func (l *lineFile) close() {
	if l.file > 0 {
		closeFD(&l.file)
	}
	l.file = 0
}

// read gives back what was put in a slot.
func (l *lineFile) read(slot, n int) ([]byte, error) {
	data := make([]byte, n)
	for at := 0; at < n; {
		m, err := unix.Pread(l.file, data[at:], int64(slot-1)*slotSize+int64(at))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return data[:at], os.NewSyscallError("read", err)
		case m == 0:
			return data[:at], io.ErrUnexpectedEOF
		default:
			at += m
		}
	}
	return data, nil
}

// free gives a slot back, and the disk what it took.
func (l *lineFile) free(slot, n int) {
	l.slots[slot-1] = false
	// Where holes cannot be made, the next line overwrites it.
	_ = unix.Fallocate(l.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(slot-1)*slotSize, int64(n))
}

// asks asks the controller for room for a line that is due, if one is, and stops the
// reading of its pipe until GoOn.
func (o *output) asks(local, number int) {
	p := &o.ranks[local].pipes[number]
	n := p.lines.Due()
	if n == 0 {
		return
	}
	p.waits, p.since = true, time.Time{}
	o.aside.waiting++
	if p.fd >= 0 && !o.streams[number].paused {
		if err := unix.EpollCtl(o.poll.fd, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
			o.log("epoll_ctl: %v", err)
		}
	}
	if o.discard {
		o.goOn(local, number)
		return
	}
	o.emit(Event{Kind: Long, Rank: o.rankOf(local), Stream: number, N: n})
}

// goOn passes on a line that is due, and has its pipe read again.
func (o *output) goOn(local, number int) {
	if local < 0 || local >= len(o.ranks) || number != Stdout && number != Stderr {
		return
	}
	p := &o.ranks[local].pipes[number]
	if !p.waits {
		return
	}
	p.waits = false
	o.aside.waiting--
	if p.fd >= 0 && !o.streams[number].paused {
		if err := o.watch(p.fd, unix.EPOLLIN, source(number), local); err != nil {
			o.log("%v", err)
		}
	}
	n := p.lines.Due()
	if !o.discard {
		data, err := o.aside.read(p.slot, n)
		if err != nil {
			o.emit(Event{Kind: Failed, Text: fmt.Sprintf("rank %d: %d bytes of a long line are lost: %v", o.rankOf(local), n-len(data), err)})
		}
		o.send(local, number, Event{Data: data, Last: p.last, Long: true})
	}
	o.aside.free(p.slot, n)
	p.slot = 0
	rest := p.lines.Passed()
	o.sort(local, number, rest, len(rest), o.sendOwn)
	o.awaitAll()
}

// goOnAll drops what waits, when nobody wants output any more.
func (o *output) goOnAll() {
	for i, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if r.pipes[s].waits {
				o.goOn(i, s)
			}
		}
	}
}
