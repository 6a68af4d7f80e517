package main

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
)

// ours tells whether the other end of a loopback connection belongs to this user.
func ours(c *net.TCPConn) error {
	file, err := os.Open("/proc/self/net/tcp")
	if err != nil {
		return fmt.Errorf("cannot see whose it is: %w", err)
	}
	defer file.Close()
	local, remote := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
	uid, err := owner(file, remote.AddrPort(), local.AddrPort())
	if err != nil {
		return err
	}
	if want := os.Geteuid(); uid != want {
		return fmt.Errorf("it belongs to user %d, this job to user %d", uid, want)
	}
	return nil
}

var errNobody = errors.New("the kernel's table of connections (/proc/net/tcp) does not have it")

// owner finds the user of the connection from one address to another in the text
// of /proc/net/tcp.
func owner(table io.Reader, from, to netip.AddrPort) (uid int, err error) {
	mine, other, ok := hexAddress(from, to)
	if !ok {
		return 0, fmt.Errorf("%s to %s is no connection of IPv4", from, to)
	}
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid ...
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[1] != mine || f[2] != other {
			continue
		}
		uid, err := strconv.ParseUint(f[7], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("/proc/net/tcp: uid %q", f[7])
		}
		return int(uid), nil
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("/proc/net/tcp: %w", err)
	}
	return 0, errNobody
}

// hexAddress writes addresses as the kernel does: the four bytes as a number of
// this machine, the port as a number.
func hexAddress(a, b netip.AddrPort) (string, string, bool) {
	write := func(p netip.AddrPort) (string, bool) {
		addr := p.Addr().Unmap()
		if !addr.Is4() {
			return "", false
		}
		four := addr.As4()
		return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(four[:]), p.Port()), true
	}
	x, ok1 := write(a)
	y, ok2 := write(b)
	return x, y, ok1 && ok2
}
