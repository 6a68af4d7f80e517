package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func tagCases() []testCase {
	return needing(append([]testCase{
		{name: "tag/earliest_entry_that_matches_whoever_sends", nodes: 3, run: tagEarliest},
		{name: "tag/payload_without_its_header", nodes: 2, run: tagPayload},
		{name: "tag/unexpected_goes_whole_to_a_receive", nodes: 2, run: tagUnexpected},
		{name: "tag/no_tag_and_fin_take_a_receive", nodes: 2, run: tagNoTag},
		{name: "tag/new_entries_wait_until_unexpected_are_consumed", nodes: 2, run: tagSync},
		{name: "tag/removed_entry_matches_nothing", nodes: 2, run: tagRemoved},
		{name: "tag/removal_of_a_taken_entry_is_TM_ERR", nodes: 2, run: tagTaken},
		{name: "tag/list_full_until_polled_is_ENOMEM", nodes: 2, run: pair(tagFull)},
		{name: "tag/operations_full_until_polled_is_ENOMEM", nodes: 1, run: single(tagOps)},
		{name: "tag/list_of_operations_stops_at_first_bad", nodes: 2, run: pair(tagList)},
		{name: "tag/longer_than_its_entry_is_LOC_LEN_ERR", nodes: 2, run: pair(tagTooLong)},
		{name: "tag/entry_with_a_bad_key_is_LOC_PROT_ERR", nodes: 2, run: pair(tagBadKey)},
		{name: "tag/message_without_a_header_is_refused", nodes: 2, run: tagMalformed},
		{name: "tag/only_the_unexpected_wait_for_a_receive", nodes: 2, run: pair(tagRNR)},
		{name: "tag/write_imm_takes_a_receive", nodes: 2, run: pair(tagWriteImm)},
		{name: "tag/queue_pair_in_ERR_leaves_the_list_to_the_others", nodes: 2, run: pair(tagFlush)},
		{name: "tag/bad_attributes_are_EINVAL", nodes: 1, run: single(tagBad)},
		{name: "tag/close_in_use_is_EBUSY", nodes: 1, run: tagBusy},
		{name: "tag/any_operations_against_a_model", nodes: 2, run: tagModel},
		{name: "tag/software_behind_the_list_loses_no_order", nodes: 4, run: tagSoftware},
	}, rendezvousCases()...), rdma.FeatureTagMatching, rdma.FeatureSRQ, rdma.FeatureExtendedCQ)
}

// A matcher is a side with a queue that matches tags. Its completions, and those of
// all receives of the side, are in rcq.
type matcher struct {
	*side
	srq      rdma.SRQ
	consumed uint32 // unexpected messages
}

// exact is the mask of a tag that matches itself alone.
const exact = ^uint64(0)

// opID is set in the identity of operations.
const opID = 1 << 32

// matching gives a side a queue of receives and tags.
func (s *side) matching(receives, tags int) *matcher {
	s.r.Helper()
	s.extended()
	init := rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: receives, MaxSGE: 2}, Type: rdma.SRQTagMatching, CQ: s.rcq, MaxTags: tags, MaxOps: 2*tags + 2}
	return &matcher{side: s, srq: result(s.pd.CreateSRQ(init)).owned(s.r, "CreateSRQ with %d tags", tags)}
}

// to connects a side to the queue.
func (m *matcher) to(a *side, changes ...func(*setup)) *link {
	m.r.Helper()
	return m.r.connect(a, m.side, append(changes, from(1, m.srq))...)
}

func addTag(id, tag, mask uint64, sgl ...rdma.SGE) rdma.OpsWR {
	return rdma.OpsWR{WRID: opID | id, Opcode: rdma.OpAdd, Flags: rdma.SendSignaled, RecvWRID: id, Tag: tag, Mask: mask, SGL: sgl}
}

// ops does operations, which must all be taken.
func (m *matcher) ops(wrs ...rdma.OpsWR) {
	m.r.Helper()
	if n, err := m.srq.PostOps(wrs); err != nil || n != len(wrs) {
		m.r.Fatalf("PostOps took %d of %d: %v", n, len(wrs), err)
	}
}

// op does one operation that says what was consumed, and gives its completion and
// the handle.
func (m *matcher) op(wr rdma.OpsWR) (rdma.WCEx, uint32) {
	m.r.Helper()
	wr.Flags |= rdma.SendSignaled | rdma.OpsTMSync
	wr.UnexpectedCnt = m.consumed
	list := []rdma.OpsWR{wr}
	m.ops(list...)
	wc := m.nextEx()
	want := []rdma.WCOpcode{rdma.WCTMAdd, rdma.WCTMDel, rdma.WCTMSync}[wr.Opcode]
	if wc.WRID != wr.WRID || wc.Status == rdma.WCSuccess && wc.Opcode != want || wc.Status != rdma.WCSuccess && (wr.Opcode != rdma.OpDel || wc.Status != rdma.WCTMErr) {
		m.r.Fatalf("completion of operation %+v: %+v %q", wr, wc, wc.Status)
	}
	return wc, list[0].Handle
}

