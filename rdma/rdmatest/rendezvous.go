package rdmatest

import (
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func rendezvousCases() []testCase {
	return []testCase{
		{name: "tag/rendezvous_is_read_by_the_device", nodes: 2, run: rndvRead},
		{name: "tag/rendezvous_goes_on_without_a_poll", nodes: 2, run: rndvAlone},
		{name: "tag/rendezvous_ends_at_a_queue_of_tags_too", nodes: 2, run: rndvFin},
		{name: "tag/rendezvous_waits_for_a_receive_of_its_FIN", nodes: 2, run: rndvFinRNR},
		{name: "tag/rendezvous_that_is_unexpected_is_left_to_software", nodes: 2, run: rndvUnexpected},
		{name: "tag/rendezvous_longer_than_its_entry_is_RNDV_INCOMPLETE", nodes: 2, run: rndvTooLong},
		{name: "tag/rendezvous_that_cannot_be_read_fails_its_entry", nodes: 2, run: rndvRefused},
		{name: "tag/rendezvous_of_a_queue_pair_in_ERR_is_flushed", nodes: 2, run: rndvFlush},
		{name: "tag/rendezvous_of_a_queue_pair_that_is_closed_is_flushed", nodes: 2, run: rndvClosed},
		{name: "tag/rendezvous_into_memory_of_the_queues_domain", nodes: 2, run: pair(rndvDomain)},
		{name: "tag/rendezvous_and_eager_from_many_at_once", nodes: 4, run: rndvMany},
	}
}

const rndvLen = rdma.TMHLen + rdma.RVHLen

// rndv is a rendezvous request for n bytes of memory from off.
func rndv(tag uint64, ctx uint32, m Region, off, n int) []byte {
	b := rdma.TMH{Opcode: rdma.TMRndv, AppCtx: ctx, Tag: tag}.Append(nil)
	return rdma.RVH{Addr: m.Base + uint64(off), RKey: m.RKey(), Length: uint32(n)}.Append(b)
}

// fin is what ends it.
func fin(request []byte) []byte {
	b := append([]byte(nil), request[:rndvLen]...)
	b[0] = byte(rdma.TMFin)
	return b
}

// freed waits for the end of a rendezvous at its sender, in receive id at memory at.
func (l *link) freed(id uint64, at Region, off int, request []byte) {
	l.r.Helper()
	wc := l.a.done(l.a.rcq, id)
	if wc.Opcode != rdma.WCRecv || wc.ByteLen != rndvLen || wc.QPNum != l.qa.Num() || wc.SrcQP != l.qb.Num() {
		l.r.Fatalf("the end of a rendezvous: %+v", wc)
	}
	l.r.same("the end of a rendezvous", at.Load(off, rndvLen), fin(request))
}

func rndvRead(r *rig) {
	const most = 300_000
	a, m := r.sides[0], r.sides[1].matching(4, 8)
	head, src, ends, dst := a.memory(256), a.memory(most), a.memory(256), m.memory(most+64)
	l := m.to(a)
	for i, n := range []int{100, 0, 1, 4096, most} {
		id := uint64(i + 1)
		src.Store(0, pattern(id, max(n, 1)))
		dst.Store(0, make([]byte, n+8))
		postRecv(r, l.qa, receive(id, ends.sge(0, 64)))
		m.add(id, id, exact, dst.sge(0, n/3), dst.sge(n/3, 0), dst.sge(n/3, n-n/3+8))
		request := rndv(id, 0xabc0+uint32(i), src, 0, n)
		l.deliver(head, id, request)
		m.matched(id, id, 0xabc0+uint32(i), n)
		r.same("payload", dst.Load(0, n), pattern(id, max(n, 1))[:n])
		r.same("memory behind it", dst.Load(n, 8), make([]byte, 8))
		l.freed(id, ends, 0, request)
	}
	// Several are under way, and the program's own requests between them. What
	// lies behind the headers is software's.
	for i := range 4 {
		id := uint64(i + 20)
		src.Store(i*1000, pattern(id, 1000))
		postRecv(r, l.qa, receive(id, ends.sge(i*64, 64)))
		m.add(id, id, exact, dst.sge(i*1000, 1000))
	}
	var requests [][]byte
	for i := range 4 {
		requests = append(requests, append(rndv(uint64(i+20), 7, src, i*1000, 1000), 1, 2, 3))
		head.Store(i*64, requests[i])
		l.send(send(uint64(i), head.sge(i*64, len(requests[i]))))
	}
	arrived := map[uint64]int{}
	for n := 0; n < 4; {
		wc := m.nextEx()
		if wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMRecv || wc.TMTag != wc.WRID || wc.TMAppCtx != 7 {
			r.Fatalf("completion of a rendezvous: %+v %q", wc, wc.Status)
		}
		if wc.Flags&rdma.WCFlagTMMatch != 0 {
			arrived[wc.WRID]++
		}
		if wc.Flags&rdma.WCFlagTMDataValid != 0 {
			arrived[wc.WRID]++
			if arrived[wc.WRID] != 2 || wc.ByteLen != 1000 {
				r.Fatalf("data before its match, or too little: %+v", wc)
			}
			r.same("payload", dst.Load(int(wc.WRID-20)*1000, 1000), pattern(wc.WRID, 1000))
			n++
		}
	}
	for i := range 4 {
		a.done(a.scq, uint64(i))
		l.freed(uint64(i+20), ends, i*64, requests[i])
	}
	m.nothing()
}

// rndvAlone looks at the sender alone.
func rndvAlone(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 8)
	head, src, dst := a.memory(256), a.memory(8192), m.memory(8192)
	l := m.to(a)
	for id := uint64(1); id <= 3; id++ {
		src.Store(0, pattern(id, 8000))
		postRecv(r, l.qa, receive(id, head.sge(64, 64)))
		m.add(id, id, exact, dst.sge(0, 8000))
		request := rndv(id, 1, src, 0, 8000)
		l.deliver(head, id, request)
		l.freed(id, head, 64, request)
		r.same("payload", dst.Load(0, 8000), pattern(id, 8000))
		m.matched(id, id, 1, 8000)
	}
}

