package rdmatest

import (
	"encoding/binary"
	"os"
	"path/filepath"

	"github.com/gorun-mpi/gorun/rdma"
)

func xrcCases() []testCase {
	return needing([]testCase{
		{name: "xrc/request_names_the_queue", nodes: 2, run: pair(xrcNames)},
		{name: "xrc/one_sided_operations_and_atomics_once", nodes: 2, run: pair(xrcOneSided)},
		{name: "xrc/queue_of_another_domain_is_refused", nodes: 2, run: pair(xrcIsolation)},
		{name: "xrc/queue_that_is_not_there_is_refused", nodes: 2, run: pair(xrcNoQueue)},
		{name: "xrc/empty_queue_is_RNR", nodes: 2, run: pair(xrcRNR)},
		{name: "xrc/halves_have_no_other_queue", nodes: 2, run: pair(xrcHalves)},
		{name: "xrc/states", nodes: 2, run: pair(xrcStates)},
		{name: "xrc/close_in_use_is_EBUSY", nodes: 1, run: single(xrcBusy)},
		{name: "xrc/domain_of_a_file", nodes: 2, run: pair(xrcFile)},
		{name: "xrc/one_connection_for_all_processes_of_a_node", nodes: 3, run: xrcNode},
		{name: "xrc/opened_by_its_number", nodes: 2, run: pair(xrcOpen)},
	}, rdma.FeatureXRC)
}

// A target is what one side has of XRC: a domain, and queues in it.
type target struct {
	*side
	x rdma.XRCD
}

func (s *side) domain(attr rdma.XRCDInitAttr) *target {
	s.r.Helper()
	return &target{s, result(s.ctx.OpenXRCD(attr)).owned(s.r, "OpenXRCD(%+v)", attr)}
}

// queue makes a shared queue of the domain that completes in cq.
func (t *target) queue(maxWR int, cq rdma.CQ) rdma.SRQ {
	t.r.Helper()
	return result(t.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: maxWR, MaxSGE: 2}, Type: rdma.SRQXRC, XRCD: t.x, CQ: cq})).owned(t.r, "CreateSRQ for XRC")
}

// from connects an initiator on side a to a target queue pair of the domain.
func (t *target) from(a *side, changes ...func(*setup)) *link {
	t.r.Helper()
	u := defaults()
	for _, change := range changes {
		change(&u)
	}
	before := u.init
	u.init = func(side int, i *rdma.QPInitAttr) {
		if before != nil {
			before(side, i)
		}
		if side == 0 {
			i.Type, i.RecvCQ = rdma.XRCSend, nil
			i.Cap.MaxRecvWR, i.Cap.MaxRecvSGE = 0, 0
		} else {
			*i = rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: t.x}
		}
	}
	l := &link{r: t.r, a: a, b: t.side}
	l.qa, l.qb = a.newQP(u, 0), t.newQP(u, 1)
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		masks := [][]rdma.QPAttrMask{{initMask, ucRTRMask, rtsMask}, {initMask, rtrMask, rdma.QPTimeoutMask | rdma.QPSQPSNMask}}
		[]*side{a, t.side}[i].steps(qp, l.attrs(i, u), masks[i]...)
	}
	return l
}

// into makes a request take its receive from a queue.
func into(srq rdma.SRQ, wr rdma.SendWR) rdma.SendWR {
	wr.SRQNum = srq.Num()
	return wr
}

func xrcNames(r *rig, a, b *side) {
	t := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	src, dst := a.memory(64), b.memory(512)
	cqs := []rdma.CQ{b.newCQ(64), b.newCQ(64)}
	queues := []rdma.SRQ{t.queue(8, cqs[0]), t.queue(8, cqs[1])}
	if queues[0].Num() == queues[1].Num() {
		r.Fatalf("two queues have the number %#x", queues[0].Num())
	}
	links := []*link{t.from(a), t.from(a)}
	for i := range uint64(40) {
		k := int(i*i) % 2
		l := links[i/2%2]
		postSRQ(r, queues[k], receive(i, dst.sge(0, 64)))
		src.Store(0, pattern(i, 64))
		wr := sendImm(i, uint32(i), src.sge(0, 24))
		if i%3 == 0 {
			wr = writeImm(i, uint32(i), dst, 128, src.sge(0, 24))
		}
		l.send(into(queues[k], wr))
		a.done(a.scq, i)
		wc := b.done(cqs[k], i)
		if wc.ImmData != uint32(i) || wc.ByteLen != 24 || wc.QPNum != l.qb.Num() {
			r.Fatalf("message %d through queue pair %#x: %+v", i, l.qb.Num(), wc)
		}
		at := 0
		if i%3 == 0 {
			at = 128
		}
		r.same("message", dst.Load(at, 24), pattern(i, 64)[:24])
		b.none(cqs[1-k])
	}
}

