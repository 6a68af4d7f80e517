package rdmatest

import (
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func mkeyCases() []testCase {
	return needing([]testCase{
		{name: "mkey/layouts_as_remote_memory", nodes: 2, run: pair(mkeyRemote)},
		{name: "mkey/layouts_as_local_memory", nodes: 2, run: pair(mkeyLocal)},
		{name: "mkey/strided_to_strided", nodes: 2, run: pair(mkeyStrided)},
		{name: "mkey/thousands_of_blocks", nodes: 2, run: pair(mkeyThousands)},
		{name: "mkey/whole_range_and_not_a_byte_more", nodes: 2, run: mkeyRange},
		{name: "mkey/atomics_in_one_block", nodes: 2, run: pair(mkeyAtomics)},
		{name: "mkey/rights_are_the_layout's", nodes: 2, run: pair(mkeyRights)},
		{name: "mkey/layout_is_in_force_for_what_is_behind_it", nodes: 2, run: pair(mkeyOrder)},
		{name: "mkey/local_inv_takes_it_back", nodes: 2, run: pair(mkeyInvalidate)},
		{name: "mkey/piece_that_was_deregistered_fails_the_request", nodes: 2, run: pair(mkeyDeregistered)},
		{name: "mkey/bad_layouts_are_refused", nodes: 2, run: pair(mkeyRefused)},
		{name: "mkey/bad_pieces_are_MW_BIND_ERR", nodes: 2, run: pair(mkeyBadPieces)},
		{name: "mkey/nothing_is_touched_after_local_inv", nodes: 3, run: mkeyUnderFire},
	}, rdma.FeatureUMR)
}

func (s *side) mkey(entries int) rdma.Mkey {
	s.r.Helper()
	return result(s.pd.CreateMkey(entries)).owned(s.r, "CreateMkey(%d)", entries)
}

func regMkey(id uint64, k rdma.Mkey, l rdma.MkeyLayout) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRRegMkey, Flags: rdma.SendSignaled, Mkey: k, Layout: &l}
}

// lay sets a layout by a request of the side's queue pair, and waits. The
// region that it gives has the layout's addresses.
func (s *side) lay(qp rdma.QP, k rdma.Mkey, l rdma.MkeyLayout) Region {
	s.r.Helper()
	post(s.r, qp, regMkey(815, k, l))
	if wc := s.done(s.scq, 815); wc.Opcode != rdma.WCRegMkey {
		s.r.Errorf("the completion has opcode %d, want %d", wc.Opcode, rdma.WCRegMkey)
	}
	return Region{MR: keyed{nil, k.RKey()}, Size: int(l.Len())}
}

// piecesOf makes interleaved pieces of m, and tells where each byte of the
// layout lies in it.
func piecesOf(m Region, repeat int, pieces [][3]int) (rdma.MkeyLayout, []int) {
	l := rdma.MkeyLayout{Access: everything, Repeat: uint32(repeat)}
	var at []int
	for _, p := range pieces {
		l.Interleaved = append(l.Interleaved, rdma.MkeyPiece{Addr: m.Base + uint64(p[0]), Count: uint32(p[1]), Skip: uint32(p[2]), LKey: m.LKey()})
	}
	for round := range repeat {
		for _, p := range pieces {
			for i := range p[1] {
				at = append(at, p[0]+round*(p[1]+p[2])+i)
			}
		}
	}
	return l, at
}

// listOf makes a list of pieces (offset, length) of m.
func listOf(m Region, pieces [][2]int) (rdma.MkeyLayout, []int) {
	l := rdma.MkeyLayout{Access: everything}
	var at []int
	for _, p := range pieces {
		l.List = append(l.List, m.sge(p[0], p[1]))
		for i := range p[1] {
			at = append(at, p[0]+i)
		}
	}
	return l, at
}

