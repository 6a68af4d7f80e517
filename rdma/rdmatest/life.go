package rdmatest

import (
	"errors"
	"fmt"
	"io"

	"github.com/gorun-mpi/gorun/rdma"
)

func lifeCases() []testCase {
	return []testCase{
		{name: "life/close_in_use_is_EBUSY", nodes: 2, run: lifeBusy},
		{name: "life/double_close_spares_the_successor", nodes: 2, run: lifeDoubleClose},
		{name: "life/closed_objects_refuse", nodes: 2, run: lifeClosed},
		{name: "life/bad_creations", nodes: 1, run: single(lifeBadCreations)},
		{name: "life/capacities_are_at_least_as_asked", nodes: 2, run: lifeCapacities},
		{name: "life/qp_numbers_are_unique_24_bits", nodes: 2, run: lifeNumbers},
		{name: "life/indices_are_given_back", nodes: 2, run: pair(lifeIndices), long: true},
		{name: "life/memory_is_given_back_and_zeroed", nodes: 2, run: pair(lifeMemory), long: true},
	}
}

func lifeBusy(r *rig) {
	for i, s := range r.sides {
		pd := result(s.ctx.AllocPD()).owned(r, "AllocPD")
		busy := func(what string, c io.Closer) {
			r.Helper()
			r.wantErr(what, c.Close(), rdma.ErrBusy)
		}
		busy("context with a domain", s.ctx)
		for _, kind := range []MemoryKind{Allocated, Ordinary} {
			m := s.region(pd, kind, 64, everything)
			busy("domain with "+kind.String()+" memory", pd)
			r.closeRegion(m)
		}
		send, recv := s.newCQ(8), s.newCQ(8)
		qp := result(pd.CreateQP(rdma.QPInitAttr{SendCQ: send, RecvCQ: recv, Cap: defaults().cap, Type: rdma.RC})).owned(r, "CreateQP")
		busy("domain with a queue pair", pd)
		busy("send CQ", send)
		busy("receive CQ", recv)
		r.close(qp)
		both := s.newCQ(8)
		qp = result(pd.CreateQP(rdma.QPInitAttr{SendCQ: both, RecvCQ: both, Cap: defaults().cap, Type: rdma.RC})).owned(r, "side %d: CreateQP after refused closes", i)
		busy("CQ of both directions", both)
		r.close(qp, both, send, recv, pd)
	}
	// A refused Close changed nothing.
	l := r.link()
	l.works(1)
	for _, s := range r.sides {
		r.wantErr("domain in use", s.pd.Close(), rdma.ErrBusy)
		r.wantErr("CQ in use", s.scq.Close(), rdma.ErrBusy)
		r.wantErr("context in use", s.ctx.Close(), rdma.ErrBusy)
	}
	l.works(2)
}

// lifeDoubleClose closes objects twice, the second time when a successor may
// have taken the place. What the second Close answers is free.
func lifeDoubleClose(r *rig) {
	for _, kind := range []MemoryKind{Allocated, Ordinary} {
		a, b := r.sides[0], r.sides[1]
		old := b.region(b.pd, kind, 4096, everything)
		r.closeRegion(old)
		dst := b.region(b.pd, kind, 4096, everything)
		_ = old.Close()
		src, l := a.memory(64), r.link()
		want := pattern(9, 64)
		src.Store(0, want)
		l.do(write(1, dst, 0, src.sge(0, 64)))
		r.same("memory after a double close of its predecessor", dst.Load(0, 64), want)
	}
	for _, s := range r.sides {
		pd, cq := s.newPD(), s.newCQ(8)
		r.close(pd, cq)
		pd2, cq2 := s.newPD(), s.newCQ(8)
		_, _ = pd.Close(), cq.Close()
		m := s.region(pd2, Allocated, 64, everything)
		qp := result(pd2.CreateQP(rdma.QPInitAttr{SendCQ: cq2, RecvCQ: cq2, Cap: defaults().cap, Type: rdma.RC})).owned(r, "CreateQP after double closes")
		r.close(qp)
		_ = qp.Close()
		r.closeRegion(m)
	}
	first := r.link()
	r.close(first.qa, first.qb)
	second := r.link()
	_, _ = first.qa.Close(), first.qb.Close()
	second.works(2)
}

