package soft

import (
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// batchRig is a connected pair whose batches are executed request by request.
type batchRig struct {
	a, b   *node
	qa, qb *queuePair
	src    rdma.MR
	dst    rdma.MR
}

func newBatchRig(t *testing.T) *batchRig {
	n := nodes(t, 2, Config{})
	r := &batchRig{a: n[0], b: n[1]}
	r.qa, r.qb = pair(t, n[0], n[1], attrs())
	r.src, r.dst = n[0].alloc(2*owedBytes, all), n[1].alloc(2*owedBytes, all)
	return r
}

// send is a message of n bytes.
func (r *batchRig) send(n int) rdma.SendWR {
	return rdma.SendWR{WRID: uint64(n), Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(r.src, 0, n)}}
}

// receives posts k receives.
func (r *batchRig) receives(t *testing.T, k int) {
	t.Helper()
	for i := range k {
		postRecv(t, r.qb, rdma.RecvWR{WRID: uint64(i), SGL: []rdma.SGE{sge(r.dst, 0, 2*owedBytes)}})
	}
}

// seen is what the receiver and the pollers of the sender know of a batch.
type seen struct {
	told, marked bool
	complete     uint32
}

func (r *batchRig) seen() seen {
	return seen{atomic.LoadUint32(&r.b.cq.head.attention) != 0, atomic.LoadUint64(&r.qa.own.mark)&markWhat != 0, atomic.LoadUint32(&r.a.cq.count)}
}

// Of a batch the receiver is told with the last message, or when more than a few
// messages or bytes wait for that; the mark stands until then, and completions
// come behind it.
func TestBatchNotifiesTogether(t *testing.T) {
	const many = 100
	untold := seen{marked: true}
	for _, c := range []struct {
		name   string
		sizes  []int
		behind int    // requests that follow the last of these
		want   []seen // behind each
	}{
		{"one", []int{8}, 0, []seen{{told: true, complete: 1}}},
		{"three", []int{8, 8, 8}, 0, []seen{untold, untold, {told: true, complete: 3}}},
		{"messages wait", []int{8, 8, 8, 8, 8, 8, 8, 8}, many, []seen{untold, untold, untold, untold, untold, untold, untold, {told: true, complete: owedMessages}}},
		{"bytes wait", []int{owedBytes / 2, owedBytes / 2}, many, []seen{untold, {told: true, complete: 2}}},
		{"a long one does not wait", []int{owedBytes}, many, []seen{{told: true, complete: 1}}},
		{"a long one does not let wait", []int{8, 2 * owedBytes}, many, []seen{untold, {told: true, complete: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newBatchRig(t)
			r.receives(t, len(c.sizes))
			q := r.qa
			q.mu.Lock()
			defer q.mu.Unlock()
			for i, n := range c.sizes {
				wr := r.send(n)
				q.behind = uint32(c.behind + len(c.sizes) - 1 - i)
				q.sq.posted++
				status, moved, a := q.run(&wr)
				if a != accepted || status != rdma.WCSuccess {
					t.Fatalf("message %d: %v, answer %d", i, status, a)
				}
				if n == 2*owedBytes && r.b.cq.head.attention == 0 {
					t.Error("the message before the long one is not told")
				}
				q.finish(&wr, q.sq.posted, status, moved)
				if got := r.seen(); got != c.want[i] {
					t.Errorf("behind message %d: %+v, want %+v", i, got, c.want[i])
				}
			}
			q.behind = 0
		})
	}
}

// Whatever else a batch has in it, the messages before are told, in order, and so
// are the completions.
func TestBatchEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*batchRig) rdma.SendWR
		want rdma.WCStatus
	}{
		{"with a write", func(r *batchRig) rdma.SendWR {
			return rdma.SendWR{Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(r.src, 0, 8)}, RemoteAddr: r.dst.Addr(), RKey: r.dst.RKey()}
		}, rdma.WCSuccess},
		{"with a read", func(r *batchRig) rdma.SendWR {
			return rdma.SendWR{Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(r.src, 0, 8)}, RemoteAddr: r.dst.Addr(), RKey: r.dst.RKey()}
		}, rdma.WCSuccess},
		{"with an operation on an own key", func(r *batchRig) rdma.SendWR {
			return rdma.SendWR{Opcode: rdma.WRLocalInv, Flags: rdma.SendSignaled, InvalidateRKey: 99 << 8}
		}, rdma.WCMWBindErr},
		{"with memory that is not there", func(r *batchRig) rdma.SendWR {
			return rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{{Addr: r.src.Addr(), Length: 8, LKey: 99 << 8}}}
		}, rdma.WCLocProtErr},
		{"with a key that is not there", func(r *batchRig) rdma.SendWR {
			return rdma.SendWR{SGL: []rdma.SGE{sge(r.src, 0, 8)}, RemoteAddr: r.dst.Addr(), RKey: 99 << 8}
		}, rdma.WCRemAccessErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newBatchRig(t)
			r.receives(t, 3)
			wrs := []rdma.SendWR{r.send(8), r.send(16), c.then(r), r.send(24)}
			wrs[2].WRID = 99
			wrs[1].Flags = 0
			if n, err := r.qa.PostSend(wrs); n != len(wrs) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			want := []rdma.WC{{WRID: 8}, {WRID: 99, Status: c.want}, {WRID: 24}}
			if c.want != rdma.WCSuccess {
				want[2].Status = rdma.WCWRFlushErr
			}
			for i, got := range r.a.poll(len(want)) {
				if got.WRID != want[i].WRID || got.Status != want[i].Status {
					t.Errorf("completion %d: %d, %v: want %d, %v", i, got.WRID, got.Status, want[i].WRID, want[i].Status)
				}
			}
			for i, got := range r.b.poll(2) {
				if got.Status != rdma.WCSuccess || got.ByteLen != uint32(8*(i+1)) {
					t.Errorf("receive %d: %+v", i, got)
				}
			}
			if m := r.qa.own.mark & markWhat; m != 0 {
				t.Errorf("the mark %#x stays", m)
			}
		})
	}
}

