// Package peer tells of the other end of a TCP connection: whose it is, within this
// machine, and that its host is gone; and of a Unix socket which one it is. Everybody on a machine can connect to its loopback address, and a port that
// serves one user's processes must ask the kernel whose they are.
package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// errUnknown means that the kernel knows no such socket, or none that a process holds.
var errUnknown = errors.New("the kernel knows no such socket")

// Kernel answers whose sockets are. The zero value is ready, and safe for concurrent
// use.
type Kernel struct {
	answers atomic.Bool // sock_diag has known a socket
}

// Owner tells which user owns the client's end of the connection from client to
// server, both addresses of this machine. An address of IPv4 written as one of
// IPv6, as a socket of both families reports it, is the same. A client that has
// closed its socket is an error: the kernel then calls it root's, whoever it was.
//
// The kernel is asked for that one socket (0.04 ms), whatever number there are. Only
// where it takes no such questions, as in some sandboxes, its table of all is looked
// through (7 ms and more).
func (k *Kernel) Owner(client, server netip.AddrPort) (uid int, err error) {
	client, server = unmap(client), unmap(server)
	uid, err = ask(client, server)
	switch {
	case err == nil:
		k.answers.Store(true)
		return uid, nil
	case errors.Is(err, errUnknown) && k.knows(server):
		return -1, fmt.Errorf("%s: %w", client, err)
	}
	return search(client, server)
}

// knows tells whether the kernel answers at all: a kernel without sock_diag for TCP
// says of every socket that it knows none, also of the one that listens.
func (k *Kernel) knows(server netip.AddrPort) bool {
	if k.answers.Load() {
		return true
	}
	none := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if server.Addr().Is6() {
		none = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	if _, err := ask(server, none); err == nil {
		k.answers.Store(true)
	}
	return k.answers.Load()
}

// Other tells which user owns the other end of a TCP connection, -1 if that is on another machine.
func (k *Kernel) Other(conn net.Conn) (uid int, err error) {
	here, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return -1, err
	}
	there, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return -1, err
	}
	if a := there.Addr().Unmap(); a != here.Addr().Unmap() && !a.IsLoopback() {
		return -1, nil
	}
	return k.Owner(there, here)
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// ask asks by sock_diag(7).
func ask(client, server netip.AddrPort) (uid int, err error) {
	const (
		uidAt   = header + 4 + 48 + 12
		inodeAt = uidAt + 4
	)
	family := byte(unix.AF_INET)
	if client.Addr().Is6() {
		family = unix.AF_INET6
	}
	// struct inet_diag_req_v2: nothing but the socket, in any state
	msg := []byte{family, unix.IPPROTO_TCP, 0, 0}
	msg = native.AppendUint32(msg, 1<<32-1)
	msg = binary.BigEndian.AppendUint16(msg, client.Port())
	msg = binary.BigEndian.AppendUint16(msg, server.Port())
	for _, end := range [...]netip.AddrPort{client, server} {
		var addr [16]byte
		copy(addr[:], end.Addr().AsSlice())
		msg = append(msg, addr[:]...)
	}
	msg = native.AppendUint32(msg, 0)                                     // on any interface
	msg = native.AppendUint32(native.AppendUint32(msg, 1<<32-1), 1<<32-1) // without a cookie
	answer, err := diagnose(msg)
	if err != nil {
		return -1, err
	}
	// An inode of 0: nobody holds it any more.
	if len(answer) < inodeAt+4 || native.Uint32(answer[inodeAt:]) == 0 {
		return -1, errUnknown
	}
	return int(native.Uint32(answer[uidAt:])), nil
}

var native = binary.NativeEndian

const header = 16 // struct nlmsghdr

// diagnose asks by sock_diag(7) of one socket.
func diagnose(request []byte) (answer []byte, err error) {
	const byFamily = 20 // SOCK_DIAG_BY_FAMILY
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// struct nlmsghdr
	msg := native.AppendUint32(nil, uint32(header+len(request)))
	msg = native.AppendUint16(msg, byFamily)
	msg = native.AppendUint16(msg, unix.NLM_F_REQUEST)
	msg = append(append(msg, make([]byte, 8)...), request...)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	answer = make([]byte, 1024)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // it has been given by now
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	if n < header || native.Uint16(answer[4:]) != byFamily {
		return nil, errUnknown
	}
	return answer[:n], nil
}

// OfUnix is the inode of the socket at the other end of a Unix socket, which has an inode, too; 0: it is none, or has no other end, or
// this kernel does not tell. It need not be this process's.
func OfUnix(inode uint32) uint32 {
	const (
		showPeer = 1 << 2 // UDIAG_SHOW_PEER
		isPeer   = 2      // UNIX_DIAG_PEER
		message  = 16     // struct unix_diag_msg
	)
	// struct unix_diag_req: the socket, in any state, without a cookie
	msg := []byte{unix.AF_UNIX, 0, 0, 0}
	for _, word := range [...]uint32{1<<32 - 1, inode, showPeer, 1<<32 - 1, 1<<32 - 1} {
		msg = native.AppendUint32(msg, word)
	}
	answer, err := diagnose(msg)
	if err != nil || len(answer) < header+message+8 || native.Uint16(answer[header+message+2:]) != isPeer {
		return 0
	}
	return native.Uint32(answer[header+message+4:])
}

// search looks through the kernel's tables of sockets.
func search(client, server netip.AddrPort) (uid int, err error) {
	for _, table := range [...]string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // a kernel without IPv6
		}
		uid, found := find(f, client, server)
		f.Close()
		if found {
			return uid, nil
		}
	}
	return -1, fmt.Errorf("no socket of this machine is %s", client)
}

// find looks a connection up in a table as /proc/net/tcp is.
func find(table io.Reader, client, server netip.AddrPort) (uid int, found bool) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
		words := strings.Fields(lines.Text())
		if len(words) < 10 || words[9] == "0" {
			continue
		}
		local, ok := kernelAddress(words[1])
		if !ok || local != client {
			continue
		}
		if remote, ok := kernelAddress(words[2]); !ok || remote != server {
			continue
		}
		n, err := strconv.ParseUint(words[7], 10, 32)
		if err != nil {
			return -1, false
		}
		return int(n), true
	}
	return -1, false
}

// kernelAddress reads an address of those tables: words of four bytes in the
// machine's order, and a port, in hexadecimal.
func kernelAddress(s string) (netip.AddrPort, bool) {
	words, port, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || len(words) != 8 && len(words) != 32 {
		return netip.AddrPort{}, false
	}
	raw := make([]byte, 0, 16)
	for i := 0; i < len(words); i += 8 {
		w, err := strconv.ParseUint(words[i:i+8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(w))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}
