package rdmatest

import (
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func tagCases() []testCase {
	return needing(append([]testCase{
		{name: "tag/earliest_entry_that_matches_whoever_sends", nodes: 3, run: tagEarliest},
		{name: "tag/payload_without_its_header", nodes: 2, run: tagPayload},
		{name: "tag/unexpected_goes_whole_to_a_receive", nodes: 2, run: tagUnexpected},
		{name: "tag/no_tag_and_fin_take_a_receive", nodes: 2, run: tagNoTag},
		{name: "tag/new_entries_wait_until_unexpected_are_consumed", nodes: 2, run: tagSync},
		{name: "tag/removed_entry_matches_nothing", nodes: 2, run: tagRemoved},
		{name: "tag/removal_of_a_taken_entry_is_TM_ERR", nodes: 2, run: tagTaken},
		{name: "tag/list_full_until_polled_is_ENOMEM", nodes: 2, run: tagFull},
		{name: "tag/operations_full_until_polled_is_ENOMEM", nodes: 1, run: tagOps},
		{name: "tag/list_of_operations_stops_at_first_bad", nodes: 2, run: tagList},
		{name: "tag/longer_than_its_entry_is_LOC_LEN_ERR", nodes: 2, run: tagTooLong},
		{name: "tag/entry_with_a_bad_key_is_LOC_PROT_ERR", nodes: 2, run: tagBadKey},
		{name: "tag/message_without_a_header_is_refused", nodes: 2, run: tagMalformed},
		{name: "tag/only_the_unexpected_wait_for_a_receive", nodes: 2, run: tagRNR},
		{name: "tag/write_imm_takes_a_receive", nodes: 2, run: tagWriteImm},
		{name: "tag/queue_pair_in_ERR_leaves_the_list_to_the_others", nodes: 2, run: tagFlush},
		{name: "tag/bad_attributes_are_EINVAL", nodes: 1, run: tagBad},
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
	srq, err := s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: receives, MaxSGE: 2}, Type: rdma.SRQTagMatching,
		CQ: s.rcq, MaxTags: tags, MaxOps: 2*tags + 2})
	if err != nil {
		s.r.Fatalf("CreateSRQ with %d tags: %v", tags, err)
	}
	s.r.own(srq)
	return &matcher{side: s, srq: srq}
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
	l.send(send(id, src.sge(0, len(b))))
	l.a.want(l.a.scq, id, rdma.WCSuccess)
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
		l.send(sendImm(id, uint32(i), src.sge(0, 3), src.sge(3, 10), src.sge(13, len(b)-13)))
		a.want(a.scq, id, rdma.WCSuccess)
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
	if wc := m.want(m.rcq, 101, rdma.WCSuccess); wc.Opcode != rdma.WCTMRecv || wc.ByteLen != rdma.TMHLen+8 || wc.SrcQP != l.qa.Num() || wc.QPNum != l.qb.Num() {
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

func tagFull(r *rig) {
	a := r.sides[0]
	m := r.sides[1].matching(4, 3)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	refused := func(when string) {
		r.Helper()
		n, err := m.srq.PostOps([]rdma.OpsWR{addTag(9, 9, exact, dst.sge(0, 8))})
		if n != 0 {
			r.Fatalf("%s: a full list took one more", when)
		}
		r.wantErr(when, err, rdma.ErrNoMemory)
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

func tagOps(r *rig) {
	s := r.sides[0]
	s.extended()
	srq, err := s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: rdma.SRQTagMatching, CQ: s.rcq, MaxTags: 2, MaxOps: 4})
	if err != nil {
		r.Fatal(err)
	}
	r.own(srq)
	m := &matcher{side: s, srq: srq}
	quiet := rdma.OpsWR{WRID: 1, Opcode: rdma.OpSync}
	loud := rdma.OpsWR{WRID: 2, Opcode: rdma.OpSync, Flags: rdma.SendSignaled}
	refused := func(when string) {
		r.Helper()
		n, err := srq.PostOps([]rdma.OpsWR{loud})
		if n != 0 {
			r.Fatalf("%s: one more operation was taken", when)
		}
		r.wantErr(when, err, rdma.ErrNoMemory)
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

func tagList(r *rig) {
	a := r.sides[0]
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

func tagTooLong(r *rig) {
	a := r.sides[0]
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l, other := m.to(a), m.to(a)
	m.add(1, 1, exact, dst.sge(0, 20), dst.sge(64, 19))
	m.add(2, 1, exact, dst.sge(128, 64))
	src.Store(0, eager(1, 1, 0, 40))
	l.send(send(1, src.sge(0, rdma.TMHLen+40)))
	a.want(a.scq, 1, rdma.WCRemInvReqErr)
	m.want(m.rcq, 1, rdma.WCLocLenErr)
	m.state(l.qb, rdma.StateErr)
	// The entry is used up, the others are not.
	other.deliver(src, 2, eager(2, 1, 0, 40))
	m.matched(2, 1, 0, 40)
	r.same("memory that was too little", dst.Load(0, 128), make([]byte, 128))
}

func tagBadKey(r *rig) {
	a := r.sides[0]
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	gone := m.memory(64)
	l, other := m.to(a), m.to(a)
	sge := gone.sge(0, 64)
	r.closeRegion(gone)
	m.add(1, 1, exact, sge)
	m.add(2, 1, exact, dst.sge(128, 64))
	src.Store(0, eager(1, 1, 0, 40))
	l.send(send(1, src.sge(0, rdma.TMHLen+40)))
	a.want(a.scq, 1, rdma.WCRemOpErr)
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
		r.sub(name, func(r *rig) {
			a := r.sides[0]
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
		})
	}
}

func tagRNR(r *rig) {
	a := r.sides[0]
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	m.add(1, 1, exact, dst.sge(0, 64))
	l.deliver(src, 1, eager(1, 1, 0, 8)) // needs no receive
	m.matched(1, 1, 0, 8)
	waits := func(id uint64, tag uint64) {
		r.Helper()
		before := a.ctx.Counters().RNRRetries
		src.Store(0, eager(id, tag, 0, 8))
		l.send(send(id, src.sge(0, rdma.TMHLen+8)))
		r.until("an RNR retry", func() bool {
			a.none(a.scq)
			return a.ctx.Counters().RNRRetries > before
		})
	}
	waits(2, 2)
	postSRQ(r, m.srq, receive(100, dst.sge(64, 64)))
	a.want(a.scq, 2, rdma.WCSuccess)
	m.stray(100, 2, 0, rdma.TMHLen+8)
	// What waits has not come: it matches what is added meanwhile.
	waits(3, 3)
	m.add(3, 3, exact, dst.sge(0, 64))
	a.want(a.scq, 3, rdma.WCSuccess)
	m.matched(3, 3, 0, 8)
	m.nothing()
}

func tagWriteImm(r *rig) {
	a := r.sides[0]
	m := r.sides[1].matching(4, 4)
	src, dst := a.memory(256), m.memory(512)
	l := m.to(a)
	m.add(1, 0, 0, dst.sge(0, 64)) // any
	postSRQ(r, m.srq, receive(100))
	src.Store(0, eager(1, 1, 0, 100))
	l.send(writeImm(1, 9, dst, 128, src.sge(0, 116)))
	a.want(a.scq, 1, rdma.WCSuccess)
	if wc := m.nextEx(); wc.WRID != 100 || wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ImmData != 9 || wc.ByteLen != 116 || wc.TMTag != 0 {
		r.Errorf("completion of a write: %+v", wc)
	}
	m.add(2, 2, exact, dst.sge(64, 64)) // it was not unexpected
	l.deliver(src, 2, eager(2, 3, 0, 8))
	m.matched(1, 3, 0, 8)
	l.deliver(src, 3, eager(3, 2, 0, 8))
	m.matched(2, 2, 0, 8)
}

func tagFlush(r *rig) {
	a := r.sides[0]
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

func tagBad(r *rig) {
	s := r.sides[0]
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
		made, err := s.pd.CreateSRQ(init)
		r.wantErr("CreateSRQ with "+name, err, rdma.ErrInvalid)
		if err == nil {
			r.own(made)
		}
	}
	m := s.matching(1, 1)
	_, err := s.pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Type: rdma.UC, SRQ: m.srq, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	if err == nil {
		r.Errorf("an unreliable queue pair was made with a queue of tags")
	}
	n, err := s.newSRQ(1).PostOps([]rdma.OpsWR{{Opcode: rdma.OpSync}})
	if n != 0 {
		r.Errorf("a queue without tags took an operation")
	}
	r.wantErr("an operation on a queue without tags", err, rdma.ErrNotSupported)
}

func tagBusy(r *rig) {
	m := r.sides[0].matching(2, 2)
	l := m.to(m.side)
	r.wantErr("closing a queue of tags with a queue pair", m.srq.Close(), rdma.ErrBusy)
	r.wantErr("closing the completion queue of one", m.rcq.Close(), rdma.ErrBusy)
	m.add(1, 1, exact)
	r.close(l.qa)
	r.close(l.qb)
	r.close(m.srq) // with an entry in it
	n, err := m.srq.PostOps([]rdma.OpsWR{{Opcode: rdma.OpSync}})
	if n != 0 {
		r.Errorf("a closed queue took an operation")
	}
	r.wantErr("an operation on a closed queue", err, rdma.ErrInvalid)
}

// tagModel does operations and messages one after the other, and compares with an
// obvious list.
func tagModel(r *rig) {
	const tags, receives, size = 24, 8, 64
	a := r.sides[1]
	m := r.sides[0].matching(receives, tags)
	src, dst := a.memory(256), m.memory((tags+receives)*size)
	links := []*link{m.to(a), m.to(a)}
	type tagEntry struct {
		id, tag, mask uint64
		handle        uint32
		enabled       bool
	}
	var list []tagEntry
	free := map[uint64]bool{}
	for i := range uint64(tags) {
		free[i] = true
	}
	for i := range uint64(receives) {
		postSRQ(r, m.srq, receive(100+i, dst.sge(int(tags+i)*size, size)))
	}
	next, delivered := uint64(0), uint32(0)
	rng := rand.New(rand.NewPCG(5, 6))
	steps := 1500
	if r.f.Brief || r.f.Adversarial {
		steps = 300
	}
	for step := range uint64(steps) {
		switch k := rng.IntN(10); {
		case k < 4 && len(list) < tags:
			e := tagEntry{tag: rng.Uint64N(6) << 4, mask: []uint64{exact, exact, 0x30, 0}[rng.IntN(4)]}
			for id := range free {
				e.id = id
				break
			}
			delete(free, e.id)
			var wc rdma.WCEx
			wc, e.handle = m.op(addTag(e.id, e.tag, e.mask, dst.sge(int(e.id)*size, size)))
			list = append(list, e)
			if behind := m.consumed != delivered; behind != (wc.Flags&rdma.WCFlagTMSyncReq != 0) {
				r.Fatalf("step %d: %d of %d unexpected messages are reported: %+v", step, m.consumed, delivered, wc)
			}
		case k < 5 && len(list) > 0:
			i := rng.IntN(len(list))
			if !m.del(list[i].handle) {
				r.Fatalf("step %d: entry %+v cannot be removed", step, list[i])
			}
			free[list[i].id] = true
			list = append(list[:i], list[i+1:]...)
		case k < 6:
			m.consumed = delivered
			m.op(rdma.OpsWR{WRID: opID | 7, Opcode: rdma.OpSync})
		default:
			tag := rng.Uint64N(6) << 4
			links[rng.IntN(2)].deliver(src, step, eager(step, tag, uint32(step), 40))
			found := -1
			for i, e := range list {
				if e.enabled && (e.tag^tag)&e.mask == 0 {
					found = i
					break
				}
			}
			if found >= 0 {
				m.matched(list[found].id, tag, uint32(step), 40)
				r.same("payload", dst.Load(int(list[found].id)*size, 40), pattern(step, 40))
				free[list[found].id] = true
				list = append(list[:found], list[found+1:]...)
				continue
			}
			was := m.consumed
			m.stray(100+next%receives, tag, uint32(step), rdma.TMHLen+40)
			m.consumed, delivered = was, delivered+1
			at := int(tags+next%receives) * size
			r.same("message", dst.Load(at, rdma.TMHLen+40), eager(step, tag, uint32(step), 40))
			postSRQ(r, m.srq, receive(100+next%receives, dst.sge(at, size)))
			next++
			continue // software has not reported it
		}
		if m.consumed == delivered {
			for i := range list {
				list[i].enabled = true
			}
		}
	}
	m.nothing()
}

// tagSoftware is what MPI makes of it: three senders, and a receiver whose
// receives are in the device's list and in software's. Whatever comes when, a message
// goes to the earliest receive that it matches, in the order of its sender.
func tagSoftware(r *rig) {
	const receives, tags, size, window = 8, 16, 64, 12
	m := r.sides[0].matching(receives, tags)
	dst := m.memory((receives + window) * size)
	total := uint64(1200)
	if r.f.Brief || r.f.Adversarial {
		total = 240
	}
	type sender struct {
		*link
		src  Region
		sent uint64
		open int
		rng  *rand.Rand
	}
	var senders []*sender
	for i, s := range r.sides[1:] {
		s.scq = s.newCQ(64)
		senders = append(senders, &sender{link: m.to(s), src: s.memory(8 * size), rng: rand.New(rand.NewPCG(uint64(i), 9))})
	}
	for i := range uint64(receives) {
		postSRQ(r, m.srq, receive(1000+i, dst.sge(int(i)*size, size)))
	}
	type message struct{ tag, seq uint64 }
	type wanted struct {
		n         uint64 // in the order of posting
		tag, mask uint64
		handle    uint32
		place     uint64
	}
	var expected []wanted
	var unexpected []message
	places := []uint64{}
	for i := range uint64(window) {
		places = append(places, i)
	}
	posted, got := uint64(0), uint64(0)
	last := map[uint64]uint64{} // of each tag: sequence number
	rng := rand.New(rand.NewPCG(8, 8))
	accept := func(w wanted, msg message) {
		r.Helper()
		if (w.tag^msg.tag)&w.mask != 0 {
			r.Fatalf("receive %+v got message %+v", w, msg)
		}
		if msg.seq <= last[msg.tag] {
			r.Fatalf("message %+v came behind %d", msg, last[msg.tag])
		}
		last[msg.tag] = msg.seq
		got++
	}
	parse := func(b []byte) message {
		tmh := rdma.ParseTMH(b)
		return message{tmh.Tag, uint64(tmh.AppCtx)}
	}
	removals := map[uint64]wanted{}
	reported := uint32(0)
	complete := func(wc rdma.WCEx) {
		r.Helper()
		switch {
		case wc.Status == rdma.WCSuccess && (wc.Opcode == rdma.WCTMAdd || wc.Opcode == rdma.WCTMSync):
		case wc.Opcode == rdma.WCTMDel || wc.Status == rdma.WCTMErr:
			w, ok := removals[wc.WRID]
			if !ok || wc.Status != rdma.WCSuccess {
				r.Fatalf("the removal of an entry that an unexpected message matches: %+v %q", wc, wc.Status)
			}
			delete(removals, wc.WRID)
			places = append(places, w.place)
		case wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMRecv:
			r.Fatalf("a completion: %+v %q", wc, wc.Status)
		case wc.Flags&rdma.WCFlagTMMatch != 0:
			for i, w := range expected {
				if w.n == wc.WRID {
					accept(w, message{wc.TMTag, uint64(wc.TMAppCtx)})
					expected = append(expected[:i], expected[i+1:]...)
					if wc.Flags&rdma.WCFlagTMDataValid != 0 {
						places = append(places, w.place)
					} else {
						removals[wc.WRID] = w // its data comes
					}
					return
				}
				if (w.tag^wc.TMTag)&w.mask == 0 {
					r.Fatalf("message %#x passed receive %+v by", wc.TMTag, w)
				}
			}
			r.Fatalf("a match of an entry that is not there: %+v", wc)
		case wc.Flags&rdma.WCFlagTMDataValid != 0:
			places = append(places, removals[wc.WRID].place)
			delete(removals, wc.WRID)
		default:
			at := int(wc.WRID-1000) * size
			msg := parse(dst.Load(at, rdma.TMHLen))
			if msg.tag != wc.TMTag {
				r.Fatalf("an unexpected message %+v: %+v", msg, wc)
			}
			postSRQ(r, m.srq, receive(wc.WRID, dst.sge(at, size)))
			m.consumed++
			for i, w := range expected {
				if (w.tag^msg.tag)&w.mask == 0 {
					accept(w, msg)
					expected = append(expected[:i], expected[i+1:]...)
					removals[opID|w.n] = w
					m.ops(rdma.OpsWR{WRID: opID | w.n, Opcode: rdma.OpDel, Flags: rdma.SendSignaled, Handle: w.handle})
					return
				}
			}
			unexpected = append(unexpected, msg)
		}
	}
	r.until("all messages", func() bool {
		for i, s := range senders {
			for wc, ok := s.a.poll(s.a.scq); ok; wc, ok = s.a.poll(s.a.scq) {
				if wc.Status != rdma.WCSuccess {
					r.Fatalf("message %d of sender %d: %q", wc.WRID, i, wc.Status)
				}
				s.open--
			}
			for s.open < 4 && s.rng.IntN(4) > 0 {
				s.sent++
				s.open++
				at := int(s.sent%8) * size
				s.src.Store(at, eager(s.sent, uint64(i)<<8|s.rng.Uint64N(3), uint32(s.sent), 40))
				s.send(send(s.sent, s.src.sge(at, rdma.TMHLen+40)))
			}
		}
		for {
			var wc [4]rdma.WCEx
			n, err := m.rcq.PollEx(wc[:1+rng.IntN(4)])
			if err != nil {
				r.Fatalf("PollEx: %v", err)
			}
			if n == 0 {
				break
			}
			for _, wc := range wc[:n] {
				complete(wc)
			}
		}
		for posted < total && len(places) > 0 && rng.IntN(3) > 0 {
			w := wanted{n: posted, place: places[0], tag: rng.Uint64N(3)<<8 | rng.Uint64N(3), mask: []uint64{exact, 0xff00, 0}[rng.IntN(3)]}
			found := false
			for i, msg := range unexpected {
				if found = (w.tag^msg.tag)&w.mask == 0; found {
					accept(w, msg)
					unexpected = append(unexpected[:i], unexpected[i+1:]...)
					break
				}
			}
			posted++
			if found {
				continue
			}
			places = places[1:]
			wr := addTag(w.n, w.tag, w.mask, dst.sge(int(receives+w.place)*size, size))
			wr.Flags |= rdma.OpsTMSync
			wr.UnexpectedCnt, reported = m.consumed, m.consumed
			list := []rdma.OpsWR{wr}
			m.ops(list...)
			w.handle = list[0].Handle
			expected = append(expected, w)
		}
		if reported != m.consumed {
			reported = m.consumed
			m.ops(rdma.OpsWR{WRID: opID - 1, Opcode: rdma.OpSync, Flags: rdma.SendSignaled | rdma.OpsTMSync, UnexpectedCnt: m.consumed})
		}
		return got == total
	})
}