// A batch that finds no receive for one of its messages has told those before it.
func TestBatchWithoutReceives(t *testing.T) {
	r := newBatchRig(t)
	r.receives(t, 2)
	if n, err := r.qa.PostSend([]rdma.SendWR{r.send(8), r.send(16), r.send(24), r.send(32)}); n != 4 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if got, want := r.seen(), (seen{told: true, complete: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.b.poll(2)
	r.receives(t, 2)
	for i, got := range r.a.poll(4) {
		if got.WRID != uint64(8*(i+1)) || got.Status != rdma.WCSuccess {
			t.Errorf("completion %d: %+v", i, got)
		}
	}
	r.b.poll(2)
}

// A batch into a shared receive queue is told together too.
func TestBatchIntoSharedQueue(t *testing.T) {
	n := nodes(t, 2, Config{})
	s, q := n[0].intoSRQ(n[1])
	src, dst := n[0].alloc(64, all), n[1].alloc(64, all)
	const k = owedMessages + 3
	wrs := make([]rdma.SendWR, k)
	for i := range wrs {
		if _, err := s.PostRecv([]rdma.RecvWR{{WRID: uint64(i), SGL: []rdma.SGE{sge(dst, 0, 64)}}}); err != nil {
			t.Fatal(err)
		}
		wrs[i] = rdma.SendWR{WRID: uint64(i), Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, i+1)}}
	}
	if m, err := q.PostSend(wrs); m != k || err != nil {
		t.Fatalf("%d, %v", m, err)
	}
	for i, got := range n[0].poll(k) {
		if got.WRID != uint64(i) || got.Status != rdma.WCSuccess {
			t.Errorf("completion %d: %+v", i, got)
		}
	}
	for i, got := range n[1].poll(k) {
		if got.WRID != uint64(i) || got.Status != rdma.WCSuccess || got.ByteLen != uint32(i+1) {
			t.Errorf("receive %d: %+v", i, got)
		}
	}
}
