package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func tagSync(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(16, 8)
	src, dst := a.memory(256), m.memory(4096)
	l := m.to(a)
	for i := range uint64(16) {
		postSRQ(r, m.srq, receive(100+i, dst.sge(2048+64*int(i), 64)))
	}
	m.add(1, 1, exact, dst.sge(0, 64))
	m.add(2, 2, exact, dst.sge(64, 64))
	l.deliver(src, 1, eager(1, 3, 0, 8))
	// It is there, and software has yet to see it: from here on nothing new
	// matches, with or without a report.
	for i, wr := range []rdma.OpsWR{addTag(3, 3, exact, dst.sge(128, 64)), addTag(4, 3, exact, dst.sge(192, 64))} {
		if i == 1 {
			wr.Flags |= rdma.OpsTMSync // of none
		}
		m.ops(wr)
	}
	wc := m.nextEx()
	if wc.WRID != 100 { // the operations' completions may be first
		for wc.WRID != 100 {
			if wc.Opcode != rdma.WCTMAdd || wc.Flags&rdma.WCFlagTMSyncReq == 0 {
				r.Fatalf("an entry that does not match yet: %+v", wc)
			}
			wc = m.nextEx()
		}
	} else {
		for range 2 {
			if wc := m.nextEx(); wc.Opcode != rdma.WCTMAdd || wc.Flags&rdma.WCFlagTMSyncReq == 0 {
				r.Fatalf("an entry that does not match yet: %+v", wc)
			}
		}
	}
	l.deliver(src, 2, eager(2, 3, 0, 8)) // matches both, and finds none
	// What was there before matches all the same.
	l.deliver(src, 3, eager(3, 2, 0, 8))
	for wc := m.nextEx(); ; wc = m.nextEx() {
		if wc.WRID == 101 {
			if wc.Opcode != rdma.WCTMRecv || wc.Flags&rdma.WCFlagTMMatch != 0 {
				r.Fatalf("a message to entries that do not match yet: %+v", wc)
			}
			break
		}
		if wc.Opcode != rdma.WCTMAdd {
			r.Fatalf("before a message to entries that do not match yet: %+v", wc)
		}
	}
	m.matched(2, 2, 0, 8)
	// One report too few, then the right one.
	m.consumed = 1
	if wc, _ := m.op(rdma.OpsWR{WRID: opID | 50, Opcode: rdma.OpSync}); wc.Flags&rdma.WCFlagTMSyncReq == 0 {
		r.Errorf("one of two unexpected messages was reported: %+v", wc)
	}
	l.deliver(src, 4, eager(4, 3, 0, 8))
	if wc := m.nextEx(); wc.WRID != 102 {
		r.Fatalf("a message to entries that do not match yet: %+v", wc)
	}
	m.consumed = 3
	if wc, _ := m.op(rdma.OpsWR{WRID: opID | 51, Opcode: rdma.OpSync}); wc.Flags&rdma.WCFlagTMSyncReq != 0 {
		r.Errorf("all unexpected messages were reported: %+v", wc)
	}
	l.deliver(src, 5, eager(5, 3, 6, 8))
	m.matched(3, 3, 6, 8)
	l.deliver(src, 6, eager(6, 3, 6, 8))
	m.matched(4, 3, 6, 8)
	l.deliver(src, 7, eager(7, 1, 6, 8))
	m.matched(1, 1, 6, 8)
	// An addition reports as well, for itself too.
	l.deliver(src, 8, eager(8, 9, 0, 8))
	m.stray(103, 9, 0, rdma.TMHLen+8)
	m.consumed = 4
	m.add(5, 9, exact, dst.sge(0, 64))
	l.deliver(src, 9, eager(9, 9, 0, 8))
	m.matched(5, 9, 0, 8)
	// Without a report of its own it has the last one.
	m.ops(addTag(6, 10, exact, dst.sge(0, 64)))
	if wc := m.nextEx(); wc.Opcode != rdma.WCTMAdd || wc.Flags&rdma.WCFlagTMSyncReq != 0 {
		r.Errorf("an entry when all was reported: %+v", wc)
	}
	l.deliver(src, 10, eager(10, 10, 0, 8))
	m.matched(6, 10, 0, 8)
}

