package agent

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// wired is a host's detour, and what stands for gorun and the agent of another host. lost, if it is written to that detour by itself,
// does not come there.
func wired(t *testing.T, lost string, taken func(s net.Conn, address string)) *detour {
	t.Helper()
	over := make(chan struct{})
	one, two := make(chan []byte, 64), make(chan []byte, 64)
	put := func(to chan []byte) func([]byte, func()) error {
		return func(b []byte, then func()) error {
			if string(b) == lost {
				then()
				return nil
			}
			select {
			case to <- append([]byte(nil), b...):
				then()
				return nil
			case <-over:
				return net.ErrClosed
			}
		}
	}
	gorun := &carrier{put: put(two), done: over, make: yamux.Client, taken: taken}
	here := &carrier{put: put(one), done: over, make: yamux.Server}
	d, err := openDetour(netip.MustParseAddr("127.0.0.1"), here)
	if err != nil {
		t.Fatal(err)
	}
	pass := func(from chan []byte, to *carrier, ended chan struct{}) {
		defer close(ended)
		for {
			select {
			case b := <-from:
				to.came(b)
			case <-over:
				return
			}
		}
	}
	ends := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	go pass(one, gorun, ends[0])
	go pass(two, here, ends[1])
	t.Cleanup(func() {
		close(over)
		gorun.close()
		<-ends[0]
		<-ends[1]
	})
	return d
}

// asks is what a rank asks of a detour, and the answer.
func asks(t *testing.T, d *detour, line string) (net.Conn, string) {
	t.Helper()
	c, err := net.Dial("tcp4", d.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testenv.Limit(20 * time.Second)))
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := readLine(c)
	if err != nil {
		answer = err.Error()
	}
	return c, answer
}

func TestDetour(t *testing.T) {
	testenv.NoLeaks(t)
	far := netip.MustParseAddrPort("192.0.2.1:99")
	d := wired(t, "", func(s net.Conn, address string) {
		if address != far.String() {
			_, _ = io.WriteString(s, "no such host\n")
			return
		}
		if _, err := io.WriteString(s, carried+"\n"); err == nil {
			_, _ = io.Copy(s, s)
		}
	})
	defer d.close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d.shuts(far.Addr(), shutForever)
	d.shuts(netip.MustParseAddr("192.0.2.2"), shutForever)
	for _, c := range []struct{ line, want string }{
		{"to " + l.Addr().String(), "direct"},
		{"try " + l.Addr().String(), "direct"},
		{"try 192.0.2.1:99", "closed"},
		{"to 192.0.2.2:99", "no such host"},
		{"to nowhere", "EOF"},
		{"no line", "EOF"},
	} {
		if _, got := asks(t, d, c.line); got != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	c, got := asks(t, d, "to "+far.String())
	if got != carried {
		t.Fatalf("got %q, want %q", got, carried)
	}
	long := strings.Repeat("a byte that is carried ", 100_000)
	go func() { _, _ = io.WriteString(c, long) }()
	back := make([]byte, len(long))
	if _, err := io.ReadFull(c, back); err != nil || string(back) != long {
		t.Errorf("%d bytes come back: %v", len(back), err)
	}
	if s, err := d.Dial(far.String(), time.Second); err != nil {
		t.Error(err)
	} else {
		// The Close of a connection that is carried ends a Read.
		ended := make(chan error)
		go func() { _, err := s.Read(make([]byte, 1)); ended <- err }()
		s.Close()
		if err := <-ended; err == nil {
			t.Error("a Read ends well")
		}
	}
}

// Others connect to this host alone.
func TestDetourIsNoProxy(t *testing.T) {
	testenv.NoLeaks(t)
	d := wired(t, "", nil)
	defer d.close()
	here, there := net.Pipe()
	go func() { d.arrive(there, "192.0.2.1:99"); there.Close() }()
	if line, err := readLine(here); err != nil || line != "no 192.0.2.1:99 is not this host, 127.0.0.1" {
		t.Errorf("%q, %v", line, err)
	}
}

// A reading is a member that reads a connection until it is closed.
type reading struct {
	Member
	net.Conn
	ended chan struct{}
}

func (r *reading) Close() error {
	err := r.Conn.Close()
	<-r.ended
	return err
}

// An agent whose gorun has gone in the middle of a frame ends.
func TestAnAgentEndsInMidFrame(t *testing.T) {
	testenv.NoLeaks(t)
	const rest = "the rest of a frame"
	dialed, begun := make(chan struct{}), make(chan struct{})
	d := wired(t, rest, func(s net.Conn, _ string) {
		defer close(begun)
		if _, err := io.WriteString(s, carried+"\n"); err != nil {
			t.Error(err)
		}
		<-dialed
		if _, err := io.WriteString(s, rest); err != nil {
			t.Error(err)
		}
	})
	far := netip.MustParseAddrPort("192.0.2.1:99")
	d.shuts(far.Addr(), shutForever)
	c, err := d.Dial(far.String(), tryLimit)
	if err != nil {
		t.Fatal(err)
	}
	close(dialed)
	<-begun
	r := &reading{Conn: c, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	(&agent{joining: newJoining(r), detour: d}).part()
}
