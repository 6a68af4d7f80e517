package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func counterCases() []testCase {
	return []testCase{
		{name: "counters/computed_by_hand", nodes: 2, run: pair(countersByHand)},
		{name: "counters/queued_work_is_not_counted", nodes: 2, run: pair(countersQueued)},
		{name: "counters/errors_of_requesters", nodes: 2, run: pair(countersErrors)},
	}
}

// minus is what was counted since before. Where the device retries by itself
// the retries are left out.
func minus(after, before rdma.Counters) rdma.Counters {
	return rdma.Counters{
		Writes: after.Writes - before.Writes, WriteBytes: after.WriteBytes - before.WriteBytes,
		Reads: after.Reads - before.Reads, ReadBytes: after.ReadBytes - before.ReadBytes,
		Sends: after.Sends - before.Sends, SendBytes: after.SendBytes - before.SendBytes,
		Atomics: after.Atomics - before.Atomics, Inline: after.Inline - before.Inline,
		Batches: after.Batches - before.Batches, Errors: after.Errors - before.Errors,
		RNRRetries: after.RNRRetries - before.RNRRetries, AckRetries: after.AckRetries - before.AckRetries,
	}
}

func (r *rig) counted(what string, s *side, before, want rdma.Counters) {
	r.Helper()
	got := minus(s.ctx.Counters(), before)
	if r.f.Adversarial || r.f.InexactRetries {
		got.RNRRetries, got.AckRetries, want.RNRRetries, want.AckRetries = 0, 0, 0, 0
	}
	if got != want {
		r.Errorf("%s: counted\n%+v, want\n%+v", what, got, want)
	}
}

func countersByHand(r *rig, a, b *side) {
	src, dst := a.memory(20_000), b.memory(20_000)
	l := r.link()
	started := b.ctx.Counters()
	do := func(what string, want rdma.Counters, wrs ...rdma.SendWR) {
		r.Helper()
		before := a.ctx.Counters()
		wrs[len(wrs)-1].Flags |= rdma.SendSignaled
		l.send(wrs...)
		for _, wr := range wrs {
			if wr.Flags&rdma.SendSignaled != 0 {
				a.done(a.scq, wr.WRID)
			}
		}
		r.counted(what, a, before, want)
	}
	l.recv(receive(1, dst.sge(0, 10_000)), receive(2), receive(3, dst.sge(0, 5)), receive(4, dst.sge(0, 7)))
	inline := func(wr rdma.SendWR, n int) rdma.SendWR {
		wr.SGL, wr.Inline = nil, make([]byte, n)
		wr.Flags |= rdma.SendInline
		return wr
	}
	do("one write", rdma.Counters{Writes: 1, WriteBytes: 100, Batches: 1}, write(1, dst, 0, src.sge(0, 100)))
	do("an unsignaled and a signaled write", rdma.Counters{Writes: 2, WriteBytes: 12_007, Batches: 1},
		unsignaled(write(1, dst, 0, src.sge(0, 12_000))), write(2, dst, 0, src.sge(0, 3), src.sge(9, 4)))
	do("nothing written", rdma.Counters{Writes: 1, Batches: 1}, write(1, dst, 0))
	do("reads", rdma.Counters{Reads: 2, ReadBytes: 5_010, Batches: 1}, read(1, dst, 0, src.sge(0, 5_000)), read(2, dst, 7, src.sge(0, 4), src.sge(8, 6)))
	do("a send", rdma.Counters{Sends: 1, SendBytes: 9_999, Batches: 1}, send(1, src.sge(0, 9_999)))
	do("a write with immediate", rdma.Counters{Writes: 1, WriteBytes: 11, Batches: 1}, writeImm(1, 1, dst, 0, src.sge(0, 11)))
	do("atomics", rdma.Counters{Atomics: 3, Batches: 1}, fetchAdd(1, dst, 0, 1, src.sge(0, 8)), compareSwap(2, dst, 0, 1, 1, src.sge(0, 8)), fetchAdd(3, dst, 8, 0, src.sge(0, 8)))
	do("inline of each kind", rdma.Counters{Writes: 2, WriteBytes: 25, Sends: 2, SendBytes: 12, Inline: 4, Batches: 1},
		inline(write(1, dst, 0), 13), inline(send(2), 5), inline(sendImm(3, 9), 7), inline(write(4, dst, 3), 12))
	before := a.ctx.Counters()
	for i := range uint64(5) {
		l.do(write(i, dst, 0, src.sge(0, 1)))
	}
	r.counted("five posts of one", a, before, rdma.Counters{Writes: 5, WriteBytes: 5, Batches: 5})
	before = a.ctx.Counters()
	bad := write(2, dst, 0)
	bad.Opcode = 99
	result(l.qa.PostSend([]rdma.SendWR{bad, bad})).refused(r, "bad requests", nil)
	r.counted("a refused post", a, before, rdma.Counters{})
	if n, err := l.qa.PostSend([]rdma.SendWR{write(1, dst, 0, src.sge(0, 2)), bad}); n != 1 || err == nil {
		r.Fatalf("a half bad list: %d, %v", n, err)
	}
	a.done(a.scq, 1)
	r.counted("a half refused post", a, before, rdma.Counters{Writes: 1, WriteBytes: 2, Batches: 1})
	// All that was done to b; b has done nothing.
	r.counted("the responder", b, started, rdma.Counters{})
	l.back().do(write(1, src, 0, dst.sge(0, 21)))
	r.counted("the responder as requester", b, started, rdma.Counters{Writes: 1, WriteBytes: 21, Batches: 1})
}

