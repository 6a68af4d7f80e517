package rdmatest

import (
	"encoding/binary"

	"github.com/gorun-mpi/gorun/rdma"
)

func srqCases() []testCase {
	cases := []testCase{
		{name: "srq/filled_in_posting_order_by_all", nodes: 2, run: pair(srqOrder)},
		{name: "srq/posts_go_through_it_alone", nodes: 1, run: single(srqPosts)},
		{name: "srq/bad_attributes_are_EINVAL", nodes: 1, run: single(srqBad)},
		{name: "srq/list_stops_at_first_bad", nodes: 1, run: single(srqList)},
		{name: "srq/full_until_polled", nodes: 2, run: pair(srqFull)},
		{name: "srq/close_in_use_is_EBUSY", nodes: 1, run: single(srqBusy)},
		{name: "srq/empty_is_RNR", nodes: 3, run: pair(srqEmpty)},
		{name: "srq/write_imm_takes_one", nodes: 2, run: pair(srqWriteImm)},
		{name: "srq/error_stays_with_its_queue_pair", nodes: 2, run: srqErrors},
		{name: "srq/queue_pair_in_ERR_leaves_it_to_the_others", nodes: 2, run: pair(srqFlush)},
		{name: "srq/completions_go_to_each_queue_pairs_CQ", nodes: 2, run: pair(srqCQs)},
		{name: "srq/many_peers_at_once", nodes: 4, run: srqMany},
		{name: "srq/queue_pairs_come_and_go", nodes: 2, run: pair(srqChurn)},
	}
	return append(needing(cases, rdma.FeatureSRQ), needing([]testCase{
		{name: "srq/limit_event_comes_once", nodes: 2, run: pair(srqLimit)},
		{name: "srq/last_WQE_reached", nodes: 2, run: pair(srqLastWQE)},
	}, rdma.FeatureSRQ, rdma.FeatureAsyncEvents)...)
}

func (s *side) newSRQ(maxWR int) rdma.SRQ {
	s.r.Helper()
	return result(s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: maxWR, MaxSGE: 2}})).owned(s.r, "CreateSRQ of %d", maxWR)
}

func postSRQ(r *rig, srq rdma.SRQ, wrs ...rdma.RecvWR) {
	r.Helper()
	if n, err := srq.PostRecv(wrs); err != nil || n != len(wrs) {
		r.Fatalf("PostRecv on a shared queue took %d of %d: %v", n, len(wrs), err)
	}
}

// from makes the queue pair of one side of a link take its receives from srq.
func from(which int, srq rdma.SRQ) func(*setup) {
	return func(u *setup) {
		before := u.init
		u.init = func(side int, i *rdma.QPInitAttr) {
			if before != nil {
				before(side, i)
			}
			if side == which {
				i.SRQ = srq
			}
		}
	}
}

// srqOrder: whichever queue pair a message comes in on, it takes the receive
// that was posted first, and its completion names the queue pair.
func srqOrder(r *rig, a, b *side) {
	const size, depth, total = 64, 8, 200
	src, dst := a.memory(size), b.memory(depth*size)
	srq := b.newSRQ(depth)
	links := []*link{r.link(from(1, srq)), r.link(from(1, srq)), r.link(from(1, srq))}
	for i := range uint64(depth) {
		postSRQ(r, srq, receive(i, dst.sge(int(i)*size, 24), dst.sge(int(i)*size+24, size-24)))
	}
	for i := range uint64(total) {
		l := links[i*7%3]
		src.Store(0, pattern(i, size))
		n := int(i) % (size + 1)
		l.do(sendImm(i, uint32(i), src.sge(0, n)))
		wc := b.done(b.rcq, i)
		if wc.QPNum != l.qb.Num() || wc.SrcQP != l.qa.Num() || wc.ByteLen != uint32(n) || wc.ImmData != uint32(i) {
			r.Fatalf("message %d of %d bytes to queue pair %#x: %+v", i, n, l.qb.Num(), wc)
		}
		at := int(i%depth) * size
		r.same("message", dst.Load(at, n), pattern(i, size)[:n])
		postSRQ(r, srq, receive(i+depth, dst.sge(at, 24), dst.sge(at+24, size-24)))
	}
	b.none(b.rcq)
}

