package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func dcCases() []testCase {
	return needing([]testCase{
		{name: "dc/every_operation_on_one_connection", nodes: 2, run: pair(dcOperations)},
		{name: "dc/reconnects_on_change_alone", nodes: 3, run: pair(dcReconnects)},
		{name: "dc/idle_connections_end", nodes: 3, run: pair(dcIdle), when: func(f Fabric) bool { return f.Idle != nil }},
		{name: "dc/wrong_key_is_refused", nodes: 2, run: pair(dcKeys)},
		{name: "dc/bad_requests_end_the_initiator_alone", nodes: 2, run: dcErrors},
		{name: "dc/no_target_is_RETRY_EXC_ERR", nodes: 2, run: pair(dcNobody)},
		{name: "dc/empty_SRQ_is_RNR", nodes: 2, run: pair(dcEmpty)},
		{name: "dc/many_initiators_exactly_once", nodes: 4, run: dcMany},
		{name: "dc/requests_complete_in_order_over_targets", nodes: 3, run: pair(dcOrder)},
		{name: "dc/halves_have_one_queue_each", nodes: 1, run: single(dcHalves)},
		{name: "dc/steps_need_their_attributes", nodes: 1, run: single(dcSteps)},
		{name: "dc/target_that_leaves_answers_nobody", nodes: 2, run: pair(dcLeaves)},
		{name: "dc/pool_keeps_to_the_last_initiator", nodes: 4, run: pair(dcPool)},
	}, rdma.FeatureDC, rdma.FeatureSRQ)
}

const dcKey = 0x0123_4567_89ab_cdef

// A dcTarget is a DCT with its SRQ.
type dcTarget struct {
	*side
	qp  rdma.QP
	srq rdma.SRQ
}

// dcPath are the attributes of both halves.
func dcPath(r *rig, s *side) rdma.QPAttr {
	r.Helper()
	attr := defaults().attr
	attr.AV = rdma.AV{DGID: s.gid(), HopLimit: 1, PortNum: 1}
	return attr
}

// steps takes a queue pair of the side from RESET on, a state for each mask.
func (s *side) steps(qp rdma.QP, attr rdma.QPAttr, masks ...rdma.QPAttrMask) {
	s.r.Helper()
	for i, mask := range masks {
		attr.State = rdma.StateInit + rdma.QPState(i)
		s.r.must(qp.Modify(attr, mask|rdma.QPStateMask), "side %d: modify to %v", s.index, attr.State)
	}
}

const (
	dctInit = rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask
	dctRTR  = rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPMinRNRTimerMask
	dciInit = rdma.QPPKeyIndexMask | rdma.QPPortMask
	dciRTS  = rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPMaxRdAtomicMask | rdma.QPSQPSNMask
)

// target makes a target that is ready.
func (s *side) target(key uint64, changes ...func(*rdma.QPAttr)) *dcTarget {
	s.r.Helper()
	t := s.newTarget(key)
	attr := dcPath(s.r, s)
	for _, change := range changes {
		change(&attr)
	}
	s.steps(t.qp, attr, dctInit, dctRTR)
	return t
}

func (s *side) newTarget(key uint64) *dcTarget {
	s.r.Helper()
	t := &dcTarget{side: s, srq: s.newSRQ(64)}
	t.qp = result(s.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCT, SendCQ: s.scq, RecvCQ: s.rcq, SRQ: t.srq, DCAccessKey: key})).owned(s.r, "CreateQP of a DCT")
	return t
}

// initiator makes an initiator that is ready.
func (s *side) initiator(changes ...func(*rdma.QPAttr)) rdma.QP {
	s.r.Helper()
	qp := result(s.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCI, SendCQ: s.scq, RecvCQ: s.rcq, Cap: rdma.QPCap{MaxSendWR: 32, MaxSendSGE: 4, MaxInlineData: 64}})).owned(s.r, "CreateQP of a DCI")
	attr := defaults().attr
	for _, change := range changes {
		change(&attr)
	}
	s.steps(qp, attr, dciInit, rdma.QPPathMTUMask, dciRTS)
	return qp
}

