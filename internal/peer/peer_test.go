package peer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestOwner(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "tcp6" {
				address = "[::1]:0"
			}
			l, err := net.Listen(network, address)
			if err != nil {
				testenv.Unsupported(t, fmt.Sprint("no such network on this machine: ", err))
			}
			defer l.Close()
			c, err := net.Dial(network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			client, server := unmap(c.LocalAddr().(*net.TCPAddr).AddrPort()), unmap(l.Addr().(*net.TCPAddr).AddrPort())
			for name, owner := range map[string]func(client, server netip.AddrPort) (int, error){"asked": ask, "searched": search, "either": new(Kernel).Owner} {
				if uid, err := owner(client, server); err != nil || uid != os.Getuid() {
					t.Errorf("%s: got user %d, %v, want %d", name, uid, err, os.Getuid())
				}
				if uid, err := owner(netip.AddrPortFrom(client.Addr(), 1), server); err == nil {
					t.Errorf("%s: a socket that is not there is of user %d", name, uid)
				}
			}
		})
	}
}

func TestOfUnix(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	var inodes [2]uint32
	for i, fd := range pair {
		var s unix.Stat_t
		if err := unix.Fstat(fd, &s); err != nil {
			t.Fatal(err)
		}
		inodes[i] = uint32(s.Ino)
	}
	for i, inode := range inodes {
		switch got := OfUnix(inode); got {
		case inodes[1-i]:
		case 0:
			testenv.Unsupported(t, "this kernel does not tell the other end of a Unix socket")
		default:
			t.Errorf("got %d, want %d", got, inodes[1-i])
		}
	}
	unix.Close(pair[1])
	for _, inode := range [...]uint32{inodes[0], inodes[1], 0} {
		if got := OfUnix(inode); got != 0 {
			t.Errorf("%d, which has no other end: got %d", inode, got)
		}
	}
}

// The table of a kernel, with connections of other users, one that nobody holds any more, and damaged
// lines.
func TestFind(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0000000000000000 100 0 0 10 0
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:C002 0100007F:1F91 01 00000000:00000000 00:00000000 00000000  1001        0 3 1 0000000000000000 20 4 30 10 -1
   3: nonsense 0100007F:1F90 01 0 0 0 0 0
   4: 0100007F:C003 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  what        0 3 1
   5: 0000000000000000FFFF00000100007F:C004 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 4 1
   6: 0100007F:C005 0100007F:1F90 06 00000000:00000000 03:00000000 00000000     0        0 0 1
   7: 0100007F:C006 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  -1        0 5 1
`
	server := netip.MustParseAddrPort("127.0.0.1:8080")
	for client, want := range map[string]int{"127.0.0.1:49153": 1000, "127.0.0.1:49154": -1, "127.0.0.1:49155": -1, "127.0.0.1:49156": 1002, "127.0.0.1:49157": -1, "127.0.0.1:49158": -1, "127.0.0.1:8080": -1, "127.0.0.1:1": -1} {
		uid, found := find(strings.NewReader(table), netip.MustParseAddrPort(client), server)
		if !found {
			uid = -1
		}
		if uid != want {
			t.Errorf("%s: got user %d, want %d", client, uid, want)
		}
	}
}

// FuzzFind: whatever the table is, the answer is a user or nobody.
func FuzzFind(f *testing.F) {
	f.Add("   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n")
	f.Add("1: 0100007F:C001 0100007F:1F90 01 0 0 0 -1 0 2\n")
	f.Fuzz(func(t *testing.T, table string) {
		uid, found := find(strings.NewReader(table), netip.MustParseAddrPort("127.0.0.1:49153"), netip.MustParseAddrPort("127.0.0.1:8080"))
		if found != (uid >= 0) {
			t.Errorf("got user %d, found %v", uid, found)
		}
	})
}

// The kernel says that what nobody holds any more is root's: for a job of root
// another user who connects, speaks and goes would be one of its ranks.
func TestClosed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, server := s.RemoteAddr().(*net.TCPAddr).AddrPort(), s.LocalAddr().(*net.TCPAddr).AddrPort()
	if uid, err := new(Kernel).Owner(client, server); err != nil || uid != os.Getuid() {
		t.Errorf("open: got user %d, %v, want %d", uid, err, os.Getuid())
	}
	_ = c.Close()
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Fatal("a closed connection goes on")
	}
	if uid, err := new(Kernel).Owner(client, server); err == nil {
		t.Errorf("closed: got user %d, want an error", uid)
	}
}

func BenchmarkOwner(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	client, server := c.LocalAddr().(*net.TCPAddr).AddrPort(), l.Addr().(*net.TCPAddr).AddrPort()
	for b.Loop() {
		if _, err := new(Kernel).Owner(client, server); err != nil {
			b.Fatal(err)
		}
	}
}
