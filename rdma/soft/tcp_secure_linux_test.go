package soft

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// A relay stands between two hosts: it keeps what it passes on, and may change it.
type relay struct {
	l      net.Listener
	to     string
	change func(fromDialler bool, at int, b []byte) // at counts the bytes of the direction before b
	all    sync.WaitGroup

	mu    sync.Mutex
	said  bytes.Buffer // in both directions
	conns []net.Conn
}

// newRelay puts a relay between two nodes, for the links that a dials.
func newRelay(t *testing.T, a, b *node, change func(bool, int, []byte)) *relay {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	r := &relay{l: l, to: b.p.tcp.Load().address, change: change}
	a.p.find(b.p.gids[0]).ep.address = l.Addr().String()
	r.all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", r.to)
			if err != nil {
				near.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, near, far)
			r.mu.Unlock()
			r.all.Go(func() { r.pass(far, near, true) })
			r.all.Go(func() { r.pass(near, far, false) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.all.Wait()
	})
	return r
}

func (r *relay) pass(to, from net.Conn, fromDialler bool) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for at := 0; ; {
		k, err := from.Read(b)
		r.mu.Lock()
		r.said.Write(b[:k])
		r.mu.Unlock()
		if r.change != nil {
			r.change(fromDialler, at, b[:k])
		}
		if _, failed := to.Write(b[:k]); failed != nil || err != nil {
			return
		}
		at += k
	}
}

func (r *relay) heard(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.said.Bytes(), []byte(what))
}

// apart are two nodes on hosts of their own.
func apart(t *testing.T, secure Handshake) (a, b *node) {
	t.Helper()
	a, b = open(t, Config{Host: "a", Secret: secret, Secure: secure}), open(t, Config{Host: "b", Secret: secret, Secure: secure})
	introduce(t, a, b)
	return a, b
}

// What is written, read and sent is on the wire as it is without encryption, and not with it.
func TestRelayHearsNothing(t *testing.T) {
	both(t, func(t *testing.T, secure Handshake) {
		noLeaks(t)
		a, b := apart(t, secure)
		r := newRelay(t, a, b, nil)
		qa, qb := pair(t, a, b, attrs())
		const writeMark, readMark, sendMark = "the payload of a write", "what a read fetches", "a message, inline"
		src, dst := a.alloc(1<<20, all), b.alloc(1<<20, all)
		copy(src.Bytes()[700_000:], writeMark)
		copy(dst.Bytes()[10:], readMark)
		got, read := b.alloc(64, all), a.alloc(64, all)
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(got, 0, 64)}})
		post(t, qa,
			rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMARead, SGL: []rdma.SGE{sge(read, 0, 64)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()},
			rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 1<<20)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()},
			rdma.SendWR{Flags: rdma.SendSignaled | rdma.SendInline, Opcode: rdma.WRSend, Inline: []byte(sendMark)})
		for i, wc := range a.poll(3, b) {
			if wc.Status != rdma.WCSuccess {
				t.Fatalf("request %d: %v", i, wc.Status)
			}
		}
		if !bytes.Equal(src.Bytes(), dst.Bytes()) || !strings.HasPrefix(string(read.Bytes()[10:]), readMark) || !strings.HasPrefix(string(got.Bytes()), sendMark) {
			t.Fatal("other bytes have come")
		}
		for _, mark := range []string{writeMark, readMark, sendMark} {
			if clear := r.heard(mark); clear != (secure == nil) {
				t.Errorf("the relay has heard %q: %v", mark, clear)
			}
		}
	})
}