func srqPosts(r *rig, s *side) {
	m := s.memory(64)
	srq := s.newSRQ(4)
	l := r.connect(s, s, from(1, srq))
	result(l.qb.PostRecv([]rdma.RecvWR{receive(1, m.sge(0, 8))})).refused(r, "PostRecv on a queue pair with a shared queue", rdma.ErrInvalid)
	if _, init := l.qb.Query(); init.SRQ != srq {
		r.Errorf("the queue pair's shared queue is %v, want %v", init.SRQ, srq)
	}
	if srq.PD() != s.pd {
		r.Errorf("the shared queue is of another domain")
	}
}

func srqBad(r *rig, s *side) {
	limits := s.ctx.QueryDevice()
	for name, a := range map[string]rdma.SRQAttr{
		"no requests": {}, "fewer than none": {MaxWR: -1}, "too many": {MaxWR: limits.MaxSRQWR + 1}, "too many entries": {MaxWR: 1, MaxSGE: limits.MaxSRQSGE + 1},
	} {
		result(s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: a})).refused(r, "CreateSRQ with "+name, rdma.ErrInvalid)
	}
	srq := s.newSRQ(8)
	if got := srq.Query(); got.MaxWR < 8 || got.MaxSGE < 2 || got.Limit != 0 {
		r.Errorf("a new shared queue: %+v", got)
	}
	size := srq.Query().MaxWR
	for _, limit := range []int{size + 1, -1} {
		r.wantErr("a limit outside the queue", srq.Modify(rdma.SRQAttr{Limit: limit}, rdma.SRQLimitMask), rdma.ErrInvalid)
	}
	for _, limit := range []int{size, 1, 0} {
		r.must(srq.Modify(rdma.SRQAttr{Limit: limit}, rdma.SRQLimitMask), "limit %d of %d", limit, size)
		equal(r, srq.Query().Limit, limit, "the limit is")
	}
	if !limits.SRQResize {
		r.wantErr("another size, where the device has that not", srq.Modify(rdma.SRQAttr{MaxWR: size}, rdma.SRQMaxWRMask), rdma.ErrNotSupported)
	}
}

func srqList(r *rig, s *side) {
	m := s.memory(64)
	srq := s.newSRQ(8)
	sge := m.sge(0, 8)
	bad := receive(3, sge, sge, sge)
	for range srq.Query().MaxSGE {
		bad.SGL = append(bad.SGL, sge)
	}
	n, err := srq.PostRecv([]rdma.RecvWR{receive(1, sge), receive(2, sge), bad, receive(4, sge)})
	if n != 2 {
		r.Errorf("took %d of a list whose third is bad", n)
	}
	r.wantErr("too many entries", err, rdma.ErrInvalid)
	l := r.connect(s, s, from(1, srq))
	l.send(send(10), send(11))
	s.done(s.rcq, 1, 2)
}

// srqFull: a receive holds its place until its completion is polled.
func srqFull(r *rig, a, b *side) {
	dst := b.memory(64)
	srq := b.newSRQ(4)
	size := uint64(srq.Query().MaxWR)
	l := r.link(from(1, srq))
	refused := func(when string) {
		r.Helper()
		result(srq.PostRecv([]rdma.RecvWR{receive(999, dst.sge(0, 8))})).refused(r, when, rdma.ErrNoMemory)
	}
	for i := range size {
		postSRQ(r, srq, receive(i, dst.sge(0, 8)))
	}
	refused("all posted")
	l.do(send(1))
	refused("one used and not polled")
	b.done(b.rcq, 0)
	postSRQ(r, srq, receive(size, dst.sge(0, 8)))
	refused("one polled and posted again")
	for i := uint64(1); i <= size; i++ {
		l.do(send(i))
		b.done(b.rcq, i)
	}
}