// handle makes an address handle of the target for a side.
func (t *dcTarget) handle(s *side) rdma.AH {
	s.r.Helper()
	return result(s.pd.CreateAH(dcPath(s.r, t.side).AV)).owned(s.r, "CreateAH")
}

// at names the target in a request.
func (t *dcTarget) at(ah rdma.AH, wr rdma.SendWR) rdma.SendWR {
	wr.AH, wr.RemoteQPN, wr.DCAccessKey = ah, t.qp.Num(), dcKey
	return wr
}

// serves proves that the target is well: a new initiator's message arrives.
func (t *dcTarget) serves(s *side, m Region) {
	s.r.Helper()
	qp, ah := s.initiator(), t.handle(s)
	box := t.memory(64)
	postSRQ(s.r, t.srq, receive(4242, box.sge(0, 64)))
	post(s.r, qp, t.at(ah, send(4243, m.sge(0, 16))))
	s.done(s.scq, 4243)
	t.done(t.rcq, 4242)
	s.r.same("a message to a target that must be well", box.Load(0, 16), m.Load(0, 16))
}

func dcOperations(r *rig, a, b *side) {
	src, dst := a.filled(4096, 1), b.memory(4096)
	t, qp := b.target(dcKey), a.initiator()
	ah := t.handle(a)
	dst.store64(4088, 5)
	postSRQ(r, t.srq, receive(1, dst.sge(1024, 64)), receive(2, dst.sge(1088, 64)), receive(3, dst.sge(1152, 64)))
	before := a.ctx.Counters()
	post(r, qp,
		t.at(ah, write(11, dst, 0, src.sge(0, 500), src.sge(600, 100))), t.at(ah, read(12, dst, 0, src.sge(2048, 300))),
		t.at(ah, fetchAdd(13, dst, 4088, 2, src.sge(3000, 8))), t.at(ah, compareSwap(14, dst, 4088, 7, 9, src.sge(3008, 8))),
		t.at(ah, send(15, src.sge(0, 10))), t.at(ah, sendImm(16, 77, src.sge(10, 20))), t.at(ah, writeImm(17, 78, dst, 2000, src.sge(0, 8))))
	a.done(a.scq, 11, 12, 13, 14, 15, 16, 17)
	for i, want := range []rdma.WC{
		{WRID: 1, Opcode: rdma.WCRecv, ByteLen: 10},
		{WRID: 2, Opcode: rdma.WCRecv, ByteLen: 20, ImmData: 77, Flags: rdma.WCFlagWithImm},
		{WRID: 3, Opcode: rdma.WCRecvRDMAWithImm, ByteLen: 8, ImmData: 78, Flags: rdma.WCFlagWithImm},
	} {
		want.QPNum, want.SrcQP = t.qp.Num(), qp.Num()
		equal(r, b.done(b.rcq, uint64(i+1)), want, "completion of a receive")
	}
	want := pattern(1, 4096)
	r.same("written", dst.Load(0, 600), append(want[:500:500], want[600:700]...))
	r.same("read", src.Load(2048, 300), want[:300])
	r.same("sent", append(dst.Load(1024, 10), dst.Load(1088, 20)...), want[:30])
	if got := dst.Load64(4088); got != 9 || src.Load64(3000) != 5 || src.Load64(3008) != 7 {
		r.Errorf("atomics left %d and brought %d and %d, want 9, 5, 7", got, src.Load64(3000), src.Load64(3008))
	}
	equal(r, a.ctx.Counters().DCConnects-before.DCConnects, 1, "connections made:")
}

