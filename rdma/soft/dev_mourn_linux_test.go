package soft

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// silent is an address that answers no attempt to connect, as that of a host that is cut off: its listener has no
// room for another connection.
func silent(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { unix.Close(fd) })
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return address
}

// threeHosts are nodes of which the second one does not answer.
func threeHosts(t *testing.T) (a, dead, c *node) {
	t.Helper()
	var n []*node
	for _, host := range []string{"a", "b", "c"} {
		n = append(n, open(t, Config{Host: host, Secret: secret}))
	}
	introduce(t, n...)
	n[0].p.find(n[1].p.gids[0]).ep.address = silent(t)
	return n[0], n[1], n[2]
}

// A datagram to a host that does not answer holds up those behind it, which go to others, for as long as the attempt to
// reach it takes; the word that its process has ended lets them pass, and ends a request that waits for that host.
func TestMournLetsOthersPass(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	noLeaks(t)
	a, dead, c := threeHosts(t)
	mail, inbox := a.datagrams(c)
	into := c.alloc(64, rdma.AccessLocalWrite)
	postRecv(t, inbox, rdma.RecvWR{SGL: []rdma.SGE{sge(into, 0, 64)}})
	letter := func(to *node) rdma.SendWR {
		ah := must[rdma.AH](t)(a.pd.CreateAH(rdma.AV{DGID: to.p.gids[0], PortNum: 1, HopLimit: 1}))
		a.owned = append(a.owned, ah)
		return rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, AH: ah, RemoteQPN: inbox.num, RemoteQKey: 7}
	}
	post(t, mail, letter(dead), letter(c))
	waits, _ := pair(t, a, dead, attrs())
	post(t, waits, rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled})
	for range 100 {
		if a.ctx.Progress(); mail.sq.pending.n != 2 {
			t.Fatalf("%d datagrams wait, want both: the first is not held up, and this test is void", mail.sq.pending.n)
		}
	}
	begin := time.Now()
	a.ctx.Mourn(dead.p.gids[0])
	for _, wc := range a.poll(3) {
		if want := map[bool]rdma.WCStatus{true: rdma.WCSuccess, false: rdma.WCRetryExcErr}[wc.QPNum == mail.num]; wc.Status != want {
			t.Errorf("queue pair %d: %v, want %v", wc.QPNum, wc.Status, want)
		}
	}
	c.poll(1, a) // its datagram
	again, _ := pair(t, a, dead, attrs())
	post(t, again, rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled})
	if wc := a.poll(1)[0]; wc.Status != rdma.WCRetryExcErr {
		t.Errorf("a later request: %v, want %v", wc.Status, rdma.WCRetryExcErr)
	}
	if !a.ctx.Gone(dead.p.gids[0]) || a.ctx.Gone(c.p.gids[0]) {
		t.Error("the wrong one is gone")
	}
	if took := time.Since(begin); took > handshakeLimit/2 {
		t.Errorf("it took %v, as long as the attempt to connect", took)
	}
	a.ctx.Mourn(a.p.gids[0]) // of itself, and of nobody
	a.ctx.Mourn(rdma.GID{})
}

// What is on its way over a link that is up, to a process that answers no more, fails too.
func TestMournBreaksALink(t *testing.T) {
	noLeaks(t)
	a, b := open(t, Config{Host: "a", Secret: secret}), open(t, Config{Host: "b", Secret: secret})
	introduce(t, a, b)
	q, _ := pair(t, a, b, attrs())
	src, dst := a.alloc(8, all), b.alloc(8, all)
	write := rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}
	post(t, q, write)
	if wc := a.poll(1, b)[0]; wc.Status != rdma.WCSuccess {
		t.Fatalf("the first write: %v", wc.Status)
	}
	stopped := b.p.tcp.Load()
	stopped.mu.Lock() // it serves nobody
	defer stopped.mu.Unlock()
	post(t, q, write)
	a.ctx.Mourn(b.p.gids[0])
	if wc := a.poll(1)[0]; wc.Status != rdma.WCRetryExcErr {
		t.Errorf("%v, want %v", wc.Status, rdma.WCRetryExcErr)
	}
}

// A provider that is closed does not wait for a host that does not answer.
func TestCloseDoesNotWaitForASilentHost(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	noLeaks(t)
	begin := time.Now()
	t.Run("a job", func(t *testing.T) {
		a, dead, _ := threeHosts(t)
		q, _ := pair(t, a, dead, attrs())
		post(t, q, rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled})
		l := a.p.find(dead.p.gids[0]).connection()
		n := a.p.tcp.Load()
		for begun := false; !begun; a.ctx.Progress() {
			n.halfMu.Lock()
			begun = len(n.dialed) == 1
			n.halfMu.Unlock()
		}
		if l.state.Load() != linkDialling {
			t.Fatal("the host has answered, and this test is void")
		}
	})
	if took := time.Since(begin); took > handshakeLimit/2 {
		t.Errorf("it took %v, as long as the attempt to connect", took)
	}
}
