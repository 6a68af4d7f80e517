package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// DefaultPatience is how long the helper may take to start, or to answer, without
// using a CPU or waiting for one.
const DefaultPatience = 20 * time.Second

// Config is what a server needs.
type Config struct {
	Program string          // gorun-pmix; it need not exist until it is needed
	Env     func() []string // of it, with the guardian's marker
	Host    string          // name
	Dir     string          // the job directory
	// Patience is how long the helper may take. 0: DefaultPatience.
	Patience time.Duration
	Refuse   string // why no rank is served: the first that connects makes it Failed's text; "": they are

	Failed func(text string) // nobody can be served any more; once
	Ask    func(data []byte) // for the job's hub
	Log    func(format string, args ...any)
}

// User is told what the ranks of a namespace do.
type User struct {
	Joined func(p link.Proc, way Way)                 // a rank has connected
	Left   func(p link.Proc)                          // a rank has finalized
	Abort  func(p link.Proc, status int, text string) // a rank wants the job to end
	Say    func(p link.Proc, stream int, text string) // a rank has something to say by way of the server
}

// Server is the PMIx server of a host's ranks.
type Server struct {
	cfg  Config
	port int

	mu       sync.Mutex
	state    state
	listener int // -1: closed
	door     *peer.Door
	first    int // the connection that starts the helper; -1: none, or the helper has it
	control  *os.File
	errors   *os.File
	pid      int
	reaping  bool
	in       link.Decoder
	buf      []byte
	out      []byte // to the helper
	wake     sync.Cond
	spaces   []link.Space
	users    map[string]User // by namespace
	count    map[link.Proc]*Count
	timer    *time.Timer
	waiting  bool // the helper owes an answer
	clock    clock
	pings    uint64
	waits    map[uint64]chan struct{} // of Add and Drain, closed with the helper's answer, by its ID
	asked    uint64                   // IDs given to them
	tail     stdio.Tail
	heard    chan struct{} // closed when tail is complete
	workers  sync.WaitGroup
}

// Way is what a rank's connection follows.
type Way uint8

const (
	First  Way = iota // nothing, or programs that have finalized
	Second            // another of the same rank, whose program is connected still: this one is a child of it
	Late              // a program that has ended without finalizing
)

// Count is how often a rank has connected and finalized, and whether it has asked for
// the end of the job. Children that are the rank a second time do not count: how one ends is its parent's
// affair. Of two that are one rank nobody can tell which has finalized, so the first that does is taken for the rank.
type Count struct {
	Joined, Left int
	Aborted      bool
}

// Finalized tells whether each program that has connected has finalized.
func (c Count) Finalized() bool { return c.Left == c.Joined }

type state uint8

const (
	idle state = iota
	starting
	serving
	failed
	closed
)

// Listen opens the port. Nothing runs until a rank connects. The caller closes the
// server.
func Listen(cfg Config) (*Server, error) {
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	fail := func(call string, err error) (*Server, error) {
		unix.Close(fd)
		return nil, fmt.Errorf("port for PMIx on 127.0.0.1: %w", os.NewSyscallError(call, err))
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail("bind", err)
	}
	// All ranks may connect before the helper runs.
	if err := unix.Listen(fd, 4096); err != nil {
		return fail("listen", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fail("getsockname", err)
	}
	s := &Server{cfg: cfg, port: name.(*unix.SockaddrInet4).Port, listener: fd, first: -1, count: map[link.Proc]*Count{}, users: map[string]User{}, waits: map[uint64]chan struct{}{}}
	s.wake.L = &s.mu
	return s, nil
}

// FD becomes readable when somebody connects: then Begin is due.
func (s *Server) FD() int { return s.listener }

// Begin looks what connects. The first one of this user starts the helper, which takes
// it and the listening socket over; others are closed.
func (s *Server) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != idle || s.door != nil {
		return
	}
	door, err := peer.Open(peer.Config{
		Listener: s.listener,
		Most:     1,
		Welcome:  func(uid int) bool { return uid == os.Geteuid() },
		In: func(fd int) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.state != idle {
				unix.Close(fd)
				return false
			}
			s.state, s.first = starting, fd
			s.workers.Go(s.run)
			return false
		},
		Refused: func(uid int) {
			s.cfg.Log("a process of user %d has connected to the PMIx port and is not let in", uid)
		},
	})
	if err != nil {
		s.fail("port for PMIx: %v", err)
		return
	}
	s.door = door
}