func xrcOneSided(r *rig, a, b *side) {
	t := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	src, dst := a.memory(8192), b.memory(8192)
	l := t.from(a)
	src.Store(0, pattern(1, 4000))
	l.do(write(1, dst, 0, src.sge(0, 4000)), read(2, dst, 0, src.sge(4096, 4000)))
	r.same("written and read", src.Load(4096, 4000), pattern(1, 4000))
	for i := range uint64(50) {
		l.do(fetchAdd(i, dst, 8000, 1, src.sge(8000, 8)))
		equal(r, src.Load64(8000), i, "atomic %d fetched", i)
	}
	l.fails(rdma.WCRemAccessErr, astray(write(9, dst, 0, src.sge(0, 8))))
	b.state(l.qb, rdma.StateErr)
}

// isRefused sends one request that the target must refuse, and looks at both ends.
func (l *link) isRefused(wr rdma.SendWR) {
	l.r.Helper()
	l.fails(rdma.WCRemInvReqErr, wr)
	l.a.state(l.qa, rdma.StateErr)
	l.b.state(l.qb, rdma.StateErr)
}

// xrcIsolation: a target reaches the queues of its own domain alone.
func xrcIsolation(r *rig, a, b *side) {
	mine, other := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE}), b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	src, dst := a.filled(64, 1), b.memory(64)
	q, foreign := mine.queue(4, b.rcq), other.queue(4, b.rcq)
	postSRQ(r, q, receive(1, dst.sge(0, 8)))
	postSRQ(r, foreign, receive(2, dst.sge(0, 8)))
	mine.from(a).isRefused(into(foreign, send(3, src.sge(0, 8))))
	mine.from(a).isRefused(into(foreign, writeImm(4, 1, dst, 8, src.sge(0, 8))))
	basic := b.newSRQ(4)
	postSRQ(r, basic, receive(5, dst.sge(0, 8)))
	mine.from(a).isRefused(into(basic, send(6, src.sge(0, 8))))
	b.none(b.rcq)
	r.same("memory of the other domain's receives", dst.Load(0, 64), make([]byte, 64))
	l := mine.from(a)
	l.do(into(q, send(7, src.sge(0, 8))))
	b.done(b.rcq, 1)
	l = other.from(a)
	l.do(into(foreign, send(8, src.sge(0, 8))))
	b.done(b.rcq, 2)
}

func xrcNoQueue(r *rig, a, b *side) {
	t := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	src := a.memory(64)
	gone := t.queue(4, b.rcq)
	num := gone.Num()
	postSRQ(r, gone, receive(1))
	r.close(gone)
	for _, num := range []uint32{num, 0, ^uint32(0)} {
		wr := send(2, src.sge(0, 8))
		wr.SRQNum = num
		t.from(a).isRefused(wr)
	}
	// The place is used again, and the old number is still nobody's.
	again := t.queue(4, b.rcq)
	postSRQ(r, again, receive(3))
	wr := send(4)
	wr.SRQNum = num
	t.from(a).isRefused(wr)
	l := t.from(a)
	l.do(into(again, send(5)))
	b.done(b.rcq, 3)
	b.none(b.rcq)
}

func xrcRNR(r *rig, a, b *side) {
	t := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	src := a.memory(64)
	cq := b.newCQ(8)
	full, empty := t.queue(4, cq), t.queue(4, b.rcq)
	postSRQ(r, full, receive(1), receive(2))
	l := t.from(a)
	a.untilRNR(1, func() { l.send(into(empty, send(3, src.sge(0, 0))), into(full, send(4, src.sge(0, 0)))) })
	b.none(cq) // nothing overtakes it
	postSRQ(r, empty, receive(5))
	a.done(a.scq, 3, 4)
	b.done(b.rcq, 5)
	b.done(cq, 1)
	never := t.from(a, func(u *setup) { u.attr.RNRRetry = 1 })
	never.send(into(empty, send(6)))
	a.want(a.scq, 6, rdma.WCRNRRetryExcErr)
}