// layouts are of memory of 4096 bytes.
func layouts(m Region) []struct {
	name   string
	layout rdma.MkeyLayout
	at     []int
} {
	type named = struct {
		name   string
		layout rdma.MkeyLayout
		at     []int
	}
	var all []named
	add := func(name string, l rdma.MkeyLayout, at []int) { all = append(all, named{name, l, at}) }
	one, oneAt := listOf(m, [][2]int{{100, 333}})
	add("list of one", one, oneAt)
	many, manyAt := listOf(m, [][2]int{{4000, 96}, {0, 1}, {7, 0}, {1000, 500}, {8, 8}, {2000, 1}})
	add("list", many, manyAt)
	stride, strideAt := piecesOf(m, 50, [][3]int{{16, 24, 40}})
	add("stride", stride, strideAt)
	bytes, bytesAt := piecesOf(m, 1000, [][3]int{{1, 1, 3}})
	add("single bytes", bytes, bytesAt)
	dense, denseAt := piecesOf(m, 20, [][3]int{{64, 64, 0}})
	add("blocks without gaps", dense, denseAt)
	inter, interAt := piecesOf(m, 30, [][3]int{{0, 8, 8}, {2048, 20, 5}, {1000, 0, 4}, {3200, 1, 1}})
	add("interleaved", inter, interAt)
	return all
}

// mkeyRemote writes and reads parts of every layout through it.
func mkeyRemote(r *rig, a, b *side) {
	const size = 4096
	l := r.link()
	k := b.mkey(8)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, kind := range kinds(r) {
		m := b.region(b.pd, kind, size, everything)
		src, got := a.memory(size), a.memory(size)
		for i, c := range layouts(m) {
			w := b.lay(l.qb, k, c.layout)
			want := pattern(uint64(i), size)
			m.Store(0, want)
			for part := range 8 {
				off := rng.IntN(len(c.at))
				n := 1 + rng.IntN(len(c.at)-off)
				if part == 0 {
					off, n = 0, len(c.at)
				}
				payload := pattern(uint64(100*i+part), size)
				src.Store(0, payload)
				l.do(write(1, w, off, src.sge(0, n)), read(2, w, off, got.sge(0, n)))
				for j := range n {
					want[c.at[off+j]] = payload[j]
				}
				r.same(fmt.Sprintf("%v %s: written %d bytes at %d", kind, c.name, n, off), m.Load(0, size), want)
				r.same(fmt.Sprintf("%v %s: read %d bytes at %d", kind, c.name, n, off), got.Load(0, n), payload[:n])
			}
		}
	}
}

// mkeyLocal sends, writes, reads and receives out of and into every layout.
func mkeyLocal(r *rig, a, b *side) {
	const size = 4096
	l := r.link()
	k := a.mkey(8)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, kind := range kinds(r) {
		m := a.region(a.pd, kind, size, everything)
		dst, box := b.memory(size), b.memory(size)
		for i, c := range layouts(m) {
			w := a.lay(l.qa, k, c.layout)
			memory := pattern(uint64(i), size)
			m.Store(0, memory)
			for part := range 6 {
				off := rng.IntN(len(c.at))
				n := 1 + rng.IntN(len(c.at)-off)
				if part == 0 {
					off, n = 0, len(c.at)
				}
				what := fmt.Sprintf("%v %s: %d bytes at %d", kind, c.name, n, off)
				out := make([]byte, n)
				for j := range n {
					out[j] = memory[c.at[off+j]]
				}
				l.recv(receive(9, box.sge(0, size)))
				l.do(write(1, dst, 0, w.sge(off, n)), send(2, w.sge(off, n)))
				equal(r, b.done(b.rcq, 9).ByteLen, uint32(n), "%s: bytes received:", what)
				r.same(what+" written", dst.Load(0, n), out)
				r.same(what+" sent", box.Load(0, n), out)
				in := pattern(uint64(100*i+part), n)
				dst.Store(0, in)
				// As the second of three places, too.
				first := min(3, n)
				l.do(read(3, dst, 0, w.sge(off, first), w.sge(off+first, n-first)))
				for j := range n {
					memory[c.at[off+j]] = in[j]
				}
				r.same(what+" read", m.Load(0, size), memory)
				in = pattern(uint64(200*i+part), n)
				dst.Store(0, in)
				postRecv(r, l.qa, receive(4, w.sge(off, n)))
				l.back().do(send(5, dst.sge(0, n)))
				a.done(a.rcq, 4)
				for j := range n {
					memory[c.at[off+j]] = in[j]
				}
				r.same(what+" received", m.Load(0, size), memory)
			}
		}
	}
}

