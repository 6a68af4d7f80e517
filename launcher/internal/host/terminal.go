package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openStream makes the pipe, or the terminal, of a rank's stream: ours and the
// rank's end.
func (o *output) openStream(p *pipe, number int) (theirs int, err error) {
	if o.spec.Terminal.PTY != NoPTY && number == Stdout {
		ours, theirs, err := openTerminal(o.spec.Terminal.Rows, o.spec.Terminal.Cols)
		if err == nil {
			p.fd, p.tty = ours, true
			return theirs, nil
		}
		if o.spec.Terminal.PTY == NeedPTY {
			return -1, fmt.Errorf("a terminal: %w", err)
		}
		o.log("a pipe instead of a terminal: %v", err)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	p.fd = ends[0]
	return ends[1], nil
}

// openTerminal makes a terminal that changes nothing of what is written to it. It
// is nobody's controlling terminal, so it sends no signals, and writing to it
// stops nobody.
func openTerminal(rows, cols int) (ours, theirs int, err error) {
	ours, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	theirs = -1
	defer func() {
		if err != nil {
			closeFD(&ours)
			closeFD(&theirs)
		}
	}()
	if err := unix.IoctlSetPointerInt(ours, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, os.NewSyscallError("TIOCSPTLCK", err)
	}
	// Not by its name in /dev/pts, which may be another mount's. Linux 4.13.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ours), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, -1, os.NewSyscallError("TIOCGPTPEER", errno)
	}
	theirs = int(fd)
	t, err := unix.IoctlGetTermios(theirs, unix.TCGETS)
	if err != nil {
		return -1, -1, os.NewSyscallError("TCGETS", err)
	}
	// As cfmakeraw(3).
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	if err := unix.IoctlSetTermios(theirs, unix.TCSETS, t); err != nil {
		return -1, -1, os.NewSyscallError("TCSETS", err)
	}
	if rows > 0 && cols > 0 {
		if err := setSize(ours, rows, cols); err != nil {
			return -1, -1, err
		}
	}
	return ours, theirs, nil
}

func setSize(fd, rows, cols int) error {
	return os.NewSyscallError("TIOCSWINSZ", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)}))
}

// resize gives the ranks' terminals another size, and tells the ranks, which the
// kernel does not tell: the terminals control nobody.
func (o *output) resize(rows, cols int) {
	some := false
	for _, r := range o.up() {
		if p := &r.pipes[Stdout]; p.tty && p.fd >= 0 {
			some = true
			if err := setSize(p.fd, rows, cols); err != nil {
				o.log("%v", err)
			}
		}
	}
	if some {
		o.signalGroups(unix.SIGWINCH)
	}
}