func xrcHalves(r *rig, a, b *side) {
	t := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	l := t.from(a)
	result(l.qa.PostRecv([]rdma.RecvWR{receive(1)})).refused(r, "a receive at the initiator", nil)
	result(l.qb.PostRecv([]rdma.RecvWR{receive(1)})).refused(r, "a receive at the target", nil)
	result(l.qb.PostSend([]rdma.SendWR{send(1)})).refused(r, "a request at the target", nil)
	l.works(2)
	result(b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.XRCRecv})).refused(r, "a target without a domain", nil)
	result(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1}, Type: rdma.SRQXRC, CQ: b.rcq})).refused(r, "a queue of XRC without a domain", nil)
	result(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1}, Type: rdma.SRQXRC, XRCD: t.x})).refused(r, "a queue of XRC without a completion queue", nil)
}

// xrcStates: the initiator has what a requester needs, the target what a
// responder does.
func xrcStates(r *rig, a, b *side) {
	t := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	l := t.from(a)
	r.move(l.qa, rdma.StateReset)
	r.move(l.qb, rdma.StateReset)
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		attr := l.attrs(i, defaults())
		attr.State = rdma.StateInit
		r.must(qp.Modify(attr, initMask), "half %d to INIT", i)
		attr.State = rdma.StateRTR
		wrong, right := rtrMask, ucRTRMask
		if i == 1 {
			wrong, right = right, wrong
		}
		r.wantErr("RTR with the other half's attributes", qp.Modify(attr, wrong), rdma.ErrInvalid)
		r.must(qp.Modify(attr, right), "half %d to RTR", i)
		attr.State = rdma.StateRTS
		wrong, right = rdma.QPStateMask|rdma.QPTimeoutMask|rdma.QPSQPSNMask, rtsMask
		if i == 1 {
			wrong, right = right, wrong
		}
		r.wantErr("RTS with the other half's attributes", qp.Modify(attr, wrong), rdma.ErrInvalid)
		r.must(qp.Modify(attr, right), "half %d to RTS", i)
	}
	l.works(1)
}

func xrcBusy(r *rig, s *side) {
	t := s.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	srq := t.queue(4, s.rcq)
	r.wantErr("closing a domain with a queue", t.x.Close(), rdma.ErrBusy)
	cq := s.newCQ(4)
	other := t.queue(4, cq)
	r.wantErr("closing a completion queue with a queue of XRC", cq.Close(), rdma.ErrBusy)
	r.close(other, cq, srq)
	l := t.from(s)
	r.wantErr("closing a domain with a target", t.x.Close(), rdma.ErrBusy)
	r.close(l.qb, t.x)
	result(s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1}, Type: rdma.SRQXRC, XRCD: t.x, CQ: s.rcq})).refused(r, "a queue in a domain that is closed", nil)
}

// a file that names domains, in the test's directory.
func (r *rig) file(name string) *os.File {
	r.Helper()
	f := result(os.Create(filepath.Join(r.TempDir(), name))).must(r, "Create")
	r.Cleanup(func() { f.Close() })
	return f
}

// xrcFile: all that open a domain by one file have the same one, by the rules of
// open(2); it goes with the last that closes it.
func xrcFile(r *rig, a, b *side) {
	f, g := r.file("one"), r.file("two")
	refuse := func(what string, attr rdma.XRCDInitAttr) {
		r.Helper()
		result(b.ctx.OpenXRCD(attr)).refused(r, what, nil)
	}
	refuse("a domain that there is not", rdma.XRCDInitAttr{File: f})
	t := b.domain(rdma.XRCDInitAttr{File: f, Flags: os.O_CREATE | os.O_EXCL})
	refuse("a domain that there is, with O_EXCL", rdma.XRCDInitAttr{File: f, Flags: os.O_CREATE | os.O_EXCL})
	refuse("unknown flags", rdma.XRCDInitAttr{File: f, Flags: os.O_TRUNC})
	same, other := b.domain(rdma.XRCDInitAttr{File: f}), b.domain(rdma.XRCDInitAttr{File: g, Flags: os.O_CREATE})
	q, foreign := same.queue(4, b.rcq), other.queue(4, b.rcq)
	postSRQ(r, q, receive(1))
	postSRQ(r, foreign, receive(2))
	l := t.from(a)
	l.do(into(q, send(3)))
	b.done(b.rcq, 1)
	l.isRefused(into(foreign, send(4)))
	r.close(q, l.qb, t.x)
	r.close(b.domain(rdma.XRCDInitAttr{File: f}).x) // it is still there
	r.close(same.x)
	refuse("a domain that all have closed", rdma.XRCDInitAttr{File: f})
}

