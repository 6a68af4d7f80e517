package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A gorun that says nothing is excused as long as what its agent says is acknowledged, until its
// stream has brought nothing for too long.
func TestExcuse(t *testing.T) {
	const lease, stream = Looks * time.Second, 5 * Looks * time.Second
	for _, c := range []struct {
		name         string
		acknowledged func(at int) bool // when so many seconds have passed; nil: nothing tells
		heard        int               // when gorun says something; 0: never
		want         int               // when it is lost
	}{
		{"nothing tells", nil, 0, Looks},
		{"never", func(int) bool { return false }, 0, Looks},
		{"always", func(int) bool { return true }, 0, 5*Looks - 2},
		{"before the agent speaks", func(at int) bool { return at <= Looks/2 }, 0, Looks},
		{"until the link is cut after a lease", func(at int) bool { return at < 20 }, 0, 19 + Looks/2},
		{"always, and it is heard", func(at int) bool { return true }, 30, 30 + 5*Looks - 2},
		{"until it is heard", func(at int) bool { return at < 30 }, 30, 30 + Looks},
	} {
		var v vigil
		begin := time.Unix(1000, 0)
		at, said := 0, 0
		v.lease.Begin(lease, begin)
		v.stream.Begin(stream, begin)
		if v.excuse = (excuse{limit: lease, speak: func() { said++ }}); c.acknowledged != nil {
			v.excuse.heeded = func() bool { return said > 0 && c.acknowledged(at) }
		}
		for at = 1; at < 200; at++ {
			now := begin.Add(time.Duration(at) * time.Second)
			if at == c.heard {
				v.lease.Renew(now)
				v.stream.Renew(now)
			}
			if v.lost(now) {
				break
			}
		}
		if at != c.want {
			t.Errorf("%s: lost after %d s, want %d", c.name, at, c.want)
		}
		if (said > 0) != (c.acknowledged != nil) {
			t.Errorf("%s: spoke %d times", c.name, said)
		}
	}
}

// The kernel's table tells what is acknowledged, for connections of IPv4, of IPv6, and of IPv4 at a socket of IPv6; also in
// front of a window that is full.
func TestAcknowledged(t *testing.T) {
	for _, c := range []struct{ listen, dial string }{{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "127.0.0.1"}} {
		l, err := net.Listen("tcp", c.listen)
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			continue // no IPv6 here
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		client, err := net.Dial("tcp", net.JoinHostPort(c.dial, port))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		host, from, _ := net.SplitHostPort(client.LocalAddr().String())
		s, ok := sessionOf(fmt.Sprintf("%s %s %s %s", host, from, c.dial, port))
		if !ok {
			t.Fatalf("%v: no session", client.LocalAddr())
		}
		if table, _ := os.ReadFile("/proc/net/tcp"); !strings.Contains(string(table), fmt.Sprintf(":%04X", l.Addr().(*net.TCPAddr).Port)) && c.listen == "127.0.0.1:0" {
			testenv.Unsupported(t, "/proc/net/tcp does not show this machine's connections")
		}
		for _, what := range []string{"nothing", "a word"} {
			testenv.Await(t, 20*time.Second, what+" to be acknowledged", s.acknowledged)
			if _, err := server.Write([]byte("a word")); err != nil {
				t.Fatal(err)
			}
		}
		// Nobody reads: the window fills up, and then the kernel probes it.
		_ = server.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		for err == nil {
			_, err = server.Write(make([]byte, 1<<20))
		}
		testenv.Await(t, 20*time.Second, "a probe of a full window to be answered", s.acknowledged)
		client.Close()
		server.Close()
		testenv.Await(t, 20*time.Second, "the end of the connection", func() bool { return !s.acknowledged() })
	}
}

func TestRowsOfConnections(t *testing.T) {
	s, ok := sessionOf("10.9.0.254 50000 10.9.0.1 22")
	if !ok {
		t.Fatal("no session")
	}
	ends := strings.NewReplacer("HERE", tableText(10, 9, 0, 1)+":0016", "THERE", tableText(10, 9, 0, 254)+":C350")
	for _, c := range []struct {
		row   string
		found bool
		want  bool
	}{
		{"0: HERE THERE 01 00000000:00000000 02:000A7214 00000000 0 0 16604 2", true, true},
		{"0: HERE THERE 01 00000024:00000000 01:00000014 00000000 0 0 16604 4", true, false},  // on its way
		{"0: HERE THERE 01 00000024:00000000 01:00000014 00000003 0 0 16604 4", true, false},  // repeated
		{"0: HERE THERE 01 00000024:00000000 04:00000014 00000000 0 0 16604 4", true, true},   // a probe was answered
		{"0: HERE THERE 01 00000024:00000000 04:00000014 00000000 0 2 16604 4", true, false},  // two were not
		{"0: HERE THERE 08 00000000:00000000 00:00000000 00000000 0 0 16604 1", true, false},  // the other end is closed
		{"0: THERE HERE 01 00000000:00000000 02:000A7214 00000000 0 0 16604 2", false, false}, // the other one's
		{"sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode", false, false},
		{"0: HERE", false, false},
	} {
		if found, is := s.row(strings.Fields(ends.Replace(c.row))); found != c.found || is != c.want {
			t.Errorf("%s: found %v, acknowledged %v", c.row, found, is)
		}
	}
}

// tableText is an address as the table has it: in this machine's order.
func tableText(b ...byte) string {
	at := tableEnd(fmt.Sprintf("%X:0", b)).Addr().As4() // the order turned once more
	return fmt.Sprintf("%X", at[:])
}

func TestWhatASessionProves(t *testing.T) {
	for _, c := range []struct {
		name  string
		text  string
		way   Way
		relay *relayWord
		want  bool
	}{
		{"gorun's machine", "10.0.0.1 5 10.0.0.2 22", Way{Toward: "10.0.0.1"}, nil, true},
		{"a mapped address", "::ffff:10.0.0.1 5 ::ffff:10.0.0.2 22", Way{Toward: "10.0.0.1"}, nil, true},
		{"a link's address", "fe80::1%eth0 5 fe80::2%eth0 22", Way{Toward: "fe80::1"}, nil, true},
		{"a jump host", "192.0.2.9 5 10.0.0.2 22", Way{Toward: "10.0.0.1"}, nil, false},
		{"unknown", "10.0.0.1 5 10.0.0.2 22", Way{}, nil, false},
		{"its relay", "10.0.0.7 5 10.0.0.2 22", Way{Toward: "10.0.0.1"}, &relayWord{From: "10.0.0.7"}, true},
		{"the relay is here", "10.0.0.7 5 10.0.0.2 22", Way{Toward: "10.0.0.1"}, &relayWord{PID: 7}, false},
		{"no session", "", Way{Toward: "10.0.0.1"}, nil, false},
		{"nonsense", "10.0.0.1 5 10.0.0.2 x", Way{Toward: "10.0.0.1"}, nil, false},
	} {
		s, ok := sessionOf(c.text)
		if got := ok && s.proves(c.way, c.relay); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
