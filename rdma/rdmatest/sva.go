package rdmatest

import (
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func svaCases() []testCase {
	return needing([]testCase{
		{name: "sva/what_is_allowed_and_not_a_byte_more", nodes: 2, run: pair(svaBounds)},
		{name: "sva/rights_of_every_piece", nodes: 2, run: pair(svaPieces)},
		{name: "sva/as_local_memory", nodes: 2, run: pair(svaLocal)},
		{name: "sva/memory_that_is_not_there_fails_the_request", nodes: 2, run: pair(svaHidden)},
		{name: "sva/taken_back_nothing_is_touched", nodes: 3, run: svaUnderFire},
		{name: "sva/against_a_map_of_bytes", nodes: 2, run: pair(svaRandom)},
		{name: "sva/bad_arguments_are_EINVAL", nodes: 2, run: svaRefused},
		{name: "sva/closing_ends_the_key", nodes: 2, run: pair(svaClose)},
	}, rdma.FeatureSVA)
}

func (s *side) shareVA() rdma.SVA {
	s.r.Helper()
	return result(s.pd.ShareVA()).owned(s.r, "ShareVA")
}

func (r *rig) protect(v rdma.SVA, m Region, off, n int, access rdma.Access) {
	r.Helper()
	r.must(v.Protect(m.Base+uint64(off), uint64(n), access), "Protect %d bytes at %d", n, off)
}

// memories are where an address may lead.
var memories = []MemoryKind{Ordinary, Allocated, Paged}

func svaBounds(r *rig, a, b *side) {
	const size, from, n = 3 * pageSize, 1000, 5000
	src := a.filled(size, 1)
	for _, kind := range memories {
		m := b.region(b.pd, kind, size, everything)
		v := b.shareVA()
		w := through(m, from, n, v.RKey())
		for i, c := range []struct {
			off, n int
			ok     bool
		}{
			{0, 8, false}, // nothing is allowed at first
			{0, n, true}, {0, 1, true}, {n - 1, 1, true}, {-1, 2, false}, {n, 1, false}, {n - 7, 8, false}, {-1, n + 1, false}, {0, n + 1, false},
		} {
			if i == 1 {
				r.protect(v, m, from, n, everything)
			}
			r.sub(fmt.Sprintf("%v_%d", kind, i), func(r *rig) {
				l := r.link()
				wr := write(1, w, c.off, src.sge(0, c.n))
				if !c.ok {
					l.refused("write", wr, m)
					return
				}
				l.send(wr)
				l.a.done(l.a.scq, 1)
				r.same("written", m.Load(from+c.off, c.n), pattern(1, size)[:c.n])
			})
		}
		r.protect(v, m, from, n, 0)
		r.sub(kind.String()+"_taken_back", func(r *rig) { r.link().refused("write", write(1, w, 0, src.sge(8, 8)), m) })
	}
}

// svaPieces allows different things of neighbours: a request needs its right of
// all that it touches.
func svaPieces(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, 0)
	src := a.memory(64)
	v := b.shareVA()
	w := through(m, 0, 64, v.RKey())
	const rw = rdma.AccessLocalWrite | rdma.AccessRemoteWrite
	r.protect(v, m, 0, 48, rw|rdma.AccessRemoteRead)
	r.protect(v, m, 16, 16, rdma.AccessRemoteRead) // in place of what was allowed there
	r.protect(v, m, 48, 16, rw)
	for _, c := range []struct {
		name string
		wr   rdma.SendWR
		want rdma.WCStatus
	}{
		{"write_before", write(1, w, 0, src.sge(0, 16)), rdma.WCSuccess},
		{"write_across_into_read_only", write(1, w, 0, src.sge(0, 17)), rdma.WCRemAccessErr},
		{"write_read_only", write(1, w, 16, src.sge(0, 8)), rdma.WCRemAccessErr},
		{"read_across_three", read(1, w, 0, src.sge(0, 48)), rdma.WCSuccess},
		{"read_into_write_only", read(1, w, 40, src.sge(0, 9)), rdma.WCRemAccessErr},
		{"write_across_two", write(1, w, 32, src.sge(0, 32)), rdma.WCSuccess},
		{"atomic_without_the_right", fetchAdd(1, w, 0, 1, src.sge(0, 8)), rdma.WCRemAccessErr},
	} {
		r.try(c.name, c.wr, c.want)
	}
	r.protect(v, m, 0, 64, everything)
	r.try("atomic", fetchAdd(1, w, 56, 7, src.sge(0, 8)), rdma.WCSuccess)
}