func srqBusy(r *rig, s *side) {
	srq := s.newSRQ(4)
	qp := s.newQP(func() setup { u := defaults(); from(0, srq)(&u); return u }(), 0)
	r.wantErr("closing a shared queue with a queue pair", srq.Close(), rdma.ErrBusy)
	r.close(qp, srq)
	result(s.pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Type: rdma.RC, SRQ: srq, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})).refused(r, "a queue pair with a shared queue that is closed", nil)
}

// srqEmpty: two peers wait for one receive each; two are posted.
func srqEmpty(r *rig, _, b *side) {
	dst := b.memory(64)
	srq := b.newSRQ(4)
	peers := []*side{r.sides[0], r.sides[2]}
	var links []*link
	for i, s := range peers {
		l := r.connect(s, b, from(1, srq))
		s.untilRNR(1, func() { l.send(send(uint64(i))) })
		links = append(links, l)
	}
	postSRQ(r, srq, receive(10, dst.sge(0, 8)), receive(11, dst.sge(0, 8)))
	for i, s := range peers {
		s.done(s.scq, uint64(i))
	}
	b.done(b.rcq, 10, 11)
	never := r.connect(peers[0], b, from(1, srq), func(u *setup) { u.attr.RNRRetry = 1 })
	never.send(send(5))
	peers[0].want(peers[0].scq, 5, rdma.WCRNRRetryExcErr)
	postSRQ(r, srq, receive(12, dst.sge(0, 8)))
	links[1].do(send(6))
	b.done(b.rcq, 12)
}

func srqWriteImm(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(128)
	srq := b.newSRQ(4)
	l := r.link(from(1, srq))
	postSRQ(r, srq, receive(1, dst.sge(64, 64)), receive(2, dst.sge(64, 64)))
	l.do(write(1, dst, 0, src.sge(0, 8)), writeImm(2, 77, dst, 8, src.sge(8, 8)), send(3, src.sge(0, 16)))
	if wc := b.done(b.rcq, 1); wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ImmData != 77 || wc.ByteLen != 8 {
		r.Errorf("the write's completion: %+v", wc)
	}
	if wc := b.done(b.rcq, 2); wc.Opcode != rdma.WCRecv || wc.ByteLen != 16 {
		r.Errorf("the send's completion: %+v", wc)
	}
	r.same("written", dst.Load(0, 16), pattern(1, 64)[:16])
	r.same("received", dst.Load(64, 16), pattern(1, 64)[:16])
	b.none(b.rcq)
}

// srqErrors: what a queue pair does wrong with a shared receive ends that queue
// pair alone.
func srqErrors(r *rig) {
	for _, c := range []struct {
		name       string
		spoil      func(*rdma.SGE)
		mine, peer rdma.WCStatus
	}{
		{"too_small", func(s *rdma.SGE) { s.Length = 4 }, rdma.WCLocLenErr, rdma.WCRemInvReqErr},
		{"bad_key", func(s *rdma.SGE) { s.LKey ^= 1 }, rdma.WCLocProtErr, rdma.WCRemOpErr},
	} {
		r.sub(c.name, pair(func(r *rig, a, b *side) {
			src, dst := a.filled(64, 1), b.memory(64)
			srq := b.newSRQ(4)
			l, other := r.link(from(1, srq)), r.link(from(1, srq))
			bad := dst.sge(0, 8)
			c.spoil(&bad)
			postSRQ(r, srq, receive(1, bad), receive(2, dst.sge(0, 8)))
			l.send(send(3, src.sge(0, 8)), send(4, src.sge(0, 8)))
			a.want(a.scq, 3, c.peer)
			a.want(a.scq, 4, rdma.WCWRFlushErr)
			if wc := b.want(b.rcq, 1, c.mine); wc.QPNum != l.qb.Num() {
				r.Errorf("the error names queue pair %#x, want %#x", wc.QPNum, l.qb.Num())
			}
			b.state(l.qb, rdma.StateErr)
			equal(r, other.qb.State(), rdma.StateRTS, "the other queue pair is in")
			other.do(send(5, src.sge(0, 8)))
			b.done(b.rcq, 2)
			r.same("received by the other", dst.Load(0, 8), pattern(1, 64)[:8])
		}))
	}
}

