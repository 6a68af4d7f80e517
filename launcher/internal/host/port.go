package host

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/pmi"
)

// Bounds of those who have connected and not said who they are.
const (
	guestsMax    = 256 // beyond it nobody is let in until one has spoken or gone
	guestLineMax = 256 // bytes of the line that tells
)

// port is where the ranks of a host find their PMI server with PMI_PORT: a port
// of the loopback address, since they are on this machine. A connection belongs
// to no rank until its first line tells which. Only the user who runs the job
// is listened to, and root, and of each rank one connection at a time: see
// [Host.nextWorld].
type port struct {
	fd     int // -1: it is not open
	addr   netip.AddrPort
	guests map[int]*guest // by descriptor
	full   bool           // nobody is let in
}

// guest is a connection that has yet to be given to its rank.
type guest struct {
	line  []byte
	local int // rank that it says it is, which has not been entered yet; -1: not said
}

// openPort begins to listen.
func (h *Host) openPort() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	h.port.fd, h.port.guests = fd, make(map[int]*guest)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, max(128, len(h.spec.Ranks))); err != nil {
		return os.NewSyscallError("listen", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	h.port.addr = inet4(name)
	if err := h.port.reachable(); err != nil {
		return err
	}
	return h.watch(fd, unix.EPOLLIN, sourcePort, 0)
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

func (h *Host) closePort() {
	for fd := range h.port.guests {
		closeFD(&fd)
	}
	closeFD(&h.port.fd)
}

func inet4(name unix.Sockaddr) netip.AddrPort {
	if a, ok := name.(*unix.SockaddrInet4); ok {
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// admit lets in who has connected.
func (h *Host) admit() {
	for h.port.fd >= 0 && !h.port.full {
		fd, name, err := unix.Accept4(h.port.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			if err != unix.EAGAIN {
				h.log("accept: %v", err)
			}
			return
		}
		if uid, err := peer.Owner(inet4(name), h.port.addr); err != nil {
			h.log("a connection is refused: %v", err)
			unix.Close(fd)
			continue
		} else if uid != os.Getuid() && uid != 0 { // root may do more than that to a job
			unix.Close(fd)
			h.refused(-1, fmt.Sprintf("a process of user %d has connected to where ranks meet (PMI_PORT) and was not let in, as it is not of user %d, whose job this is; if it is a rank, --pmi-fd has it inherit its connection", uid, os.Getuid()))
			continue
		}
		// It cannot fail on such a socket, and costs time at most.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if err := h.watch(fd, unix.EPOLLIN, sourceGuest, fd); err != nil {
			h.log("%v", err)
			unix.Close(fd)
			continue
		}
		h.port.guests[fd] = &guest{local: -1}
		h.crowd()
	}
}

// refused tells once of a program that was not let in; rank is below 0 where it is
// nobody's.
func (h *Host) refused(rank int, text string) {
	told := &h.denied[0]
	if rank < 0 {
		told = &h.denied[1]
	}
	if h.log("rank %d: %s", rank, text); !*told {
		*told = true
		h.emit(Event{Kind: Refused, Rank: rank, Text: text})
	}
}

// crowd stops and resumes the letting in by the number of guests.
func (h *Host) crowd() {
	if full := len(h.port.guests) >= guestsMax; full != h.port.full {
		h.port.full = full
		events := uint32(unix.EPOLLIN)
		if full {
			events = 0
		}
		h.rewatch(h.port.fd, events, sourcePort, 0)
	}
}

// dismiss ends a connection that belongs to no rank.
func (h *Host) dismiss(fd int) {
	delete(h.port.guests, fd)
	h.unwatch(&fd)
	h.crowd()
}

// hear reads what a guest says of itself.
func (h *Host) hear(fd int) {
	g := h.port.guests[fd]
	if g == nil {
		return
	}
	var buf [guestLineMax]byte
	n, _, err := unix.Recvfrom(fd, buf[:guestLineMax-len(g.line)], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return
	case err != nil || n == 0:
		h.dismiss(fd)
		return
	}
	g.line = append(g.line, buf[:n]...)
	end := bytes.IndexByte(g.line, '\n')
	if end < 0 {
		if len(g.line) == guestLineMax {
			h.log("a connection does not say which rank it is")
			h.dismiss(fd)
		}
		return
	}
	number, err := pmi.InitAck(g.line[:end+1])
	local := h.spec.local(number)
	if err != nil || local < 0 {
		h.log("a connection is of no rank here: rank %d, %v", number, err)
		h.dismiss(fd)
		return
	}
	if g.local = local; !h.seat(fd, g) {
		// Its start is not known here yet: seatGuests comes to it.
		h.rewatch(fd, 0, sourceGuest, fd)
	}
}

// hearAll takes what has been said so far by whoever has connected.
func (h *Host) hearAll() {
	if h.port.fd < 0 {
		return
	}
	h.admit()
	for fd := range h.port.guests {
		h.hear(fd)
	}
}

// seatGuests gives a rank that was just entered what it has connected.
func (h *Host) seatGuests(local int) {
	for fd, g := range h.port.guests {
		if g.local == local {
			h.seat(fd, g)
		}
	}
}

// seat gives a connection to its rank; false when that has yet to be entered. It
// is closed if the rank is not through with the one before.
func (h *Host) seat(fd int, g *guest) bool {
	r := &h.ranks[g.local]
	if !r.up {
		return false
	}
	if r.connected && !h.nextWorld(g.local) {
		h.log("rank %d connects and is not let in", h.rankOf(g.local))
		h.dismiss(fd)
		return true
	}
	delete(h.port.guests, fd)
	r.connected, r.socket = true, fd
	h.rewatch(fd, unix.EPOLLIN, sourcePMI, g.local)
	h.crowd()
	e := h.engine(g.local)
	h.apply(e, e.Receive(h.rankOf(g.local), g.line))
	return true
}
