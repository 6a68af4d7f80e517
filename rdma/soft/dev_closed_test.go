package soft

import (
	"errors"
	"os"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// What is done to a closed object fails, and does nothing to whoever has been
// given its place in the arena since.

// successor makes objects until one has the number of an earlier one, and closes
// those before it.
func successor[T closer](t *testing.T, number func(T) uint32, want uint32, make func() T) T {
	t.Helper()
	for range 4096 {
		o := make()
		if number(o) == want {
			return o
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("number %d was not given again", want)
	panic("unreachable")
}

func TestClosedCompletionQueue(t *testing.T) {
	n := nodes(t, 2, Config{})
	a, b := n[0], n[1]
	channel := must[rdma.CompChannel](t)(b.ctx.CreateCompChannel())
	b.owned = append(b.owned, channel)
	makeCQ := func() *completionQueue {
		return must[rdma.CQ](t)(b.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 16, Channel: channel})).(*completionQueue)
	}
	old := makeCQ()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	cq := successor(t, func(c *completionQueue) uint32 { return c.index }, old.index, makeCQ)
	b.owned = append([]closer{cq}, b.owned...)
	qb := must[rdma.QP](t)(b.pd.CreateQP(rdma.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: rdma.RC, Cap: rdma.QPCap{MaxRecvWR: 4, MaxRecvSGE: 1}})).(*queuePair)
	qa := a.queue()
	bring(t, qa, rdma.StateRTS, b, qb.num, attrs())
	bring(t, qb, rdma.StateRTS, a, qa.num, attrs())
	postRecv(t, qb, rdma.RecvWR{WRID: 5})
	post(t, qa, rdma.SendWR{Opcode: rdma.WRSend})

	var wc [4]rdma.WC
	var ex [4]rdma.WCEx
	for name, err := range map[string]error{
		"Poll":      func() error { _, err := old.Poll(wc[:]); return err }(),
		"PollEx":    func() error { _, err := old.PollEx(ex[:]); return err }(),
		"ReqNotify": old.ReqNotify(false),
		"Resize":    old.Resize(32),
	} {
		if !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s of a closed queue: %v, want EINVAL", name, err)
		}
	}
	if k, err := cq.Poll(wc[:]); k != 1 || err != nil || wc[0].WRID != 5 {
		t.Errorf("the queue in its place: %d completions (%v), want the one of 5", k, err)
	}
	if w := cq.head.armed; w != 0 {
		t.Errorf("it is armed: %d", w)
	}
}

func TestClosedQueuePair(t *testing.T) {
	for _, typ := range []rdma.QPType{rdma.RC, rdma.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			n := nodes(t, 2, Config{})[1]
			makeQP := func() *queuePair {
				return must[rdma.QP](t)(n.pd.CreateQP(rdma.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, Type: typ,
					Cap: rdma.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})).(*queuePair)
			}
			old := makeQP()
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			q := successor(t, func(q *queuePair) uint32 { return q.index }, old.index, makeQP)
			a := attrs()
			a.State, a.QKey = rdma.StateInit, 7
			mask := initMask
			if typ == rdma.UD {
				mask = rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPQKeyMask
			}
			if err := q.Modify(a, mask); err != nil {
				t.Fatal(err)
			}
			if st := old.State(); st != rdma.StateReset {
				t.Errorf("a closed queue pair is in %v, want RESET", st)
			}
			if a, _ := old.Query(); a.State != rdma.StateReset {
				t.Errorf("it tells of %v, want RESET", a.State)
			}
			for name, err := range map[string]error{
				"PostRecv": func() error { _, err := old.PostRecv([]rdma.RecvWR{{}}); return err }(),
				"PostSend": func() error { _, err := old.PostSend([]rdma.SendWR{{Opcode: rdma.WRSend}}); return err }(),
				"Modify":   old.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask),
			} {
				if !errors.Is(err, rdma.ErrInvalid) {
					t.Errorf("%s: %v, want EINVAL", name, err)
				}
			}
			if st := q.State(); st != rdma.StateInit {
				t.Errorf("the queue pair in its place is in %v, want INIT", st)
			}
		})
	}
}

