package agent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/internal/proc"
)

// isGone tells, as soon as it can, that the machine of a login has acknowledged nothing for a time, by a connection of its own to the same port; false:
// over was closed. The connection says nothing: sshd sees one more that leaves before it logs in. Whatever ends it but silence is an answer, and
// it is made again.
func isGone(at netip.AddrPort, silence time.Duration, over <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 1 + int(silence/time.Second)},
		// The kernel measures, whatever CPU time this process has.
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			_ = c.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
				err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds())))
			})
			return err
		},
	}
	answered := time.Now()
	for {
		c, err := d.DialContext(ctx, "tcp", at.String())
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
			_, err = io.Copy(io.Discard, c)
			stop()
			_ = c.Close()
		}
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, unix.ETIMEDOUT):
			return true
		case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
			if time.Since(answered) >= silence {
				return true
			}
		default:
			answered = time.Now()
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(silence / 4):
		}
	}
}

// peerOf is the other end of the connection over TCP that one of some processes has, of the first such: of those of a master of ssh that
// are forwarded it has made none before its own.
func peerOf(pids []int) (at netip.AddrPort, ok bool) {
	for _, pid := range pids {
		peers := map[string]netip.AddrPort{}
		for _, table := range [...]string{"tcp", "tcp6"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table)) // none where there is no IPv6
			for line := range strings.Lines(string(text)) {
				if at, inode, ok := parsePeer(line); ok {
					peers[inode] = at
				}
			}
		}
		least := math.MaxInt
		for number, inode := range sockets(pid) {
			if peer, is := peers[inode]; is && number < least {
				at, least, ok = peer, number, true
			}
		}
		if ok {
			break
		}
	}
	return at, ok
}

// masterOf is the process whose connection one of some processes uses: one of the same program at the other end of its Unix socket. Before it
// stand those that it has started to reach the machine; none: there is no such process.
func masterOf(pids []int) []int {
	programs := map[string]string{} // of the processes, by the inode of the other end
	for _, pid := range pids {
		for _, inode := range sockets(pid) {
			if n, err := strconv.ParseUint(inode, 10, 32); err == nil {
				if other := peer.OfUnix(uint32(n)); other > 0 {
					programs[strconv.FormatUint(uint64(other), 10)] = program(pid)
				}
			}
		}
	}
	if len(programs) == 0 {
		return nil
	}
	for _, pid := range proc.All() {
		if slices.Contains(pids, pid) {
			continue
		}
		own := program(pid)
		if !slices.Contains(slices.Collect(maps.Values(programs)), own) {
			continue // looking at its sockets would take longer
		}
		for _, inode := range sockets(pid) {
			if programs[inode] == own {
				found := family(pid)
				slices.Reverse(found)
				return found
			}
		}
	}
	return nil
}

// program is the name of a process's program, as its kernel has it.
func program(pid int) string {
	s, _ := proc.Of(pid)
	return s.Name
}

// parsePeer reads a line of the kernel's table of connections over TCP; ok: it is of one that is established.
func parsePeer(line string) (at netip.AddrPort, inode string, ok bool) {
	// sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode ...
	words := strings.Fields(line)
	if len(words) < 10 || words[3] != "01" {
		return at, "", false
	}
	var port uint16
	address, digits, _ := strings.Cut(words[2], ":")
	octets, err := hex.DecodeString(address)
	if _, portErr := fmt.Sscanf(digits, "%X", &port); err != nil || portErr != nil || len(octets)%4 != 0 {
		return at, "", false
	}
	for word := range slices.Chunk(octets, 4) {
		slices.Reverse(word) // in the order of a little-endian processor, as gorun's are
	}
	ip, ok := netip.AddrFromSlice(octets)
	return netip.AddrPortFrom(ip.Unmap(), port), words[9], ok
}