func svaLocal(r *rig, a, b *side) {
	for _, kind := range memories {
		m := a.region(a.pd, kind, 128, 0)
		m.Store(0, pattern(1, 128))
		dst := b.memory(128)
		v := a.shareVA()
		near := through(m, 0, 128, v.LKey())
		r.try(kind.String()+"_not_allowed", write(1, dst, 0, near.sge(0, 8)), rdma.WCLocProtErr)
		r.protect(v, m, 0, 64, rdma.AccessRemoteRead)
		r.protect(v, m, 64, 64, rdma.AccessLocalWrite)
		r.try(kind.String()+"_write", write(1, dst, 0, near.sge(0, 128)), rdma.WCSuccess)
		r.same("written", dst.Load(0, 128), pattern(1, 128))
		r.try(kind.String()+"_read_into_what_is_not_written", read(1, dst, 0, near.sge(56, 16)), rdma.WCLocProtErr)
		r.try(kind.String()+"_read", read(1, dst, 0, near.sge(64, 32)), rdma.WCSuccess)
		r.same("read", m.Load(64, 32), pattern(1, 128)[:32])
		r.sub(kind.String()+"_receive", pair(func(r *rig, a, b *side) {
			l := r.connect(b, a)
			l.recv(receive(5, near.sge(64, 64)))
			l.do(send(6, dst.sge(0, 64)))
			a.done(a.rcq, 5)
			r.same("received", m.Load(64, 64), pattern(1, 128)[:64])
		}))
	}
}

func svaHidden(r *rig, a, b *side) {
	src := a.memory(64)
	m := b.region(b.pd, Paged, 2*pageSize, everything)
	v := b.shareVA()
	w := through(m, 0, 2*pageSize, v.RKey())
	r.protect(v, m, 0, 2*pageSize, everything)
	b.pages(m, pageSize, pageSize, pagesHide)
	r.try("there", write(1, w, 0, src.sge(0, 64)), rdma.WCSuccess)
	r.try("not_there", write(2, w, pageSize, src.sge(0, 64)), rdma.WCRemAccessErr)
	r.try("across", write(3, w, pageSize-8, src.sge(0, 64)), rdma.WCRemAccessErr)
	b.pages(m, pageSize, pageSize, pagesReadWrite)
	r.try("there_again", write(4, w, pageSize, src.sge(0, 64)), rdma.WCSuccess)
}

func svaUnderFire(r *rig) {
	underFire(r, 4, everything, bothKinds, func(r *rig, f *fire) {
		m, size := f.m, f.m.Size
		other := f.target.region(f.target.pd, f.kind, size, everything)
		v := f.target.shareVA()
		r.protect(v, m, 0, size, everything)
		f.w = through(m, 0, size, v.RKey())
		f.stop = func() {
			// What changes elsewhere disturbs nobody.
			for i := range 50 {
				r.protect(v, other, i*512, 100, everything)
			}
			r.protect(v, m, 0, size, 0)
		}
	})
}

// svaRandom compares the table with one that has a line for each byte.
func svaRandom(r *rig, a, b *side) {
	const size = 512
	src := a.memory(size)
	m := b.region(b.pd, Ordinary, size, 0)
	v := b.shareVA()
	w := through(m, 0, size, v.RKey())
	var model [size]rdma.Access
	rng := rand.New(rand.NewPCG(5, 5))
	rounds := unlessBrief(r, 60, 20)
	for round := range rounds {
		from := rng.IntN(size)
		n := 1 + rng.IntN(size-from)
		access := []rdma.Access{0, rdma.AccessRemoteRead, everything}[rng.IntN(3)]
		r.protect(v, m, from, n, access)
		for i := range n {
			model[from+i] = access
		}
		at := rng.IntN(size)
		length := 1 + rng.IntN(min(size-at, 100))
		want := rdma.WCSuccess
		for i := range length {
			if model[at+i]&rdma.AccessRemoteRead == 0 {
				want = rdma.WCRemAccessErr
			}
		}
		r.try(fmt.Sprintf("%d_read_%d_bytes_at_%d", round, length, at), read(1, w, at, src.sge(0, length)), want)
	}
}

func svaRefused(r *rig) {
	for i, s := range r.sides {
		m := s.region(s.pd, Ordinary, 64, everything)
		v := s.shareVA()
		for name, c := range map[string]struct {
			addr, n uint64
			access  rdma.Access
		}{
			"no bytes":                         {m.Base, 0, everything},
			"it wraps":                         {m.Base, ^uint64(0), everything},
			"address 0":                        {0, 64, everything},
			"remote write without local write": {m.Base, 64, rdma.AccessRemoteWrite},
			"a right of regions":               {m.Base, 64, everything | rdma.AccessMWBind},
			"a right that there is not":        {m.Base, 64, 1 << 31},
		} {
			r.wantErr(fmt.Sprintf("side %d: %s", i, name), v.Protect(c.addr, c.n, c.access), rdma.ErrInvalid)
		}
	}
}

func svaClose(r *rig, _, b *side) {
	m := b.region(b.pd, Ordinary, 64, everything)
	pd := b.newPD()
	result(pd.ShareVA()).owned(r, "ShareVA")
	r.wantErr("close a domain with an address space", pd.Close(), rdma.ErrBusy)
	own := b.shareVA()
	r.protect(own, m, 0, 64, everything)
	src := r.sides[0].memory(64)
	w := through(m, 0, 64, own.RKey())
	l := r.link()
	l.do(write(1, w, 0, src.sge(0, 8)))
	r.close(own)
	l.refused("write", write(2, w, 0, src.sge(0, 8)), m)
	r.wantErr("Protect after Close", own.Protect(m.Base, 64, everything), rdma.ErrInvalid)
}
