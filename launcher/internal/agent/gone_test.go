package agent

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
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
	if at, ok := peerOf([]int{os.Getpid()}); !ok || at != want && at.String() != c.LocalAddr().String() {
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

// A master is a process of the same program at the other end of a Unix socket.
func TestMasterOfALogin(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		master string
		is     bool
	}{{"sleep", true}, {"cat", false}} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var pids [2]int
		for i, argv := range [][]string{{"sleep", "1000"}, {c.master, "1000"}} {
			end := os.NewFile(uintptr(pair[i]), "end")
			cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), argv[0], argv[1:]...)
			if cmd.ExtraFiles = []*os.File{end}; c.master == "cat" && i == 1 {
				cmd.Args, cmd.Stdin = argv[:1], end // which it waits for
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = end.Close()
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			pids[i] = cmd.Process.Pid
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(maps.Collect(sockets(pids[0])))), func(inode string) bool {
			n, _ := strconv.ParseUint(inode, 10, 32)
			return peer.OfUnix(uint32(n)) > 0
		}) {
			testenv.Unsupported(t, "this kernel does not tell the other end of a Unix socket")
		}
		var want []int
		if c.is {
			want = pids[1:]
		}
		if got := masterOf(pids[:1]); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", c.master, got, want)
		}
	}
}