func tagRemoved(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(8, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	first := m.add(1, 1, exact, dst.sge(0, 64))
	m.add(2, 1, exact, dst.sge(64, 64))
	if !m.del(first) {
		r.Errorf("the removal of an entry that nothing has taken failed")
	}
	l.deliver(src, 1, eager(1, 1, 0, 8))
	m.matched(2, 1, 0, 8)
	// One that does not match yet.
	postSRQ(r, m.srq, receive(100, dst.sge(128, 64)), receive(101, dst.sge(192, 64)))
	l.deliver(src, 2, eager(2, 5, 0, 8))
	m.stray(100, 5, 0, rdma.TMHLen+8)
	m.consumed = 0 // or so it says
	wc, waiting := m.op(addTag(3, 5, exact, dst.sge(0, 64)))
	if wc.Flags&rdma.WCFlagTMSyncReq == 0 {
		r.Errorf("an entry that does not match yet: %+v", wc)
	}
	if !m.del(waiting) {
		r.Errorf("the removal of an entry that does not match yet failed")
	}
	m.consumed = 1
	m.add(4, 6, exact, dst.sge(0, 64))
	l.deliver(src, 3, eager(3, 5, 0, 8))
	m.stray(101, 5, 0, rdma.TMHLen+8)
	// Without a signal a removal makes no completion.
	m.consumed = 2
	m.ops(rdma.OpsWR{WRID: 7, Opcode: rdma.OpDel, Handle: m.add(5, 7, exact, dst.sge(0, 64))})
	m.op(rdma.OpsWR{WRID: opID | 8, Opcode: rdma.OpSync})
	m.nothing()
}

func tagTaken(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	handle := m.add(1, 1, exact, dst.sge(0, 64))
	l.deliver(src, 1, eager(1, 1, 3, 8))
	// Its message completes, before or after.
	m.ops(rdma.OpsWR{WRID: opID, Opcode: rdma.OpDel, Handle: handle}) // not signaled: a failure is told all the same
	removals, messages := 0, 0
	for range 2 {
		switch wc := m.nextEx(); {
		case wc.WRID == opID && wc.Status == rdma.WCTMErr:
			removals++
		case wc.WRID == 1 && wc.Status == rdma.WCSuccess && wc.Flags&rdma.WCFlagTMDataValid != 0 && wc.TMAppCtx == 3:
			messages++
		default:
			r.Fatalf("a completion: %+v %q", wc, wc.Status)
		}
	}
	if removals != 1 || messages != 1 {
		r.Errorf("%d removals and %d messages are complete, want one of each", removals, messages)
	}
	// A handle that was given and is over removes no other entry.
	m.add(2, 2, exact, dst.sge(64, 64))
	if m.del(handle) {
		r.Errorf("the removal of an entry that is long over succeeded")
	}
	l.deliver(src, 2, eager(2, 2, 4, 8))
	m.matched(2, 2, 4, 8)
}

func tagFull(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 3)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	refused := func(when string) {
		r.Helper()
		result(m.srq.PostOps([]rdma.OpsWR{addTag(9, 9, exact, dst.sge(0, 8))})).refused(r, when, rdma.ErrNoMemory)
	}
	var last uint32
	for i := range uint64(3) {
		last = m.add(i, i, exact, dst.sge(0, 64))
	}
	refused("all added")
	l.deliver(src, 1, eager(1, 1, 0, 8))
	refused("one taken and not polled")
	m.matched(1, 1, 0, 8)
	m.add(3, 3, exact, dst.sge(0, 64))
	refused("one polled, and another added")
	if !m.del(last) {
		r.Errorf("an entry cannot be removed")
	}
	m.add(4, 4, exact, dst.sge(0, 64))
	refused("one removed, and another added")
}

func tagOps(r *rig, s *side) {
	s.extended()
	srq := result(s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: rdma.SRQTagMatching, CQ: s.rcq, MaxTags: 2, MaxOps: 4})).owned(r, "CreateSRQ")
	m := &matcher{side: s, srq: srq}
	quiet := rdma.OpsWR{WRID: 1, Opcode: rdma.OpSync}
	loud := rdma.OpsWR{WRID: 2, Opcode: rdma.OpSync, Flags: rdma.SendSignaled}
	refused := func(when string) {
		r.Helper()
		result(srq.PostOps([]rdma.OpsWR{loud})).refused(r, when, rdma.ErrNoMemory)
	}
	// One without a completion has its place until that of a later one is polled.
	m.ops(quiet, loud, quiet, loud)
	refused("all outstanding")
	m.nextEx()
	m.ops(loud, loud)
	refused("two polled, and two more")
	for range 3 {
		m.nextEx()
	}
	m.ops(loud, loud, loud, loud)
	refused("all again")
	for range 4 {
		m.nextEx()
	}
	m.nothing()
}

func tagList(r *rig, a, _ *side) {
	m := r.sides[1].matching(4, 8)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	long := addTag(3, 3, exact)
	for range m.ctx.QueryDevice().MaxTagSGE + 1 {
		long.SGL = append(long.SGL, dst.sge(0, 1))
	}
	for name, bad := range map[string]rdma.OpsWR{
		"too many entries": long, "an unknown operation": {Opcode: 99}, "unknown flags": {Opcode: rdma.OpSync, Flags: 1 << 7},
		"a handle that was not given": {Opcode: rdma.OpDel, Handle: 1<<32 - 1},
	} {
		list := []rdma.OpsWR{addTag(1, 1, exact, dst.sge(0, 64)), bad, addTag(2, 1, exact, dst.sge(64, 64))}
		n, err := m.srq.PostOps(list)
		if n != 1 {
			r.Fatalf("took %d of a list whose second has %s", n, name)
		}
		r.wantErr(name, err, rdma.ErrInvalid)
		if wc := m.nextEx(); wc.WRID != opID|1 || wc.Opcode != rdma.WCTMAdd {
			r.Fatalf("completion of the first of the list: %+v", wc)
		}
		l.deliver(src, 1, eager(1, 1, 0, 8))
		m.matched(1, 1, 0, 8)
		m.nothing()
	}
}