func rndvFin(r *rig) {
	a, m := r.sides[0].matching(4, 4), r.sides[1].matching(4, 4)
	head, src, dst := a.memory(256), a.memory(256), m.memory(256)
	l := r.connect(a.side, m.side, from(0, a.srq), from(1, m.srq))
	a.add(5, 0, 0, head.sge(128, 64)) // any; an end matches nothing
	postSRQ(r, a.srq, receive(6, head.sge(64, 64)))
	m.add(1, 1, exact, dst.sge(0, 256))
	src.Store(0, pattern(1, 200))
	request := rndv(1, 99, src, 0, 200)
	l.deliver(head, 1, request)
	m.matched(1, 1, 99, 200)
	r.same("payload", dst.Load(0, 200), pattern(1, 200))
	a.untagged(6, rndvLen)
	r.same("the end of a rendezvous", head.Load(64, rndvLen), fin(request))
}

func rndvFinRNR(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 4)
	head, src, dst := a.memory(256), a.memory(256), m.memory(256)
	l := m.to(a)
	m.add(1, 1, exact, dst.sge(0, 256))
	src.Store(0, pattern(1, 200))
	request := rndv(1, 99, src, 0, 200)
	l.deliver(head, 1, request)
	// The receiver has its data; the sender's memory is in use until it hears.
	m.matched(1, 1, 99, 200)
	r.same("payload", dst.Load(0, 200), pattern(1, 200))
	before := m.ctx.Counters().RNRRetries
	r.until("an RNR retry", func() bool { return m.ctx.Counters().RNRRetries > before })
	a.none(a.rcq)
	postRecv(r, l.qa, receive(7, head.sge(64, 64)))
	l.freed(7, head, 64, request)
}

