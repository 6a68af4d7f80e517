package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/tlskey"
	"github.com/hashicorp/memberlist"
)

func memberConfigOfTests() *memberlist.Config {
	return &memberlist.Config{BindAddr: "127.0.0.1", Logger: log.New(io.Discard, "", 0)}
}

// branchTo is the connection of a process that knows the key, as host index, to a node, in place of any other.
func branchTo(t *testing.T, n *Node, index int) net.Conn {
	t.Helper()
	c := silentTo(t, n)
	call := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(index)), math.MaxUint64)
	if _, err := c.Write(call); err != nil {
		t.Fatal(err)
	}
	return c
}

// silentTo is the same before it says which host it is.
func silentTo(t *testing.T, n *Node) net.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(testenv.Limit(30 * time.Second)))
	tc, err := tlskey.Config(testKey, tlsProtocol, "", tlskey.Client)
	if err == nil {
		_, err = raw.Write(prover{testKey}.proof(magicFence, n.Addr()))
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := tlskey.Handshake(context.Background(), raw, tc, tlskey.Client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each connection of the tree is of one child, and carries its messages only; the job goes on beside others.
func TestBranchRefuses(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	nodes := listenAll(t, 5, func(_ int, cfg *Config) { cfg.Fanout = 2 })
	joinAll(t, ctx, nodes)
	frame := func(m message) []byte {
		return m.appendTo(binary.BigEndian.AppendUint32(nil, uint32(m.size())))
	}
	for name, c := range map[string]struct {
		index int
		sent  []byte
	}{
		"no child":           {3, nil},
		"itself":             {0, nil},
		"no host":            {1 << 31, nil},
		"another's message":  {1, frame(message{kind: kindUp, from: 2, epoch: 1})},
		"no message":         {1, frame(message{kind: kindEnd, from: 1, epoch: 1})},
		"too long a message": {1, binary.BigEndian.AppendUint32(nil, frameMax+1)},
	} {
		conn := branchTo(t, nodes[0], c.index)
		_, _ = conn.Write(c.sent)
		if _, err := io.ReadAll(conn); err != nil && (errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timeout")) {
			t.Errorf("%s: the connection stays open: %v", name, err)
		}
	}
	for epoch := uint64(1); epoch < 4; epoch++ {
		if err := fenceAll(ctx, nodes, epoch, testData(int(epoch), 10)); err != nil {
			t.Fatal(err)
		}
	}
}

// A parent whose TLS has another key is none, although its port took the proof.
func TestBranchProvesBothEnds(t *testing.T) {
	testenv.NoLeaks(t)
	nodes := listenAll(t, 2, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		tc, err := tlskey.Config(make([]byte, KeySize), tlsProtocol, "", tlskey.Server)
		if err != nil {
			return
		}
		_, _ = io.ReadFull(c, make([]byte, proofSize))
		_, _ = tlskey.Handshake(context.Background(), c, tc, tlskey.Server)
	}()
	if _, err := nodes[1].climb(l.Addr().String(), 1); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("connected to an impostor: %v", err)
	}
}

// A connection that comes late, which its child has given up, drives out no later one.
func TestALateConnectionDrivesOutNone(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	nodes := listenAll(t, 2, nil)
	joinAll(t, ctx, nodes)
	c := silentTo(t, nodes[0])
	if _, err := c.Write(nodes[1].calling(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the late connection stays open: %v", err)
	}
	if err := fenceAll(ctx, nodes, 1, testData(1, 10)); err != nil {
		t.Fatal(err)
	}
	if n := nodes[1].opened.Load(); n != 1 {
		t.Errorf("the child has made %d connections, want 1", n)
	}
}

// A connection whose network forgets it, which neither end is told of, is made anew.
func TestASilentBranchIsMadeAnew(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	nodes := listenAll(t, 2, nil)
	for _, n := range nodes {
		n.conns.timeout = 300 * time.Millisecond // before there is any connection
	}
	joinAll(t, ctx, nodes)
	b := nodes[0].branches[1]
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	forget(t, conn)
	if err := fenceAll(ctx, nodes, 1, testData(1, 10)); err != nil {
		t.Fatal(err)
	}
	if n := nodes[1].opened.Load(); n != 2 {
		t.Errorf("the child has made %d connections, want 2", n)
	}
}

// A parent that ends each connection at once is dialed less and less often.
func TestAParentThatRefuses(t *testing.T) {
	testenv.NoLeaks(t)
	nodes := listenAll(t, 2, nil)
	nodes[0].conns.timeout = -time.Second // which the kernel refuses as TCP_USER_TIMEOUT
	began := time.Now()
	child := nodes[1]
	child.running.Add(1)
	go child.hold(child.branches[0], nodes[0].Addr())
	const dials = 9
	testenv.Await(t, time.Minute, "the child to dial again", func() bool { return child.opened.Load() >= dials })
	if took, least := time.Since(began), (1<<(dials-1)-1)*2*time.Millisecond; took < least {
		t.Errorf("%d dials took %v, want at least %v", dials, took, least)
	}
}

// forget has the kernel drop whatever comes for a connection.
func forget(t *testing.T, c net.Conn) {
	t.Helper()
	for {
		s, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = s.NetConn()
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	var attached error
	if err := raw.Control(func(fd uintptr) {
		attached = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); err != nil {
		t.Fatal(err)
	}
	if errors.Is(attached, unix.EPERM) {
		testenv.Unsupported(t, "this kernel lets only root filter a socket's packets")
	}
	if attached != nil {
		t.Fatal(attached)
	}
}

// A process that knows the key and does not say which host it is is not waited for.
func TestACallerThatSaysNothing(t *testing.T) {
	testenv.NoLeaks(t)
	nodes := listenAll(t, 2, func(_ int, cfg *Config) { cfg.unproven = 2 * time.Second })
	joinAll(t, testenv.Deadline(t, time.Minute), nodes)
	c := silentTo(t, nodes[0])
	if _, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection stays open: %v", err)
	}
}

// A fence that waits for a parent that is gone says why there is no connection.
func TestFenceSaysWhyNoConnection(t *testing.T) {
	testenv.NoLeaks(t)
	nodes := listenAll(t, 3, nil)
	joinAll(t, testenv.Deadline(t, 30*time.Second), nodes)
	nodes[0].Close()
	b := nodes[1].branches[0]
	testenv.Await(t, 20*time.Second, "a dial that fails", func() bool {
		err := b.trouble()
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := nodes[1].Fence(ctx, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "hosts beyond host a, to which there is no connection (") {
		t.Errorf("a fence without its parent: %v", err)
	}
}