func dcReconnects(r *rig, a, _ *side) {
	src := a.memory(64)
	var targets []*dcTarget
	var handles []rdma.AH
	var mem []Region
	for _, s := range []*side{r.sides[1], r.sides[2], r.sides[1]} { // two targets of one side
		t := s.target(dcKey)
		targets, handles, mem = append(targets, t), append(handles, t.handle(a)), append(mem, s.memory(64))
	}
	qp := a.initiator()
	connects := func(what string, want uint64, order ...int) {
		r.Helper()
		before := a.ctx.Counters().DCConnects
		for i, n := range order {
			src.Store(0, pattern(uint64(i), 64))
			post(r, qp, targets[n].at(handles[n], write(uint64(i), mem[n], 0, src.sge(0, 64))))
			a.done(a.scq, uint64(i))
			r.same("written", mem[n].Load(0, 64), pattern(uint64(i), 64))
		}
		equal(r, a.ctx.Counters().DCConnects-before, want, "%s: connections made:", what)
	}
	connects("ten to one target", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	connects("five more", 0, 0, 0, 0, 0, 0)
	connects("to each of two in turn", 5, 1, 0, 1, 0, 1)
	connects("to two targets of one side", 3, 2, 1, 1, 1, 2)
}

// dcIdle: a connection with nothing under way for long ends, and the next request makes one.
func dcIdle(r *rig, a, _ *side) {
	src := a.filled(64, 1)
	one, two := r.sides[1].target(dcKey), r.sides[2].target(dcKey)
	m1, m2 := r.sides[1].memory(64), r.sides[2].memory(64)
	h1, h2 := one.handle(a), two.handle(a)
	qp, other := a.initiator(), a.initiator()
	idle := func() { r.f.Idle(a.node) }
	connects := func(what string, want uint64, do func()) {
		r.Helper()
		before := a.ctx.Counters().DCConnects
		do()
		equal(r, a.ctx.Counters().DCConnects-before, want, "%s: connections made:", what)
	}
	id := uint64(0)
	request := func(qp rdma.QP, t *dcTarget, ah rdma.AH, m Region) {
		r.Helper()
		id++
		post(r, qp, t.at(ah, write(id, m, 0, src.sge(0, 64))))
		a.done(a.scq, id)
		r.same("written", m.Load(0, 64), src.Load(0, 64))
	}
	idle() // with no connection at all
	connects("the first", 1, func() { request(qp, one, h1, m1) })
	connects("another", 0, func() { request(qp, one, h1, m1) })
	for range 3 {
		idle()
		connects("after a while", 1, func() { request(qp, one, h1, m1); request(qp, one, h1, m1) })
	}
	idle()
	connects("after a while to another target", 1, func() { request(qp, two, h2, m2) })
	connects("two initiators, of which each has its own", 2, func() {
		request(other, one, h1, m1)
		idle()
		request(other, one, h1, m1)
	})
	// A request under way is no idleness, however long it takes.
	connects("a message that waits for its receive", 2, func() {
		post(r, qp, one.at(h1, send(100, src.sge(0, 64))))
		a.none(a.scq)
		idle()
		idle()
		postSRQ(r, one.srq, receive(101, m1.sge(0, 64)))
		a.done(a.scq, 100)
		r.sides[1].done(r.sides[1].rcq, 101)
		request(qp, one, h1, m1)
		request(other, two, h2, m2)
	})
	one.serves(a, src)
}

// dcKeys: a request with another key than the target's does nothing, and hurts
// only who sent it.
func dcKeys(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	t := b.target(dcKey)
	ah := t.handle(a)
	postSRQ(r, t.srq, receive(1, dst.sge(0, 64)))
	for i, key := range []uint64{0, dcKey + 1, dcKey ^ 1<<63, dcKey & (1<<32 - 1)} {
		qp := a.initiator()
		wrs := []rdma.SendWR{t.at(ah, write(10, dst, 0, src.sge(0, 64))), t.at(ah, write(11, dst, 0, src.sge(0, 64)))}
		if i%2 == 1 {
			wrs[0] = t.at(ah, send(10, src.sge(0, 64)))
		}
		wrs[0].DCAccessKey = key
		post(r, qp, wrs...)
		a.fail(a.scq, rdma.WCRemAccessErr, 10, 11)
		a.state(qp, rdma.StateErr)
	}
	b.none(b.rcq)
	r.same("memory behind a wrong key", dst.Load(0, 64), make([]byte, 64))
	b.state(t.qp, rdma.StateRTR)
	post(r, a.initiator(), t.at(ah, send(20, src.sge(0, 64))))
	a.done(a.scq, 20)
	b.done(b.rcq, 1)
	r.same("sent with the right key", dst.Load(0, 64), src.Load(0, 64))
}

func dcErrors(r *rig) {
	for _, c := range []struct {
		name   string
		access rdma.Access
		wr     func(m, src Region) rdma.SendWR
		want   rdma.WCStatus
		theirs rdma.WCStatus // of the receive, when it is used up
	}{
		{"no such key", everything, func(m, src Region) rdma.SendWR { return astray(write(1, m, 0, src.sge(0, 8))) }, rdma.WCRemAccessErr, 0},
		{"outside the region", everything, func(m, src Region) rdma.SendWR { return read(1, m, 60, src.sge(0, 8)) }, rdma.WCRemAccessErr, 0},
		{"no right", rdma.AccessRemoteRead, func(m, src Region) rdma.SendWR { return write(1, m, 0, src.sge(0, 8)) }, rdma.WCRemInvReqErr, 0},
		{"misaligned atomic", everything, func(m, src Region) rdma.SendWR { return fetchAdd(1, m, 4, 1, src.sge(0, 8)) }, rdma.WCRemInvReqErr, 0},
		{"too long a message", everything, func(m, src Region) rdma.SendWR { return send(1, src.sge(0, 33)) }, rdma.WCRemInvReqErr, rdma.WCLocLenErr},
	} {
		r.sub(c.name, pair(func(r *rig, a, b *side) {
			src, dst := a.memory(64), b.memory(64)
			t := b.target(dcKey, func(attr *rdma.QPAttr) { attr.AccessFlags = c.access })
			ah, qp := t.handle(a), a.initiator()
			postSRQ(r, t.srq, receive(2, dst.sge(0, 32)))
			post(r, qp, t.at(ah, c.wr(dst, src)), t.at(ah, send(3)))
			a.want(a.scq, 1, c.want)
			a.want(a.scq, 3, rdma.WCWRFlushErr)
			a.state(qp, rdma.StateErr)
			if c.theirs != 0 {
				b.want(b.rcq, 2, c.theirs)
			} else {
				post(r, a.initiator(), t.at(ah, send(4, src.sge(0, 32))))
				a.done(a.scq, 4)
				b.done(b.rcq, 2)
			}
			b.state(t.qp, rdma.StateRTR)
			t.serves(a, src)
		}))
	}
}

func dcNobody(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	t := b.target(dcKey)
	ah := t.handle(a)
	soon := func(attr *rdma.QPAttr) { attr.Timeout, attr.RetryCnt = 8, 1 }
	young := b.newTarget(dcKey)
	rc := r.link()
	for name, num := range map[string]uint32{"a target in RESET": young.qp.Num(), "a connected queue pair": rc.qb.Num(), "no number of anybody": 1<<24 - 1, "an old number": t.qp.Num() ^ 1<<23} {
		r.sub(name, pair(func(r *rig, a, _ *side) {
			qp := a.initiator(soon)
			wr := t.at(ah, write(1, dst, 0, src.sge(0, 8)))
			wr.RemoteQPN = num
			post(r, qp, wr)
			a.want(a.scq, 1, rdma.WCRetryExcErr)
			a.state(qp, rdma.StateErr)
		}))
	}
	// An initiator that comes back from ERR connects anew.
	qp := a.initiator(soon)
	wr := t.at(ah, write(2, dst, 0, src.sge(0, 8)))
	wr.RemoteQPN = young.qp.Num()
	post(r, qp, wr)
	a.want(a.scq, 2, rdma.WCRetryExcErr)
	r.move(qp, rdma.StateReset)
	a.steps(qp, defaults().attr, dciInit, rdma.QPPathMTUMask, dciRTS)
	b.steps(young.qp, dcPath(r, b), dctInit, dctRTR)
	wr.RemoteQPN = young.qp.Num() // which some have from RTR on
	post(r, qp, wr)
	a.done(a.scq, 2)
	rc.works(3)
}

func dcEmpty(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	t := b.target(dcKey)
	ah := t.handle(a)
	waits, gives := a.initiator(), a.initiator(func(attr *rdma.QPAttr) { attr.RNRRetry = 1 })
	post(r, gives, t.at(ah, send(1, src.sge(0, 8))))
	a.want(a.scq, 1, rdma.WCRNRRetryExcErr)
	a.untilRNR(1, func() { post(r, waits, t.at(ah, send(2, src.sge(0, 8))), t.at(ah, write(3, dst, 32, src.sge(0, 8)))) })
	postSRQ(r, t.srq, receive(4, dst.sge(0, 8)))
	a.done(a.scq, 2, 3)
	b.done(b.rcq, 4)
}

// dcMany: initiators of several sides, two each, add to one word and send to one SRQ.
func dcMany(r *rig) {
	b := r.sides[0]
	const rounds = 60
	dst := b.memory(4096)
	t := b.target(dcKey)
	senders := r.sides[1:]
	type initiator struct {
		*side
		qp  rdma.QP
		ah  rdma.AH
		mem Region
	}
	var initiators []initiator
	for _, s := range senders {
		for range 2 {
			initiators = append(initiators, initiator{s, s.initiator(), t.handle(s), s.memory(64)})
		}
	}
	sent := map[uint32]int{}
	for i := range uint64(rounds) {
		for range initiators {
			postSRQ(r, t.srq, receive(i, dst.sge(64, 8)))
		}
		for _, l := range initiators {
			post(r, l.qp, t.at(l.ah, fetchAdd(i, dst, 0, 1, l.mem.sge(0, 8))), t.at(l.ah, send(i, l.mem.sge(8, 8))))
		}
		for _, l := range initiators {
			l.done(l.scq, i, i)
		}
		for range initiators {
			sent[b.done(b.rcq, i).SrcQP]++
		}
	}
	equal(r, dst.Load64(0), rounds*uint64(len(initiators)), "%d initiators added 1 %d times each", len(initiators), rounds)
	for num, n := range sent {
		if n%rounds != 0 {
			r.Errorf("%d messages came of initiator %#x, want %d", n, num, rounds)
		}
	}
}

func dcOrder(r *rig, a, _ *side) {
	src := a.memory(64)
	t1, t2 := r.sides[1].target(dcKey), r.sides[2].target(dcKey)
	m1, m2 := r.sides[1].memory(64), r.sides[2].memory(64)
	h1, h2 := t1.handle(a), t2.handle(a)
	qp := a.initiator()
	// The message waits for a receive, and what is behind it waits for it.
	post(r, qp, t1.at(h1, write(1, m1, 0, src.sge(0, 8))), t2.at(h2, send(2, src.sge(0, 8))), t1.at(h1, write(3, m1, 8, src.sge(0, 8))), t2.at(h2, write(4, m2, 8, src.sge(0, 8))))
	a.done(a.scq, 1)
	for range 200 {
		a.none(a.scq)
	}
	postSRQ(r, t2.srq, receive(9, m2.sge(0, 8)))
	a.done(a.scq, 2, 3, 4)
	r.sides[2].done(r.sides[2].rcq, 9)
}

func dcHalves(r *rig, s *side) {
	m := s.memory(64)
	t, qp := s.target(dcKey), s.initiator()
	ah := t.handle(s)
	result(s.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCT, SendCQ: s.scq, RecvCQ: s.rcq, DCAccessKey: dcKey})).refused(r, "a target without a shared receive queue", rdma.ErrInvalid)
	for name, wr := range map[string]rdma.SendWR{"no handle": write(1, m, 0, m.sge(0, 8)), "a number of 25 bits": func() rdma.SendWR {
		wr := t.at(ah, write(1, m, 0, m.sge(0, 8)))
		wr.RemoteQPN = 1 << 24
		return wr
	}()} {
		result(qp.PostSend([]rdma.SendWR{wr})).refused(r, name, rdma.ErrInvalid)
	}
	result(t.qp.PostSend([]rdma.SendWR{t.at(ah, write(1, m, 0, m.sge(0, 8)))})).refused(r, "a target sends", nil)
	for name, q := range map[string]rdma.QP{"target": t.qp, "initiator": qp} {
		result(q.PostRecv([]rdma.RecvWR{receive(1, m.sge(0, 8))})).refused(r, "a receive posted to the "+name, rdma.ErrInvalid)
	}
	post(r, qp, t.at(ah, write(2, m, 0, m.sge(8, 8))))
	s.done(s.scq, 2)
}

