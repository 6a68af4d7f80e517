package soft

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

const dcTestKey = 1<<63 | 77

// target makes a target of the node with a shared receive queue.
func (n *node) target() *queuePair {
	n.t.Helper()
	s := must[rdma.SRQ](n.t)(n.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 8, MaxSGE: 1}}))
	q := must[rdma.QP](n.t)(n.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCT, RecvCQ: n.cq, SRQ: s, DCAccessKey: dcTestKey})).(*queuePair)
	n.t.Cleanup(func() {
		if err := errors.Join(q.Close(), s.Close()); err != nil {
			n.t.Errorf("close a target: %v", err)
		}
	})
	n.steps(q, initMask, rdma.QPStateMask|rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPMinRNRTimerMask)
	return q
}

// steps takes a queue pair on from RESET.
func (n *node) steps(q *queuePair, masks ...rdma.QPAttrMask) {
	n.t.Helper()
	a := attrs()
	a.AV = rdma.AV{DGID: n.p.gids[0], PortNum: 1}
	for i, mask := range masks {
		a.State = rdma.StateInit + rdma.QPState(i)
		if err := q.Modify(a, mask); err != nil {
			n.t.Fatal(err)
		}
	}
}

// An initiator is one of a node, with a handle of its target.
type initiator struct {
	*node
	q  *queuePair
	to *queuePair
	ah rdma.AH
}

func (n *node) initiator(at *node, to *queuePair) *initiator {
	n.t.Helper()
	q := must[rdma.QP](n.t)(n.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCI, SendCQ: n.cq, Cap: rdma.QPCap{MaxSendWR: 16, MaxSendSGE: 1, MaxInlineData: 64}})).(*queuePair)
	ah := must[rdma.AH](n.t)(n.pd.CreateAH(rdma.AV{DGID: at.p.gids[0], PortNum: 1}))
	n.t.Cleanup(func() {
		if err := errors.Join(q.Close(), ah.Close()); err != nil {
			n.t.Errorf("close an initiator: %v", err)
		}
	})
	n.steps(q, rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask, rdma.QPStateMask|rdma.QPPathMTUMask, rtsMask)
	return &initiator{n, q, to, ah}
}

func (i *initiator) post(wr rdma.SendWR) {
	i.t.Helper()
	wr.AH, wr.RemoteQPN, wr.DCAccessKey = i.ah, i.to.num, dcTestKey
	post(i.t, i.q, wr)
}

func wordTo(mr rdma.MR, id uint64) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("a word.."), RemoteAddr: mr.Addr(), RKey: mr.RKey()}
}

// The timer of idle connections goes while there is one, and a connection ends at the second tick behind its last request.
func TestIdleConnectionEndsByTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 2, Config{DCIdle: time.Second})
		to, mr := n[1].target(), n[1].alloc(64, all)
		i := n[0].initiator(n[1], to)
		connects := func(what string, want uint64) {
			t.Helper()
			i.post(wordTo(mr, 1))
			if wc := i.poll(1)[0]; wc.Status != rdma.WCSuccess {
				t.Fatalf("%s: %+v", what, wc)
			}
			if c := i.ctx.Counters().DCConnects; c != want {
				t.Errorf("%s: %d connections, want %d", what, c, want)
			}
		}
		ticking := func(want bool) {
			t.Helper()
			synctest.Wait()
			if got := n[0].p.work.ticking.Load(); got != want {
				t.Errorf("the timer goes: %v, want %v", got, want)
			}
		}
		ticking(false)
		connects("the first", 1)
		ticking(true)
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			connects("used again and again", 1)
		}
		time.Sleep(2100 * time.Millisecond)
		ticking(false)
		if i.q.dc != (connection{q: i.q}) {
			t.Errorf("after two ticks the initiator has %+v, want no connection", i.q.dc)
		}
		connects("after a while", 2)
		ticking(true) // Close stops it: the bubble lets no goroutine stay
	})
}

