package soft

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

var (
	secret = []byte("0123456789abcdef0123456789abcdef")
	here   = [gidTable]rdma.GID{{0xfe, 0x80, 1}, {0xfd, 1}}
	there  = rdma.GID{0xfe, 0x80, 2}
)

// TLS is package softtls's Handshake, which this package cannot import: its other tests set it.
var TLS Handshake

// unlisted is what a welcome calls where no list is kept.
func unlisted() error { return nil }

// both runs a test with links that are not encrypted, and with links that are.
func both(t *testing.T, test func(t *testing.T, secure Handshake)) {
	t.Run("plain", func(t *testing.T) { test(t, nil) })
	t.Run("TLS", func(t *testing.T) { test(t, TLS) })
}

func TestHandshake(t *testing.T) { both(t, testHandshake) }

func testHandshake(t *testing.T, secure Handshake) {
	for _, c := range []struct {
		name           string
		dialler, hears []byte
		wanted         rdma.GID
		verdict        byte
		ok             bool
		carried        []byte
	}{
		{"one secret", secret, secret, here[0], saidKept, true, nil},
		{"over a connection that is carried", secret, secret, here[0], saidKept, true, []byte("an endpoint")},
		{"by the second GID", secret, secret, here[1], saidKept, true, nil},
		{"another secret", []byte("another secret, as long as that "), secret, here[0], saidKept, false, nil},
		{"another listener", secret, secret, rdma.GID{9}, saidKept, false, nil},
		{"crossed", secret, secret, here[0], saidCrossed, true, nil},
		{"a verdict of another version", secret, secret, here[0], 9, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := net.Pipe()
			done := make(chan error, 1)
			go func() {
				from, err := welcome(b, c.hears, secure, here, unlisted)
				if err != nil {
					b.Close()
				}
				if err == nil {
					err = say(b, from.seal, c.verdict)
				}
				if err == nil && (from.gid != there || !bytes.Equal(from.carried, c.carried)) {
					err = errors.New("the dialler is " + from.gid.String())
				}
				done <- err
			}()
			defer a.Close()
			defer b.Close()
			_, err := greet(a, c.dialler, secure, there, c.wanted, c.carried)
			if err != nil {
				a.Close()
			}
			if theirs := <-done; (err == nil) != (c.ok && c.verdict == saidKept) || (theirs == nil) != c.ok || errors.Is(err, errCrossed) != (c.verdict == saidCrossed) {
				t.Errorf("dialler: %v, listener: %v, want ok %v, verdict %d", err, theirs, c.ok, c.verdict)
			}
		})
	}
}

// A listener that does not know the secret learns nothing it can use, and a
// dialler whose proof is a replay is refused.
func TestHandshakeReplay(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		_, err := welcome(b, secret, nil, here, unlisted)
		done <- err
	}()
	hello := make([]byte, helloSize)
	copy(hello, helloMagic[:])
	copy(hello[64:], here[0][:])
	a.Write(hello)
	reply := make([]byte, replySize)
	if _, err := io.ReadFull(a, reply); err != nil {
		t.Fatal(err)
	}
	a.Write(reply[32:]) // the listener's own proof
	if err := <-done; !errors.Is(err, errStranger) {
		t.Errorf("got %v, want %v", err, errStranger)
	}
}

func TestHandshakeLimits(t *testing.T) {
	for _, sent := range []int{0, 10, helloSize} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			begin := time.Now()
			go func() {
				hello := make([]byte, helloSize)
				copy(hello, helloMagic[:])
				copy(hello[64:], here[0][:])
				for i := range sent { // one byte in 50 ms
					time.Sleep(50 * time.Millisecond)
					if _, err := a.Write(hello[i : i+1]); err != nil {
						return
					}
				}
				io.Copy(io.Discard, a)
			}()
			_, err := welcome(b, secret, nil, here, unlisted)
			if took := time.Since(begin); err == nil || took > handshakeLimit {
				t.Errorf("%d bytes: %v after %v, want an error within %v", sent, err, took, handshakeLimit)
			}
			b.Close()
			a.Close()
			synctest.Wait()
		})
	}
}

func TestWrongSecret(t *testing.T) { both(t, testWrongSecret) }

func testWrongSecret(t *testing.T, secure Handshake) {
	noLeaks(t)
	a := open(t, Config{Host: "a", Secret: secret, Secure: secure})
	b := open(t, Config{Host: "b", Secret: []byte("not the secret of this job at all"), Secure: secure})
	introduce(t, a, b)
	qa, _ := pair(t, a, b, attrs())
	dst := b.alloc(8, all)
	post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: make([]byte, 8), RemoteAddr: dst.Addr(), RKey: dst.RKey()})
	if wc := a.poll(1)[0]; wc.Status != rdma.WCRetryExcErr {
		t.Errorf("got %v, want %v", wc.Status, rdma.WCRetryExcErr)
	}
}

// The peer's program sleeps; its progress goroutine answers, and the sleeping
// program is woken by what came.
func TestTCPWithIdleTarget(t *testing.T) { both(t, testTCPWithIdleTarget) }

func testTCPWithIdleTarget(t *testing.T, secure Handshake) {
	noLeaks(t)
	n := []*node{open(t, Config{Host: "a", Secret: secret, Secure: secure}), open(t, Config{Host: "b", Secret: secret, Secure: secure})}
	introduce(t, n...)
	qa, _ := pair(t, n[0], n[1], attrs())
	dst := n[1].alloc(1<<20, all)
	src := n[0].alloc(1<<20, all)
	fill(src.Bytes(), 1)
	word := word64(dst.Bytes())
	for i := range 3 {
		post(t, qa,
			rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 8, 1<<20-8)}, RemoteAddr: dst.Addr() + 8, RKey: dst.RKey()},
			rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte{byte(i + 1), 0, 0, 0, 0, 0, 0, 0}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
		for begin := time.Now(); atomicLoad(word) != uint64(i+1); {
			n[0].ctx.Progress()
			n[1].ctx.Prepare()
			if atomicLoad(word) != uint64(i+1) {
				n[1].ctx.Sleep(int64(time.Millisecond))
			}
			n[1].ctx.Cancel()
			if time.Since(begin) > testenv.Limit(10*time.Second) {
				t.Fatal("the write did not come")
			}
		}
		if got, want := string(dst.Bytes()[8:]), string(src.Bytes()[8:]); got != want {
			t.Fatal("the flag was there before the payload")
		}
		n[0].poll(1)
	}
}