// Port is where ranks connect.
func (s *Server) Port() int { return s.port }

// Dir is the job directory.
func (s *Server) Dir() string { return s.cfg.Dir }

// Idle tells that no rank has connected.
func (s *Server) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == idle
}

// Add makes a namespace known, before any of its ranks is started. It returns when they may connect.
func (s *Server) Add(space link.Space, u User) {
	s.mu.Lock()
	s.spaces = append(s.spaces, space)
	s.users[space.Name] = u
	known := s.answered(&link.Message{Kind: link.Setup, Server: &link.Server{Space: space}})
	s.mu.Unlock()
	<-known
}

// Remove forgets a namespace, whose ranks have ended.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spaces = slices.DeleteFunc(s.spaces, func(space link.Space) bool { return space.Name == name })
	delete(s.users, name)
	maps.DeleteFunc(s.count, func(p link.Proc, _ *Count) bool { return p.Space == name })
	s.send(&link.Message{Kind: link.Drop, Text: name})
}

// answered sends a frame that the helper answers. The channel is closed when it has, and where it never will.
func (s *Server) answered(m *link.Message) <-chan struct{} {
	done := make(chan struct{})
	if s.state != starting && s.state != serving {
		close(done)
		return done
	}
	s.asked++
	m.ID = askedFrom + s.asked
	s.waits[m.ID] = done
	s.send(m)
	return done
}

// askedFrom is above the IDs of watch's pings.
const askedFrom = 1 << 63

// over ends the wait for an answer.
func (s *Server) over(id uint64) {
	if done := s.waits[id]; done != nil {
		close(done)
		delete(s.waits, id)
	}
}

// allOver ends all such waits.
func (s *Server) allOver() {
	for id := range s.waits {
		s.over(id)
	}
}

// State is what a rank has said until now.
func (s *Server) State(p link.Proc) Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == starting || s.state == serving {
		s.receive(0)
	}
	if c := s.count[p]; c != nil {
		return *c
	}
	return Count{}
}

// Take is what the hub has for this host.
func (s *Server) Take(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := link.Unpack(data)
	if err != nil {
		s.cfg.Log("from the hub: %v", err)
		return
	}
	s.send(&m)
}

