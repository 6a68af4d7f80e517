package rdmatest

import (
	"fmt"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

func rnrCases() []testCase {
	return []testCase{
		{name: "rnr/retry_count_then_RNR_RETRY_EXC_ERR", nodes: 2, run: rnrCounts},
		{name: "rnr/count_7_waits_for_ever", nodes: 2, run: pair(rnrForEver)},
		{name: "rnr/retries_start_anew_with_each_message", nodes: 2, run: pair(rnrAnew)},
		{name: "rnr/write_imm_needs_a_receive_too", nodes: 2, run: pair(rnrWriteImm)},
		{name: "rnr/nothing_overtakes_a_waiting_send", nodes: 2, run: pair(rnrOrder)},
	}
}

// rnrCounts: without a receive a send is tried 1+rnr_retry times, the
// responder's timer apart.
func rnrCounts(r *rig) {
	for _, count := range []uint8{0, 1, 3, 6} {
		r.sub(fmt.Sprint(count), pair(func(r *rig, a, b *side) {
			src, dst := a.memory(64), b.memory(64)
			l := r.link(func(u *setup) { u.attr.RNRRetry, u.attr.MinRNRTimer = count, 14 }) // 1.28 ms
			before := a.ctx.Counters()
			start := time.Now()
			l.send(unsignaled(send(1, src.sge(0, 8))), unsignaled(write(2, dst, 0, src.sge(0, 8))))
			a.want(a.scq, 1, rdma.WCRNRRetryExcErr)
			took := time.Since(start)
			a.want(a.scq, 2, rdma.WCWRFlushErr)
			a.state(l.qa, rdma.StateErr)
			// The responder lives on.
			equal(r, l.qb.State(), rdma.StateRTS, "the responder is in")
			if least := time.Duration(count) * 1280 * time.Microsecond; took < least {
				r.Errorf("gave up after %v, want at least %d waits of 1.28 ms", took, count)
			}
			if got := a.ctx.Counters().RNRRetries - before.RNRRetries; got != uint64(count) && !(r.f.Adversarial && got > uint64(count)) && !r.f.InexactRetries {
				r.Errorf("counted %d retries, want %d", got, count)
			}
			equal(r, a.ctx.Counters().Errors-before.Errors, 2, "errors counted:")
		}))
	}
}

// rnrForEver posts the receive only after more than seven retries.
func rnrForEver(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l := r.link(func(u *setup) { u.attr.RNRRetry, u.attr.MinRNRTimer = 7, 1 })
	a.untilRNR(20, func() { l.send(send(1, src.sge(0, 64))) })
	l.recv(receive(2, dst.sge(0, 64)))
	a.done(a.scq, 1)
	b.done(b.rcq, 2)
	r.same("received", dst.Load(0, 64), pattern(1, 64))
	b.none(b.rcq)
}

// rnrAnew sends more messages, each late served, than one message may have
// retries.
func rnrAnew(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link(func(u *setup) { u.attr.RNRRetry, u.attr.MinRNRTimer = 6, 24 }) // 40.96 ms each: time to post
	for i := range uint64(8) {
		a.untilRNR(1, func() { l.send(send(i, src.sge(0, 8))) })
		l.recv(receive(100+i, dst.sge(0, 8)))
		a.done(a.scq, i)
		b.done(b.rcq, 100+i)
	}
}

func rnrWriteImm(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	never := r.link(func(u *setup) { u.attr.RNRRetry = 1 })
	never.fails(rdma.WCRNRRetryExcErr, writeImm(1, 5, dst, 0, src.sge(0, 8)))
	late := r.link()
	a.untilRNR(1, func() { late.send(writeImm(2, 6, dst, 8, src.sge(8, 8))) })
	late.recv(receive(3))
	a.done(a.scq, 2)
	if wc := b.done(b.rcq, 3); wc.ImmData != 6 || wc.ByteLen != 8 {
		r.Errorf("the immediate came as %+v", wc)
	}
	r.same("written", dst.Load(8, 8), pattern(1, 64)[8:16])
}

// rnrOrder: whatever stands behind a send that waits stays where it is, while
// another queue pair of the same contexts goes on.
func rnrOrder(r *rig, a, b *side) {
	src, dst := a.memory(128), b.memory(128)
	src.Store(0, pattern(1, 64))
	l, beside := r.link(), r.link()
	a.untilRNR(5, func() {
		l.send(send(1, src.sge(0, 8)), write(2, dst, 8, src.sge(8, 8)), fetchAdd(3, dst, 64, 5, src.sge(64, 8)))
		l.send(read(4, dst, 0, src.sge(72, 16)))
	})
	for i := range uint64(10) {
		beside.works(10 + i)
	}
	a.none(a.scq)
	r.same("memory before the receive", dst.Load(0, 128), make([]byte, 128))
	l.recv(receive(5, dst.sge(0, 8)))
	a.done(a.scq, 1, 2, 3, 4)
	b.done(b.rcq, 5)
	equal(r, dst.Load64(64), 5, "the atomic left")
	r.same("the read at the end", src.Load(72, 16), pattern(1, 64)[:16])
}

func ackCases() []testCase {
	return []testCase{
		{name: "ack/nobody_is_RETRY_EXC_ERR", nodes: 2, run: ackNobody},
		{name: "ack/late_peer_is_waited_for", nodes: 2, run: pair(ackLate)},
		{name: "ack/timeout_0_never_gives_up", nodes: 2, run: pair(ackNever)},
		{name: "ack/stranger_reaches_nothing", nodes: 3, run: ackStranger},
		{name: "ack/number_used_again_is_not_the_peer", nodes: 3, run: ackReused},
	}
}

func ackNobody(r *rig) {
	for _, c := range []struct {
		name string
		peer func(r *rig, l *link)
		stop rdma.QPState
	}{
		{"peer_in_INIT", func(*rig, *link) {}, rdma.StateInit},
		{"peer_in_RESET", func(r *rig, l *link) { r.move(l.qb, rdma.StateReset) }, 0},
		{"peer_in_ERR", func(r *rig, l *link) { r.move(l.qb, rdma.StateErr) }, 0},
		{"peer_closed", func(r *rig, l *link) { r.close(l.qb) }, 0},
	} {
		for _, op := range remoteOps(rdma.SGE{}) {
			for _, count := range []uint8{0, 2} {
				r.sub(fmt.Sprintf("%s_%s_retry_%d", c.name, op.name, count), pair(func(r *rig, a, b *side) {
					src, dst := a.filled(64, 1), b.filled(64, 2)
					l := r.link(func(u *setup) {
						u.until[1] = c.stop
						u.attr.Timeout, u.attr.RetryCnt = 8, count // 1.05 ms
					})
					c.peer(r, l)
					before := a.ctx.Counters()
					wr := op.to(dst.Base, dst.RKey())
					wr.WRID, wr.SGL = 1, []rdma.SGE{src.sge(0, 8)}
					start := time.Now()
					l.send(wr, unsignaled(write(2, dst, 0, src.sge(0, 8))))
					a.want(a.scq, 1, rdma.WCRetryExcErr)
					took := time.Since(start)
					a.want(a.scq, 2, rdma.WCWRFlushErr)
					a.state(l.qa, rdma.StateErr)
					r.same("the peer's memory", dst.Load(0, 64), pattern(2, 64))
					got := a.ctx.Counters().AckRetries - before.AckRetries
					if got != uint64(count) && !(r.f.Adversarial && got > uint64(count)) && !r.f.InexactRetries {
						r.Errorf("counted %d retries, want %d", got, count)
					}
					if least := time.Duration(count) * 1048 * time.Microsecond; took < least {
						r.Errorf("gave up after %v, want at least %d timeouts of 1.05 ms", took, count)
					}
				}))
			}
		}
	}
}

// ackLate posts before the peer is ready to receive.
func ackLate(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(128)
	l := r.link(func(u *setup) {
		u.until[1] = rdma.StateInit
		u.attr.Timeout = 15 // 0.13 s, eight times
	})
	l.recv(receive(1, dst.sge(64, 8)))
	l.send(send(2, src.sge(8, 8)), write(3, dst, 0, src.sge(0, 8)))
	other := r.link()
	for i := range uint64(5) {
		other.works(10 + i)
	}
	a.none(a.scq)
	r.same("memory of a peer in INIT", dst.Load(0, 128), make([]byte, 128))
	l.step(1, l.qb, defaults(), rdma.StateRTR)
	a.done(a.scq, 2, 3)
	b.done(b.rcq, 1)
	r.same("written", dst.Load(0, 8), pattern(1, 64)[:8])
	r.same("received", dst.Load(64, 8), pattern(1, 64)[8:16])
}

// ackNever: with a timeout of 0 a request waits on where others give up. (No
// more is said: nothing makes a device repeat it.)
func ackNever(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	waiting := r.link(func(u *setup) {
		u.until[1] = rdma.StateInit
		u.attr.Timeout, u.attr.RetryCnt = 0, 0
	})
	waiting.send(write(1, dst, 0, src.sge(0, 8)))
	for i := range uint64(3) {
		gives := r.link(func(u *setup) {
			u.until[1] = rdma.StateInit
			u.attr.Timeout, u.attr.RetryCnt = 8, 7
		})
		gives.send(write(2+i, dst, 0, src.sge(0, 8)))
		a.want(a.scq, 2+i, rdma.WCRetryExcErr)
	}
	a.none(a.scq)
	equal(r, waiting.qa.State(), rdma.StateRTS, "the queue pair is in")
	r.move(waiting.qa, rdma.StateErr)
	a.want(a.scq, 1, rdma.WCWRFlushErr)
}

// ackStranger: b's queue pair is connected with a's; c names it too.
func ackStranger(r *rig) {
	a, b, c := r.sides[0], r.sides[1], r.sides[2]
	l := r.link()
	dst := b.filled(64, 1)
	l.recv(receive(1, dst.sge(0, 8)))
	u := defaults()
	u.attr.Timeout, u.attr.RetryCnt = 8, 1
	src := c.memory(64)
	for i, wr := range []rdma.SendWR{write(2, dst, 0, src.sge(0, 8)), send(2, src.sge(0, 8)), fetchAdd(2, dst, 0, 1, src.sge(0, 8)), read(2, dst, 0, src.sge(0, 8))} {
		qp := c.newQP(u, 0)
		x := &link{r: r, a: c, b: b, qa: qp, qb: l.qb}
		x.steps(0, qp, u)
		post(r, qp, wr)
		if wc := c.next(c.scq); wc.Status == rdma.WCSuccess {
			r.Errorf("operation %d of a stranger succeeded", i)
		} else if !r.f.fits(wc.Status, rdma.WCRetryExcErr) {
			r.Errorf("operation %d of a stranger: %q, want %q", i, wc.Status, rdma.WCRetryExcErr)
		}
	}
	r.same("the memory", dst.Load(0, 64), pattern(1, 64))
	b.none(b.rcq)
	l.works(3)
	mine := a.memory(64)
	l.do(send(4, mine.sge(0, 8)))
	b.done(b.rcq, 1)
}

// ackReused closes b's queue pair and makes new ones, connected with c, until
// the number may be used again: a's traffic must not reach them.
func ackReused(r *rig) {
	a, b, c := r.sides[0], r.sides[1], r.sides[2]
	src, dst := a.memory(64), b.filled(64, 1)
	l := r.link(func(u *setup) { u.attr.Timeout, u.attr.RetryCnt = 8, 1 })
	l.do(write(1, dst, 8, src.sge(0, 1)))
	dst.Store(0, pattern(1, 64))
	r.close(l.qb)
	var successors []*link
	for i := range uint64(8) {
		s := r.connect(c, b)
		s.recv(receive(10+i, dst.sge(0, 8)))
		successors = append(successors, s)
	}
	l.send(send(2, src.sge(0, 8)))
	if wc := a.next(a.scq); !r.f.fits(wc.Status, rdma.WCRetryExcErr) {
		r.Errorf("a send to a closed queue pair: %q, want %q", wc.Status, rdma.WCRetryExcErr)
	}
	b.none(b.rcq)
	r.same("memory", dst.Load(0, 64), pattern(1, 64))
	for i, s := range successors {
		s.works(uint64(20 + i))
	}
}
