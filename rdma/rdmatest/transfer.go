package rdmatest

import (
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func transferCases() []testCase {
	return []testCase{
		{name: "transfer/zero_length_checks_no_key", nodes: 2, run: pair(transferZero)},
		{name: "transfer/gather_and_scatter", nodes: 2, run: pair(transferSGL)},
		{name: "transfer/matrix_of_memory_kinds", nodes: 2, run: pair(transferMatrix)},
		{name: "transfer/megabytes", nodes: 2, run: pair(transferLarge), long: true},
		{name: "transfer/batch_of_everything_in_order", nodes: 2, run: pair(transferBatch)},
		{name: "transfer/loopback_between_own_queue_pairs", nodes: 1, run: single(transferLoopback)},
		{name: "transfer/loopback_to_itself", nodes: 1, run: single(transferSelf)},
		{name: "transfer/four_nodes_all_to_all", nodes: 4, run: transferAll},
	}
}

func transferZero(r *rig, a, b *side) {
	dst := b.filled(64, 1)
	l := r.link()
	l.recv(receive(10), receive(11, dst.sge(0, 8)), receive(12))
	zero := func(op rdma.WROpcode, id uint64) rdma.SendWR {
		return rdma.SendWR{WRID: id, Opcode: op, Flags: rdma.SendSignaled, RemoteAddr: 0x1234567, RKey: 0xbadbad01, ImmData: 7}
	}
	inline := zero(rdma.WRRDMAWrite, 6)
	inline.Flags |= rdma.SendInline
	l.send(zero(rdma.WRRDMAWrite, 1), zero(rdma.WRRDMARead, 2), zero(rdma.WRSend, 3), zero(rdma.WRSendWithImm, 4),
		zero(rdma.WRRDMAWriteWithImm, 5), inline)
	for id := uint64(1); id <= 6; id++ {
		wc := a.done(a.scq, id)
		if wc.Opcode == rdma.WCRDMARead && wc.ByteLen != 0 {
			r.Errorf("a read of nothing moved %d bytes", wc.ByteLen)
		}
	}
	for i, op := range []rdma.WCOpcode{rdma.WCRecv, rdma.WCRecv, rdma.WCRecvRDMAWithImm} {
		wc := b.done(b.rcq, uint64(10+i))
		if wc.ByteLen != 0 || wc.Opcode != op || i > 0 && (wc.ImmData != 7 || wc.Flags&rdma.WCFlagWithImm == 0) {
			r.Errorf("receive %d of nothing: %+v", i, wc)
		}
	}
	r.same("memory", dst.Load(0, 64), pattern(1, 64))
}

// cut splits n bytes of m, from off, into up to most SGEs with gaps between
// them, and gives the offsets of all bytes in order.
func cut(rng *rand.Rand, m Region, n, most int) (sgl []rdma.SGE, offsets []int) {
	pieces := 1 + rng.IntN(most)
	pos, left := rng.IntN(8), n
	for i := range pieces {
		take := left
		if i < pieces-1 {
			take = 1 + rng.IntN(max(1, left-(pieces-1-i)))
		}
		if take > left {
			take = left
		}
		if take == 0 {
			break
		}
		sgl = append(sgl, m.sge(pos, take))
		for j := range take {
			offsets = append(offsets, pos+j)
		}
		pos += take + rng.IntN(5)
		left -= take
	}
	return sgl, offsets
}

// transferSGL moves random pieces by every operation and compares every byte
// of both memories, gaps included.
func transferSGL(r *rig, a, b *side) {
	const size = 4096
	d := a.ctx.QueryDevice()
	most := min(d.MaxSGE, 16)
	l := r.link(func(u *setup) { u.cap.MaxSendSGE, u.cap.MaxRecvSGE = most, most })
	src, dst := a.memory(size), b.memory(size)
	rng := rand.New(rand.NewPCG(1, 2))
	near, far := make([]byte, size), make([]byte, size)
	rounds := unlessBrief(r, 300, 60)
	for round := range rounds {
		n := 1 + rng.IntN(200)
		if round%10 == 0 {
			n = 1 + rng.IntN(3000)
		}
		copy(near, pattern(uint64(round), size))
		src.Store(0, near)
		sgl, at := cut(rng, src, n, most)
		switch op := rng.IntN(3); op {
		case 0:
			off := rng.IntN(size - n)
			l.send(write(uint64(round), dst, off, sgl...))
			for i, o := range at {
				far[off+i] = near[o]
			}
		case 1:
			off := rng.IntN(size - n)
			l.send(read(uint64(round), dst, off, sgl...))
			for i, o := range at {
				near[o] = far[off+i]
			}
		case 2:
			rsgl, to := cut(rng, dst, n+rng.IntN(50), most)
			l.recv(receive(uint64(round), rsgl...))
			l.send(send(uint64(round), sgl...))
			equal(r, b.done(b.rcq, uint64(round)).ByteLen, uint32(n), "round %d: bytes received:", round)
			for i, o := range at {
				far[to[i]] = near[o]
			}
		}
		a.done(a.scq, uint64(round))
		r.same(fmt.Sprintf("round %d: near memory", round), src.Load(0, size), near)
		r.same(fmt.Sprintf("round %d: far memory", round), dst.Load(0, size), far)
	}
}

// transferMatrix moves bytes of every kind of memory to every kind, by every
// operation, in sizes around words and pages and at odd offsets.
func transferMatrix(r *rig, a, b *side) {
	l := r.link()
	const size = 70_000
	id := uint64(0)
	for _, near := range kinds(r) {
		for _, far := range kinds(r) {
			src, dst, got := a.region(a.pd, near, size, everything), b.region(b.pd, far, size, everything), a.region(a.pd, near, size, everything)
			for _, n := range []int{1, 2, 3, 4, 7, 8, 9, 15, 16, 63, 64, 65, 4095, 4096, 4097, 65_537} {
				for _, off := range []int{0, 1, 8, 13} {
					id += 10
					what := fmt.Sprintf("%v to %v, %d bytes at %d", near, far, n, off)
					p := pattern(id, size)
					src.Store(0, p)
					blank := pattern(^id, size)
					dst.Store(0, blank)
					l.do(write(id, dst, off, src.sge(5, n)), read(id+1, dst, off, got.sge(off, n)))
					want := append([]byte(nil), blank...)
					copy(want[off:], p[5:5+n])
					r.same(what+": written", dst.Load(0, n+64), want[:n+64])
					r.same(what+": read back", got.Load(off, n), p[5:5+n])
					l.recv(receive(id, dst.sge(off+16, n)))
					l.do(send(id+2, src.sge(off, n)))
					b.done(b.rcq, id)
					copy(want[off+16:], p[off:off+n])
					r.same(what+": received", dst.Load(0, n+64), want[:n+64])
				}
			}
			dst.store64(64, 40)
			l.send(fetchAdd(1, dst, 64, 2, got.sge(8, 8)), compareSwap(2, dst, 64, 42, 99, got.sge(16, 8)), compareSwap(3, dst, 64, 42, 7, got.sge(24, 8)))
			for i, old := range []uint64{40, 42, 99} {
				a.done(a.scq, uint64(1+i))
				if v := got.Load64(8 + 8*i); v != old {
					r.Fatalf("%v to %v: atomic %d brought %d, want %d", near, far, i, v, old)
				}
			}
			if v := dst.Load64(64); v != 99 {
				r.Fatalf("%v to %v: the atomics left %d, want 99", near, far, v)
			}
			r.closeRegion(src, dst, got)
		}
	}
}

func transferLarge(r *rig, a, b *side) {
	l := r.link()
	const n, guard = 4<<20 + 17, 4096
	for _, kind := range []MemoryKind{Allocated, Ordinary} {
		src, dst := a.region(a.pd, kind, n+2*guard, everything), b.region(b.pd, kind, n+2*guard, everything)
		p := pattern(uint64(kind), n+2*guard)
		src.Store(0, p)
		mark := pattern(77, n+2*guard)
		dst.Store(0, mark)
		l.do(write(1, dst, guard+3, src.sge(guard, n-3)))
		want := append([]byte(nil), mark...)
		copy(want[guard+3:], p[guard:guard+n-3])
		r.same("megabytes written", dst.Load(0, n+2*guard), want)
		dst.Store(0, mark)
		l.recv(receive(2, dst.sge(guard, n/2), dst.sge(guard+n/2, n-n/2)))
		l.do(send(3, src.sge(guard, 1), src.sge(guard+1, n-1)))
		equal(r, b.done(b.rcq, 2).ByteLen, n, "bytes received:")
		copy(want, mark)
		copy(want[guard:], p[guard:guard+n])
		r.same("megabytes received", dst.Load(0, n+2*guard), want)
		src.Store(0, mark)
		l.send(read(4, dst, guard, src.sge(guard, n)))
		equal(r, a.done(a.scq, 4).ByteLen, n, "bytes read:")
		r.same("megabytes read", src.Load(0, n+2*guard), want)
		r.closeRegion(src, dst)
	}
}

func transferBatch(r *rig, a, b *side) {
	src, dst := a.memory(512), b.memory(512)
	l := r.link()
	p := pattern(1, 512)
	src.Store(0, p)
	l.recv(receive(50, dst.sge(100, 20)), receive(51, dst.sge(200, 20)), receive(52, dst.sge(300, 20)))
	l.send(
		write(1, dst, 0, src.sge(0, 8)),
		write(2, dst, 4, src.sge(16, 8)), // overlaps: the later one wins
		send(3, src.sge(32, 20)),
		read(4, dst, 0, src.sge(400, 12)),
		sendImm(5, 55, src.sge(64, 20)),
		fetchAdd(6, dst, 0, 0, src.sge(416, 8)),
		writeImm(7, 77, dst, 60, src.sge(96, 10)),
		read(8, dst, 60, src.sge(424, 10)),
	)
	a.done(a.scq, 1, 2, 3, 4, 5, 6, 7, 8)
	b.done(b.rcq, 50, 51, 52)
	want := make([]byte, 512)
	copy(want, p[0:8])
	copy(want[4:], p[16:24])
	copy(want[100:], p[32:52])
	copy(want[200:], p[64:84])
	copy(want[60:], p[96:106])
	r.same("the responder's memory", dst.Load(0, 512), want)
	r.same("read behind the writes", src.Load(400, 12), want[:12])
	r.same("fetched behind the writes", src.Load(416, 8), want[:8])
	r.same("read behind the write with immediate", src.Load(424, 10), want[60:70])
}

func transferLoopback(r *rig, s *side) {
	l := r.connect(s, s)
	src, dst := s.filled(128, 1), s.memory(128)
	l.recv(receive(1, dst.sge(0, 64)))
	l.do(send(2, src.sge(0, 64)), write(3, dst, 64, src.sge(64, 64)), read(4, dst, 64, src.sge(0, 8)))
	s.done(s.rcq, 1)
	r.same("memory", dst.Load(0, 128), pattern(1, 128))
	r.same("read back", src.Load(0, 8), pattern(1, 128)[64:72])
	l.back().do(write(5, src, 0, dst.sge(0, 8)))
}

// transferSelf connects one queue pair with itself.
func transferSelf(r *rig, s *side) {
	u := defaults()
	qp := s.newQP(u, 0)
	l := &link{r: r, a: s, b: s, qa: qp, qb: qp}
	l.steps(0, qp, u)
	src, dst := s.filled(128, 1), s.memory(128)
	l.recv(receive(1, dst.sge(0, 64)))
	l.send(send(2, src.sge(0, 64)), write(3, dst, 64, src.sge(64, 64)), send(4, src.sge(0, 8)))
	s.done(s.scq, 2, 3)
	s.done(s.rcq, 1)
	l.recv(receive(5, dst.sge(0, 8)))
	s.done(s.scq, 4)
	s.done(s.rcq, 5)
	r.same("memory", dst.Load(0, 128), pattern(1, 128))
	l.fails(rdma.WCRemAccessErr, astray(write(6, dst, 0, src.sge(0, 8))))
	s.state(qp, rdma.StateErr)
}

// transferAll is the shape of the main job: everybody writes a block to
// everybody, itself included, then flags it.
func transferAll(r *rig) {
	const block, rounds = 1000, 5
	n := len(r.sides)
	src, dst := make([]Region, n), make([]Region, n)
	for i, s := range r.sides {
		src[i], dst[i] = s.memory(n*block), s.memory(n*block)
	}
	links := make([][]*link, n) // [i][j], i <= j
	for i := range n {
		links[i] = make([]*link, n)
		for j := i; j < n; j++ {
			links[i][j] = r.connect(r.sides[i], r.sides[j])
		}
	}
	for round := range rounds {
		for i := range n {
			src[i].Store(0, pattern(uint64(round*n+i), n*block))
		}
		for i, s := range r.sides {
			for j := range n {
				qp := links[min(i, j)][max(i, j)].qa
				if i > j {
					qp = links[j][i].qb
				}
				post(r, qp, write(uint64(j), dst[j], i*block, src[i].sge(j*block, block)))
			}
			seen := map[uint64]bool{}
			for range n {
				wc := s.next(s.scq)
				if wc.Status != rdma.WCSuccess || seen[wc.WRID] {
					r.Fatalf("round %d, node %d: completion %+v", round, i, wc)
				}
				seen[wc.WRID] = true
			}
		}
		for j := range n {
			for i := range n {
				r.same(fmt.Sprintf("round %d: block of %d at %d", round, i, j), dst[j].Load(i*block, block),
					pattern(uint64(round*n+i), n*block)[j*block:(j+1)*block])
			}
		}
	}
}
