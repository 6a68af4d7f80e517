package main

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/pmix"
)

func TestRelay(t *testing.T) {
	// libpmix, in this test, answers in capitals and ends when its client does.
	libpmix, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer libpmix.Close()
	var accepted atomic.Int32
	go func() {
		for {
			c, err := libpmix.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
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
	if n := len(r.connected("")); n != 0 {
		t.Errorf("%d are connected before anybody is", n)
	}

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	greets := func(c net.Conn) {
		text := greetingOf(8, "abcdefgh")
		for _, part := range []string{text[:10], text[10:20], text[20:]} {
			if _, err := io.WriteString(c, part); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
			t.Fatal(err)
		}
	}
	speaks := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		greets(c)
		return c
	}
	// Neither a part of a first message nor one that is too long reaches libpmix.
	half, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, greetingOf(8, "abc")); err != nil {
		t.Fatal(err)
	}
	long, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	if _, err := io.WriteString(long, greetingOf(greetingMost+1, "")); err != nil {
		t.Fatal(err)
	}
	if _, err := long.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a first message that is too long: %v, want %v", err, io.EOF)
	}
	other := speaks()
	defer other.Close()
	connected := r.connected("")
	if len(connected) == 0 {
		t.Error("a rank that speaks is not connected")
	}
	later := speaks()
	defer later.Close()
	rank := c.(*net.TCPConn)
	defer rank.Close()
	greets(rank)
	if n := accepted.Load(); n != 3 {
		t.Errorf("%d connections reach libpmix, want the 3 that have greeted", n)
	}
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
	if len(r.connected("")) < 2 {
		t.Error("a rank that is connected does not count")
	}
	rank.Close()
	other.Close()
	for _, ended := range connected { // though a later one stays
		<-ended
	}
}

// greetingOf is the first message of a client: the rest is said to have so many bytes.
func greetingOf(length uint64, rest string) string {
	return string(binary.NativeEndian.AppendUint64(make([]byte, 8), length)) + rest
}

// A connection that was reset before it is looked at has no address of its client.
func TestOwnerOfAResetConnection(t *testing.T) {
	if err := new(relay).ours(nil, &net.TCPAddr{}); err == nil || !strings.Contains(err.Error(), "its client has gone") {
		t.Errorf("got %v", err)
	}
}

// The first messages of libpmix 4.2.2, 5.0.7 and 7.0.0rc1 say who their client is in the same way.
func TestProcOfAFirstMessage(t *testing.T) {
	const head, name = "\xff\xff\xff\xff\xff\xff\xff\xffA\x00\x00\x00\x00\x00\x00\x00", "native\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, c := range []struct {
		greeting string
		want     pmix.Proc
		ok       bool
	}{
		{head + name + "gorun_01\x00\x00\x00\x01\x025.0.7a1\x00v41\x00\x01hash\x00", pmix.Proc{Space: "gorun_01", Rank: 258}, true},
		{head + "none\x00\x00\x00\x00\x00\x00gorun_01\x00\x00\x00\x00\x01", pmix.Proc{Space: "gorun_01", Rank: 1}, true},
		{head + name + "gorun_01\x00\x00\x00\x01", pmix.Proc{}, false},
		{head + name + "gorun_01", pmix.Proc{}, false},
		{head + "native\x00\xff\xff\xff\xffgorun_01\x00\x00\x00\x00\x01", pmix.Proc{}, false},
		{head + "native\x00\x00", pmix.Proc{}, false},
		{head, pmix.Proc{}, false},
		{"", pmix.Proc{}, false},
	} {
		if got, ok := procOf([]byte(c.greeting)); got != c.want || ok != c.ok {
			t.Errorf("%q: got %v, %v, want %v, %v", c.greeting, got, ok, c.want, c.ok)
		}
	}
}

// A process is a child that is the same rank a second time as long as the one before is connected, whatever the
// goroutines that carry have seen.
func TestSecondOfARank(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, p := &relay{clients: map[pmix.Proc][]*client{}}, pmix.Proc{Space: "job", Rank: 1}
	connects := func() (end net.Conn, leave func()) {
		t.Helper()
		end, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		here, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close(); here.Close() })
		return end, r.seat(p, here.(*net.TCPConn))
	}
	want := func(what string, want bool) {
		t.Helper()
		if got := r.second(p); got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	want("nobody is known", true)
	rank, leave := connects()
	want("the rank", false)
	connects()
	want("its child", true)
	child, _ := connects()
	connects()
	want("one of two that connect at the same time", true)
	want("the other one", true)
	child.Close()
	leave()
	if rank.Close(); r.second(pmix.Proc{Space: "job", Rank: 2}) != true {
		t.Error("another rank is known")
	}

	r.clients = map[pmix.Proc][]*client{}
	rank, leave = connects()
	want("the rank", false)
	rank.Close()
	connects()
	want("the program after one that has died", false)
	if leave(); len(r.clients[p]) != 1 {
		t.Errorf("%d are known, want the one that has not left", len(r.clients[p]))
	}
}

// A wait for the connections of one namespace is for none of another.
func TestConnectedOfANamespace(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := &relay{clients: map[pmix.Proc][]*client{}, open: map[*net.TCPConn]chan struct{}{}}
	for _, name := range []string{"parents", "children", "children", ""} {
		end, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
		conn := end.(*net.TCPConn)
		r.enter(conn)
		if name != "" { // else it has yet to say who it is
			r.seat(pmix.Proc{Space: name}, conn)
		}
	}
	for name, want := range map[string]int{"parents": 2, "children": 3, "others": 1} {
		if got := len(r.connected(name)); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}
