package agent

import (
	"fmt"
	"iter"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"golang.org/x/sys/unix"
)

// A remote shell that logs in may wait long for the other machine's word, as that of a directory of users. Nothing then tells a login that is
// slow from one whose link is cut, but the other machine's kernel, which answers TCP's probes. So while a login lasts its connection has
// probes, and ends when nothing is acknowledged for a time; where the kernel takes longer by three eighths of it, as while it repeats at ever longer
// intervals, it is not waited for. ssh's ServerAliveInterval would not do: the other sshd answers those only behind the login. The connection is the shell's, or that of a program that it has started to reach the machine (ProxyCommand, ProxyJump),
// and is taken from the process by pidfd_getfd; where that is refused or missing, this process makes a connection of its own to the same port, and
// asks by that ([isGone]). So it does where the shell uses the connection of another one that is not gorun's to end (ControlPath; [masterOf]). Behind a
// ProxyJump nothing tells a login that is slow from a machine that is cut off: such a login has its long limit.

// watchLogin bounds the silence on the connection of a remote shell, until over is closed. cut is told why it is to end
// where it does not by itself.
func watchLogin(pid int, silence time.Duration, over <-chan struct{}, cut func(why string)) {
	tick := time.NewTicker(loginTick)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if watchConnection(pid, silence, over, cut) {
			return
		}
		if time.Since(looked) < silence/4 {
			continue // few logins last so long
		}
		looked = time.Now()
		at, ok := peerOf(family(pid))
		if !ok {
			at, ok = peerOf(masterOf(family(pid)))
		}
		if ok {
			if isGone(at, silence, over) {
				cut(answersNothing(at, silence))
			}
			return
		}
	}
}

func answersNothing(at fmt.Stringer, silence time.Duration) string {
	return fmt.Sprintf("%v has answered nothing for %v while it logged in", at, silence)
}

// watchConnection bounds the silence on the connection of a process or of its descendants, until over is closed; found: there is one, and
// this process may reach it.
func watchConnection(pid int, silence time.Duration, over <-chan struct{}, cut func(why string)) (found bool) {
	for _, pid := range family(pid) {
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has just ended
		}
		found := bound(pid, process, silence, over, cut)
		unix.Close(process)
		if found {
			return true
		}
	}
	return false
}

// bound is watchConnection of one process.
func bound(pid, process int, silence time.Duration, over <-chan struct{}, cut func(why string)) (found bool) {
	at := connection(pid, process)
	if at < 0 {
		return false
	}
	before, err := withCopy(process, at, func(fd int) (o loginOptions, err error) {
		if o, err = readLogin(fd); err == nil {
			// Repetitions 200 ms apart, rather than each after twice the time of the one before: a network that loses
			// a fifth of its packets is silent for 5 s once in some thousands of them.
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
			err = loginOptions{1, 1, 1, int(silence.Milliseconds())}.write(fd)
		}
		return o, err
	})
	if err != nil {
		return true // it has just been closed
	}
	limit := silence * 11 / 8
	look := time.NewTicker(silence / 8)
	defer look.Stop()
	for waits := true; waits; {
		select {
		case <-over:
			waits = false
		case <-look.C:
			if peer, err := withCopy(process, at, func(fd int) (netip.AddrPort, error) { return silentPeer(fd, limit) }); err == nil && peer.IsValid() {
				cut(answersNothing(peer, limit))
				return true
			}
		}
	}
	// The stream of an agent may stand still for longer: the leases decide. A process that has ended has none.
	_, _ = withCopy(process, at, func(fd int) (loginOptions, error) { return before, before.write(fd) })
	return true
}

// silentPeer is the other end of a connection, if nothing has come of it for so long, nor an answer to the probes.
func silentPeer(fd int, limit time.Duration) (at netip.AddrPort, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || time.Duration(min(info.Last_ack_recv, info.Last_data_recv))*time.Millisecond < limit {
		return at, err
	}
	name, err := unix.Getpeername(fd)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return at, err
}

// family is a process and its descendants.
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, proc.Children(all[i])...)
	}
	return all
}

// loginTick is how often a remote shell is looked at until it has a connection.
const loginTick = 50 * time.Millisecond

// loginOptions are those of a connection that are another's during the login: probes of an idle one (0: none), after how many
// seconds and how many seconds apart; and how many milliseconds nothing may be acknowledged.
type loginOptions struct{ probes, idle, apart, silence int }

// loginNumbers are the options' levels and names, in the order of loginOptions.
var loginNumbers = [4][2]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}}

func (o *loginOptions) all() [4]*int { return [4]*int{&o.probes, &o.idle, &o.apart, &o.silence} }

func readLogin(fd int) (o loginOptions, err error) {
	for i, into := range o.all() {
		if *into, err = unix.GetsockoptInt(fd, loginNumbers[i][0], loginNumbers[i][1]); err != nil {
			return o, os.NewSyscallError("getsockopt", err)
		}
	}
	return o, nil
}

func (o loginOptions) write(fd int) error {
	for i, value := range o.all() {
		if err := unix.SetsockoptInt(fd, loginNumbers[i][0], loginNumbers[i][1], *value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// connection finds the number of a process's connection over TCP; -1: it has none yet, or this process may not reach it.
func connection(pid, process int) (at int) {
	for number := range sockets(pid) {
		up, err := withCopy(process, number, func(fd int) (bool, error) {
			info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			const established = 1
			return err == nil && info.State == established, nil // else it is none of TCP, or on its way
		})
		if err == nil && up {
			return number
		}
	}
	return -1
}

// sockets are the numbers of a process's sockets, and their inodes.
func sockets(pid int) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, _ := os.ReadDir(dir) // none of a process that has ended
		for _, e := range entries {
			name, _ := os.Readlink(dir + "/" + e.Name())
			inode, is := strings.CutPrefix(name, "socket:[")
			if number, err := strconv.Atoi(e.Name()); is && err == nil && !yield(number, strings.TrimSuffix(inode, "]")) {
				return
			}
		}
	}
}

// withCopy lends f a copy of a descriptor of a process.
func withCopy[T any](process, number int, f func(fd int) (T, error)) (result T, err error) {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if err != nil {
		return result, err
	}
	defer unix.Close(fd)
	return f(fd)
}