func rndvUnexpected(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 4)
	head, src, dst := a.memory(256), a.memory(4096), m.memory(8192)
	l, back := m.to(a), r.connect(m.side, a)
	postSRQ(r, m.srq, receive(100, dst.sge(4096, 128)))
	src.Store(0, pattern(1, 4000))
	request := append(rndv(1, 3, src, 0, 4000), pattern(9, 16)...)
	l.deliver(head, 1, request)
	m.stray(100, 1, 3, len(request))
	got := dst.Load(4096, len(request))
	r.same("request with all that is in it", got, request)
	rvh := rdma.ParseRVH(got[rdma.TMHLen:])
	postRecv(r, back.qb, receive(50, head.sge(64, 64)))
	dst.Store(5000, fin(got))
	post(r, back.qa, rdma.SendWR{WRID: 1, Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{dst.sge(0, int(rvh.Length))}, RemoteAddr: rvh.Addr, RKey: rvh.RKey})
	m.done(m.scq, 1)
	r.same("payload", dst.Load(0, 4000), pattern(1, 4000))
	post(r, back.qa, send(2, dst.sge(5000, rndvLen)))
	m.done(m.scq, 2)
	a.done(a.rcq, 50)
	r.same("the end of a rendezvous", head.Load(64, rndvLen), fin(request))
	m.add(2, 2, exact) // consumed as others are
}

func rndvTooLong(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 4)
	head, src, dst := a.memory(256), a.memory(4096), m.memory(4096)
	l := m.to(a)
	src.Store(0, pattern(1, 101))
	m.add(1, 1, exact, dst.sge(0, 10), dst.sge(10, 90))
	m.add(2, 2, exact, dst.sge(512, 100))
	request := append(rndv(1, 3, src, 0, 101), 42)
	l.deliver(head, 1, request)
	wc := m.nextEx()
	if wc.WRID != 1 || !r.f.fits(wc.Status, rdma.WCTMRndvIncomplete) || wc.TMTag != 1 || wc.TMAppCtx != 3 || wc.ByteLen != uint32(len(request)) {
		r.Fatalf("a rendezvous that is too long: %+v %q", wc, wc.Status)
	}
	r.same("request in the entry's memory", dst.Load(0, len(request)), request)
	// The queue pair goes on, and the entry is over.
	src.Store(0, pattern(2, 100))
	postRecv(r, l.qa, receive(9, head.sge(64, 64)))
	request = rndv(2, 3, src, 0, 100)
	l.deliver(head, 2, request)
	m.matched(2, 2, 3, 100)
	l.freed(9, head, 64, request)
	m.add(1, 1, exact)
	// With no room for the headers either it is a message that is too long.
	request = rndv(1, 3, src, 0, 101)
	head.Store(0, request)
	l.fails(rdma.WCRemInvReqErr, send(3, head.sge(0, len(request))))
	m.want(m.rcq, 1, rdma.WCLocLenErr)
}

func rndvRefused(r *rig) {
	for name, c := range map[string]struct {
		status rdma.WCStatus
		access rdma.Access // of the sender's queue pair
		spoil  func(rvh *rdma.RVH)
	}{
		"a key that is none":           {rdma.WCRemAccessErr, everything, func(rvh *rdma.RVH) { rvh.RKey ^= 1 }},
		"a range beyond the region":    {rdma.WCRemAccessErr, everything, func(rvh *rdma.RVH) { rvh.Addr += 4000 }},
		"a queue pair without reading": {rdma.WCRemInvReqErr, everything &^ rdma.AccessRemoteRead, func(*rdma.RVH) {}},
	} {
		r.sub(name, func(r *rig) {
			a, m := r.sides[0], r.sides[1].matching(4, 1)
			head, src, dst := a.memory(256), a.memory(4096), m.memory(4096)
			l := m.to(a, func(u *setup) {
				u.each = func(side int, at *rdma.QPAttr) {
					if side == 0 {
						at.AccessFlags = c.access
					}
				}
			})
			other := m.to(a)
			rvh := rdma.RVH{Addr: src.Base, RKey: src.RKey(), Length: 200}
			c.spoil(&rvh)
			m.add(1, 1, exact, dst.sge(0, 200))
			head.Store(0, rvh.Append(rdma.TMH{Opcode: rdma.TMRndv, AppCtx: 5, Tag: 1}.Append(nil)))
			l.send(send(1, head.sge(0, rndvLen)))
			// Its read takes the sender's queue pair to ERR, before or after the
			// sender has heard that its request is there.
			if wc := a.next(a.scq); wc.Status != rdma.WCSuccess && wc.Status != rdma.WCWRFlushErr {
				r.Fatalf("the request: %+v %q", wc, wc.Status)
			}
			wc := m.nextEx()
			if wc.Status == rdma.WCSuccess && wc.Flags&(rdma.WCFlagTMMatch|rdma.WCFlagTMDataValid) == rdma.WCFlagTMMatch {
				wc = m.nextEx()
			}
			if wc.WRID != 1 || !r.f.fits(wc.Status, c.status) {
				r.Fatalf("a rendezvous that cannot be read: %+v %q, want %q", wc, wc.Status, c.status)
			}
			m.state(l.qb, rdma.StateErr)
			r.same("memory of the entry", dst.Load(0, 200), make([]byte, 200))
			// The entry has given up its place, and others use it.
			m.add(2, 2, exact, dst.sge(0, 200))
			src.Store(0, pattern(3, 200))
			postRecv(r, other.qa, receive(9, head.sge(64, 64)))
			request := rndv(2, 3, src, 0, 200)
			other.deliver(head, 2, request)
			m.matched(2, 2, 3, 200)
			other.freed(9, head, 64, request)
		})
	}
}

