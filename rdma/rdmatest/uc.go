package rdmatest

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func ucCases() []testCase {
	exact := func(f Fabric) bool { return !f.Inexact }
	return needing([]testCase{
		{name: "uc/write_send_and_immediate", nodes: 2, run: pair(ucTransfer)},
		{name: "uc/without_a_receive_it_is_lost", nodes: 2, run: pair(ucNoReceive)},
		{name: "uc/what_the_responder_refuses_is_lost", nodes: 2, run: pair(ucRefused), when: exact},
		{name: "uc/to_nobody_is_lost", nodes: 2, run: pair(ucNobody)},
		{name: "uc/no_reads_and_no_atomics", nodes: 2, run: pair(ucOps)},
		{name: "uc/local_error_is_SQE", nodes: 2, run: pair(ucSQE), when: exact},
		{name: "uc/bad_receive_is_ERR", nodes: 2, run: pair(ucBadReceive), when: exact},
		{name: "uc/states_have_no_timers", nodes: 1, run: single(ucStates)},
		{name: "uc/order_of_what_arrives", nodes: 2, run: pair(ucOrder)},
	}, rdma.FeatureUC)
}

// The attributes that a step of a UC queue pair needs.
const (
	ucRTRMask = rdma.QPStateMask | rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPDestQPNMask | rdma.QPRQPSNMask
	ucRTSMask = rdma.QPStateMask | rdma.QPSQPSNMask
)

// unreliable connects two queue pairs of UC.
func (r *rig) unreliable(changes ...func(*setup)) *link {
	r.Helper()
	u := defaults()
	u.init = func(_ int, i *rdma.QPInitAttr) { i.Type = rdma.UC }
	for _, change := range changes {
		change(&u)
	}
	l := &link{r: r, a: r.sides[0], b: r.sides[len(r.sides)-1]}
	l.qa, l.qb = l.a.newQP(u, 0), l.b.newQP(u, 1)
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		l.a.steps(qp, l.attrs(i, u), initMask, ucRTRMask, ucRTSMask)
	}
	return l
}

// shout sends a message, again when the fabric has lost it, until there says
// that it has arrived. Each try completes at the sender.
func (l *link) shout(wr rdma.SendWR, there func() bool) {
	l.r.Helper()
	for try := 1; ; try++ {
		l.send(wr)
		l.a.done(l.a.scq, wr.WRID)
		if !l.r.f.Adversarial {
			l.r.until("an unreliable message", there)
			return
		}
		if waitFor(lossPatience, there) {
			return
		}
		if try > 200 {
			l.r.Fatalf("a message got lost %d times", try)
		}
	}
}

// arrives sends a message to receive id and gives its completion.
func (l *link) arrives(wr rdma.SendWR, id uint64) (wc rdma.WC) {
	l.r.Helper()
	l.shout(wr, func() bool {
		var ok bool
		wc, ok = l.b.poll(l.b.rcq)
		return ok
	})
	if wc.WRID != id || wc.Status != rdma.WCSuccess || wc.QPNum != l.qb.Num() {
		l.r.Fatalf("receive %d completes %+v %q", id, wc, wc.Status)
	}
	return wc
}

func ucTransfer(r *rig, a, b *side) {
	const most = 200_000
	src, dst := a.memory(most+8), b.memory(most+8)
	l := r.unreliable()
	for i, size := range []int{1, 8, 1024, 1025, 70_000, most} {
		id := uint64(i + 1)
		src.Store(0, pattern(id, size))
		src.store64(most, id)
		l.lost(write(id, dst, 0, src.sge(0, size))) // or not
		// Messages arrive in order: behind this one the write is there, or lost.
		l.recv(receive(id))
		if wc := l.arrives(writeImm(id, uint32(id), dst, most, src.sge(most, 8)), id); wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ImmData != uint32(id) || wc.ByteLen != 8 {
			r.Errorf("the immediate: %+v", wc)
		}
		equal(r, dst.Load64(most), id, "written with the immediate:")
		if !r.f.Adversarial {
			r.same("written", dst.Load(0, size), pattern(id, size))
		}
		src.Store(0, pattern(id+100, size))
		l.recv(receive(id, dst.sge(0, size)))
		if wc := l.arrives(sendImm(id, 7, src.sge(0, size)), id); wc.Opcode != rdma.WCRecv || wc.ByteLen != uint32(size) || wc.ImmData != 7 {
			r.Errorf("the send: %+v", wc)
		}
		r.same("sent", dst.Load(0, size), pattern(id+100, size))
	}
	b.none(b.rcq)
}

// lost sends what may not arrive, and must not where a case says so. Behind it
// something else does.
func (l *link) lost(wrs ...rdma.SendWR) {
	l.r.Helper()
	l.send(wrs...)
	for i := range wrs {
		l.a.done(l.a.scq, wrs[i].WRID)
	}
}

func ucNoReceive(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.unreliable()
	l.lost(send(1, src.sge(0, 8)), send(2, src.sge(0, 8)), writeImm(3, 1, dst, 32, src.sge(0, 8)))
	src.store64(0, 5)
	l.shout(write(4, dst, 0, src.sge(0, 8)), func() bool { return dst.Load64(0) == 5 })
	l.recv(receive(9, dst.sge(8, 8)))
	l.arrives(send(5, src.sge(0, 8)), 9)
	b.none(b.rcq)
	equal(r, l.qb.State(), rdma.StateRTS, "the responder is in")
}

