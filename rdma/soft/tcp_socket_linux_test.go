package soft

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A link to a near host is not paced, and keeps each congestion control of the machine but BBR.
func TestNearLinksAreNotPaced(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(text))
	if len(names) == 0 {
		t.Fatal("no congestion control is allowed")
	}
	for _, name := range names {
		want := name
		if name == "bbr" {
			want = "reno"
		}
		l, at, err := listen("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := dial(at.String(), time.Minute, func(*os.File) {})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fd := int(c.Fd())
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tune(fd, time.Minute)
		if got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || got != want {
			t.Errorf("%s became %q, %v; want %s", name, got, err, want)
		}
	}
}

// Neither end of a connection waits with what it has to say, not even in the handshake.
func TestConnectionsSendAtOnce(t *testing.T) {
	l, at, err := listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := dial(at.String(), time.Minute, func(*os.File) {})
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := accept(l)
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for end, c := range map[string]*os.File{"dialled": dialed, "accepted": accepted} {
		if on, err := unix.GetsockoptInt(int(c.Fd()), unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil || on == 0 {
			t.Errorf("the %s end has TCP_NODELAY %d, %v; want it set", end, on, err)
		}
	}
}