// add appends an entry that matches from now on.
func (m *matcher) add(id, tag, mask uint64, sgl ...rdma.SGE) (handle uint32) {
	m.r.Helper()
	wc, handle := m.op(addTag(id, tag, mask, sgl...))
	if wc.Flags&rdma.WCFlagTMSyncReq != 0 {
		m.r.Fatalf("entry %d: the device wants to be told of unexpected messages, and was", id)
	}
	return handle
}

// del takes an entry out and tells whether it was there.
func (m *matcher) del(handle uint32) bool {
	m.r.Helper()
	wc, _ := m.op(rdma.OpsWR{WRID: opID | 999, Opcode: rdma.OpDel, Handle: handle})
	return wc.Status == rdma.WCSuccess
}

// matched checks the completion of a message that has found entry id, whose flags
// may come apart.
func (m *matcher) matched(id, tag uint64, ctx uint32, n int) rdma.WCEx {
	m.r.Helper()
	wc := m.nextEx()
	if wc.WRID == id && wc.Flags&(rdma.WCFlagTMMatch|rdma.WCFlagTMDataValid) == rdma.WCFlagTMMatch {
		wc = m.nextEx()
		wc.Flags |= rdma.WCFlagTMMatch
	}
	if wc.WRID != id || wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMRecv || wc.Flags&^rdma.WCFlagWithImm != rdma.WCFlagTMMatch|rdma.WCFlagTMDataValid ||
		wc.TMTag != tag || wc.TMAppCtx != ctx || wc.ByteLen != uint32(n) {
		m.r.Fatalf("completion of a message of tag %#x: %+v %q, want entry %d, %d bytes, context %#x", tag, wc, wc.Status, id, n, ctx)
	}
	return wc
}

// stray checks the completion of a message that has found no entry.
func (m *matcher) stray(id, tag uint64, ctx uint32, n int) {
	m.r.Helper()
	wc := m.nextEx()
	if wc.WRID != id || wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMRecv || wc.Flags&(rdma.WCFlagTMMatch|rdma.WCFlagTMDataValid) != 0 ||
		wc.TMTag != tag || wc.TMAppCtx != ctx || wc.ByteLen != uint32(n) {
		m.r.Fatalf("completion of an unexpected message of tag %#x: %+v %q, want receive %d, %d bytes, context %#x", tag, wc, wc.Status, id, n, ctx)
	}
	m.consumed++
}

// untagged checks the completion of a message that has none.
func (m *matcher) untagged(id uint64, n int) {
	m.r.Helper()
	wc := m.nextEx()
	if wc.WRID != id || wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMNoTag || wc.ByteLen != uint32(n) {
		m.r.Fatalf("completion of a message without a tag: %+v %q, want receive %d, %d bytes", wc, wc.Status, id, n)
	}
}

// eager is a message of n bytes of the pattern id.
func eager(id, tag uint64, ctx uint32, n int) []byte {
	return append(rdma.TMH{Opcode: rdma.TMEager, AppCtx: ctx, Tag: tag}.Append(nil), pattern(id, n)...)
}

// deliver sends a message of some bytes and waits until that is complete.
func (l *link) deliver(src Region, id uint64, b []byte) {
	l.r.Helper()
	src.Store(0, b)
	l.do(send(id, src.sge(0, len(b))))
}

// nothing checks that there is no completion.
func (m *matcher) nothing() {
	m.r.Helper()
	var wc [1]rdma.WCEx
	if n, err := m.rcq.PollEx(wc[:]); n != 0 || err != nil {
		m.r.Fatalf("a completion that is not due: %+v %q, %v", wc[0], wc[0].Status, err)
	}
}