func lifeClosed(r *rig) {
	for i, s := range r.sides {
		l := r.connect(s, r.sides[1-i])
		m := s.memory(64)
		r.close(l.qa)
		result(l.qa.PostSend([]rdma.SendWR{send(1, m.sge(0, 8))})).refused(r, fmt.Sprintf("side %d: PostSend on a closed queue pair", i), nil)
		result(l.qa.PostRecv([]rdma.RecvWR{receive(1, m.sge(0, 8))})).refused(r, fmt.Sprintf("side %d: PostRecv on a closed queue pair", i), nil)
		if err := l.qa.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err == nil {
			r.Errorf("side %d: Modify of a closed queue pair succeeded", i)
		}
		pd := s.newPD()
		r.close(pd)
		result(pd.AllocMR(64, everything)).refused(r, fmt.Sprintf("side %d: AllocMR on a closed domain", i), nil)
		result(s.node.Memory(pd, Ordinary, 64, everything)).refused(r, fmt.Sprintf("side %d: RegMR on a closed domain", i), nil)
		result(pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Cap: defaults().cap, Type: rdma.RC})).refused(r, fmt.Sprintf("side %d: CreateQP on a closed domain", i), nil)
		cq := s.newCQ(8)
		r.close(cq)
		result(s.pd.CreateQP(rdma.QPInitAttr{SendCQ: cq, RecvCQ: s.rcq, Cap: defaults().cap, Type: rdma.RC})).refused(r, fmt.Sprintf("side %d: CreateQP on a closed CQ", i), nil)
	}
	r.link().works(1)
}

func lifeBadCreations(r *rig, s *side) {
	d := s.ctx.QueryDevice()
	for _, cqe := range []int{0, -1, d.MaxCQE + 1} {
		result(s.ctx.CreateCQ(cqe)).refused(r, fmt.Sprintf("CreateCQ(%d)", cqe), rdma.ErrInvalid)
	}
	result(s.pd.AllocMR(-1, everything)).refused(r, "AllocMR(-1)", nil)
	if d.MaxMRSize < 1<<62 {
		result(s.pd.AllocMR(int(d.MaxMRSize)+1, everything)).refused(r, "AllocMR(MaxMRSize+1)", nil)
	}
	result(s.pd.RegMR(nil, everything)).refused(r, "RegMR(nil) without on-demand", nil)
	for _, bad := range []struct {
		name   string
		change func(*rdma.QPInitAttr)
	}{
		{"no send CQ", func(i *rdma.QPInitAttr) { i.SendCQ = nil }},
		{"no receive CQ", func(i *rdma.QPInitAttr) { i.RecvCQ = nil }},
		{"unknown type", func(i *rdma.QPInitAttr) { i.Type = 77 }},
		{"MaxSendWR over the limit", func(i *rdma.QPInitAttr) { i.Cap.MaxSendWR = d.MaxQPWR + 1 }},
		{"MaxRecvWR over the limit", func(i *rdma.QPInitAttr) { i.Cap.MaxRecvWR = d.MaxQPWR + 1 }},
		{"MaxSendSGE over the limit", func(i *rdma.QPInitAttr) { i.Cap.MaxSendSGE = d.MaxSGE + 1 }},
		{"MaxRecvSGE over the limit", func(i *rdma.QPInitAttr) { i.Cap.MaxRecvSGE = d.MaxSGE + 1 }},
		{"MaxInlineData over the limit", func(i *rdma.QPInitAttr) { i.Cap.MaxInlineData = d.MaxInlineData + 1 }},
		{"negative MaxSendWR", func(i *rdma.QPInitAttr) { i.Cap.MaxSendWR = -1 }},
		{"negative MaxRecvSGE", func(i *rdma.QPInitAttr) { i.Cap.MaxRecvSGE = -1 }},
		{"negative MaxInlineData", func(i *rdma.QPInitAttr) { i.Cap.MaxInlineData = -1 }},
	} {
		init := rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Cap: defaults().cap, Type: rdma.RC}
		bad.change(&init)
		qp, err := s.pd.CreateQP(init)
		switch {
		case err == nil:
			r.own(qp)
			r.Errorf("%s: CreateQP succeeded", bad.name)
		case !errors.Is(err, rdma.ErrInvalid) && !errors.Is(err, rdma.ErrNotSupported):
			r.Errorf("%s: error %v, want EINVAL or EOPNOTSUPP", bad.name, err)
		}
	}
}

