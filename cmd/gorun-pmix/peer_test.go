package main

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1234        0 3 1 0 20 4 30 10 -1
   3: 0100007F:C351 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  x        0 3 1 0 20 4 30 10 -1
   4: short
`

func TestOwner(t *testing.T) {
	here := netip.MustParseAddrPort("127.0.0.1:8080")
	for _, c := range []struct {
		from string
		uid  int
		err  string
	}{
		{"127.0.0.1:50000", 1234, ""},
		{"127.0.0.1:50001", 0, `uid "x"`},
		{"127.0.0.1:50002", 0, "does not have it"},
		{"[::1]:50000", 0, "no connection of IPv4"},
		{"[::ffff:127.0.0.1]:50000", 1234, ""},
	} {
		uid, err := owner(strings.NewReader(table), netip.MustParseAddrPort(c.from), here)
		if uid != c.uid || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %d, %v, want %d, %q", c.from, uid, err, c.uid, c.err)
		}
	}
}

// FuzzOwner: whatever the table is, the answer is a uid or an error.
func FuzzOwner(f *testing.F) {
	f.Add(table)
	f.Fuzz(func(t *testing.T, text string) {
		uid, err := owner(strings.NewReader(text), netip.MustParseAddrPort("127.0.0.1:50000"), netip.MustParseAddrPort("127.0.0.1:8080"))
		if err == nil && uid < 0 {
			t.Errorf("uid %d", uid)
		}
	})
}

func TestRelay(t *testing.T) {
	// libpmix, in this test, answers in capitals and ends when its client does.
	libpmix, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer libpmix.Close()
	go func() {
		for {
			c, err := libpmix.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := c.Read(buf)
					if _, werr := c.Write([]byte(strings.ToUpper(string(buf[:n])))); werr != nil || err != nil {
						return
					}
				}
			}()
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// A descriptor of its own, which newRelay closes.
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRelay(uintptr(fd), libpmix.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.listener.Close()
	go r.accept(func(error) {}, func(text string) { t.Error(text) })

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	rank := c.(*net.TCPConn)
	defer rank.Close()
	// More than the sockets hold goes both ways at once, then one direction ends
	// and the other follows.
	const size = 16 << 20
	go func() {
		chunk := []byte(strings.Repeat("abcdefgh", 1<<13))
		for sent := 0; sent < size; sent += len(chunk) {
			if _, err := rank.Write(chunk); err != nil {
				t.Error(err)
				return
			}
		}
		_ = rank.CloseWrite()
	}()
	got, buf := 0, make([]byte, 64<<10)
	for {
		n, err := rank.Read(buf)
		for i, b := range buf[:n] {
			if want := "ABCDEFGH"[(got+i)%8]; b != want {
				t.Fatalf("byte %d: got %c, want %c", got+i, b, want)
			}
		}
		got += n
		if err != nil {
			break
		}
	}
	if got != size {
		t.Errorf("got %d bytes, want %d", got, size)
	}
}

func TestOursIsOurs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := ours(s.(*net.TCPConn)); err != nil {
		t.Errorf("user %d: %v", os.Geteuid(), err)
	}
}