// srqFlush: receives of a shared queue are not flushed with a queue pair.
func srqFlush(r *rig, a, b *side) {
	dst := b.memory(64)
	srq := b.newSRQ(4)
	l, other := r.link(from(1, srq)), r.link(from(1, srq))
	postSRQ(r, srq, receive(1, dst.sge(0, 8)), receive(2, dst.sge(0, 8)))
	r.move(l.qb, rdma.StateErr)
	b.state(l.qb, rdma.StateErr)
	other.do(send(3), send(4))
	b.done(b.rcq, 1, 2)
	b.none(b.rcq)
}

func srqCQs(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	srq := b.newSRQ(8)
	second := b.newCQ(16)
	one := r.link(from(1, srq))
	two := r.link(ownCQs(1, nil, second), from(1, srq))
	for id := range uint64(6) {
		postSRQ(r, srq, receive(id, dst.sge(0, 8)))
	}
	for id := range uint64(6) {
		l, cq := one, b.rcq
		if id%2 == 1 {
			l, cq = two, second
		}
		l.do(send(id, src.sge(0, 8)))
		b.done(cq, id)
	}
	b.none(b.rcq)
	b.none(second)
}

// srqMany has three peers, two queue pairs each, send numbered messages into
// one queue that is refilled as it goes. No receive is used twice, and each
// queue pair's messages complete in order.
func srqMany(r *rig) {
	b := r.sides[0]
	const size, depth = 16, 24
	each := unlessBrief[uint64](r, 300, 40)
	dst := b.memory(depth * size)
	srq := b.newSRQ(depth)
	type sender struct {
		*link
		src        Region
		next, done uint64 // posted and completed
		seen       uint64 // received
	}
	byQP := map[uint32]*sender{}
	for i := range 6 {
		s := r.sides[1+i%3]
		x := &sender{link: r.connect(s, b, from(1, srq)), src: s.memory(size * 4)}
		byQP[x.qb.Num()] = x
	}
	sends := map[*side]map[uint32]*sender{}
	for _, x := range byQP {
		if sends[x.a] == nil {
			sends[x.a] = map[uint32]*sender{}
		}
		sends[x.a][x.qa.Num()] = x
	}
	for i := range depth {
		postSRQ(r, srq, receive(uint64(i), dst.sge(i*size, size)))
	}
	left := len(byQP) * int(each)
	r.until("all messages", func() bool {
		for _, x := range byQP {
			if x.next < each && x.next-x.done < 4 {
				at := int(x.next%4) * size
				x.src.Store(at, binary.LittleEndian.AppendUint64(nil, x.next))
				x.src.Store(at+8, binary.LittleEndian.AppendUint64(nil, uint64(x.qb.Num())))
				x.send(send(x.next, x.src.sge(at, size)))
				x.next++
			}
		}
		for s, list := range sends {
			for wc, ok := s.poll(s.scq); ok; wc, ok = s.poll(s.scq) {
				if x := list[wc.QPNum]; x == nil || wc.Status != rdma.WCSuccess || wc.WRID != x.done {
					r.Fatalf("a send completes with %+v %q", wc, wc.Status)
				}
				list[wc.QPNum].done++
			}
		}
		for wc, ok := b.poll(b.rcq); ok; wc, ok = b.poll(b.rcq) {
			x := byQP[wc.QPNum]
			if x == nil || wc.Status != rdma.WCSuccess || wc.ByteLen != size || wc.SrcQP != x.qa.Num() {
				r.Fatalf("a receive completes with %+v %q", wc, wc.Status)
			}
			at := int(wc.WRID) * size
			got := dst.Load(at, size)
			if n, qp := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:]); n != x.seen || qp != uint64(wc.QPNum) {
				r.Fatalf("receive %d has message %d of queue pair %#x, want %d of %#x", wc.WRID, n, qp, x.seen, wc.QPNum)
			}
			x.seen++
			left--
			dst.Store(at, make([]byte, size))
			postSRQ(r, srq, receive(wc.WRID, dst.sge(at, size)))
		}
		return left == 0
	})
	b.none(b.rcq)
}

