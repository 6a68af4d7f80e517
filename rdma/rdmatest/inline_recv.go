package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func inlineRecvCases() []testCase {
	return needing([]testCase{
		{name: "inline_recv/small_payload_is_copied_at_the_poll", nodes: 2, run: pair(inlineRecvAtPoll)},
		{name: "inline_recv/any_sizes_in_order", nodes: 2, run: pair(inlineRecvOrder)},
		{name: "inline_recv/too_much_is_EINVAL", nodes: 1, run: single(inlineRecvBad)},
		{name: "inline_recv/errors_as_without_it", nodes: 2, run: inlineRecvErrors},
		{name: "inline_recv/region_gone_before_the_poll_is_LOC_PROT_ERR", nodes: 2, run: pair(inlineRecvDereg)},
		{name: "inline_recv/flush_and_reset_leave_memory_alone", nodes: 2, run: pair(inlineRecvReset)},
	}, rdma.FeatureInlineRecv)
}

// carrying makes b's queue pair of a link one with n bytes of inline receive.
func carrying(n int) func(*setup) {
	return func(u *setup) {
		u.init = func(side int, i *rdma.QPInitAttr) {
			if side == 1 {
				i.Cap.MaxInlineRecv = n
			}
		}
	}
}

// inlineRecvAtPoll: what fits lies in the completion until that is polled, what
// does not is in place before.
func inlineRecvAtPoll(r *rig, a, b *side) {
	const size = 256
	src, dst := a.memory(size), b.memory(size)
	l := r.link(carrying(32))
	_, init := l.qb.Query()
	most := init.Cap.MaxInlineRecv
	if most < 32 || most > b.ctx.QueryDevice().MaxInlineRecv {
		r.Fatalf("a queue pair asked for 32 bytes of inline receive has %d", most)
	}
	for i, n := range []int{1, 7, 8, 32, most, most + 1, 200} {
		want := pattern(uint64(i), n)
		src.Store(0, want)
		dst.Store(0, make([]byte, size))
		l.recv(receive(uint64(i), dst.sge(3, 5), dst.sge(20, 0), dst.sge(20, size-20)))
		l.do(sendImm(uint64(i), 9, src.sge(0, n)))
		before := make([]byte, size)
		landed := func(m []byte) {
			copy(m[20:], want[copy(m[3:8], want):])
		}
		if n > most {
			landed(before)
		}
		r.same("memory before the poll", dst.Load(0, size), before)
		if wc := b.done(b.rcq, uint64(i)); wc.Opcode != rdma.WCRecv || wc.ByteLen != uint32(n) || wc.ImmData != 9 || wc.Flags&rdma.WCFlagWithImm == 0 {
			r.Errorf("completion of %d bytes: %+v", n, wc)
		}
		after := make([]byte, size)
		landed(after)
		r.same("memory after the poll", dst.Load(0, size), after)
	}
}

func inlineRecvOrder(r *rig, a, b *side) {
	const size, depth, total = 128, 4, 200
	src, dst := a.memory(size), b.memory(size*depth)
	l := r.link(carrying(b.ctx.QueryDevice().MaxInlineRecv))
	for i := range depth {
		l.recv(receive(uint64(i), dst.sge(i*size, size)))
	}
	for i := range uint64(total) {
		n := int(i*37) % (size + 1)
		src.Store(0, pattern(i, size))
		l.do(send(i, src.sge(0, n)))
		at := int(i%depth) * size
		wc := b.done(b.rcq, i)
		if wc.ByteLen != uint32(n) {
			r.Fatalf("message %d of %d bytes: %+v", i, n, wc)
		}
		r.same("message", dst.Load(at, n), pattern(i, size)[:n])
		l.recv(receive(i+depth, dst.sge(at, size)))
	}
}

func inlineRecvBad(r *rig, s *side) {
	for _, n := range []int{-1, s.ctx.QueryDevice().MaxInlineRecv + 1} {
		init := rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Type: rdma.RC, Cap: defaults().cap}
		init.Cap.MaxInlineRecv = n
		result(s.pd.CreateQP(init)).refused(r, "an inline receive out of bounds", rdma.ErrInvalid)
	}
}

// inlineRecvErrors: that a message could be carried does not excuse a receive
// that it does not fit, or whose memory is not the program's.
func inlineRecvErrors(r *rig) {
	for _, c := range []struct {
		name         string
		spoil        func(*rdma.SGE)
		theirs, ours rdma.WCStatus
	}{
		{"too small", func(g *rdma.SGE) { g.Length = 7 }, rdma.WCRemInvReqErr, rdma.WCLocLenErr},
		{"no such key", func(g *rdma.SGE) { g.LKey ^= 1 }, rdma.WCRemOpErr, rdma.WCLocProtErr},
		{"outside the region", func(g *rdma.SGE) { g.Addr += 1 << 20 }, rdma.WCRemOpErr, rdma.WCLocProtErr},
	} {
		r.sub(c.name, pair(func(r *rig, a, b *side) {
			src, dst := a.memory(64), b.memory(64)
			l := r.link(carrying(32))
			bad := dst.sge(0, 64)
			c.spoil(&bad)
			l.recv(receive(1, bad), receive(2, dst.sge(0, 64)))
			l.send(send(3, src.sge(0, 8)))
			a.want(a.scq, 3, c.theirs)
			b.want(b.rcq, 1, c.ours)
			b.want(b.rcq, 2, rdma.WCWRFlushErr)
		}))
	}
}

func inlineRecvDereg(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link(carrying(32))
	l.recv(receive(1, dst.sge(0, 32)), receive(2, dst.sge(0, 32)))
	l.do(send(3, src.sge(0, 8)))
	r.closeRegion(dst)
	b.fail(b.rcq, rdma.WCLocProtErr, 1, 2)
	b.state(l.qb, rdma.StateErr)
}

func inlineRecvReset(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l := r.link(carrying(32))
	l.recv(receive(1, dst.sge(0, 32)), receive(2, dst.sge(32, 32)))
	l.do(send(3, src.sge(0, 8)))
	r.move(l.qb, rdma.StateReset)
	b.none(b.rcq)
	r.same("memory of receives that a reset has dropped", dst.Load(0, 64), make([]byte, 64))
	l = r.link(carrying(32))
	l.recv(receive(1, dst.sge(0, 32)), receive(2, dst.sge(32, 32)))
	l.do(send(3, src.sge(0, 8)))
	r.move(l.qb, rdma.StateErr)
	b.done(b.rcq, 1) // it was complete before
	b.want(b.rcq, 2, rdma.WCWRFlushErr)
	want := append(pattern(1, 64)[:8:8], make([]byte, 56)...)
	r.same("memory of a receive that was complete, and of one that was flushed", dst.Load(0, 64), want)
}
