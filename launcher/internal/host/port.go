package host

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/pmi"
)

// Bounds of those that have connected and not said who they are.
const (
	guestsMax = 256         // beyond it nobody is let in until one has spoken or gone
	guestTime = time.Second // then one that is silent makes room, where the port is full
)

// port is where the ranks of a host find their PMI server with PMI_PORT: a port
// of the loopback address, since they are on this machine. A connection belongs
// to no rank until its first line tells which. Only the user who runs the job
// is listened to, and root, and of each rank one connection at a time: see
// [server.nextWorld]. The door sees to that on a goroutine of its own.
type port struct {
	fd     int // -1: it is not open
	addr   netip.AddrPort
	door   *peer.Door     // nil: it is not open
	guests map[int]*guest // by descriptor
}

// guest is a connection that has yet to be given to its rank.
type guest struct {
	greeting pmi.Greeting
	bytes    int // of it
	local    int // rank that it says it is, which has not been entered yet; -1: not said
	since    time.Time
}

// openPort begins to listen.
func (s *server) openPort() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.port.fd, s.port.guests = fd, make(map[int]*guest)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, max(128, len(s.spec.Ranks))); err != nil {
		return os.NewSyscallError("listen", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	s.port.addr = inet4(name)
	if err := s.port.reachable(); err != nil {
		return err
	}
	strangers := false
	s.port.door, err = peer.Open(peer.Config{
		Listener: fd,
		Most:     guestsMax,
		Welcome:  func(uid int) bool { return uid == os.Getuid() || uid == 0 }, // root may do more than that to a job
		In: func(fd int) bool {
			s.mail.post(letter{guest: true, local: fd})
			return true
		},
		Refused: func(uid int) {
			if !strangers { // one of them is enough
				strangers = true
				s.mail.post(letter{stranger: true, local: uid})
			}
		},
	})
	return err
}

// reachable fails where ranks could not connect, as in a network namespace whose
// loopback device is down: there a port can be bound all the same.
func (p *port) reachable() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// It sends nothing, and looks for the way.
	return os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrInet4{Port: int(p.addr.Port()), Addr: p.addr.Addr().As4()}))
}

// name is where ranks connect; "" if they do not.
func (p *port) name() string {
	if p.fd < 0 {
		return ""
	}
	return p.addr.String()
}

// closePort is called when no letter of the door will be read any more.
func (s *server) closePort() {
	if s.port.door != nil {
		s.port.door.Close()
		for _, l := range s.mail.take() {
			if l.guest {
				closeFD(&l.local)
			}
		}
	}
	for fd := range s.port.guests {
		closeFD(&fd)
	}
	closeFD(&s.port.fd)
}

func inet4(name unix.Sockaddr) netip.AddrPort {
	if a, ok := name.(*unix.SockaddrInet4); ok {
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// admit takes a connection that the door has let in.
func (s *server) admit(fd int) {
	// It cannot fail on such a socket, and costs time at most.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := s.watch(fd, unix.EPOLLIN, sourceGuest, fd); err != nil {
		s.log("%v", err)
		unix.Close(fd)
		s.port.door.Left()
		return
	}
	s.port.guests[fd] = &guest{local: -1, since: time.Now()}
}

// stranger is told that a process of another user was not let in.
func (s *server) stranger(uid int) {
	s.refused(-1, fmt.Sprintf("a process of user %d has connected to where ranks meet (PMI_PORT) and was not let in, as it is not of user %d, whose job this is; if it is a rank, --pmi-fd has it inherit its connection", uid, os.Getuid()))
}

// refused tells once of a program that was not let in; rank is below 0 where it is
// nobody's.
func (s *server) refused(rank int, text string) {
	told := &s.denied[0]
	if rank < 0 {
		told = &s.denied[1]
	}
	if s.log("rank %d: %s", rank, text); !*told {
		*told = true
		s.emit(Event{Kind: Refused, Rank: rank, Text: text})
	}
}

// oldestGuest is the one that has been silent for the longest, where the port is full.
func (s *server) oldestGuest() (fd int, since time.Time) {
	if len(s.port.guests) < guestsMax {
		return -1, time.Time{}
	}
	for g, guest := range s.port.guests {
		if guest.local < 0 && (since.IsZero() || guest.since.Before(since)) {
			fd, since = g, guest.since
		}
	}
	return fd, since
}

// nextGuest is when one that is silent makes room; zero: nobody does.
func (s *server) nextGuest() time.Time {
	if _, since := s.oldestGuest(); !since.IsZero() {
		return since.Add(guestTime)
	}
	return time.Time{}
}

// guestsOnTime makes room.
func (s *server) guestsOnTime(now time.Time) {
	for {
		fd, since := s.oldestGuest()
		if since.IsZero() || now.Before(since.Add(guestTime)) {
			return
		}
		s.log("a connection that has been silent for %v makes room", guestTime)
		s.dismiss(fd)
	}
}

// dismiss ends a connection that belongs to no rank.
func (s *server) dismiss(fd int) {
	delete(s.port.guests, fd)
	s.unwatch(&fd)
	s.port.door.Left()
}

// hear reads what a guest says of itself.
func (s *server) hear(fd int) {
	g := s.port.guests[fd]
	if g == nil {
		return
	}
	var buf [pmi.GreetingMax]byte
	n, _, err := unix.Recvfrom(fd, buf[:pmi.GreetingMax-g.bytes], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return
	case err != nil || n == 0:
		s.dismiss(fd)
		return
	}
	g.bytes += n
	number, answer, err := g.greeting.Add(buf[:n])
	if len(answer) > 0 {
		// A few bytes, the first on the connection: there is room for them.
		if _, serr := unix.SendmsgN(fd, answer, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); serr != nil {
			s.dismiss(fd)
			return
		}
	}
	if err == nil && number < 0 && g.bytes < pmi.GreetingMax {
		return
	}
	local := s.spec.local(number)
	if err != nil || local < 0 {
		s.log("a connection is of no rank here: rank %d, %v", number, err)
		s.dismiss(fd)
		return
	}
	if g.local = local; !s.seat(fd, g) {
		// Its start is not known here yet: seatGuests comes to it.
		s.rewatch(fd, 0, sourceGuest, fd)
	}
}

// hearAll takes what has been said so far by those that were let in.
func (s *server) hearAll() {
	for fd := range s.port.guests {
		s.hear(fd)
	}
}

// seatGuests gives a rank that was just entered what it has connected.
func (s *server) seatGuests(local int) {
	for fd, g := range s.port.guests {
		if g.local == local {
			s.seat(fd, g)
		}
	}
}

// seat gives a connection to its rank; false when that has yet to be entered. It
// is closed if the rank is not through with the one before.
func (s *server) seat(fd int, g *guest) bool {
	r := &s.ranks[g.local]
	if !r.up {
		return false
	}
	if r.connected && !s.nextWorld(g.local) {
		s.log("rank %d connects and is not let in", s.rankOf(g.local))
		s.dismiss(fd)
		return true
	}
	delete(s.port.guests, fd)
	r.connected, r.socket = true, fd
	s.rewatch(fd, unix.EPOLLIN, sourcePMI, g.local)
	s.port.door.Left()
	e := s.engine(g.local)
	s.expectFences()
	s.apply(e, e.Seat(s.rankOf(g.local), &g.greeting))
	return true
}
