package agent

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestParsePeer(t *testing.T) {
	for line, want := range map[string]string{
		"  0: 0100007F:A1B2 0200090A:0016 01 00000000:00000000 02:000A 00000000  0  0 4711 2 0000 20":                                               "10.9.0.2:22 4711",
		"  1: 0000000000000000FFFF00000100007F:A1B2 0000000000000000FFFF00000200090A:08B7 01 00000000:00000000 02:000A 00000000  0  0 12 2 0000 20": "10.9.0.2:2231 12",
		"  2: 000080FE00000000000000000100FF02:A1B2 000080FE00000000000000000100FF01:0016 01 00000000:00000000 02:000A 00000000  0  0 13 2 0000 20": "[fe80::1ff:1]:22 13",
		"  3: 0100007F:A1B2 0200090A:0016 02 00000000:00000000 02:000A 00000000  0  0 4711 2 0000 20":                                               "", // on its way
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode":                                          "",
		"  4: 0100007F:A1B2 0200090A 01 00000000:00000000 02:000A 00000000  0  0 4711 2 0000 20":                                                    "",
		"  5: 0100007F:A1B2 0200:0016 01 00000000:00000000 02:000A 00000000  0  0 4711 2 0000 20":                                                   "",
	} {
		got := ""
		if at, inode, ok := parsePeer(line); ok {
			got = at.String() + " " + inode
		}
		if got != want {
			t.Errorf("%s\ngot %q, want %q", line, got, want)
		}
	}
}

// The other end of this process's connection is found, and asked: it is there while it accepts, closes and refuses.
func TestMachineOfALoginIsAsked(t *testing.T) {
	testenv.NoLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	want := netip.MustParseAddrPort(l.Addr().String())
	if at, ok := peerOf(os.Getpid()); !ok || at != want && at.String() != c.LocalAddr().String() {
		t.Errorf("found %v, %v; want %v", at, ok, want)
	}
	_ = first.Close()
	over, gone := make(chan struct{}), make(chan bool)
	go func() { gone <- isGone(want, 20*time.Millisecond, over) }()
	for range 3 {
		asked, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = asked.Close()
	}
	_ = l.Close() // refuses from now on
	close(over)
	if <-gone {
		t.Error("a machine that answers is taken for gone")
	}
}
