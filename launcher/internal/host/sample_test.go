package host

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// A rank's terminal has the size it was given and changes no byte.
func TestOpenTerminal(t *testing.T) {
	ours, theirs, err := openTerminal(31, 99)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(&ours)
	defer closeFD(&theirs)
	if size, err := unix.IoctlGetWinsize(theirs, unix.TIOCGWINSZ); err != nil || size.Row != 31 || size.Col != 99 {
		t.Errorf("size %+v, %v, want 31 by 99", size, err)
	}
	var text []byte
	for c := range 256 {
		text = append(text, byte(c))
	}
	if n, err := unix.Write(theirs, text); n != len(text) || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	var got []byte
	for len(got) < len(text) {
		fds := []unix.PollFd{{Fd: int32(ours), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 10_000); n != 1 && err != unix.EINTR {
			t.Fatalf("nothing comes after %d bytes: %v", len(got), err)
		}
		buf := make([]byte, 1000)
		n, err := unix.Read(ours, buf)
		if err != nil && err != unix.EAGAIN && err != unix.EINTR {
			t.Fatal(err)
		}
		got = append(got, buf[:max(0, n)]...)
	}
	if string(got) != string(text) {
		t.Errorf("got %q, want %q", got, text)
	}
	if flags, err := unix.FcntlInt(uintptr(theirs), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it is inherited: flags %#x, %v", flags, err)
	}
	if err := setSize(ours, 5, 6); err != nil {
		t.Error(err)
	}
	if size, err := unix.IoctlGetWinsize(theirs, unix.TIOCGWINSZ); err != nil || fmt.Sprint(size.Row, size.Col) != "5 6" {
		t.Errorf("size %+v, %v, want 5 by 6", size, err)
	}
}