// Spawned answers a spawn, whose ID the hub gave: job is the new namespace, or
// refused says why there is none.
func (s *Server) Spawned(id uint64, job, refused string) {
	m := link.Message{Kind: link.Answer, ID: id, Text: job}
	if refused != "" {
		m.Code, m.Text = link.Refused, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(&m)
}

// Drain returns when all that the ranks of a namespace have said was told, at most after limit. They
// must have ended: what the last one said may still be on its way.
func (s *Server) Drain(name string, limit time.Duration) {
	s.mu.Lock()
	drained := s.answered(&link.Message{Kind: link.Ping, Wait: true, Text: name})
	s.mu.Unlock()
	select {
	case <-drained:
	case <-time.After(limit):
	}
}

// Close ends the helper.
func (s *Server) Close() {
	s.mu.Lock()
	if s.state != closed {
		s.close()
	}
	door := s.door
	s.door = nil
	s.mu.Unlock()
	if door != nil {
		door.Close()
	}
	s.mu.Lock()
	s.stopListening()
	files := [...]*os.File{s.control, s.errors}
	s.mu.Unlock()
	// A Close waits for those that are using the file, which may wait for mu.
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
	s.workers.Wait()
}

// close kills the helper and keeps all from going on.
func (s *Server) close() {
	s.state = closed
	if s.timer != nil {
		s.timer.Stop()
	}
	s.wake.Signal()
	s.kill()
	s.allOver()
}

// fail tells that there is no server any more. Connections end, new ones are
// refused, and the helper is killed.
func (s *Server) fail(format string, args ...any) {
	if s.state == failed || s.state == closed {
		return
	}
	s.state = failed
	if s.timer != nil {
		s.timer.Stop()
	}
	s.wake.Signal()
	s.stopListening()
	s.kill()
	text := fmt.Sprintf(format, args...)
	if lines := s.tail.Lines(); len(lines) > 0 {
		text += ": " + lines[len(lines)-1]
	}
	s.cfg.Failed(text)
	s.allOver()
}

func (s *Server) stopListening() {
	for _, fd := range [...]*int{&s.listener, &s.first} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

func (s *Server) kill() {
	if s.pid > 0 && !s.reaping {
		_ = unix.Kill(s.pid, unix.SIGKILL)
	}
}

// name is the helper in messages.
func (s *Server) name() string {
	return fmt.Sprintf("%s (pid %d), which Open MPI programs need,", filepath.Base(s.cfg.Program), s.pid)
}

// send queues a frame.
func (s *Server) send(m *link.Message) {
	if s.state != starting && s.state != serving {
		return
	}
	out, err := link.Append(s.out, m)
	if err != nil {
		s.fail("message to %s: %v", s.cfg.Program, err)
		return
	}
	s.out = out
	s.wake.Signal()
}

// write moves the queue to the helper.
func (s *Server) write() {
	for {
		s.mu.Lock()
		for len(s.out) == 0 && (s.state == starting || s.state == serving) {
			s.wake.Wait()
		}
		out := s.out
		s.out = nil
		over := s.state == failed || s.state == closed
		s.mu.Unlock()
		if over {
			return
		}
		if _, err := s.control.Write(out); err != nil {
			return // the reader sees why
		}
	}
}

// receive takes what the helper has written, and tells whether more may come.
func (s *Server) receive(fd uintptr) (more bool) {
	for s.state == starting || s.state == serving {
		n, err := s.recv(fd)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return true
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			return false
		}
		s.in.Add(s.buf[:n])
		for {
			m, ok, err := s.in.Next()
			if err != nil {
				s.fail("%s has sent nonsense: %v", s.name(), err)
				return false
			}
			if !ok {
				break
			}
			s.told(m)
		}
	}
	return false
}

// told does what the helper's frame asks for.
func (s *Server) told(m link.Message) {
	u, known := s.users[m.Proc.Space]
	switch m.Kind {
	case link.Joined, link.Left, link.Abort, link.Log:
		if !known { // its ranks have ended
			return
		}
	}
	switch m.Kind {
	case link.Ready:
		if s.state == starting {
			s.state = serving
			s.waiting = false
		}
		s.over(m.ID)
	case link.Pong:
		s.over(m.ID)
		if m.ID == s.pings {
			s.waiting = false
		}
	case link.Failed:
		s.fail("%s cannot go on: %s", s.name(), m.Text)
	case link.Joined:
		c, way := s.counted(m.Proc), First
		switch {
		case m.Wait && c.Joined > 0:
			way = Second
		case !c.Finalized():
			way = Late
			fallthrough
		default:
			c.Joined++
		}
		u.Joined(m.Proc, way)
	case link.Left:
		if c := s.counted(m.Proc); !c.Finalized() {
			c.Left++
			u.Left(m.Proc)
		}
	case link.Abort:
		s.counted(m.Proc).Aborted = true
		u.Abort(m.Proc, m.Status, m.Text)
	case link.Log:
		u.Say(m.Proc, int(m.Sort), m.Text)
	case link.Ask, link.Reply:
		data, err := link.Pack(&m)
		if err != nil {
			s.fail("%s: %v", s.name(), err)
			return
		}
		s.cfg.Ask(data)
	default:
		s.fail("%s has sent nonsense: kind %d", s.name(), m.Kind)
	}
}

func (s *Server) counted(p link.Proc) *Count {
	c := s.count[p]
	if c == nil {
		c = new(Count)
		s.count[p] = c
	}
	return c
}
