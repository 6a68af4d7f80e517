package soft

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// The timers run on the bubble's clock; nobody polls, so the progress
// goroutine, which has its own tick, does all the work.
func TestRetryTimers(t *testing.T) {
	const slack = 2 * tickMost
	for _, c := range []struct {
		name    string
		change  func(*rdma.QPAttr)
		op      rdma.WROpcode
		nobody  bool // the peer's queue pair stays in INIT
		want    rdma.WCStatus
		after   time.Duration
		rnr     uint64
		ack     uint64
		recover bool // the peer becomes ready in half the time
	}{
		{name: "RNR retry 0 fails at once", change: func(a *rdma.QPAttr) { a.RNRRetry = 0 }, op: rdma.WRSend, want: rdma.WCRNRRetryExcErr},
		{name: "RNR retry 3 of 491.52 ms", change: func(a *rdma.QPAttr) { a.RNRRetry, a.MinRNRTimer = 3, 31 }, op: rdma.WRSend,
			want: rdma.WCRNRRetryExcErr, after: 3 * 491520 * time.Microsecond, rnr: 3},
		{name: "write with immediate needs a receive", change: func(a *rdma.QPAttr) { a.RNRRetry, a.MinRNRTimer = 1, 0 }, op: rdma.WRRDMAWriteWithImm,
			want: rdma.WCRNRRetryExcErr, after: 655360 * time.Microsecond, rnr: 1},
		{name: "RNR retry 7 has no end", change: func(a *rdma.QPAttr) { a.RNRRetry, a.MinRNRTimer = 7, 31 }, op: rdma.WRSend,
			want: rdma.WCSuccess, after: 10 * time.Second, rnr: 20, recover: true},
		{name: "no answer, retry 2 of 268 ms", change: func(a *rdma.QPAttr) { a.RetryCnt, a.Timeout = 2, 16 }, op: rdma.WRRDMAWrite, nobody: true,
			want: rdma.WCRetryExcErr, after: 3 * rdma.AckTimeout(16), ack: 2},
		{name: "no answer, retry 0", change: func(a *rdma.QPAttr) { a.RetryCnt, a.Timeout = 0, 16 }, op: rdma.WRRDMAWrite, nobody: true,
			want: rdma.WCRetryExcErr, after: rdma.AckTimeout(16)},
		{name: "an answer in time", change: func(a *rdma.QPAttr) { a.RetryCnt, a.Timeout = 7, 18 }, op: rdma.WRRDMAWrite, nobody: true,
			want: rdma.WCSuccess, after: 4 * rdma.AckTimeout(18), ack: 3, recover: true},
		{name: "timeout 0 waits for ever", change: func(a *rdma.QPAttr) { a.RetryCnt, a.Timeout = 0, 0 }, op: rdma.WRRDMAWrite, nobody: true,
			want: rdma.WCSuccess, after: 2 * time.Minute, recover: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := nodes(t, 2, Config{})
				a, b := n[0], n[1]
				attr := attrs()
				c.change(&attr)
				qa, qb := a.queue(), b.queue()
				bring(t, qa, rdma.StateRTS, b, qb.num, attr)
				to := rdma.StateRTS
				if c.nobody {
					to = rdma.StateInit
				}
				bring(t, qb, to, a, qa.num, attr)
				src, dst := a.alloc(8, all), b.alloc(8, all)
				begin := time.Now()
				post(t, qa, rdma.SendWR{WRID: 1, Opcode: c.op, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()},
					rdma.SendWR{WRID: 2, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
				// Without polls: what is known is what the goroutine did.
				ended := func() bool { qa.mu.Lock(); defer qa.mu.Unlock(); return qa.sq.pending.n == 0 }
				for !ended() {
					if c.recover && time.Since(begin) >= c.after-slack {
						if c.nobody {
							a2 := attr
							a2.State, a2.AV, a2.DestQPNum = rdma.StateRTR, rdma.AV{DGID: a.p.gids[0], PortNum: 1}, qa.num
							if err := qb.Modify(a2, rtrMask); err != nil {
								t.Fatal(err)
							}
							c.nobody = false
						} else if atomic.LoadUint32(&qb.rq.posted) == 0 {
							postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
						}
					}
					time.Sleep(time.Millisecond)
					if time.Since(begin) > 2*time.Hour {
						t.Fatal("it does not end")
					}
				}
				took := time.Since(begin)
				if took < c.after-2*slack || took > c.after+slack+10*tickMost {
					t.Errorf("it took %v, want %v", took, c.after)
				}
				var got []rdma.WCStatus
				var wc [4]rdma.WC
				k, err := a.cq.Poll(wc[:])
				if err != nil {
					t.Fatal(err)
				}
				got = statuses(wc[:k])
				want := []rdma.WCStatus{c.want, rdma.WCWRFlushErr}
				if c.want == rdma.WCSuccess {
					want = []rdma.WCStatus{rdma.WCSuccess} // of the second, signaled
				}
				if len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
					t.Errorf("statuses %v, want %v", got, want)
				}
				if k := a.ctx.Counters(); k.RNRRetries != c.rnr || k.AckRetries != c.ack {
					t.Errorf("%d RNR and %d ack retries, want %d and %d", k.RNRRetries, k.AckRetries, c.rnr, c.ack)
				}
			})
		})
	}
}