// flushed waits for the match of entry id and its end with an error.
func (m *matcher) flushed(id uint64, end func()) {
	m.r.Helper()
	if wc := m.nextEx(); wc.WRID != id || wc.Status != rdma.WCSuccess || wc.Flags&(rdma.WCFlagTMMatch|rdma.WCFlagTMDataValid) != rdma.WCFlagTMMatch {
		m.r.Fatalf("the match of a rendezvous: %+v %q", wc, wc.Status)
	}
	m.nothing()
	end()
	m.want(m.rcq, id, rdma.WCWRFlushErr)
	m.add(id+1, 2, exact) // the entry's place is free
	m.nothing()
}

// unread is a link whose rendezvous wait: the receiver's queue pair is in RTR, where
// it sends nothing.
func (m *matcher) unread(a *side) *link {
	return m.to(a, func(u *setup) { u.until[1] = rdma.StateRTR })
}

func rndvFlush(r *rig) {
	a, m := r.sides[0], r.sides[1].matching(4, 1)
	head, src, dst := a.memory(256), a.memory(4096), m.memory(4096)
	l := m.unread(a)
	m.add(1, 1, exact, dst.sge(0, 200))
	l.deliver(head, 1, rndv(1, 3, src, 0, 200))
	m.flushed(1, func() { r.move(l.qb, rdma.StateErr) })
	// In RTS it goes on.
	l = m.unread(a)
	src.Store(0, pattern(1, 200))
	postRecv(r, l.qa, receive(9, head.sge(64, 64)))
	request := rndv(2, 3, src, 0, 0)
	l.deliver(head, 2, request)
	if wc := m.nextEx(); wc.WRID != 2 || wc.Flags&rdma.WCFlagTMDataValid != 0 {
		r.Fatalf("a rendezvous in RTR: %+v", wc)
	}
	l.step(1, l.qb, defaults(), rdma.StateRTS)
	if wc := m.nextEx(); wc.WRID != 2 || wc.Status != rdma.WCSuccess || wc.Flags&rdma.WCFlagTMDataValid == 0 {
		r.Fatalf("a rendezvous in RTS: %+v %q", wc, wc.Status)
	}
	l.freed(9, head, 64, request)
}

func rndvClosed(r *rig) {
	for name, end := range map[string]func(*rig, rdma.QP){
		"closed": func(r *rig, qp rdma.QP) { r.close(qp) }, "reset": func(r *rig, qp rdma.QP) { r.move(qp, rdma.StateReset) },
	} {
		r.sub(name, func(r *rig) {
			a, m := r.sides[0], r.sides[1].matching(4, 1)
			head, src, dst := a.memory(256), a.memory(4096), m.memory(4096)
			l := m.unread(a)
			m.add(1, 1, exact, dst.sge(0, 200))
			l.deliver(head, 1, rndv(1, 3, src, 0, 200))
			m.flushed(1, func() { end(r, l.qb) })
			// One that nobody has taken in when its queue pair goes.
			l = m.unread(a)
			l.deliver(head, 1, rndv(2, 3, src, 0, 0))
			end(r, l.qb)
			wc := m.nextEx()
			if wc.Status == rdma.WCSuccess {
				wc = m.nextEx()
			}
			if wc.WRID != 2 || !r.f.fits(wc.Status, rdma.WCWRFlushErr) {
				r.Fatalf("a rendezvous whose queue pair has gone: %+v %q", wc, wc.Status)
			}
		})
	}
}