// ucRefused: nobody tells the requester, and the responder goes on.
func ucRefused(r *rig, a, b *side) {
	src, dst := a.filled(128, 1), b.memory(128)
	l := r.unreliable()
	stale := astray(write(1, dst, 0, src.sge(0, 8)))
	l.recv(receive(9, dst.sge(64, 8)))
	l.lost(stale, write(2, dst, 124, src.sge(0, 8)), send(3, src.sge(0, 9)))
	mute := r.unreliable(func(u *setup) {
		u.each = func(side int, attr *rdma.QPAttr) { attr.AccessFlags = 0 }
	})
	mute.lost(write(4, dst, 0, src.sge(0, 8)))
	l.arrives(send(5, src.sge(0, 8)), 9)
	r.same("memory that nothing may reach", dst.Load(0, 64), make([]byte, 64))
	r.same("received", dst.Load(64, 8), pattern(1, 128)[:8])
	for _, qp := range []rdma.QP{l.qa, l.qb, mute.qa, mute.qb} {
		equal(r, qp.State(), rdma.StateRTS, "a queue pair is in")
	}
}

func ucNobody(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l, beside := r.unreliable(), r.unreliable()
	r.close(l.qb)
	l.lost(write(1, dst, 0, src.sge(0, 8)), send(2, src.sge(0, 8)))
	src.store64(0, 5)
	beside.shout(write(3, dst, 8, src.sge(0, 8)), func() bool { return dst.Load64(8) == 5 })
	equal(r, dst.Load64(0), 0, "a write to a queue pair that is closed left")
	equal(r, l.qa.State(), rdma.StateRTS, "the requester is in")
}

func ucOps(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.unreliable()
	for _, wr := range []rdma.SendWR{read(1, dst, 0, src.sge(0, 8)), fetchAdd(2, dst, 0, 1, src.sge(0, 8)), compareSwap(3, dst, 0, 0, 1, src.sge(0, 8))} {
		result(l.qa.PostSend([]rdma.SendWR{wr})).refused(r, fmt.Sprintf("operation %d", wr.Opcode), nil)
	}
	src.store64(0, 5)
	l.shout(write(4, dst, 8, src.sge(0, 8)), func() bool { return dst.Load64(8) == 5 })
	a.none(a.scq)
	equal(r, dst.Load64(0), 0, "what was refused left")
}

func ucSQE(r *rig, a, b *side) {
	l := r.unreliable()
	dst := b.memory(64)
	p := &port{side: a, qp: l.qa, mem: a.memory(64)}
	sqe(r, p, b, func(id uint64, sgl ...rdma.SGE) rdma.SendWR { return write(id, dst, 0, sgl...) })
	p.mem.store64(8, 5)
	l.shout(write(4, dst, 8, p.mem.sge(8, 8)), func() bool { return dst.Load64(8) == 5 })
	equal(r, dst.Load64(0), 0, "what was flushed left")
	equal(r, l.qb.State(), rdma.StateRTS, "the responder is in")
}

func ucBadReceive(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.unreliable()
	bad := dst.sge(0, 8)
	bad.LKey ^= 1
	l.recv(receive(1, bad), receive(2, dst.sge(0, 8)))
	var wc rdma.WC
	l.shout(send(3, src.sge(0, 8)), func() bool {
		var ok bool
		wc, ok = b.poll(b.rcq)
		return ok
	})
	if wc.WRID != 1 || !r.f.fits(wc.Status, rdma.WCLocProtErr) {
		r.Errorf("completed %+v %q", wc, wc.Status)
	}
	b.want(b.rcq, 2, rdma.WCWRFlushErr)
	b.state(l.qb, rdma.StateErr)
	equal(r, l.qa.State(), rdma.StateRTS, "the requester is in")
}

func ucStates(r *rig, s *side) {
	l := r.unreliable()
	r.move(l.qa, rdma.StateReset)
	attr := l.attrs(0, defaults())
	attr.State = rdma.StateInit
	r.must(l.qa.Modify(attr, initMask), "modify to INIT")
	attr.State = rdma.StateRTR
	r.wantErr("RTR with what answers need", l.qa.Modify(attr, rtrMask), rdma.ErrInvalid)
	r.must(l.qa.Modify(attr, ucRTRMask), "modify to RTR")
	attr.State = rdma.StateRTS
	r.wantErr("RTS with timers", l.qa.Modify(attr, rtsMask), rdma.ErrInvalid)
	r.must(l.qa.Modify(attr, ucRTSMask), "modify to RTS")
	s.state(l.qa, rdma.StateRTS)
}

// ucOrder: of many messages those that arrive do so in order, and whole.
func ucOrder(r *rig, a, b *side) {
	const each, depth, total = 3000, 8, 64
	src, dst := a.memory(each), b.memory(depth*each)
	l := r.unreliable()
	for i := range uint64(depth) {
		l.recv(receive(i, dst.sge(int(i)*each, each)))
	}
	next, last := uint64(0), -1
	send := func(k int) (look func() bool) {
		src.Store(0, pattern(uint64(k), each))
		l.do(sendImm(uint64(k), uint32(k), src.sge(0, each)))
		return func() bool {
			wc, ok := b.poll(b.rcq)
			if !ok {
				return false
			}
			if wc.WRID != next || wc.Status != rdma.WCSuccess || int(wc.ImmData) <= last || wc.ByteLen != each {
				r.Fatalf("message %d: completed %+v %q, the last was %d", k, wc, wc.Status, last)
			}
			at := int(next%depth) * each
			r.same("message", dst.Load(at, each), pattern(uint64(wc.ImmData), each))
			last = int(wc.ImmData)
			next++
			l.recv(receive(next+depth-1, dst.sge(at, each)))
			return true
		}
	}
	k := 0
	for ; k < total; k++ {
		if look := send(k); r.f.Adversarial {
			look()
		} else {
			r.until("a message", look)
		}
	}
	// What was lost because its receives came late says nothing: some later one arrives.
	r.until("a later message", func() bool {
		if last < total/4 {
			send(k)()
			k++
		}
		return last >= total/4
	})
}
