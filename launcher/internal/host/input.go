package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// EveryRank as Spec.Reader stands for all ranks of the job.
const EveryRank = -1

// input is what ranks of this host are still to read. All read the same: what
// comes is kept until the slowest of them has it, and no more of it comes than
// the controller has credit for, so that a rank which does not read makes the
// others wait until it reads, closes its input or ends.
type input struct {
	*base
	feeds []feed
	queue [][]byte
	first int64 // offset in the input of the queue's first byte
	last  bool  // nothing comes after the queue
}

// feed is a rank that reads. fd is the writing end of its pipe, -1 when closed.
type feed struct {
	fd    int
	at    int64 // offset of what it gets next
	stuck bool  // the pipe is full
}

// reads tells whether a rank of the host reads the input.
func (in *input) reads(local int) bool {
	return in.spec.Stdin != StdinNone && (in.spec.Reader == EveryRank || in.spec.Reader == in.rankOf(local))
}

// open makes what the ranks have as standard input, by local number, where
// it is not /dev/null. mine are the descriptors to close once they are started.
func (in *input) open() (stdin map[int]int, mine []int, err error) {
	stdin = make(map[int]int)
	defer func() {
		if err != nil {
			for i := range mine {
				closeFD(&mine[i])
			}
		}
	}()
	for local := range in.spec.Ranks {
		if !in.reads(local) {
			continue
		}
		switch {
		case in.spec.Stdin == StdinPump:
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				return nil, mine, os.NewSyscallError("pipe2", err)
			}
			stdin[local], mine = ends[0], append(mine, ends[0])
			in.feeds = append(in.feeds, feed{fd: ends[1]})
			if err := unix.SetNonblock(ends[1], true); err != nil {
				return nil, mine, os.NewSyscallError("fcntl", err)
			}
			if err := in.watch(ends[1], 0, sourceInput, len(in.feeds)-1); err != nil {
				return nil, mine, err
			}
		case in.spec.Reader == EveryRank:
			fd, err := Reopen(in.cfg.Stdin)
			if err != nil {
				return nil, mine, err
			}
			stdin[local], mine = fd, append(mine, fd)
		default:
			// As os/exec does, Fd makes a file blocking that Go had opened
			// non-blocking: the mode is shared with the rank.
			stdin[local] = int(in.cfg.Stdin.Fd())
		}
	}
	return stdin, mine, nil
}

// Reopen opens a regular file again, with a position of its own, which begins
// where that of f is.
func Reopen(f *os.File) (int, error) {
	name := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_CUR)
	if err == nil {
		_, err = unix.Seek(fd, at, unix.SEEK_SET)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("lseek", err)
	}
	return fd, nil
}

// take queues what the controller has read.
func (in *input) take(data []byte, last bool) {
	if len(data) > 0 {
		in.queue = append(in.queue, data)
	}
	in.last = in.last || last
	for i := range in.feeds {
		if !in.feeds[i].stuck {
			in.give(i)
		}
	}
	in.forget()
}

// ready is called when a rank's pipe takes more, or nobody will read it.
func (in *input) ready(i int, events uint32) {
	if i >= len(in.feeds) || in.feeds[i].fd < 0 {
		return // an earlier event of the batch has ended it
	}
	if events&unix.EPOLLERR != 0 {
		in.unwatch(&in.feeds[i].fd)
	} else {
		in.give(i)
	}
	in.forget()
}

// give writes to a rank what its pipe takes.
func (in *input) give(i int) {
	f := &in.feeds[i]
	stuck := false
	for f.fd >= 0 && !stuck {
		rest := in.from(f.at)
		if len(rest) == 0 {
			break
		}
		n, err := unix.Write(f.fd, rest)
		switch {
		case err == nil:
			f.at += int64(n)
		case err == unix.EAGAIN:
			stuck = true
		case err != unix.EINTR:
			in.unwatch(&f.fd) // EPIPE: nobody will read it
			return
		}
	}
	switch {
	case f.fd < 0:
	case in.last && !stuck:
		in.unwatch(&f.fd)
	case stuck != f.stuck:
		f.stuck = stuck
		events := uint32(0) // the reader's end is reported all the same
		if stuck {
			events = unix.EPOLLOUT
		}
		in.rewatch(f.fd, events, sourceInput, i)
	}
}

// from is the piece of the queue that begins at an offset, nothing at its end.
func (in *input) from(at int64) []byte {
	at -= in.first
	for _, piece := range in.queue {
		if at < int64(len(piece)) {
			return piece[at:]
		}
		at -= int64(len(piece))
	}
	return nil
}

// forget drops what every rank has had, and tells the controller how much that
// is; or that no rank will read any more.
func (in *input) forget() {
	if in.feeds == nil {
		return
	}
	low := int64(-1)
	for _, f := range in.feeds {
		if f.fd >= 0 && (low < 0 || f.at < low) {
			low = f.at
		}
	}
	if low < 0 {
		in.feeds, in.queue = nil, nil
		in.emit(Event{Kind: StdinTaken, N: -1})
		return
	}
	had := 0
	for len(in.queue) > 0 && in.first+int64(len(in.queue[0])) <= low {
		n := len(in.queue[0])
		in.queue, in.first, had = in.queue[1:], in.first+int64(n), had+n
	}
	if had > 0 {
		in.emit(Event{Kind: StdinTaken, N: had})
	}
}

// close closes what is open.
func (in *input) close() {
	for i := range in.feeds {
		closeFD(&in.feeds[i].fd)
	}
}