// A provider that answers one initiator at a time: while one's message waits for
// a receive the other's request gets a CNAK, and waits.
func TestNoResponderIsCNAK(t *testing.T) {
	n := nodes(t, 3, Config{DCResponders: 1})
	b := n[2]
	to, mr := b.target(), b.alloc(64, all)
	one, two := n[0].initiator(b, to), n[1].initiator(b, to)
	one.post(rdma.SendWR{WRID: 1, Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("a message")})
	two.post(wordTo(mr, 2))
	var wc [1]rdma.WC
	for range 100 {
		if k, _ := two.cq.Poll(wc[:]); k != 0 {
			t.Fatalf("%+v, want none while the responder is another's", wc[0])
		}
	}
	if c := two.ctx.Counters(); c.DCCNAKs != 1 || c.DCConnects != 0 {
		t.Errorf("%d CNAKs, %d connections, want 1 and 0", c.DCCNAKs, c.DCConnects)
	}
	if _, err := to.init.SRQ.PostRecv([]rdma.RecvWR{{WRID: 3, SGL: []rdma.SGE{sge(mr, 8, 16)}}}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []*initiator{one, two} {
		if wc := i.poll(1, n...)[0]; wc.Status != rdma.WCSuccess {
			t.Errorf("%+v", wc)
		}
	}
	b.poll(1)
	if got := string(mr.Bytes()[:17]); got != "a word..a message" {
		t.Errorf("memory is %q", got)
	}
	if c := two.ctx.Counters(); c.DCConnects != 1 {
		t.Errorf("%d connections, want 1", c.DCConnects)
	}
	if w := atomic.LoadUint64(&b.p.responders[0].claim); w != 0 {
		t.Errorf("with nothing under way the responder is held: %#x", w)
	}
}

// A responder that one of the dead has held, or that was scribbled on, is taken over.
func TestResponderOfDeadInitiator(t *testing.T) {
	for name, claim := range map[string]uint64{"dead": 1<<32 | 1<<queueBits, "no such rank": 4000 << 32, "no rank": 7} {
		t.Run(name, func(t *testing.T) {
			n := nodes(t, 3, Config{DCResponders: 1})
			b := n[2]
			to, mr := b.target(), b.alloc(64, all)
			i := n[1].initiator(b, to)
			atomic.StoreUint64(&b.p.responders[0].claim, claim)
			n[1].p.segment.SetDead(0)
			i.post(wordTo(mr, 1))
			if wc := i.poll(1)[0]; wc.Status != rdma.WCSuccess {
				t.Errorf("%+v", wc)
			}
		})
	}
}

// To take a region or a target back is to wait for initiators in the middle of it.
func TestDrainWaitsForInitiators(t *testing.T) {
	for _, c := range []struct {
		name string
		mark func(mr rdma.MR) uint64
		dead bool
		want error
	}{
		{"idle", func(rdma.MR) uint64 { return 0 }, false, nil},
		{"at the region", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 1 }, false, errStuck},
		{"at the region and dead", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 1 }, true, nil},
		{"at another", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 2 }, false, nil},
		{"at the queue", func(rdma.MR) uint64 { return markQueue }, false, errStuck},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := nodes(t, 2, Config{})
				b := n[1]
				to, mr := b.target(), b.alloc(64, all)
				i := n[0].initiator(b, to)
				r := &b.p.responders[0].claim
				atomic.StoreUint64(r, 1<<32|uint64(i.q.num))
				defer atomic.StoreUint64(r, 0)
				atomic.StoreUint32(&b.p.head.touched.responders, 1)
				atomic.StoreUint64(&i.q.own.mark, 5*markTurn|c.mark(mr))
				if c.dead {
					b.p.segment.SetDead(0)
				}
				begin := time.Now()
				if err := mr.Close(); !errors.Is(err, c.want) || time.Since(begin) > drainLimit+time.Second {
					t.Errorf("Close of the region: %v after %v, want %v", err, time.Since(begin), c.want)
				}
				if c.want != nil {
					if err := to.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err == nil {
						t.Error("the target to RESET: no error")
					}
				}
				atomic.StoreUint64(&i.q.own.mark, 6*markTurn)
			})
		})
	}
}

// Whatever stands in the tables of a target, its initiators neither crash nor hang.
func TestScribbledTarget(t *testing.T) {
	for seed := range uint64(40) {
		scribbleTarget(t, seed, 200)
	}
}

func FuzzTarget(f *testing.F) {
	f.Add(uint64(1), uint16(40))
	f.Fuzz(scribbleTarget)
}