func lifeCapacities(r *rig) {
	for i, s := range r.sides {
		d := s.ctx.QueryDevice()
		for _, cqe := range []int{1, 2, 3, 17, 100, min(d.MaxCQE, 4096)} {
			cq := s.newCQ(cqe)
			if cq.Cap() < cqe || cq.Cap() > d.MaxCQE {
				r.Errorf("side %d: CreateCQ(%d) holds %d", i, cqe, cq.Cap())
			}
			r.close(cq)
		}
		for _, want := range []rdma.QPCap{
			{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
			{MaxSendWR: 33, MaxRecvWR: 5, MaxSendSGE: 3, MaxRecvSGE: 2, MaxInlineData: 13},
			{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: d.MaxSGE, MaxRecvSGE: d.MaxSGE, MaxInlineData: d.MaxInlineData},
		} {
			qp := result(s.pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Cap: want, Type: rdma.RC, SigAll: true})).owned(r, "side %d: CreateQP(%+v)", i, want)
			attr, init := qp.Query()
			got := init.Cap
			if got.MaxSendWR < want.MaxSendWR || got.MaxRecvWR < want.MaxRecvWR || got.MaxSendSGE < want.MaxSendSGE ||
				got.MaxRecvSGE < want.MaxRecvSGE || got.MaxInlineData < want.MaxInlineData {
				r.Errorf("side %d: asked for %+v, got %+v", i, want, got)
			}
			if !init.SigAll || init.Type != rdma.RC || attr.State != rdma.StateReset || qp.State() != rdma.StateReset {
				r.Errorf("side %d: a fresh queue pair: attr %+v, init %+v", i, attr, init)
			}
		}
	}
}

func lifeNumbers(r *rig) {
	for i, s := range r.sides {
		seen := map[uint32]bool{}
		for range 50 {
			qp := s.newQP(defaults(), 0)
			n := qp.Num()
			if n >= 1<<24 || n < 2 {
				r.Errorf("side %d: queue pair number %#x is not of 24 bits or is special", i, n)
			}
			if seen[n] {
				r.Errorf("side %d: queue pair number %#x twice", i, n)
			}
			seen[n] = true
		}
	}
}

// lifeIndices makes and closes more objects of each kind than the device has,
// where that is not too many.
func lifeIndices(r *rig, s, _ *side) {
	const enough = 70_000
	d := s.ctx.QueryDevice()
	for i := range min(d.MaxMR+10, enough) {
		mr := result(s.pd.AllocMR(64, everything)).must(r, "AllocMR %d", i)
		r.must(mr.Close(), "Close %d", i)
	}
	for i := range min(d.MaxQP+10, 20_000) {
		qp := result(s.pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Cap: rdma.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, Type: rdma.RC})).must(r, "CreateQP %d", i)
		r.must(qp.Close(), "Close %d", i)
	}
	for i := range min(d.MaxCQ+10, 20_000) {
		cq := result(s.ctx.CreateCQ(16)).must(r, "CreateCQ %d", i)
		r.must(cq.Close(), "Close %d", i)
	}
	for i := range min(d.MaxPD+10, 20_000) {
		pd := result(s.ctx.AllocPD()).must(r, "AllocPD %d", i)
		r.must(pd.Close(), "Close %d", i)
	}
	r.link().works(1)
}

// lifeMemory allocates far more than fits at once, in sizes that do not
// divide each other, and finds fresh memory zeroed.
func lifeMemory(r *rig, a, b *side) {
	const rounds, size = 24, 3 << 20
	l := r.link()
	src := a.filled(4096, 1)
	zero := make([]byte, 4096)
	for i := range rounds {
		m := b.region(b.pd, Allocated, size+4096*i+i, everything)
		for _, off := range []int{0, size / 2, m.Size - 4096} {
			r.same("fresh memory", m.Load(off, 4096), zero)
			l.do(write(uint64(i), m, off, src.sge(0, 4096)))
		}
		r.closeRegion(m)
	}
	// Many small ones at a time: no two may share a byte.
	small := make([]Region, 300)
	for i := range small {
		n := 1 + i*7%200
		small[i] = b.region(b.pd, Allocated, n, everything)
		r.same("fresh small memory", small[i].Load(0, n), zero[:n])
		small[i].Store(0, pattern(uint64(i), n))
	}
	for i, m := range small {
		r.same("small memory beside others", m.Load(0, m.Size), pattern(uint64(i), m.Size))
	}
}