// xrcNode: sides 1 and 2 stand for two processes of a node; side 0 reaches the
// queues of both through one connection, to side 1. Where they are of different
// nodes it is refused.
func xrcNode(r *rig) {
	a, b, c := r.sides[0], r.sides[1], r.sides[2]
	f := r.file("domain")
	t := b.domain(rdma.XRCDInitAttr{File: f, Flags: os.O_CREATE})
	x, err := c.ctx.OpenXRCD(rdma.XRCDInitAttr{File: f})
	if err != nil {
		r.Logf("these sides share no domain: %v", err)
		return
	}
	r.own(x)
	u := &target{c, x}
	src, inB, inC := a.memory(256<<10), b.memory(128<<10), c.memory(128<<10)
	qb, qc := t.queue(8, b.rcq), u.queue(8, c.rcq)
	l := t.from(a)
	for i := range uint64(30) {
		side, q, m := b, qb, inB
		if i%3 != 0 {
			side, q, m = c, qc, inC
		}
		n := 16 << (i % 13)
		postSRQ(r, q, receive(i, m.sge(0, 100), m.sge(100, n)))
		src.Store(0, pattern(i, n))
		l.do(into(q, send(i, src.sge(0, n))))
		if wc := side.done(side.rcq, i); wc.ByteLen != uint32(n) || wc.QPNum != l.qb.Num() {
			r.Fatalf("message %d of %d bytes: %+v", i, n, wc)
		}
		r.same("message", m.Load(0, n), pattern(i, n))
	}
	b.none(b.rcq)
	c.none(c.rcq)
	// Several connections into one queue of the other process.
	second := t.from(a)
	counts := map[uint64]int{}
	for i := range uint64(8) {
		postSRQ(r, qc, receive(i, inC.sge(int(i)*16, 16)))
	}
	for i := range uint64(8) {
		src.Store(int(i)*16, binary.LittleEndian.AppendUint64(nil, i))
		m := []*link{l, second}[i%2]
		m.send(into(qc, send(i, src.sge(int(i)*16, 16))))
	}
	for range 8 {
		if wc := a.next(a.scq); wc.Status != rdma.WCSuccess {
			r.Fatalf("a send: %+v %q", wc, wc.Status)
		}
		wc := c.next(c.rcq)
		counts[binary.LittleEndian.Uint64(inC.Load(int(wc.WRID)*16, 8))]++
	}
	for i := range uint64(8) {
		if counts[i] != 1 {
			r.Errorf("message %d came %d times", i, counts[i])
		}
	}
	// The receives of one process are its own to spoil.
	bad := inC.sge(0, 16)
	bad.LKey ^= 1
	postSRQ(r, qc, receive(50, bad))
	l.send(into(qc, send(51, src.sge(0, 16))))
	a.want(a.scq, 51, rdma.WCRemOpErr)
	c.want(c.rcq, 50, rdma.WCLocProtErr)
	b.state(l.qb, rdma.StateErr)
	second.works(52)
}

// xrcOpen: a target is shared by its number; closing it leaves it to the others.
func xrcOpen(r *rig, a, b *side) {
	f := r.file("domain")
	t := b.domain(rdma.XRCDInitAttr{File: f, Flags: os.O_CREATE})
	other := b.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	q := t.queue(8, b.rcq)
	l := t.from(a)
	num := l.qb.Num()
	result(b.ctx.OpenQP(num, other.x)).refused(r, "a target of another domain", nil)
	result(b.ctx.OpenQP(num^1, t.x)).refused(r, "a target that there is not", nil)
	first := result(b.ctx.OpenQP(num, t.x)).must(r, "OpenQP(%#x)", num)
	second := result(b.ctx.OpenQP(num, t.x)).must(r, "OpenQP(%#x) again", num)
	works := func(id uint64) {
		r.Helper()
		postSRQ(r, q, receive(id))
		l.do(into(q, send(id)))
		b.done(b.rcq, id)
	}
	if first.Num() != num || first.State() != rdma.StateRTS {
		r.Errorf("opened %#x as %#x in %v", num, first.Num(), first.State())
	}
	works(1)
	r.must(first.Close(), "closing what was opened")
	works(2)
	r.close(l.qb) // its maker's own
	works(3)
	r.must(second.Close(), "closing what was opened last")
	result(b.ctx.OpenQP(num, t.x)).refused(r, "a target that all have closed", nil)
}