func dcSteps(r *rig, s *side) {
	t := s.newTarget(dcKey)
	attr := dcPath(r, s)
	refused := func(what string, qp rdma.QP, to rdma.QPState, mask rdma.QPAttrMask) {
		r.Helper()
		from := qp.State()
		a := attr
		a.State = to
		r.wantErr(what, qp.Modify(a, mask|rdma.QPStateMask), rdma.ErrInvalid)
		s.state(qp, from)
	}
	refused("a target to INIT without rights", t.qp, rdma.StateInit, dciInit)
	s.steps(t.qp, attr, dctInit)
	refused("a target to RTR without a path", t.qp, rdma.StateRTR, rdma.QPPathMTUMask|rdma.QPMinRNRTimerMask)
	attr.State = rdma.StateRTR
	r.must(t.qp.Modify(attr, dctRTR|rdma.QPStateMask), "a target to RTR")
	refused("a target to RTS", t.qp, rdma.StateRTS, dciRTS)
	qp := s.initiator()
	r.move(qp, rdma.StateReset)
	refused("an initiator to INIT with rights", qp, rdma.StateInit, dctInit)
	s.steps(qp, attr, dciInit)
	refused("an initiator to RTR with a destination", qp, rdma.StateRTR, rdma.QPPathMTUMask|rdma.QPDestQPNMask)
}