// mkeyStrided moves a column of one matrix to a row of blocks of another.
func mkeyStrided(r *rig, a, b *side) {
	const size = 64 << 10
	l := r.link()
	src, dst := a.filled(size, 1), b.memory(size)
	from, fromAt := piecesOf(src, 512, [][3]int{{24, 8, 120}})
	to, toAt := piecesOf(dst, 256, [][3]int{{100, 16, 200}})
	near, far := a.lay(l.qa, a.mkey(1), from), b.lay(l.qb, b.mkey(1), to)
	l.do(write(1, far, 0, near.sge(0, 4096)))
	want, p := make([]byte, size), pattern(1, size)
	for i := range fromAt {
		want[toAt[i]] = p[fromAt[i]]
	}
	r.same("from a stride to a stride", dst.Load(0, size), want)
	l.recv(receive(3, far.sge(0, 4096)))
	dst.Store(0, make([]byte, size))
	l.do(send(2, near.sge(0, 4096)))
	b.done(b.rcq, 3)
	r.same("sent from a stride to a stride", dst.Load(0, size), want)
}

func mkeyThousands(r *rig, a, b *side) {
	const blocks, count, skip = 5000, 32, 32
	const size = blocks * (count + skip)
	l := r.link()
	for _, kind := range []MemoryKind{Allocated, Ordinary} {
		src, dst := a.region(a.pd, kind, size, everything), b.region(b.pd, kind, size, everything)
		src.Store(0, pattern(1, size))
		from, at := piecesOf(src, blocks, [][3]int{{0, count, skip}})
		var pieces [][2]int
		for i := range 1000 {
			pieces = append(pieces, [2]int{(999 - i) * 300, 160}) // backwards
		}
		to, toAt := listOf(dst, pieces)
		near, far := a.lay(l.qa, a.mkey(1), from), b.lay(l.qb, b.mkey(1000), to)
		l.do(write(1, far, 0, near.sge(0, blocks*count)))
		want, p := make([]byte, size), pattern(1, size)
		for i := range at {
			want[toAt[i]] = p[at[i]]
		}
		r.same(kind.String()+" written", dst.Load(0, size), want)
		back := make([]byte, size)
		src.Store(0, back)
		l.do(read(2, far, 0, near.sge(0, blocks*count)))
		for _, i := range at {
			back[i] = p[i]
		}
		r.same(kind.String()+" read back", src.Load(0, size), back)
	}
}

func mkeyRange(r *rig) {
	src := r.sides[0].memory(4096)
	for i, c := range []struct{ off, n int }{{100, 1}, {99, 2}, {0, 101}, {-1, 1}, {-1, 2}, {1 << 40, 8}} {
		r.sub(fmt.Sprint(i), pair(func(r *rig, a, b *side) {
			m := b.region(b.pd, Ordinary, 4096, everything)
			layout, _ := piecesOf(m, 10, [][3]int{{0, 10, 90}})
			l := r.link()
			l.refused("write", write(1, b.lay(l.qb, b.mkey(1), layout), c.off, src.sge(0, c.n)), m)
			near := a.region(a.pd, Ordinary, 4096, everything)
			layout, _ = piecesOf(near, 10, [][3]int{{0, 10, 90}})
			dst := b.memory(4096)
			again := r.link()
			again.fails(rdma.WCLocProtErr, write(2, dst, 0, a.lay(again.qa, a.mkey(1), layout).sge(c.off, c.n)))
		}))
	}
}

func mkeyAtomics(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 256, everything)
	src := a.memory(64)
	l := r.link()
	k := b.mkey(1)
	layout, _ := piecesOf(m, 8, [][3]int{{0, 16, 16}})
	w := b.lay(l.qb, k, layout)
	m.store64(32, 40)
	l.do(fetchAdd(1, w, 16, 2, src.sge(0, 8)))
	equal(r, m.Load64(32), 42, "the word in the second block is")
	layout, _ = piecesOf(m, 8, [][3]int{{0, 4, 4}})
	w = b.lay(l.qb, k, layout)
	l.fails(rdma.WCRemInvReqErr, fetchAdd(2, w, 8, 2, src.sge(0, 8)))
}

func mkeyRights(r *rig, a, b *side) {
	src := a.memory(64)
	// The region's remote rights are for its own key.
	m := b.region(b.pd, Ordinary, 256, rdma.AccessLocalWrite)
	for _, granted := range []rdma.Access{0, rdma.AccessRemoteRead, rdma.AccessLocalWrite | rdma.AccessRemoteWrite, everything} {
		for _, op := range remoteOps(src.sge(0, 8)) {
			if op.wr.Opcode.Operation().Received != 0 {
				continue
			}
			r.sub(fmt.Sprintf("%v_%s", granted, op.name), pair(func(r *rig, a, b *side) {
				layout, _ := piecesOf(m, 8, [][3]int{{0, 16, 16}})
				layout.Access = granted
				l := r.link()
				w := b.lay(l.qb, b.mkey(1), layout)
				wr := op.wr
				wr.RKey, wr.Flags = w.RKey(), rdma.SendSignaled
				if granted&op.need == 0 {
					l.refused(op.name, wr, m)
					return
				}
				l.send(wr)
				a.done(a.scq, 0)
			}))
		}
	}
}

