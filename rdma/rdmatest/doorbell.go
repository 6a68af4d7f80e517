package rdmatest

import (
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func doorbellCases() []testCase {
	losing := func(f Fabric) bool { return f.Doorbells != nil }
	return append(needing([]testCase{
		{name: "doorbell/lost_ring_is_made_good_by_the_next", nodes: 2, run: pair(doorbellLost), when: losing},
		{name: "doorbell/lost_ring_is_found_in_the_record", nodes: 2, run: pair(doorbellRecord), when: losing},
		{name: "doorbell/batching_saves_doorbells_and_fetches", nodes: 2, run: pair(doorbellBatch)},
		{name: "doorbell/inline_alone_is_a_direct_WQE", nodes: 2, run: pair(doorbellDirect)},
		{name: "doorbell/refused_posts_ring_none", nodes: 2, run: pair(doorbellRefused)},
		{name: "doorbell/any_posts_against_the_rule", nodes: 2, run: pair(doorbellRandom)},
	}, rdma.FeatureDoorbellCounts), needing([]testCase{
		{name: "doorbell/of_operations_on_keys", nodes: 1, run: single(doorbellOwn)},
	}, rdma.FeatureDoorbellCounts, rdma.FeatureMW1, rdma.FeatureMW2, rdma.FeatureSendWithInv)...)
}

// bus is what was done on the bus since before.
func bus(after, before rdma.Counters) rdma.Counters {
	return rdma.Counters{
		Doorbells: after.Doorbells - before.Doorbells, WQEFetches: after.WQEFetches - before.WQEFetches,
		DirectWQEs: after.DirectWQEs - before.DirectWQEs, DMAReads: after.DMAReads - before.DMAReads,
	}
}

// onBus checks what posting has cost on the bus.
func (r *rig) onBus(what string, s *side, want rdma.Counters, post func()) {
	r.Helper()
	before := s.ctx.Counters()
	post()
	if got := bus(s.ctx.Counters(), before); got != want {
		r.Errorf("%s: %d doorbells, %d fetches of WQEs, %d direct WQEs, %d reads of payload; want %d, %d, %d, %d", what,
			got.Doorbells, got.WQEFetches, got.DirectWQEs, got.DMAReads,
			want.Doorbells, want.WQEFetches, want.DirectWQEs, want.DMAReads)
	}
}

// inlined puts n bytes into a request in place of its SGL.
func inlined(wr rdma.SendWR, n int) rdma.SendWR {
	wr.SGL, wr.Inline = nil, make([]byte, n)
	wr.Flags |= rdma.SendInline
	return wr
}

// doorbellBatch: a write of one piece is an entry of 48 bytes, one block, and
// four blocks are fetched at a time.
func doorbellBatch(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	one := write(1, dst, 0, src.sge(0, 8))
	r.onBus("eight writes in eight posts", a, rdma.Counters{Doorbells: 8, WQEFetches: 8, DMAReads: 8}, func() {
		for range 8 {
			l.send(one)
			a.done(a.scq, 1)
		}
	})
	batch := []rdma.SendWR{7: one}
	for i := range batch {
		batch[i] = unsignaled(one)
	}
	batch[7] = one
	r.onBus("eight writes in one post", a, rdma.Counters{Doorbells: 1, WQEFetches: 2, DMAReads: 8}, func() {
		l.send(batch...)
		a.done(a.scq, 1)
	})
}

// doorbellDirect: control 16 and address 16 leave 224 bytes of a direct entry of
// 256, of which 4 say how long the data are.
func doorbellDirect(r *rig, a, b *side) {
	dst := b.memory(1024)
	l := r.link(func(u *setup) { u.cap.MaxInlineData = 512 })
	for _, c := range []struct {
		what string
		n    int
		want rdma.Counters
	}{
		{"nothing inline", 0, rdma.Counters{Doorbells: 1, DirectWQEs: 1}},
		{"a word inline", 8, rdma.Counters{Doorbells: 1, DirectWQEs: 1}},
		{"the most that is direct", 220, rdma.Counters{Doorbells: 1, DirectWQEs: 1}},
		{"a byte more", 221, rdma.Counters{Doorbells: 1, WQEFetches: 2}},
		{"as much as is inline", 512, rdma.Counters{Doorbells: 1, WQEFetches: 3}},
	} {
		r.onBus(c.what, a, c.want, func() {
			l.send(inlined(write(1, dst, 0), c.n))
			a.done(a.scq, 1)
		})
	}
	r.onBus("two of them in one post", a, rdma.Counters{Doorbells: 1, WQEFetches: 1}, func() {
		l.send(inlined(unsignaled(write(1, dst, 0)), 8), inlined(write(2, dst, 0), 8))
		a.done(a.scq, 2)
	})
}

func doorbellRefused(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	good, bad := write(1, dst, 0, src.sge(0, 8)), write(2, dst, 0)
	bad.Opcode = 99
	r.onBus("a refused post", a, rdma.Counters{}, func() {
		result(l.qa.PostSend([]rdma.SendWR{bad, good})).refused(r, "PostSend of a bad request", nil)
	})
	r.onBus("a post that is taken in part", a, rdma.Counters{Doorbells: 1, WQEFetches: 1, DMAReads: 1}, func() {
		if n, err := l.qa.PostSend([]rdma.SendWR{good, bad}); n != 1 || err == nil {
			r.Fatalf("PostSend of a good and a bad request took %d, %v", n, err)
		}
		a.done(a.scq, 1)
	})
	r.onBus("a read of the queue", a, rdma.Counters{}, func() { l.qa.State() })
}

// doorbellLost: what was posted behind lost rings is not there until a ring comes, which brings all of it in its order.
func doorbellLost(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	for lost := uint64(1); lost <= 3; lost++ {
		src.Store(0, pattern(lost, 64))
		dst.Store(0, make([]byte, 64))
		r.f.Doorbells.Lose(a.node, int(lost))
		for i := range lost {
			l.send(write(i, dst, int(8*i), src.sge(int(8*i), 8)))
		}
		r.unseen(a, dst)
		l.send(fetchAdd(lost, dst, 56, 7, src.sge(56, 8)))
		for i := range lost + 1 {
			a.done(a.scq, i)
		}
		want := make([]byte, 64)
		copy(want, pattern(lost, 64)[:8*lost])
		r.same("written behind lost rings", dst.Load(0, 56), want[:56])
		equal(r, dst.Load64(56), 7, "added by the request whose ring came")
	}
	l.works(100)
}

// doorbellRecord: with no ring to come the device finds the index in the record.
func doorbellRecord(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l := r.link()
	r.f.Doorbells.Lose(a.node, 2)
	l.send(unsignaled(write(1, dst, 0, src.sge(0, 8))), write(2, dst, 8, src.sge(8, 8)))
	l.send(write(3, dst, 16, src.sge(16, 8)))
	r.unseen(a, dst)
	r.f.Doorbells.Look(a.node)
	a.done(a.scq, 2, 3)
	r.same("written behind lost rings", dst.Load(0, 24), src.Load(0, 24))
	// In ERR nothing is left behind for want of a ring.
	r.f.Doorbells.Lose(a.node, 1)
	l.send(write(4, dst, 24, src.sge(24, 8)), write(5, dst, 32, src.sge(32, 8)))
	for range 200 {
		a.none(a.scq)
	}
	r.move(l.qa, rdma.StateErr)
	a.fail(a.scq, rdma.WCWRFlushErr, 4, 5)
	r.f.Doorbells.Look(a.node)
}

// unseen checks that nothing of what was posted is executed.
func (r *rig) unseen(a *side, dst Region) {
	r.Helper()
	for range 200 {
		a.none(a.scq)
	}
	r.same("memory before a ring has come", dst.Load(0, 24), make([]byte, 24))
}

// doorbellOwn: a binding is 192 bytes, three blocks, an invalidation 128.
func doorbellOwn(r *rig, s *side) {
	m := s.region(s.pd, r.f.Memory, 64, everything|rdma.AccessMWBind)
	l := r.connect(s, s)
	one, two := s.window(rdma.MWType1), s.window(rdma.MWType2)
	bind := rdma.MWBind{MR: m.MR, Addr: m.Base, Length: 8, Access: rdma.AccessRemoteRead}
	r.onBus("BindMW", s, rdma.Counters{Doorbells: 1, WQEFetches: 1}, func() {
		r.must(l.qa.BindMW(one, 1, rdma.SendSignaled, bind), "BindMW")
		s.done(s.scq, 1)
	})
	key := rdma.IncRKey(two.RKey())
	r.onBus("a bind and an invalidation", s, rdma.Counters{Doorbells: 1, WQEFetches: 2}, func() {
		l.send(rdma.SendWR{WRID: 2, Opcode: rdma.WRBindMW, MW: two, RKey: key, Bind: &bind},
			rdma.SendWR{WRID: 3, Opcode: rdma.WRLocalInv, Flags: rdma.SendSignaled, InvalidateRKey: key})
		s.done(s.scq, 3)
	})
}

// onBusOf is the rule, spelled out: what one post of wrs costs.
func onBusOf(wrs []rdma.SendWR) rdma.Counters {
	c := rdma.Counters{Doorbells: 1}
	bytes := make([]int, len(wrs))
	for i, wr := range wrs {
		bytes[i] = 16 // control
		o := wr.Opcode.Operation()
		if o.Needs&rdma.NeedsRemote != 0 {
			bytes[i] += 16 // remote address
		}
		if o.Needs&rdma.NeedsOperands != 0 {
			bytes[i] += 16
		}
		if wr.Flags&rdma.SendInline != 0 {
			for data := 4 + len(wr.Inline); data > 0; data -= 16 {
				bytes[i] += 16
			}
			continue
		}
		for _, piece := range wr.SGL {
			if piece.Length == 0 {
				continue
			}
			bytes[i] += 16
			if !o.Fetches() {
				c.DMAReads++
			}
		}
	}
	if len(wrs) == 1 && wrs[0].Flags&rdma.SendInline != 0 && bytes[0] <= 256 {
		c.DirectWQEs = 1
		return c
	}
	blocks := 0
	for _, n := range bytes {
		for ; n > 0; n -= 64 {
			blocks++
		}
	}
	for ; blocks > 0; blocks -= 4 {
		c.WQEFetches++
	}
	return c
}

func doorbellRandom(r *rig, a, b *side) {
	src, dst := a.memory(4096), b.memory(4096)
	l := r.link(func(u *setup) { u.cap.MaxInlineData, u.cap.MaxSendSGE = 512, 8 })
	rng := rand.New(rand.NewPCG(1, 2))
	any := func(id uint64) rdma.SendWR {
		var sgl []rdma.SGE
		for range rng.IntN(9) {
			sgl = append(sgl, src.sge(rng.IntN(1024), rng.IntN(3)*rng.IntN(300)))
		}
		switch rng.IntN(5) {
		case 0:
			return write(id, dst, 0, sgl...)
		case 1:
			return read(id, dst, 0, sgl...)
		case 2:
			return fetchAdd(id, dst, 8, 1, src.sge(0, 8))
		case 3:
			return compareSwap(id, dst, 8, 1, 2, src.sge(0, 8))
		}
		return inlined(write(id, dst, 0), rng.IntN(513))
	}
	var want rdma.Counters
	before := a.ctx.Counters()
	for i := range uint64(300) {
		wrs := make([]rdma.SendWR, 1+rng.IntN(8))
		for k := range wrs {
			wrs[k] = unsignaled(any(i))
		}
		wrs[len(wrs)-1].Flags |= rdma.SendSignaled
		cost := onBusOf(wrs)
		want.Doorbells += cost.Doorbells
		want.WQEFetches += cost.WQEFetches
		want.DirectWQEs += cost.DirectWQEs
		want.DMAReads += cost.DMAReads
		l.send(wrs...)
		a.done(a.scq, i)
		if got := bus(a.ctx.Counters(), before); got != want {
			r.Fatalf("after post %d, of %+v: counted\n%+v, want\n%+v", i, wrs, got, want)
		}
	}
}
