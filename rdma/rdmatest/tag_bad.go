package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func tagTooLong(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l, other := m.to(a), m.to(a)
	m.add(1, 1, exact, dst.sge(0, 20), dst.sge(64, 19))
	m.add(2, 1, exact, dst.sge(128, 64))
	src.Store(0, eager(1, 1, 0, 40))
	l.fails(rdma.WCRemInvReqErr, send(1, src.sge(0, rdma.TMHLen+40)))
	m.want(m.rcq, 1, rdma.WCLocLenErr)
	m.state(l.qb, rdma.StateErr)
	// The entry is used up, the others are not.
	other.deliver(src, 2, eager(2, 1, 0, 40))
	m.matched(2, 1, 0, 40)
	r.same("memory that was too little", dst.Load(0, 128), make([]byte, 128))
}

func tagBadKey(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	gone := m.memory(64)
	l, other := m.to(a), m.to(a)
	sge := gone.sge(0, 64)
	r.closeRegion(gone)
	m.add(1, 1, exact, sge)
	m.add(2, 1, exact, dst.sge(128, 64))
	src.Store(0, eager(1, 1, 0, 40))
	l.fails(rdma.WCRemOpErr, send(1, src.sge(0, rdma.TMHLen+40)))
	m.want(m.rcq, 1, rdma.WCLocProtErr)
	m.state(l.qb, rdma.StateErr)
	other.deliver(src, 2, eager(2, 1, 0, 40))
	m.matched(2, 1, 0, 40)
}

func tagMalformed(r *rig) {
	long := append(append(rdma.TMH{Opcode: rdma.TMRndv, Tag: 1}.Append(nil), rdma.RVH{Length: 8}.Append(nil)...), make([]byte, 256)...)
	for name, b := range map[string][]byte{
		"nothing": {}, "half a header": eager(1, 1, 0, 0)[:rdma.TMHLen-1], "an unknown kind": rdma.TMH{Opcode: 4, Tag: 1}.Append(nil),
		"half a rendezvous header": long[:rdma.TMHLen+rdma.RVHLen-1], "a rendezvous header that is too long": long[:r.sides[1].ctx.QueryDevice().MaxRndvHdr+1],
	} {
		r.sub(name, pair(func(r *rig, a, _ *side) {
			m := r.sides[1].matching(4, 4)
			src, dst := a.memory(512), m.memory(512)
			l, other := m.to(a), m.to(a)
			m.add(1, 1, exact, dst.sge(0, 64))
			postSRQ(r, m.srq, receive(100, dst.sge(64, 64)))
			src.Store(0, append(b, 0))
			l.isRefused(send(1, src.sge(0, len(b))))
			other.deliver(src, 2, eager(2, 1, 7, 8))
			m.matched(1, 1, 7, 8)
			other.deliver(src, 3, eager(3, 1, 7, 8))
			m.stray(100, 1, 7, rdma.TMHLen+8)
		}))
	}
}

func tagRNR(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	m.add(1, 1, exact, dst.sge(0, 64))
	l.deliver(src, 1, eager(1, 1, 0, 8)) // needs no receive
	m.matched(1, 1, 0, 8)
	waits := func(id uint64, tag uint64) {
		r.Helper()
		src.Store(0, eager(id, tag, 0, 8))
		a.untilRNR(1, func() { l.send(send(id, src.sge(0, rdma.TMHLen+8))) })
	}
	waits(2, 2)
	postSRQ(r, m.srq, receive(100, dst.sge(64, 64)))
	a.done(a.scq, 2)
	m.stray(100, 2, 0, rdma.TMHLen+8)
	// What waits has not come: it matches what is added meanwhile.
	waits(3, 3)
	m.add(3, 3, exact, dst.sge(0, 64))
	a.done(a.scq, 3)
	m.matched(3, 3, 0, 8)
	m.nothing()
}

