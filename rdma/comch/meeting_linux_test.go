package comch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

var (
	keyA = []byte("the first key, which is long")
	keyB = []byte("another key, also long enough")
)

// notes is a log that a test reads.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) log(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notes) has(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(strings.Join(n.lines, "\n"), text)
}

// Many clients, of which half come before the listener: each has a channel of its own.
func TestManyClients(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := limit(t)
	const clients, n = 12, 50
	cfg := Config{Name: t.Name(), Shared: true}
	errs := make(chan error, 2*clients)
	dial := func(i int) {
		errs <- func() error {
			c, err := Dial(ctx, cfg)
			if err != nil {
				return err
			}
			defer c.Close()
			// The first message says who it is.
			if err := c.Send(ctx, []byte{byte(i)}); err != nil {
				return err
			}
			if err := errors.Join(send(ctx, c, uint64(i), n), receive(ctx, c, uint64(100+i), n)); err != nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
			return c.Drain(ctx)
		}()
	}
	for i := range clients / 2 {
		go dial(i)
	}
	testenv.Await(t, time.Minute, "clients that wait", func() bool {
		sockets, _ := os.ReadFile("/proc/net/unix")
		return bytes.Count(sockets, []byte(hereName(&cfg)+"-w")) == clients/2
	})
	l, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := clients / 2; i < clients; i++ {
		go dial(i)
	}
	for range clients {
		c, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer c.Close()
			var who [1]byte
			_, err := c.Recv(ctx, who[:])
			if err == nil {
				i := uint64(who[0])
				err = errors.Join(receive(ctx, c, i, n), send(ctx, c, 100+i, n), c.Drain(ctx))
			}
			errs <- err
		}()
	}
	for range 2 * clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestNameIsTaken(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := Config{Name: t.Name()}
	l, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(cfg); !errors.Is(err, ErrTaken) {
		t.Errorf("a second listener: %v, want %v", err, ErrTaken)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(limit(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Accept after Close: %v, want %v", err, ErrClosed)
	}
	l, err = Listen(cfg)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Accept: %v, want %v", err, context.Canceled)
	}
	l.Close()
	if _, err := Dial(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial where nobody listens: %v, want %v", err, context.Canceled)
	}
}

// Both sides say why one was refused.
func TestKeysAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		server, client []byte
		says, logs     string
	}{
		"another key":            {keyA, keyB, "the peer has another key", "the peer has another key"},
		"only the server's":      {keyA, nil, "this end has a key and the peer has none", "this end has a key and the peer has none"},
		"only the client's":      {nil, keyA, "the peer has a key and this end has none", "the peer has a key and this end has none"},
		"the same":               {keyA, keyA, "", ""},
		"none, of the same user": {nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			var log notes
			l, err := Listen(Config{Name: t.Name(), Key: c.server, Log: log.log})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			client, err := Dial(limit(t), Config{Name: t.Name(), Key: c.client})
			if c.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				server, err := l.Accept(limit(t))
				if err != nil {
					t.Fatal(err)
				}
				server.Close()
				client.Close()
				return
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the client: %v, want %v with %q", err, ErrRefused, c.says)
			}
			testenv.Await(t, 20*time.Second, "the server's line", func() bool { return log.has(c.logs) })
		})
	}
}

