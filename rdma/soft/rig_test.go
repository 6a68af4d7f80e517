package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// all are the rights that a test gives when rights are not its subject.
const all = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic

// A closer is an object of any kind.
type closer interface{ Close() error }

// A node is one provider with what most tests need of it.
type node struct {
	t   testing.TB
	p   *Provider
	ctx *context
	pd  *domain
	cq  *completionQueue

	inlineRecv int             // MaxInlineRecv of its queue pairs
	strides    rdma.StridingRQ // and Striding

	owned []closer // closed after the queue pairs
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// open makes a node on a provider with cfg; it is closed with the test.
func open(t testing.TB, cfg Config) *node {
	t.Helper()
	p := must[*Provider](t)(New(cfg))
	ds, _ := p.Devices()
	n := &node{t: t, p: p, ctx: must[rdma.Context](t)(ds[0].Open()).(*context)}
	n.pd = must[rdma.PD](t)(n.ctx.AllocPD()).(*domain)
	n.cq = must[rdma.CQ](t)(n.ctx.CreateCQ(1024)).(*completionQueue)
	t.Cleanup(func() {
		for q := range n.ctx.queues {
			if err := q.Close(); err != nil {
				t.Errorf("close queue pair: %v", err)
			}
		}
		for _, o := range n.owned {
			if err := o.Close(); err != nil {
				t.Errorf("close a %T: %v", o, err)
			}
		}
		for i := range p.head.touched.regions {
			if r := p.byKey.get(i); r != nil {
				if err := r.object.Close(); err != nil {
					t.Errorf("close region: %v", err)
				}
			}
		}
		for _, c := range []interface{ Close() error }{n.cq, n.pd, n.ctx, p} {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return n
}

// nodes makes n nodes in one local segment.
func nodes(t testing.TB, n int, cfg Config) []*node {
	t.Helper()
	s := must[*shm.Segment](t)(shm.NewLocal(shm.Geometry{Ranks: n, ArenaSize: 4 << 20}))
	t.Cleanup(func() { s.Close() })
	list := make([]*node, n)
	for i := range list {
		cfg.Segment, cfg.Rank, cfg.Host = s, i, "host"
		list[i] = open(t, cfg)
	}
	introduce(t, list...)
	return list
}

// introduce makes all nodes know each other's endpoints.
func introduce(t testing.TB, list ...*node) {
	t.Helper()
	for _, a := range list {
		for _, b := range list {
			if err := a.ctx.AddEndpoint(b.p.gids[0], b.ctx.Endpoint()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// attrs are the attributes of a connection that a test may change.
func attrs() rdma.QPAttr {
	return rdma.QPAttr{
		PortNum: 1, AccessFlags: all, PathMTU: rdma.MTU4096, RQPSN: 7, SQPSN: 7, MaxDestRdAtomic: 4, MaxRdAtomic: 4,
		MinRNRTimer: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

const (
	initMask = rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask
	rtrMask  = rdma.QPStateMask | rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPDestQPNMask | rdma.QPRQPSNMask | rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask
	rtsMask  = rdma.QPStateMask | rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPSQPSNMask | rdma.QPMaxRdAtomicMask
)

// queue makes a queue pair on the node's completion queue.
func (n *node) queue() *queuePair {
	n.t.Helper()
	return must[rdma.QP](n.t)(n.pd.CreateQP(rdma.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, Type: rdma.RC, Striding: n.strides,
		Cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 256, MaxInlineRecv: n.inlineRecv}})).(*queuePair)
}

// intoSRQ connects a queue pair of n to one of b that receives from a shared
// queue, which is closed with b's other objects.
func (n *node) intoSRQ(b *node) (*srq, *queuePair) {
	n.t.Helper()
	s := must[rdma.SRQ](n.t)(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 64, MaxSGE: 4}})).(*srq)
	b.owned = append(b.owned, s)
	return s, n.into(b, s)
}

// into connects a queue pair of n to one of b that receives from s.
func (n *node) into(b *node, s *srq) *queuePair {
	n.t.Helper()
	qa := n.queue()
	qb := must[rdma.QP](n.t)(b.pd.CreateQP(rdma.QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Type: rdma.RC, SRQ: s, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 4}})).(*queuePair)
	bring(n.t, qa, rdma.StateRTS, b, qb.num, attrs())
	bring(n.t, qb, rdma.StateRTS, n, qa.num, attrs())
	return qa
}

// intoXRC connects an initiator of n to a target of b, with a shared queue.
func (n *node) intoXRC(b *node) (*srq, *queuePair) {
	n.t.Helper()
	x := must[rdma.XRCD](n.t)(b.ctx.OpenXRCD(rdma.XRCDInitAttr{}))
	s := must[rdma.SRQ](n.t)(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 64, MaxSGE: 4}, Type: rdma.SRQXRC, XRCD: x, CQ: b.cq})).(*srq)
	b.owned = append(b.owned, s, x)
	qa := must[rdma.QP](n.t)(n.pd.CreateQP(rdma.QPInitAttr{SendCQ: n.cq, Type: rdma.XRCSend, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 4}})).(*queuePair)
	qb := must[rdma.QP](n.t)(b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: x})).(*queuePair)
	toRTS(n.t, qa, b, qb.num)
	toRTS(n.t, qb, n, qa.num)
	return s, qa
}

