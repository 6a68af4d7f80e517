package soft

import (
	"math"
	"runtime"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// What QPBytes says is what queue pairs take: of the arena and of the heap.
func TestQPBytes(t *testing.T) {
	n := nodes(t, 1, Config{})[0]
	srq := must[rdma.SRQ](t)(n.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 8, MaxSGE: 1}}))
	for _, tt := range []struct {
		name string
		init rdma.QPInitAttr
	}{
		{"no receives", rdma.QPInitAttr{Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 1}}},
		{"36 receives", rdma.QPInitAttr{Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 1, MaxRecvWR: 36, MaxRecvSGE: 1}}},
		{"shared receives", rdma.QPInitAttr{Type: rdma.RC, SRQ: srq, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 1}}},
		{"datagrams", rdma.QPInitAttr{Type: rdma.UD, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 1, MaxRecvWR: 36, MaxRecvSGE: 1}}},
		{"initiator", rdma.QPInitAttr{Type: rdma.DCI, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 1}}},
		{"target", rdma.QPInitAttr{Type: rdma.DCT, SRQ: srq, DCAccessKey: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const count = 16
			tt.init.SendCQ, tt.init.RecvCQ = n.cq, n.cq
			want := rdma.QPBytes(n.ctx, tt.init)
			inUse := func() uint64 {
				n.p.mu.Lock()
				defer n.p.mu.Unlock()
				return n.p.heap.inUse
			}
			heap, arena := math.Inf(1), uint64(0)
			for round := range 5 { // others of the process allocate too
				var before, after runtime.MemStats
				used := inUse()
				qps := make([]rdma.QP, 0, count)
				runtime.ReadMemStats(&before)
				for range count {
					qps = append(qps, must[rdma.QP](t)(n.pd.CreateQP(tt.init)))
				}
				runtime.ReadMemStats(&after)
				if round == 0 { // what datagram queue pairs leave is used again
					arena = inUse() - used
				}
				heap = min(heap, float64(after.TotalAlloc-before.TotalAlloc))
				if err := rdma.CloseQPs(qps); err != nil {
					t.Fatal(err)
				}
			}
			took := (heap+float64(arena))/count + contextSize + 4
			if ratio := float64(want) / took; ratio < 0.75 || ratio > 1.33 {
				t.Errorf("QPBytes says %d, a queue pair took %.0f", want, took)
			}
		})
	}
	if err := srq.Close(); err != nil {
		t.Error(err)
	}
}