// mkeyOrder sets layouts and uses each in one list of requests.
func mkeyOrder(r *rig, a, b *side) {
	m, dst := a.filled(4096, 1), b.memory(4096)
	l := r.link()
	k := a.mkey(1)
	w := Region{MR: keyed{nil, k.RKey()}}
	want := make([]byte, 4096)
	for round := range 10 {
		var wrs []rdma.SendWR
		for i := range 4 {
			layout, at := piecesOf(m, 8, [][3]int{{100*round + i, 4, 60}})
			wrs = append(wrs, unsignaled(regMkey(1, k, layout)), unsignaled(write(2, dst, 32*i, w.sge(0, 32))))
			for j := range at {
				want[32*i+j] = pattern(1, 4096)[at[j]]
			}
		}
		wrs[len(wrs)-1].Flags |= rdma.SendSignaled
		l.send(wrs...)
		a.done(a.scq, 2)
		r.same(fmt.Sprintf("round %d", round), dst.Load(0, 4096), want)
	}
}

func mkeyInvalidate(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 4096, everything)
	src := a.memory(64)
	l := r.link()
	k := b.mkey(1)
	layout, _ := piecesOf(m, 8, [][3]int{{0, 16, 16}})
	w := b.lay(l.qb, k, layout)
	l.do(write(1, w, 0, src.sge(0, 64)))
	l.back().do(localInv(2, k.RKey()))
	r.sub("afterwards", func(r *rig) { r.link().refused("write", write(3, w, 0, src.sge(0, 8)), m) })
	w = b.lay(l.qb, k, layout)
	l.do(write(4, w, 0, src.sge(0, 64)))
	post(r, l.qb, localInv(5, k.RKey()), localInv(6, k.RKey()))
	b.done(b.scq, 5)
	b.want(b.scq, 6, rdma.WCMWBindErr) // there is nothing to take back
	r.close(k)
	r.try("closed", write(7, w, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
}

func mkeyDeregistered(r *rig, a, b *side) {
	src := a.memory(256)
	for _, kind := range []MemoryKind{Ordinary, Allocated} {
		first, second := b.region(b.pd, kind, 64, everything), b.region(b.pd, kind, 64, everything)
		layout := rdma.MkeyLayout{Access: everything, List: []rdma.SGE{first.sge(0, 64), second.sge(0, 64)}}
		k := b.mkey(2)
		l := r.link()
		w := b.lay(l.qb, k, layout)
		l.do(write(1, w, 0, src.sge(0, 128)))
		r.closeRegion(second)
		l.send(write(2, w, 0, src.sge(0, 64))) // the other is there
		a.done(a.scq, 2)
		l.refused("write", write(3, w, 60, src.sge(0, 8)), first)
		r.try(kind.String()+"_read", read(4, w, 0, src.sge(0, 128)), rdma.WCRemAccessErr)
	}
	near := a.region(a.pd, Ordinary, 64, everything)
	dst := b.memory(64)
	l := r.link()
	layout, _ := listOf(near, [][2]int{{0, 8}, {16, 8}})
	w := a.lay(l.qa, a.mkey(2), layout)
	r.closeRegion(near)
	l.fails(rdma.WCLocProtErr, write(1, dst, 0, w.sge(0, 16)))
}

func mkeyRefused(r *rig, a, _ *side) {
	m := a.memory(64)
	l := r.link()
	k := a.mkey(2)
	good := m.sge(0, 8)
	block := rdma.MkeyPiece{Addr: m.Base, Count: 8, LKey: m.LKey()}
	largest := block
	largest.Count = ^uint32(0)
	for name, layout := range map[string]rdma.MkeyLayout{
		"no pieces":               {},
		"both kinds":              {List: []rdma.SGE{good}, Repeat: 1, Interleaved: []rdma.MkeyPiece{block}},
		"too many pieces":         {List: []rdma.SGE{good, good, good}},
		"no bytes":                {List: []rdma.SGE{{Addr: m.Base, LKey: m.LKey()}}},
		"no rounds":               {Interleaved: []rdma.MkeyPiece{block}},
		"a length that wraps":     {Repeat: ^uint32(0), Interleaved: []rdma.MkeyPiece{largest, largest}},
		"write without the right": {Access: rdma.AccessRemoteWrite, List: []rdma.SGE{good}},
		"a right of regions":      {Access: rdma.AccessMWBind, List: []rdma.SGE{good}},
	} {
		result(l.qa.PostSend([]rdma.SendWR{regMkey(1, k, layout)})).refused(r, name, rdma.ErrInvalid)
	}
	result(l.qa.PostSend([]rdma.SendWR{{Opcode: rdma.WRRegMkey, Layout: &rdma.MkeyLayout{List: []rdma.SGE{good}}}})).refused(r, "no key", rdma.ErrInvalid)
	result(l.qa.PostSend([]rdma.SendWR{{Opcode: rdma.WRRegMkey, Mkey: k}})).refused(r, "no layout", rdma.ErrInvalid)
	result(a.pd.CreateMkey(0)).refused(r, "a key for no pieces", rdma.ErrInvalid)
	l.works(1)
}

func mkeyBadPieces(r *rig, a, _ *side) {
	m := a.region(a.pd, Ordinary, 4096, everything)
	mute := a.region(a.pd, Ordinary, 64, rdma.AccessRemoteRead)
	foreign := a.region(a.newPD(), Ordinary, 64, everything)
	closed := a.region(a.pd, Ordinary, 64, everything)
	r.closeRegion(closed)
	list := func(s rdma.SGE) rdma.MkeyLayout {
		return rdma.MkeyLayout{Access: everything, List: []rdma.SGE{m.sge(0, 8), s}}
	}
	strided := func(repeat, count, skip uint32) rdma.MkeyLayout {
		return rdma.MkeyLayout{Access: everything, Repeat: repeat, Interleaved: []rdma.MkeyPiece{{Addr: m.Base, Count: count, Skip: skip, LKey: m.LKey()}}}
	}
	setter := r.link()
	other := a.mkey(1)
	inner := a.lay(setter.qa, other, rdma.MkeyLayout{List: []rdma.SGE{m.sge(8, 8)}})
	for name, layout := range map[string]rdma.MkeyLayout{
		"no such key":                    list(rdma.SGE{Addr: m.Base, Length: 8, LKey: m.LKey() ^ 1}),
		"a stale key":                    list(closed.sge(0, 8)),
		"another domain's region":        list(foreign.sge(0, 8)),
		"a region that is not written":   list(mute.sge(0, 8)),
		"one byte more":                  list(m.sge(4089, 8)),
		"one byte before":                list(m.sge(-1, 8)),
		"the key of another layout":      list(inner.sge(0, 8)),
		"the last block is half outside": strided(64, 33, 32),
		"a stride as long as it goes":    strided(^uint32(0), 1, ^uint32(0)),
		"as many blocks as there are":    strided(1<<31-1, ^uint32(0), ^uint32(0)),
	} {
		r.sub(name, pair(func(r *rig, a, _ *side) {
			l := r.link()
			k := a.mkey(2)
			l.send(regMkey(1, k, layout), send(2))
			a.fail(a.scq, rdma.WCMWBindErr, 1, 2)
		}))
	}
	r.sub("a key of another domain", pair(func(r *rig, a, _ *side) {
		pd := a.newPD()
		k := result(pd.CreateMkey(1)).owned(r, "CreateMkey")
		l := r.link()
		l.send(regMkey(1, k, rdma.MkeyLayout{List: []rdma.SGE{m.sge(0, 8)}}))
		a.want(a.scq, 1, rdma.WCMWBindErr)
	}))
}

// mkeyUnderFire takes a layout back that two peers write through.
func mkeyUnderFire(r *rig) {
	underFire(r, 4, everything, bothKinds, func(r *rig, f *fire) {
		k := f.target.mkey(1)
		setter := r.connect(f.target, f.writers[0])
		layout, _ := piecesOf(f.m, 64, [][3]int{{0, 1024, 0}})
		f.w = f.target.lay(setter.qa, k, layout)
		f.stop = func() {
			if f.round%2 == 0 || f.kind == Allocated { // whose memory goes with its region
				setter.do(localInv(1, k.RKey()))
				return
			}
			// The region goes, and the layout stays.
			r.closeRegion(f.m)
		}
	})
}