// rndvDomain: an entry's memory is of the domain of the queue, as a receive's is,
// whatever the queue pair's is.
func rndvDomain(r *rig, a, b *side) {
	mine := b.pd
	b.pd = b.newPD()
	m := b.matching(4, 4)
	dst := b.region(b.pd, r.f.Memory, 4096, everything)
	other := b.region(mine, r.f.Memory, 4096, everything)
	b.pd = mine
	head, src := a.memory(256), a.memory(4096)
	l := m.to(a)
	src.Store(0, pattern(1, 4000))
	m.add(1, 1, exact, dst.sge(0, 100), dst.sge(100, 3900))
	m.add(2, 2, exact, other.sge(0, 4000))
	postRecv(r, l.qa, receive(9, head.sge(64, 64)))
	request := rndv(1, 3, src, 0, 4000)
	l.deliver(head, 1, request)
	m.matched(1, 1, 3, 4000)
	r.same("payload", dst.Load(0, 4000), pattern(1, 4000))
	l.freed(9, head, 64, request)
	request = rndv(2, 3, src, 0, 4000)
	head.Store(0, request)
	l.send(send(2, head.sge(0, len(request))))
	// The queue pair that fetches goes to ERR: what repeats a message whose acknowledgement
	// was lost is answered no more.
	if sent := l.a.next(l.a.scq); sent.WRID != 2 || sent.Status != rdma.WCSuccess && !(r.f.Adversarial && sent.Status == rdma.WCRetryExcErr) {
		r.Fatalf("the message: %+v %q", sent, sent.Status)
	}
	wc := m.nextEx()
	if wc.Status == rdma.WCSuccess && wc.Flags&rdma.WCFlagTMDataValid == 0 {
		wc = m.nextEx()
	}
	if wc.WRID != 2 || !r.f.fits(wc.Status, rdma.WCLocProtErr) {
		r.Fatalf("a rendezvous into memory of another domain: %+v %q", wc, wc.Status)
	}
	r.same("memory of another domain", other.Load(0, 4000), make([]byte, 4000))
}