func tagEarliest(r *rig) {
	m := r.sides[0].matching(8, 16)
	links := []*link{m.to(r.sides[1]), m.to(r.sides[2]), m.to(r.sides[0])}
	var src []Region
	for _, l := range links {
		src = append(src, l.a.memory(128))
	}
	dst := m.memory(16 * 64)
	at := func(id uint64) rdma.SGE { return dst.sge(int(id)*64, 64) }
	m.add(0, 0x1100, exact, at(0))
	m.add(1, 0x1100, 0xff00, at(1)) // any of a class; the rest of the tag is nothing
	m.add(2, 0x1177, 0xff00, at(2))
	m.add(3, 0xabcd, 0, at(3)) // any
	m.add(4, 0x2200, exact, at(4))
	m.add(5, 0x1101, exact, at(5))
	m.add(6, 7, 0, at(6))
	for i, c := range []struct{ tag, entry uint64 }{
		{0x1101, 1}, {0x2200, 3}, {0x1100, 0}, {0x1101, 2}, {0x1101, 5}, {0x1101, 6}, {0x2200, 4},
	} {
		k := i % len(links)
		id := uint64(i + 10)
		links[k].deliver(src[k], id, eager(id, c.tag, uint32(i), 40))
		wc := m.matched(c.entry, c.tag, uint32(i), 40)
		if wc.QPNum != links[k].qb.Num() || wc.SrcQP != links[k].qa.Num() {
			r.Errorf("message %d on queue pair %#x from %#x: %+v", i, links[k].qb.Num(), links[k].qa.Num(), wc)
		}
		r.same("payload", dst.Load(int(c.entry)*64, 40), pattern(id, 40))
		r.same("memory behind it", dst.Load(int(c.entry)*64+40, 24), make([]byte, 24))
	}
	m.nothing()
}

func tagPayload(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 8)
	const most = 200_000 // more than travels at once over TCP
	src, dst := a.memory(most+64), m.memory(most+64)
	l := m.to(a)
	for i, n := range []int{40, 0, 1, 63, 4096, most} {
		id := uint64(i + 1)
		dst.Store(0, make([]byte, n+8))
		m.add(id, id, exact, dst.sge(0, n/3), dst.sge(n/3, 0), dst.sge(n/3, n-n/3+8))
		b := eager(id, id, 5, n)
		src.Store(0, b)
		// The header may be in pieces.
		l.do(sendImm(id, uint32(i), src.sge(0, 3), src.sge(3, 10), src.sge(13, len(b)-13)))
		if wc := m.matched(id, id, 5, n); wc.ImmData != uint32(i) || wc.Flags&rdma.WCFlagWithImm == 0 {
			r.Errorf("a message with an immediate: %+v", wc)
		}
		r.same("payload", dst.Load(0, n), pattern(id, n))
		r.same("memory behind it", dst.Load(n, 8), make([]byte, 8))
	}
	// An entry may have no memory.
	m.add(50, 50, exact)
	l.deliver(src, 50, eager(50, 50, 1, 0))
	m.matched(50, 50, 1, 0)
}

func tagUnexpected(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	m.add(1, 0x10, exact, dst.sge(0, 128))
	postSRQ(r, m.srq, receive(100, dst.sge(128, 20), dst.sge(148, 108)), receive(101, dst.sge(256, 128)))
	b := eager(1, 0x11, 77, 90)
	l.deliver(src, 1, b)
	m.stray(100, 0x11, 77, len(b))
	r.same("message with its header", dst.Load(128, len(b)), b)
	r.same("memory of another tag", dst.Load(0, 128), make([]byte, 128))
	// A plain poll tells the same, but for the header.
	l.deliver(src, 2, eager(2, 0x12, 78, 8))
	if wc := m.done(m.rcq, 101); wc.Opcode != rdma.WCTMRecv || wc.ByteLen != rdma.TMHLen+8 || wc.SrcQP != l.qa.Num() || wc.QPNum != l.qb.Num() {
		r.Errorf("an unexpected message: %+v", wc)
	}
	// The entry that was there before still matches.
	l.deliver(src, 3, eager(3, 0x10, 79, 100))
	m.matched(1, 0x10, 79, 100)
	r.same("payload", dst.Load(0, 100), pattern(3, 100))
}

func tagNoTag(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(8, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	m.add(1, 0, 0, dst.sge(0, 64)) // would match any
	messages := [][]byte{{byte(rdma.TMNoTag)}, append([]byte{byte(rdma.TMNoTag)}, pattern(1, 30)...), rdma.TMH{Opcode: rdma.TMFin, AppCtx: 9, Tag: 5}.Append(nil)}
	for i, b := range messages {
		id := uint64(i + 10)
		postSRQ(r, m.srq, receive(id, dst.sge(64, 64)))
		l.deliver(src, id, b)
		m.untagged(id, len(b))
		r.same("message", dst.Load(64, len(b)), b)
	}
	// They are not counted as unexpected.
	m.add(2, 1, exact, dst.sge(128, 64))
	l.deliver(src, 20, eager(20, 3, 1, 64))
	m.matched(1, 3, 1, 64)
	l.deliver(src, 21, eager(21, 1, 2, 64))
	m.matched(2, 1, 2, 64)
}