// A byte that was changed on its way, of the greeting, the handshake or behind both, ends a link, or keeps it from coming up:
// nothing wrong is stored.
func TestRelayChangesNothing(t *testing.T) {
	const size = 256 << 10
	for name, c := range map[string]struct {
		fromDialler bool
		at          int
	}{
		"the magic":                 {true, 3},
		"the dialler's nonce":       {true, 20},
		"its GID":                   {true, 50},
		"the listener's nonce":      {false, 1},
		"TLS of the dialler":        {true, helloSize + proofSize + 40},
		"TLS of the listener":       {false, replySize + 40},
		"a record":                  {true, helloSize + proofSize + 10_000},
		"a record's length":         {true, helloSize + proofSize + 100_000},
		"an answer, or a late byte": {false, replySize + 2000},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			a, b := apart(t, TLS)
			first := true
			var mu sync.Mutex
			newRelay(t, a, b, func(fromDialler bool, at int, bytes []byte) {
				mu.Lock()
				defer mu.Unlock()
				if i := c.at - at; first && fromDialler == c.fromDialler && i >= 0 && i < len(bytes) {
					bytes[i] ^= 0x40
					first = false
				}
			})
			attr := attrs()
			attr.RetryCnt = 0
			qa, _ := pair(t, a, b, attr)
			src, dst := a.alloc(size, all), b.alloc(size, all)
			fill(src.Bytes(), 5)
			post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, size)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
			switch st := a.poll(1, b)[0].Status; st {
			case rdma.WCSuccess: // by another link, or before the change
				if !bytes.Equal(src.Bytes(), dst.Bytes()) {
					t.Error("other bytes were stored")
				}
			case rdma.WCRetryExcErr:
				for i, x := range dst.Bytes() {
					if x != 0 && x != src.Bytes()[i] {
						t.Fatalf("byte %d is %#x, want %#x or none", i, x, src.Bytes()[i])
					}
				}
			default:
				t.Errorf("status %v", st)
			}
		})
	}
}

// What one connection has said opens no other.
func TestRecordedConnectionOpensNothing(t *testing.T) {
	noLeaks(t)
	a, b := apart(t, TLS)
	var mu sync.Mutex
	var said []byte
	newRelay(t, a, b, func(fromDialler bool, _ int, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if fromDialler {
			said = append(said, b...)
		}
	})
	qa, _ := pair(t, a, b, attrs())
	src, dst := a.alloc(8, all), b.alloc(8, all)
	fill(src.Bytes(), 9)
	post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
	if st := a.poll(1, b)[0].Status; st != rdma.WCSuccess {
		t.Fatal(st)
	}
	clear(dst.Bytes())
	c := must[net.Conn](t)(net.Dial("tcp", b.p.tcp.Load().address))
	defer c.Close()
	mu.Lock()
	_, _ = c.Write(said)
	mu.Unlock()
	if k, _ := io.Copy(io.Discard, c); k != replySize {
		t.Errorf("it is answered with %d bytes, want the %d of the greeting's reply", k, replySize)
	}
	b.ctx.Progress()
	if !bytes.Equal(dst.Bytes(), make([]byte, 8)) {
		t.Error("the recorded write was executed")
	}
}

// One end that encrypts and one that does not find it out when they are introduced, and a connection
// between them would not come up either.
func TestEncryptionOnOneSide(t *testing.T) {
	noLeaks(t)
	a, b := open(t, Config{Host: "a", Secret: secret, Secure: TLS}), open(t, Config{Host: "b", Secret: secret})
	for _, c := range [][2]*node{{a, b}, {b, a}} {
		err := c[0].ctx.AddEndpoint(c[1].p.gids[0], c[1].ctx.Endpoint())
		if err == nil || !strings.Contains(err.Error(), "expected Config.Secure on both or on neither") {
			t.Errorf("got %v", err)
		}
		for _, secure := range []Handshake{nil, TLS} {
			conn := must[net.Conn](t)(net.Dial("tcp", c[1].p.tcp.Load().address))
			if _, err := greet(conn, secret, secure, c[0].p.gids[0], c[1].p.gids[0], nil); (err == nil) != ((secure != nil) == (c[1] == a)) {
				t.Errorf("a greeting with TLS %v: %v", secure != nil, err)
			}
			conn.Close()
		}
	}
}