// rndvMany: three senders, with messages of both kinds on the way at a time.
func rndvMany(r *rig) {
	const window, size = 4, 5000
	m := r.sides[0].matching(8, 3*window)
	dst := m.memory(3 * window * size)
	each := unlessSlow[uint64](r, 150, 40)
	type sender struct {
		*link
		head, src Region
		sent      uint64
		busy      map[uint64]bool // requests whose memory is in use
		rng       *rand.Rand
	}
	tagOf := func(i int, seq uint64) uint64 { return uint64(i)<<32 | seq }
	length := func(tag uint64) int { return int(pattern(tag, 1)[0]) * 16 }
	long := func(tag uint64) bool { return pattern(tag, 2)[1]%2 == 0 }
	var senders []*sender
	for i, s := range r.sides[1:] {
		s.scq, s.rcq = s.newCQ(64), s.newCQ(64)
		l := m.to(s)
		x := &sender{link: l, head: s.memory(window * 4096 * 2), src: s.memory(window * size), busy: map[uint64]bool{}, rng: rand.New(rand.NewPCG(uint64(i), 4))}
		for k := range uint64(window) {
			postRecv(r, l.qa, receive(k, x.head.sge(window*4096+int(k)*64, 64)))
		}
		senders = append(senders, x)
	}
	slotOf := func(i int, seq uint64) int { return (i*window + int(seq%window)) * size }
	for i := range senders {
		for seq := range uint64(window) {
			m.add(tagOf(i, seq), tagOf(i, seq), exact, dst.sge(slotOf(i, seq), size))
		}
	}
	got := uint64(0)
	room := make([]uint64, len(senders)) // entries that each has
	for i := range room {
		room[i] = window
	}
	r.until("all messages", func() bool {
		for i, s := range senders {
			for wc, ok := s.a.poll(s.a.scq); ok; wc, ok = s.a.poll(s.a.scq) {
				if wc.Status != rdma.WCSuccess {
					r.Fatalf("message %d of sender %d: %q", wc.WRID, i, wc.Status)
				}
				if !long(tagOf(i, wc.WRID)) {
					delete(s.busy, wc.WRID%window)
				}
			}
			for wc, ok := s.a.poll(s.a.rcq); ok; wc, ok = s.a.poll(s.a.rcq) {
				at := window*4096 + int(wc.WRID)*64
				tmh := rdma.ParseTMH(s.head.Load(at, rdma.TMHLen))
				if wc.Status != rdma.WCSuccess || tmh.Opcode != rdma.TMFin || !s.busy[tmh.Tag%window] {
					r.Fatalf("the end of rendezvous %+v of sender %d: %+v %q", tmh, i, wc, wc.Status)
				}
				delete(s.busy, tmh.Tag%window)
				s.src.Store(int(tmh.Tag%window)*size, make([]byte, size)) // the memory is the sender's again
				postRecv(r, s.qa, receive(wc.WRID, s.head.sge(at, 64)))
			}
			for s.sent < each && s.sent < room[i] && !s.busy[s.sent%window] && s.rng.IntN(3) > 0 {
				tag := tagOf(i, s.sent)
				n, k := length(tag), int(s.sent%window)
				b := eager(tag, tag, uint32(n), n)
				if long(tag) {
					s.src.Store(k*size, pattern(tag, max(n, 1)))
					b = rndv(tag, uint32(n), s.src, k*size, n)
				}
				s.busy[s.sent%window] = true
				s.head.Store(k*4096, b[:min(len(b), 4096)])
				if len(b) > 4096 {
					r.Fatalf("a message of %d bytes", len(b))
				}
				s.send(send(s.sent, s.head.sge(k*4096, len(b))))
				s.sent++
			}
		}
		var wc [1]rdma.WCEx
		for {
			n := result(m.rcq.PollEx(wc[:])).must(r, "PollEx")
			if n == 0 {
				break
			}
			wc := wc[0]
			if wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMRecv && wc.Opcode != rdma.WCTMAdd {
				r.Fatalf("a completion: %+v %q", wc, wc.Status)
			}
			if wc.Opcode == rdma.WCTMAdd || wc.Flags&rdma.WCFlagTMDataValid == 0 {
				continue
			}
			i, seq, length := int(wc.TMTag>>32), wc.TMTag&(1<<32-1), length(wc.TMTag)
			if wc.WRID != wc.TMTag || wc.ByteLen != uint32(length) || wc.TMAppCtx != uint32(length) {
				r.Fatalf("a message of tag %#x and %d bytes: %+v", wc.TMTag, length, wc)
			}
			r.same("payload", dst.Load(slotOf(i, seq), length), pattern(wc.TMTag, max(length, 1))[:length])
			got++
			if next := seq + window; next < each {
				m.ops(addTag(tagOf(i, next), tagOf(i, next), exact, dst.sge(slotOf(i, next), size)))
			}
			room[i] = max(room[i], 0) + 1
		}
		return got == each*uint64(len(senders))
	})
	r.until("the last ends", func() bool {
		left := 0
		for _, s := range senders {
			for wc, ok := s.a.poll(s.a.rcq); ok; wc, ok = s.a.poll(s.a.rcq) {
				tmh := rdma.ParseTMH(s.head.Load(window*4096+int(wc.WRID)*64, rdma.TMHLen))
				delete(s.busy, tmh.Tag%window)
			}
			for wc, ok := s.a.poll(s.a.scq); ok; wc, ok = s.a.poll(s.a.scq) {
				delete(s.busy, wc.WRID%window)
			}
			left += len(s.busy)
		}
		return left == 0
	})
}