func countersQueued(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	before := a.ctx.Counters()
	l.send(send(1, src.sge(0, 8)), write(2, dst, 8, src.sge(0, 8)))
	r.until("an RNR retry", func() bool {
		a.none(a.scq)
		return a.ctx.Counters().RNRRetries > before.RNRRetries
	})
	now := minus(a.ctx.Counters(), before)
	now.RNRRetries = 0
	if now.AckRetries = 0; now != (rdma.Counters{Batches: 1}) {
		r.Errorf("while the send waits: counted %+v, want one batch", now)
	}
	l.recv(receive(3, dst.sge(0, 8)))
	a.done(a.scq, 1, 2)
	b.done(b.rcq, 3)
	now = minus(a.ctx.Counters(), before)
	now.RNRRetries, now.AckRetries = 0, 0
	if want := (rdma.Counters{Sends: 1, SendBytes: 8, Writes: 1, WriteBytes: 8, Batches: 1}); now != want {
		r.Errorf("afterwards: counted %+v, want %+v", now, want)
	}
}

func countersErrors(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	beforeA, beforeB := a.ctx.Counters(), b.ctx.Counters()
	l.recv(receive(1, dst.sge(0, 4)), receive(2), receive(3))
	postRecv(r, l.qa, receive(4))
	l.send(send(5, src.sge(0, 8)), write(6, dst, 0, src.sge(0, 8)))
	a.fail(a.scq, rdma.WCRemInvReqErr, 5, 6)
	a.want(a.rcq, 4, rdma.WCWRFlushErr)
	b.fail(b.rcq, rdma.WCLocLenErr, 1, 2, 3)
	// Those of requesters: b requested nothing.
	equal(r, a.ctx.Counters().Errors-beforeA.Errors, 2, "errors that the requester counted:")
	r.counted("the responder", b, beforeB, rdma.Counters{})
	post(r, l.qb, unsignaled(write(7, src, 0, dst.sge(0, 8))))
	b.want(b.scq, 7, rdma.WCWRFlushErr)
	equal(r, b.ctx.Counters().Errors-beforeB.Errors, 1, "errors that the responder counted, as requester:")
}
