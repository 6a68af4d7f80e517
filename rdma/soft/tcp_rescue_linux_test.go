package soft

import (
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// refusedPair is two nodes of a segment, without a secret. The kernel keeps the first
// from the second's memory, as far as the first can tell; the second is not introduced
// to anybody, so that nothing but the call makes it listen.
func refusedPair(t *testing.T) (a, b *node) {
	t.Helper()
	n := nodes(t, 2, Config{})
	a, b = n[0], n[1]
	a.p.find(b.p.gids[0]).reach = reachNone
	if err := a.p.openNetwork(); err != nil { // as addEndpoint does where the kernel refuses
		t.Fatal(err)
	}
	return a, b
}

// postRead posts a read of 1 MiB of b's ordinary memory.
func postRead(t *testing.T, a, b *node) (dst, src rdma.MR) {
	t.Helper()
	qa, _ := pair(t, a, b, attrs())
	src, dst = b.reg(make([]byte, 1<<20), all), a.reg(make([]byte, 1<<20), all)
	fill(src.Bytes(), 5)
	post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMARead, SGL: []rdma.SGE{sge(dst, 0, 1<<20)}, RemoteAddr: src.Addr(), RKey: src.RKey()})
	return dst, src
}

// A peer without a secret listens when it is called, at its next poll and not before.
func TestRescueCallsPeer(t *testing.T) {
	noLeaks(t)
	a, b := refusedPair(t)
	dst, src := postRead(t, a, b)
	testenv.Await(t, dialLimit, "a's goroutine that dials calls", b.p.called)
	if b.p.tcp.Load() != nil {
		t.Error("the peer listens though it has not polled since it was called")
	}
	if wc := a.poll(1, b)[0]; wc.Status != rdma.WCSuccess {
		t.Fatalf("status %v, want success", wc.Status)
	}
	if string(dst.Bytes()) != string(src.Bytes()) {
		t.Error("the read brought other bytes")
	}
	if b.p.tcp.Load() == nil || b.p.called() {
		t.Errorf("the peer listens: %t, and is called: %t; want true and false", b.p.tcp.Load() != nil, b.p.called())
	}
}

// A request to a peer that cannot listen, or has closed its device, fails.
func TestRescueGivesUp(t *testing.T) {
	for name, end := range map[string]func(b *node){
		"the peer cannot listen":    func(b *node) { atomic.StoreUint32(&b.p.head.port, portNone) },
		"the peer has closed":       func(b *node) { atomic.StoreUint64(&b.p.head.magic, 0) },
		"the peer has another life": func(b *node) { b.p.head.nonce[0]++ },
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			a, b := refusedPair(t)
			end(b)
			postRead(t, a, b)
			if wc := a.poll(1)[0]; wc.Status != rdma.WCRetryExcErr {
				t.Errorf("status %v, want %v", wc.Status, rdma.WCRetryExcErr)
			}
		})
	}
}
