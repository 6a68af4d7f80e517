package soft

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// socketpair is a connection that a link may be made of, and its other end.
func socketpair(t *testing.T) (c *os.File, end int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	return os.NewFile(uintptr(fds[0]), "link"), fds[1]
}

// joins adds a link to a node's network, which has no guard then. The test has the other end, and has read that it is up.
func joins(t *testing.T, n *network, l *link) *wireEnd {
	t.Helper()
	n.first.Do(func() {})
	c, end := socketpair(t)
	defer c.Close()
	n.join(l, c)
	if l.state.Load() == linkUp {
		l.uncork()
		var first [frameSize]byte
		k, err := unix.Read(end, first[:])
		if f, _ := parseFrame(first[:max(k, 0)]); err != nil || f.kind != frameHangUp {
			t.Fatalf("a link that is up says %+v first (%d bytes, %v), want the end of a call", f, k, err)
		}
	}
	return &wireEnd{t, l, end}
}

// With one link more than a look tries one by one, it asks the set which of them have anything to read. An
// acknowledgement that waits on another link at that time is sent all the same.
func TestAcknowledgementWaitsWhileALinkJoins(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	net := n[1].p.tcp.Load()
	var w *wireEnd
	for range ringMost {
		w = joins(t, net, &link{n: net, from: n[0].p.gids[0]})
	}
	mr := n[1].alloc(8, all)
	write := frame{kind: frameRequest, op: rdma.WRRDMAWrite, to: qb.num, from: qa.num, psn: qb.own.expect, total: 8, length: 8, addr: mr.Addr(), key: mr.RKey()}
	if _, err := unix.Write(w.fd, append(head(write), "8 bytes."...)); err != nil {
		t.Fatal(err)
	}
	if net.look(false); !w.l.owes() {
		t.Fatal("no acknowledgement waits, so the test shows nothing")
	}
	joins(t, net, &link{n: net, from: rdma.GID{9}})
	for range owedLooks {
		net.look(false)
	}
	var got [2 * frameSize]byte
	k, err := unix.Read(w.fd, got[:])
	if f, _ := parseFrame(got[:max(k, 0)]); err != nil || f.kind != frameAck || f.psn != write.psn {
		t.Errorf("after %d looks the other end has read %d bytes (%v), %+v, want the acknowledgement", owedLooks, k, err, f)
	}
}

// A link that was given up while it was made does not come up: nobody would break it again.
func TestMournedLinkDoesNotComeUp(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	s, net := n[0].p.find(n[1].p.gids[0]), n[0].p.tcp.Load()
	l := &link{n: net, peer: s, from: s.gids[0]}
	s.mu.Lock()
	s.link = l
	s.mu.Unlock()
	n[0].ctx.Mourn(s.gids[0])
	w := joins(t, net, l)
	net.mu.Lock()
	defer net.mu.Unlock()
	if l.state.Load() != linkBroken || len(net.links) != 0 {
		t.Errorf("state %d, %d links, want a broken one that is not among them", l.state.Load(), len(net.links))
	}
	if k, err := unix.Read(w.fd, make([]byte, 1)); k != 0 || err != nil {
		t.Errorf("the other end reads %d bytes, %v; want the end", k, err)
	}
}