// dcLeaves: what reaches a target that has left RTR is not answered, and its SRQ
// keeps its receives.
func dcLeaves(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	soon := func(attr *rdma.QPAttr) { attr.Timeout, attr.RetryCnt = 8, 1 }
	for name, leave := range map[string]func(*rig, *dcTarget){
		"to RESET": func(r *rig, t *dcTarget) { r.move(t.qp, rdma.StateReset) },
		"to ERR":   func(r *rig, t *dcTarget) { r.move(t.qp, rdma.StateErr) },
		"closed":   func(r *rig, t *dcTarget) { r.close(t.qp) },
	} {
		r.sub(name, pair(func(r *rig, a, b *side) {
			t := b.target(dcKey)
			ah, qp := t.handle(a), a.initiator(soon)
			postSRQ(r, t.srq, receive(1, dst.sge(0, 8)), receive(2, dst.sge(0, 8)))
			post(r, qp, t.at(ah, send(3, src.sge(0, 8))))
			a.done(a.scq, 3)
			b.done(b.rcq, 1)
			leave(r, t)
			post(r, qp, t.at(ah, send(4, src.sge(0, 8))))
			a.want(a.scq, 4, rdma.WCRetryExcErr)
			b.none(b.rcq)
		}))
	}
}

// dcPool: two initiators for three targets.
func dcPool(r *rig, a, _ *side) {
	src := a.memory(64)
	pool := rdma.NewDCIPool(a.initiator(), a.initiator())
	var targets []rdma.DCTarget
	var mem []Region
	for _, s := range r.sides[1:] {
		t := s.target(dcKey)
		targets, mem = append(targets, rdma.DCTarget{AH: t.handle(a), Num: t.qp.Num(), Key: dcKey}), append(mem, s.memory(64))
	}
	id := uint64(0)
	connects := func(what string, want uint64, order ...int) {
		r.Helper()
		before := a.ctx.Counters().DCConnects
		for _, n := range order {
			id++
			src.Store(0, pattern(id, 64))
			wrs := []rdma.SendWR{unsignaled(write(0, mem[n], 0, src.sge(0, 32))), write(id, mem[n], 32, src.sge(32, 32))}
			if _, n, err := pool.PostSend(targets[n], wrs); err != nil || n != 2 {
				r.Fatalf("PostSend took %d: %v", n, err)
			}
			a.done(a.scq, id)
			r.same("written", mem[n].Load(0, 64), pattern(id, 64))
		}
		equal(r, a.ctx.Counters().DCConnects-before, want, "%s: connections made:", what)
	}
	connects("two targets in turn", 2, 0, 1, 0, 1, 0, 1, 0)
	connects("a third takes the place of the one used longest ago", 1, 2, 0, 2, 0)
	connects("which comes back in place of another", 1, 1, 0, 1, 0)
}