func tagWriteImm(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	m.add(1, 0, 0, dst.sge(0, 64)) // any
	postSRQ(r, m.srq, receive(100))
	src.Store(0, eager(1, 1, 0, 100))
	l.do(writeImm(1, 9, dst, 128, src.sge(0, 116)))
	if wc := m.nextEx(); wc.WRID != 100 || wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ImmData != 9 || wc.ByteLen != 116 || wc.TMTag != 0 {
		r.Errorf("completion of a write: %+v", wc)
	}
	m.add(2, 2, exact, dst.sge(64, 64)) // it was not unexpected
	l.deliver(src, 2, eager(2, 3, 0, 8))
	m.matched(1, 3, 0, 8)
	l.deliver(src, 3, eager(3, 2, 0, 8))
	m.matched(2, 2, 0, 8)
}

func tagFlush(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l, other := m.to(a), m.to(a)
	m.add(1, 1, exact, dst.sge(0, 64))
	m.add(2, 2, exact, dst.sge(0, 64))
	postSRQ(r, m.srq, receive(100, dst.sge(64, 64)))
	l.deliver(src, 1, eager(1, 1, 0, 8))
	r.move(l.qb, rdma.StateErr)
	m.matched(1, 1, 0, 8)
	other.deliver(src, 2, eager(2, 2, 0, 8))
	m.matched(2, 2, 0, 8)
	other.deliver(src, 3, eager(3, 2, 0, 8))
	m.stray(100, 2, 0, rdma.TMHLen+8)
	m.nothing()
}

func tagBad(r *rig, s *side) {
	s.extended()
	limits := s.ctx.QueryDevice()
	if limits.MaxTags < 1 || limits.MaxTagOps < 1 || limits.MaxTagSGE < 1 || limits.MaxRndvHdr < rdma.TMHLen+rdma.RVHLen {
		r.Errorf("limits of tag matching: %+v", limits)
	}
	for name, change := range map[string]func(*rdma.SRQInitAttr){
		"no tags": func(i *rdma.SRQInitAttr) { i.MaxTags = 0 }, "no operations": func(i *rdma.SRQInitAttr) { i.MaxOps = 0 },
		"too many tags":       func(i *rdma.SRQInitAttr) { i.MaxTags = limits.MaxTags + 1 },
		"too many operations": func(i *rdma.SRQInitAttr) { i.MaxOps = limits.MaxTagOps + 1 },
		"no completion queue": func(i *rdma.SRQInitAttr) { i.CQ = nil },
		"no receives":         func(i *rdma.SRQInitAttr) { i.Attr.MaxWR = 0 },
	} {
		init := rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: rdma.SRQTagMatching, CQ: s.rcq, MaxTags: 1, MaxOps: 1}
		change(&init)
		result(s.pd.CreateSRQ(init)).refused(r, "CreateSRQ with "+name, rdma.ErrInvalid)
	}
	m := s.matching(1, 1)
	_, err := s.pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Type: rdma.UC, SRQ: m.srq, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	if err == nil {
		r.Errorf("an unreliable queue pair with a queue of tags")
	}
	result(s.newSRQ(1).PostOps([]rdma.OpsWR{{Opcode: rdma.OpSync}})).refused(r, "an operation on a queue without tags", rdma.ErrNotSupported)
}

func tagBusy(r *rig) {
	m := r.sides[0].matching(2, 2)
	l := m.to(m.side)
	r.wantErr("closing a queue of tags with a queue pair", m.srq.Close(), rdma.ErrBusy)
	r.wantErr("closing the completion queue of one", m.rcq.Close(), rdma.ErrBusy)
	m.add(1, 1, exact)
	r.close(l.qa, l.qb)
	r.close(m.srq) // with an entry in it
	result(m.srq.PostOps([]rdma.OpsWR{{Opcode: rdma.OpSync}})).refused(r, "an operation on a closed queue", rdma.ErrInvalid)
}