// toRTS takes a queue pair of XRC to RTS, towards number num of a node.
func toRTS(t testing.TB, q *queuePair, to *node, num uint32) {
	t.Helper()
	a := attrs()
	a.AV, a.DestQPNum = rdma.AV{DGID: to.p.gids[0], PortNum: 1, HopLimit: 1}, num
	rtr, rts := rtrMask&^(rdma.QPMaxDestRdAtomicMask|rdma.QPMinRNRTimerMask), rtsMask
	if q.init.Type == rdma.XRCRecv {
		rtr, rts = rtrMask, rdma.QPStateMask|rdma.QPTimeoutMask|rdma.QPSQPSNMask
	}
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{rdma.StateInit, initMask}, {rdma.StateRTR, rtr}, {rdma.StateRTS, rts}} {
		a.State = step.to
		if err := q.Modify(a, step.mask); err != nil {
			t.Fatal(err)
		}
	}
}

// datagrams makes two datagram queue pairs in RTS, one at each node, with the
// Q_Key 7.
func (n *node) datagrams(b *node) (qa, qb *queuePair) {
	n.t.Helper()
	for i, at := range []*node{n, b} {
		q := must[rdma.QP](n.t)(at.pd.CreateQP(rdma.QPInitAttr{SendCQ: at.cq, RecvCQ: at.cq, Type: rdma.UD,
			Cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4}})).(*queuePair)
		for _, step := range []struct {
			to   rdma.QPState
			mask rdma.QPAttrMask
		}{{rdma.StateInit, rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPQKeyMask}, {rdma.StateRTR, 0}, {rdma.StateRTS, rdma.QPSQPSNMask}} {
			if err := q.Modify(rdma.QPAttr{State: step.to, PortNum: 1, QKey: 7}, step.mask|rdma.QPStateMask); err != nil {
				n.t.Fatal(err)
			}
		}
		if i == 0 {
			qa = q
		} else {
			qb = q
		}
	}
	return qa, qb
}

// bring takes a queue pair to a state, towards b.
func bring(t testing.TB, q *queuePair, to rdma.QPState, b *node, num uint32, a rdma.QPAttr) {
	t.Helper()
	a.AV = rdma.AV{DGID: b.p.gids[0], PortNum: 1, HopLimit: 1}
	a.DestQPNum = num
	for _, s := range []struct {
		state rdma.QPState
		mask  rdma.QPAttrMask
	}{{rdma.StateInit, initMask}, {rdma.StateRTR, rtrMask}, {rdma.StateRTS, rtsMask}} {
		if s.state > to {
			break
		}
		a.State = s.state
		if err := q.Modify(a, s.mask); err != nil {
			t.Fatal(err)
		}
	}
}

// pair connects two nodes.
func pair(t testing.TB, a, b *node, attr rdma.QPAttr) (qa, qb *queuePair) {
	t.Helper()
	qa, qb = a.queue(), b.queue()
	bring(t, qa, rdma.StateRTS, b, qb.num, attr)
	bring(t, qb, rdma.StateRTS, a, qa.num, attr)
	return qa, qb
}

// alloc and reg make regions.
func (n *node) alloc(size int, access rdma.Access) rdma.MR {
	n.t.Helper()
	return must[rdma.MR](n.t)(n.pd.AllocMR(size, access))
}

func (n *node) reg(b []byte, access rdma.Access) rdma.MR {
	n.t.Helper()
	return must[rdma.MR](n.t)(n.pd.RegMR(b, access))
}

// window makes a memory window, which the test closes.
func (n *node) window(typ rdma.MWType) rdma.MW {
	n.t.Helper()
	return must[rdma.MW](n.t)(n.pd.AllocMW(typ))
}

func sge(mr rdma.MR, off, n int) rdma.SGE {
	return rdma.SGE{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
}

// post posts and expects no error.
func post(t testing.TB, q *queuePair, wrs ...rdma.SendWR) {
	t.Helper()
	if n, err := q.PostSend(wrs); err != nil {
		t.Fatalf("post of %d took %d: %v", len(wrs), n, err)
	}
}

func postRecv(t testing.TB, q *queuePair, wrs ...rdma.RecvWR) {
	t.Helper()
	if n, err := q.PostRecv(wrs); err != nil {
		t.Fatalf("post of %d receives took %d: %v", len(wrs), n, err)
	}
}

// pollLimit is longer than megabytes take under TLS, with the race detector, beside other work.
const pollLimit = time.Minute

// poll waits for n completions; the others are polled meanwhile.
func (n *node) poll(want int, others ...*node) []rdma.WC {
	n.t.Helper()
	var got []rdma.WC
	var wc [16]rdma.WC
	for end := time.Now().Add(pollLimit); len(got) < want; {
		k, err := n.cq.Poll(wc[:min(16, want-len(got))])
		if err != nil {
			n.t.Fatal(err)
		}
		got = append(got, wc[:k]...)
		for _, o := range others {
			o.ctx.Progress()
		}
		if k == 0 && time.Now().After(end) {
			n.t.Fatalf("%d completions in %v, want %d: %+v", len(got), pollLimit, want, got)
		}
	}
	return got
}

// statuses are the statuses of completions, in order.
func statuses(wcs []rdma.WC) []rdma.WCStatus {
	s := make([]rdma.WCStatus, len(wcs))
	for i := range wcs {
		s[i] = wcs[i].Status
	}
	return s
}

func noLeaks(t testing.TB) { testenv.NoLeaks(t) }

func atomicLoad(p *uint64) uint64 { return atomic.LoadUint64(p) }