// srqChurn: queue pairs that go, with and without messages that nobody has
// polled, leave the rest of the queue to those that come.
func srqChurn(r *rig, a, b *side) {
	dst := b.memory(64)
	srq := b.newSRQ(8)
	for round := range uint64(12) {
		postSRQ(r, srq, receive(round, dst.sge(0, 8)))
		l := r.link(from(1, srq))
		l.do(send(round))
		switch round % 3 {
		case 0:
			b.done(b.rcq, round)
		case 1:
			b.done(b.rcq, round)
			r.move(l.qb, rdma.StateReset)
		} // else it goes with its completion
		r.close(l.qa, l.qb)
		b.none(b.rcq)
	}
}

// srqLimit: the event comes when fewer than the limit remain, once, and again
// when the limit is set again.
func srqLimit(r *rig, a, b *side) {
	dst := b.memory(64)
	srq := b.newSRQ(16)
	l := r.link(from(1, srq))
	id := uint64(0)
	use := func(n int) {
		r.Helper()
		for range n {
			l.do(send(id))
			b.done(b.rcq, id)
			id++
		}
	}
	arm := func(limit int) {
		r.Helper()
		r.must(srq.Modify(rdma.SRQAttr{Limit: limit}, rdma.SRQLimitMask), "limit %d", limit)
	}
	for i := range uint64(10) {
		postSRQ(r, srq, receive(i, dst.sge(0, 8)))
	}
	arm(7)
	use(3)
	equal(r, srq.Query().Limit, 7, "with 7 left the armed limit is")
	use(1)
	equal(r, b.event(rdma.EventSRQLimitReached).SRQ, srq, "the event is of")
	equal(r, srq.Query().Limit, 0, "after the event the limit is")
	use(2) // below it, and disarmed
	arm(3)
	use(2)
	equal(r, b.event(rdma.EventSRQLimitReached).SRQ, srq, "the event is of")
	if r.f.differs("srq/last_WQE_reached") {
		return
	}
	// What comes next is no event of the limit.
	r.move(l.qb, rdma.StateErr)
	b.event(rdma.EventQPLastWQEReached)
}

func srqLastWQE(r *rig, a, b *side) {
	dst := b.memory(64)
	srq := b.newSRQ(4)
	l, second := r.link(from(1, srq)), r.link(from(1, srq))
	postSRQ(r, srq, receive(1, dst.sge(0, 8)), receive(2, dst.sge(0, 8)))
	l.do(send(1))
	r.move(l.qb, rdma.StateErr)
	equal(r, b.event(rdma.EventQPLastWQEReached).QP, l.qb, "the event is of")
	// What it had taken is there by then.
	if wc, ok := b.poll(b.rcq); !ok || wc.WRID != 1 || wc.Status != rdma.WCSuccess {
		r.Errorf("behind the event: %+v, %v, want the receive that was taken", wc, ok)
	}
	r.move(l.qb, rdma.StateErr) // once more: nothing is told twice
	r.move(second.qb, rdma.StateErr)
	equal(r, b.event(rdma.EventQPLastWQEReached).QP, second.qb, "the event is of")
}
