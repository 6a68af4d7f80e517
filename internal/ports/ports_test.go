package ports

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Range
		ok   bool
	}{
		{"", Range{}, true},
		{"40000-40100", Range{40000, 40100}, true},
		{"7-7", Range{7, 7}, true},
		{"40000", Range{}, false},
		{"40100-40000", Range{}, false},
		{"0-10", Range{}, false},
		{"65000-65536", Range{}, false},
		{"a-b", Range{}, false},
		{"40000:40100", Range{40000, 40100}, true},
		{"-5-5", Range{}, false},
		{"1:2-3", Range{}, false},
	} {
		got, err := Parse(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %v, %v, want %v, ok %v", c.text, got, err, c.want, c.ok)
		}
		if err == nil && got.String() != strings.Replace(c.text, ":", "-", 1) {
			t.Errorf("%q is said as %q", c.text, got)
		}
	}
}

func TestBindTriesEachPort(t *testing.T) {
	r := Range{5, 9}
	seen := map[int]bool{}
	err := r.Bind(func(port int) error { seen[port] = true; return fmt.Errorf("bind: %w", syscall.EADDRINUSE) })
	if len(seen) != 5 || err == nil || !strings.Contains(err.Error(), "all 5 ports of 5-9 are in use") {
		t.Errorf("tried %v: %v", seen, err)
	}
	for port := range seen {
		if port < 5 || port > 9 {
			t.Errorf("tried port %d", port)
		}
	}
	other := errors.New("no permission")
	if err := r.Bind(func(int) error { return other }); err != other {
		t.Errorf("got %v, want %v", err, other)
	}
	if err := (Range{}).Bind(func(port int) error { return fmt.Errorf("port %d", port) }); err.Error() != "port 0" {
		t.Errorf("got %v, want port 0", err)
	}
}

func TestBindTakesTheFreeOne(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	r := Range{taken, taken}
	err = r.Bind(func(port int) error {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "are in use") {
		t.Errorf("a port that is taken: %v", err)
	}
}