// What comes to the listener's name may be anything.
func TestStrangePackets(t *testing.T) {
	testenv.NoLeaks(t)
	var log notes
	cfg := Config{Name: t.Name(), Log: log.log}
	if err := cfg.settle(); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	old := newHello(&cfg)
	old.Protocol = "gorun-comch/0"
	small := newHello(&cfg)
	small.Queue = geometry{Room: 8, Slots: 1}
	huge := newHello(&cfg)
	huge.Queue = geometry{Room: 4096, Slots: 1 << 40}
	bare := newHello(&cfg)
	bare.Nonce = nil
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	packed := func(h hello) []byte {
		b, err := h.pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		packet []byte
		fds    []int
		logs   string
	}{
		"garbage":              {[]byte("GET / HTTP/1.0\r\n\r\n"), nil, "msgpack"},
		"another protocol":     {packed(old), nil, `the peer speaks "gorun-comch/0"`},
		"a small queue":        {packed(small), nil, "a queue of 1 slots of 8 bytes"},
		"a huge queue":         {packed(huge), nil, "a queue of 1099511627776 slots"},
		"no nonce":             {packed(bare), nil, "a nonce of 0 bytes"},
		"a descriptor":         {packed(newHello(&cfg)), []int{int(null.Fd())}, "a descriptor that nobody asked for"},
		"several":              {packed(newHello(&cfg)), []int{int(null.Fd()), int(null.Fd())}, "2 descriptors"},
		"nothing, and it ends": {nil, nil, "it ended before"},
	} {
		conn, err := dialHere(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c.packet != nil {
			var oob []byte
			if c.fds != nil {
				oob = unix.UnixRights(c.fds...)
			}
			if _, _, err := conn.WriteMsgUnix(c.packet, oob, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			conn.CloseWrite()
		}
		testenv.Await(t, 20*time.Second, name+": the server's line", func() bool { return log.has(c.logs) })
		conn.Close()
	}
	// Clients that say nothing hold nobody up.
	for range 5 {
		conn, err := dialHere(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	client, err := Dial(limit(t), Config{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	server.Close()
}

// A listener that gives something else than its memory.
func TestClientDoubtsTheMemory(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := Config{Name: t.Name()}
	if err := cfg.settle(); err != nil {
		t.Fatal(err)
	}
	l, err := listenHere(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		fds  []int
		says string
	}{{nil, "no shared memory"}, {[]int{int(file.Fd())}, "not a gorun segment"}} {
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			talk := &talk{conn: conn.(*net.UnixConn)}
			talk.receive()
			talk.send(newHello(&cfg))
			talk.receive()
			talk.send(hello{}, c.fds...)
			talk.receive()
		}()
		if _, err := Dial(limit(t), cfg); !errors.Is(err, ErrForged) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("descriptors %v: %v, want %v with %q", c.fds, err, ErrForged, c.says)
		}
	}
}

// A mad peer in the shared memory of a live channel: the calls of this end return, whatever
// it writes.
func TestPeerScribbles(t *testing.T) {
	server, client := connected(t, "here", Config{Buffer: 64, Queue: 100, Shared: true})
	ctx, cancel := context.WithCancel(limit(t))
	theirs := client.t.(*ringConn)
	stop := make(chan struct{})
	var mad sync.WaitGroup
	mad.Go(func() {
		for i := uint64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, mem := range [][]byte{theirs.in.mem, theirs.out.mem} {
				for at := 0; at+8 <= len(mem); at += 64 {
					*word(mem, at) = i * 0x9e3779b97f4a7c15 >> (i % 60)
				}
			}
		}
	})
	done := make(chan error, 2)
	go func() {
		buf := make([]byte, MaxMessage)
		for {
			if n, err := server.Recv(ctx, buf); err != nil {
				done <- err
				return
			} else if n < 1 || n > MaxMessage {
				done <- fmt.Errorf("a message of %d bytes", n)
				return
			}
		}
	}()
	go func() {
		for {
			if err := server.Send(ctx, make([]byte, 1000)); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 2 {
		if err := <-done; !errors.Is(err, ErrForged) {
			t.Errorf("ended with %v, want %v", err, ErrForged)
		}
	}
	cancel()
	close(stop)
	mad.Wait()
}

func TestTLSNeedsAKey(t *testing.T) {
	if _, err := ListenTLS(Config{}, "127.0.0.1:0"); !errors.Is(err, ErrNoKey) {
		t.Errorf("ListenTLS: %v, want %v", err, ErrNoKey)
	}
	if _, err := DialTLS(limit(t), Config{}, "127.0.0.1:1"); !errors.Is(err, ErrNoKey) {
		t.Errorf("DialTLS: %v, want %v", err, ErrNoKey)
	}
}

func TestTLSRefuses(t *testing.T) {
	testenv.NoLeaks(t)
	var log notes
	l, err := ListenTLS(Config{Name: "n", Key: keyA, Log: log.log}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, cfg := range map[string]Config{"another key": {Name: "n", Key: keyB}, "another name": {Name: "m", Key: keyA}} {
		if _, err := DialTLS(limit(t), cfg, l.Addr()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the peer has another key, or another name") {
			t.Errorf("%s: %v, want %v", name, err, ErrRefused)
		}
	}
	// Who does not look at the server's key must still show its own.
	reflected, err := tlsConfig(&Config{Name: "n", Key: keyA}, roleServer)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]*tls.Config{
		"no certificate":    {InsecureSkipVerify: true, NextProtos: []string{protocol}},
		"the server's":      {InsecureSkipVerify: true, NextProtos: []string{protocol}, Certificates: reflected.Certificates},
		"TLS 1.2":           {InsecureSkipVerify: true, NextProtos: []string{protocol}, MaxVersion: tls.VersionTLS12},
		"another protocol":  {InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: reflected.Certificates},
		"no protocol named": {InsecureSkipVerify: true, Certificates: reflected.Certificates},
	} {
		conn, err := tls.Dial("tcp", l.Addr(), tc)
		if err == nil { // a client's handshake may end first
			_ = conn.SetReadDeadline(time.Now().Add(testenv.Limit(20 * time.Second)))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: let in (%v)", name, err)
		}
	}
	testenv.Await(t, 20*time.Second, "the server's line", func() bool { return log.has("is the key the same on both sides?") })
	// And after all of them one that belongs here.
	go func() {
		if c, err := l.Accept(context.Background()); err == nil {
			c.Close()
		}
	}()
	c, err := DialTLS(limit(t), Config{Name: "n", Key: keyA}, l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestLoadKey(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", string(keyA)+"\n", 0o600)
	if key, err := LoadKey(good); err != nil || !bytes.Equal(key, keyA) {
		t.Errorf("%q, %v; want %q", key, err, keyA)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		write("open", string(keyA), 0o644):                  "chmod 600",
		write("group", string(keyA), 0o640):                 "has the mode 0640, expected 0600",
		write("short", "0123456789", 0o600):                 "has 10 bytes",
		write("long", strings.Repeat("x", maxKey+1), 0o600): "has 4097 bytes",
		write("empty", "", 0o600):                           "has 0 bytes",
		filepath.Join(dir, "nosuch"):                        "no such file",
		dir:                                                 "is no file",
		fifo:                                                "is no file",
	} {
		if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
	}
}

// FuzzHello: what comes over the socket is a hello that check judges, or an error.
func FuzzHello(f *testing.F) {
	cfg := Config{}
	if err := cfg.settle(); err != nil {
		f.Fatal(err)
	}
	for _, h := range []hello{newHello(&cfg), {Protocol: protocol, Proof: make([]byte, 32)}, {Protocol: protocol, Refused: "why"}} {
		b, err := h.pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil || h.check(&cfg) != nil {
			return
		}
		if g := h.Queue; g.size() < 0 || g.size() > slotsAt+MaxQueue*(MaxBuffer+128) {
			t.Errorf("a queue of %d bytes", g.size())
		}
	})
}

// A dial ends by its deadline a moment before its context does: the reason is the context's all the same.
func TestDialEndsBeforeItsContext(t *testing.T) {
	testenv.NoLeaks(t)
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(limit(t))
	past := &pastContext{Context: ctx, dialled: func() { cancel(late) }}
	if _, err := DialTLS(past, Config{Name: "n", Key: keyA}, "127.0.0.1:1"); !errors.Is(err, late) {
		t.Errorf("%v, want %v", err, late)
	}
}

// A pastContext has a deadline that is over, and ends when dials have asked for that often enough.
type pastContext struct {
	context.Context
	asked   int
	dialled func()
}

func (c *pastContext) Deadline() (time.Time, bool) {
	if c.asked++; c.asked == 10 {
		c.dialled()
	}
	return time.Unix(1, 0), true
}
