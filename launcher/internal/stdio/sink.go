package stdio

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Sink writes to one output of the launcher, in the order of Put, as its view
// shows it.
type Sink struct {
	w    io.Writer
	take func(Piece) // instead of w and view; nil: it writes
	view View        // of the writing goroutine
	fail func(error)

	mu     sync.Mutex
	queue  []piece
	busy   bool            // a goroutine is writing
	failed bool            // what comes is dropped
	within bool            // what was written last has no newline at its end
	idle   []chan struct{} // closed when the queue has run empty
}

type piece struct {
	Piece
	done func()
}

// NewSink makes a sink for w; nil discards. fail is told once when w returns an
// error, from the sink's goroutine; everything after is dropped.
func NewSink(w io.Writer, view View, fail func(error)) *Sink {
	return &Sink{w: w, view: view, fail: fail}
}

// NewTaker makes a sink that hands pieces to a function, one at a time, from the
// sink's goroutine.
func NewTaker(take func(Piece)) *Sink { return &Sink{take: take} }

// Put queues a piece; done is called when it has been written or dropped. A piece
// from nobody is written as it is.
func (s *Sink) Put(p Piece, done func()) {
	s.mu.Lock()
	if s.w == nil && s.take == nil || s.failed {
		s.mu.Unlock()
		done()
		return
	}
	s.queue = append(s.queue, piece{p, done})
	if !s.busy {
		s.busy = true
		go s.write()
	}
	s.mu.Unlock()
}

// Idle is closed as soon as all that was put has been written or dropped.
func (s *Sink) Idle() <-chan struct{} {
	c := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		s.idle = append(s.idle, c)
	} else {
		close(c)
	}
	return c
}

// write empties the queue and ends.
func (s *Sink) write() {
	for {
		s.mu.Lock()
		queue, failed := s.queue, s.failed
		s.queue = nil
		if len(queue) == 0 {
			s.busy = false
			for _, c := range s.idle {
				close(c)
			}
			s.idle = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for _, p := range queue {
			if s.take != nil {
				s.take(p.Piece)
			} else if !failed {
				data := p.Data
				if p.From != nil {
					data = s.view.Render(p.Piece)
				}
				if len(data) > 0 {
					s.mu.Lock()
					s.within = data[len(data)-1] != '\n'
					s.mu.Unlock()
				}
				if err := Write(s.w, data); err != nil {
					failed = true
					s.mu.Lock()
					s.failed = true
					s.mu.Unlock()
					s.fail(err)
				}
			}
			p.done()
		}
	}
}

// Within tells whether what was written ends within a line.
func (s *Sink) Within() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.within
}

// Close closes the writer if it can be closed, and fails if that does. The sink
// must be idle.
func (s *Sink) Close() {
	c, ok := s.w.(io.Closer)
	if !ok {
		return
	}
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if err := c.Close(); err != nil && !failed {
		s.fail(err)
	}
}

// Write writes to a file without os.File.Write, which ends the process with
// SIGPIPE when standard output is a pipe that nobody reads any more: that is
// for the job's owner to decide. A file that someone has made non-blocking is
// waited for.
func Write(w io.Writer, data []byte) error {
	f, ok := w.(*os.File)
	if !ok {
		_, err := w.Write(data)
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = raw.Write(func(fd uintptr) bool {
		for len(data) > 0 && werr == nil {
			n, err := unix.Write(int(fd), data)
			switch {
			case err == nil && n == 0:
				werr = io.ErrShortWrite
			case err == nil:
				data = data[n:]
			case err == unix.EAGAIN:
				_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
				if err != nil && err != unix.EINTR {
					werr = os.NewSyscallError("poll", err)
				}
			case err != unix.EINTR:
				werr = os.NewSyscallError("write", err)
			}
		}
		return true
	})
	return errors.Join(err, werr)
}

// SameFile tells whether two writers are one: equal, or open on the same file
// or pipe. Pieces that two sinks wrote to it could cut each other's lines.
func SameFile(a, b io.Writer) bool {
	if a == nil || b == nil {
		return false
	}
	fa, ok1 := a.(*os.File)
	fb, ok2 := b.(*os.File)
	if !ok1 || !ok2 {
		return equal(a, b)
	}
	if fa == fb {
		return true
	}
	var sa, sb unix.Stat_t
	return stat(fa, &sa) == nil && stat(fb, &sb) == nil && sa.Dev == sb.Dev && sa.Ino == sb.Ino
}

// equal compares interfaces; those of a type that cannot be compared differ.
func equal(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

// stat is fstat that leaves the file's mode of blocking alone.
func stat(f *os.File, st *unix.Stat_t) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = unix.Fstat(int(fd), st) }); err != nil {
		return err
	}
	return serr
}
