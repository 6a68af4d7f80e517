package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/ports"
)

// TCP sockets by system calls, as files in Go's netpoller. Package net would do
// the same, but with cgo enabled it links libc into every rank, which then
// takes 2.3 ms to start instead of 1.4.

// parseAddress reads "IP:port", or ":port" for all addresses.
func parseAddress(s string) (netip.AddrPort, error) {
	if strings.HasPrefix(s, ":") {
		s = "0.0.0.0" + s
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("%q is not IP:port: %w", s, err)
	}
	return a, nil
}

// advertised is what peers dial: the address listened on, or where that names
// no host, host or else the loopback address.
func advertised(a netip.AddrPort, host string) (string, error) {
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return "", fmt.Errorf("the address to advertise is not an IP address: %w", err)
		}
		return netip.AddrPortFrom(ip, a.Port()).String(), nil
	}
	if a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port()).String(), nil
	}
	return a.String(), nil
}

func sockaddr(a netip.AddrPort) (family int, sa unix.Sockaddr) {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16(), ZoneId: zone(ip.Zone())}
}

// zone reads a numeric zone, the only kind that needs no list of interfaces.
func zone(s string) (id uint32) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0
		}
		id = id*10 + uint32(c-'0')
	}
	return id
}

// socket makes one that sends at once what it is given; those that a listener accepts take that after it. In the handshake
// a dialler writes its proof and then the first message of TLS, of which the last part would wait for the listener's
// acknowledgement, for 40 ms.
func socket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	return fd, err
}

// listen opens a listening socket, at one of a range of ports if the address has none.
func listen(address, among string) (*os.File, netip.AddrPort, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, a, err
	}
	var choice ports.Range
	if a.Port() == 0 {
		if choice, err = ports.Parse(among); err != nil {
			return nil, a, err
		}
	}
	family, _ := sockaddr(a)
	fd, err := socket(family)
	if err != nil {
		return nil, a, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	err = choice.Bind(func(port int) error {
		_, sa := sockaddr(netip.AddrPortFrom(a.Addr(), max(a.Port(), uint16(port))))
		if err := unix.Bind(fd, sa); err != nil {
			return err
		}
		return unix.Listen(fd, unix.SOMAXCONN)
	})
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, a, err
	}
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		a = netip.AddrPortFrom(a.Addr(), uint16(b.Port))
	case *unix.SockaddrInet6:
		a = netip.AddrPortFrom(a.Addr(), uint16(b.Port))
	}
	return os.NewFile(uintptr(fd), "listener"), a, nil
}

// accept waits for a connection; closing l ends it.
func accept(l *os.File) (*os.File, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var failed error
	err = raw.Read(func(at uintptr) bool {
		for {
			fd, _, failed = unix.Accept4(int(at), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if failed == syscall.EINTR || failed == syscall.ECONNABORTED {
				continue
			}
			return failed != syscall.EAGAIN
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "link"), nil
}

// dial connects within limit. begun is told of the connection, which another goroutine may close to end the wait.
func dial(address string, limit time.Duration, begun func(*os.File)) (*os.File, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	family, sa := sockaddr(a)
	fd, err := socket(family)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, sa)
	c := os.NewFile(uintptr(fd), "link")
	begun(c)
	if err == nil {
		return c, nil
	}
	if !errors.Is(err, syscall.EINPROGRESS) && !errors.Is(err, syscall.EINTR) {
		c.Close()
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(limit))
	var raw syscall.RawConn
	if err == nil {
		raw, err = c.SyscallConn()
	}
	if err == nil {
		var failed error
		err = raw.Write(func(at uintptr) bool {
			// It is connected when it has a peer; until then it waits.
			if _, e := unix.Getpeername(int(at)); e == nil {
				return true
			}
			n, e := unix.GetsockoptInt(int(at), unix.SOL_SOCKET, unix.SO_ERROR)
			if e == nil && n != 0 {
				e = syscall.Errno(n)
			}
			failed = e
			return e != nil
		})
		if err == nil {
			err = failed
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// windowLeast is how many bytes a link's socket takes at least before they are read. The default of Linux, 64 KiB, is
// less than a piece with its header: the rest of each piece would wait for the reader's acknowledgement, for up to 40 ms.
// SO_RCVLOWAT makes the buffer as large (tcp_set_rcvlowat), and unlike SO_RCVBUF it lets TCP go on to find the best size.
const windowLeast = 1 << 20

// keepAlivesMost is how many probes of an idle link Linux lets be lost (MAX_TCP_KEEPCNT).
const keepAlivesMost = 127

// tune sets what a link wants of TCP: that an idle link notices when the other host has been silent for
// 10 s, or for silence if that is longer. With less than four packets under way TCP sends what was lost six times again
// after the same time, 200 ms mostly, before it doubles that (Linux 6.18, tcp_retransmit_timer): with a fifth of all packets
// lost either way, a link that doubles at once is silent for 8 s once in 450 losses, this one once in 200,000. No
// TCP_USER_TIMEOUT: Linux (6.18, tcp_probe_timer) applies it to a window that stays closed too, so that it would end the
// links of a process that is stopped in the middle of a long message.
func tune(fd int, silence time.Duration) {
	const idle = 5 // seconds
	left := int(silence/time.Second) - idle
	every := 1 + left/keepAlivesMost
	for _, o := range [][3]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, every},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, max(5, left/every)},
		{unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVLOWAT, windowLeast},
		{unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1},
	} {
		_ = unix.SetsockoptInt(fd, o[0], o[1], o[2])
	}
	unpace(fd)
}

// nearest is the round trip of a path, in microseconds, below which a link is not to be paced.
const nearest = 1000

// unpace replaces BBR on a link to a near host by Reno, which every process may choose:
// docs/decisions/near-links-are-not-paced.md.
func unpace(fd int) {
	if name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || name != "bbr" {
		return
	}
	if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.Min_rtt < nearest && info.Total_retrans == 0 {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	}
}