func TestClosedSRQ(t *testing.T) {
	n := nodes(t, 2, Config{})[1]
	makeSRQ := func() *srq {
		return must[rdma.SRQ](t)(n.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 8, MaxSGE: 1}})).(*srq)
	}
	old := makeSRQ()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s := successor(t, func(s *srq) uint32 { return s.index }, old.index, makeSRQ)
	n.owned = append(n.owned, s)
	for name, err := range map[string]error{
		"PostRecv": func() error { _, err := old.PostRecv([]rdma.RecvWR{{}}); return err }(),
		"Modify":   old.Modify(rdma.SRQAttr{Limit: 3}, rdma.SRQLimitMask),
	} {
		if !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
	if got := s.Query().Limit; got != 0 {
		t.Errorf("the limit of the queue in its place is %d, want 0", got)
	}
}

// What a request names by its object is looked at when it is posted, so an object
// that is closed is refused there.
func TestClosedObjectsInRequests(t *testing.T) {
	n := nodes(t, 2, Config{})
	qa, _ := n[0].datagrams(n[1])
	ah := must[rdma.AH](t)(n[0].pd.CreateAH(rdma.AV{DGID: n[1].p.gids[0], PortNum: 1}))
	if err := ah.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := qa.PostSend([]rdma.SendWR{{Opcode: rdma.WRSend, AH: ah, RemoteQPN: 1, RemoteQKey: 7}}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("a datagram by a closed address handle: %v, want EINVAL", err)
	}
}

// A target of XRC that its maker has closed lives as long as another process has it
// open, which may be for ever: that one may have died. It holds nothing of its
// maker's but its context, which takes it away.
func TestCloseTargetOpenElsewhere(t *testing.T) {
	n := nodes(t, 3, Config{})
	maker, opener, sender := n[0], n[1], n[2]
	f := must[*os.File](t)(os.CreateTemp(t.TempDir(), "domain"))
	defer f.Close()
	domain := func(x *node) rdma.XRCD {
		return must[rdma.XRCD](t)(x.ctx.OpenXRCD(rdma.XRCDInitAttr{File: f, Flags: os.O_CREATE}))
	}
	mine, theirs := domain(maker), domain(opener)
	pd := must[rdma.PD](t)(maker.ctx.AllocPD())
	target := must[rdma.QP](t)(pd.CreateQP(rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: mine})).(*queuePair)
	q := must[rdma.QP](t)(sender.pd.CreateQP(rdma.QPInitAttr{SendCQ: sender.cq, Type: rdma.XRCSend, Cap: rdma.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})).(*queuePair)
	toRTS(t, q, maker, target.num)
	toRTS(t, target, sender, q.num)
	srq := must[rdma.SRQ](t)(opener.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 4}, Type: rdma.SRQXRC, XRCD: theirs, CQ: opener.cq}))
	opened := must[rdma.QP](t)(opener.ctx.OpenQP(target.num, theirs))
	for _, o := range []closer{target, pd, mine} {
		if err := o.Close(); err != nil {
			t.Errorf("close the maker's %T: %v", o, err)
		}
	}
	if _, err := srq.PostRecv([]rdma.RecvWR{{WRID: 9}}); err != nil {
		t.Fatal(err)
	}
	post(t, q, rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SRQNum: srq.Num()})
	if wc := sender.poll(1)[0]; wc.Status != rdma.WCSuccess {
		t.Errorf("a message to a target that another has open: %v", wc.Status)
	}
	if wc := opener.poll(1)[0]; wc.WRID != 9 || wc.Status != rdma.WCSuccess {
		t.Errorf("the opener got %+v", wc)
	}
	for _, o := range []closer{opened, srq, theirs} {
		if err := o.Close(); err != nil {
			t.Errorf("close the opener's %T: %v", o, err)
		}
	}
}
