package rdmatest

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func regCases() []testCase {
	return []testCase{
		{name: "reg/remote_write_needs_local_write", nodes: 2, run: regLocalWrite},
		{name: "reg/unknown_rights_are_EINVAL", nodes: 2, run: regUnknown},
		{name: "reg/same_memory_many_rights", nodes: 2, run: pair(regTwice)},
		{name: "reg/region_says_what_it_is", nodes: 2, run: regAccessors},
		{name: "reg/zero_based_addresses_are_offsets", nodes: 2, run: pair(regZeroBased)},
		{name: "reg/implicit_names_any_memory", nodes: 2, run: regImplicit},
		{name: "reg/stale_key_stays_stale", nodes: 2, run: pair(regStale)},
	}
}

func regLocalWrite(r *rig) {
	const remote = rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
	for i, s := range r.sides {
		for access := rdma.Access(0); access <= everything; access++ {
			want := access&(rdma.AccessRemoteWrite|rdma.AccessRemoteAtomic) == 0 || access&rdma.AccessLocalWrite != 0
			if access&^(remote|rdma.AccessLocalWrite) != 0 {
				continue
			}
			for _, kind := range []MemoryKind{Allocated, Ordinary} {
				m, err := s.node.Memory(s.pd, kind, 64, access)
				if err == nil {
					r.own(m.MR)
				}
				if want != (err == nil) {
					r.Errorf("side %d: %v memory with %v: error %v, want success=%v", i, kind, access, err, want)
				}
				if err != nil {
					r.wantErr("registration", err, rdma.ErrInvalid)
				}
			}
		}
	}
}

func regUnknown(r *rig) {
	for i, s := range r.sides {
		for _, bit := range []rdma.Access{1 << 30, 1 << 31} {
			for _, kind := range []MemoryKind{Allocated, Ordinary} {
				result(s.node.Memory(s.pd, kind, 64, everything|bit)).refused(r, fmt.Sprintf("side %d: %v memory with the unknown right %#x was registered", i, kind, uint32(bit)), rdma.ErrInvalid)
			}
		}
	}
}

// regTwice registers one buffer under several keys: each key gives its own
// rights and its own range, and closing one leaves the others.
func regTwice(r *rig, a, b *side) {
	all := b.region(b.pd, Ordinary, 256, everything)
	again := func(off, n int, access rdma.Access) Region {
		m := result(b.node.Again(b.pd, all, off, n, access)).must(r, "register again [%d,%d) with %v", off, off+n, access)
		r.own(m.MR)
		return m
	}
	reader := again(0, 256, rdma.AccessRemoteRead)
	middle := again(64, 64, everything)
	keys := map[uint32]bool{all.RKey(): true, reader.RKey(): true, middle.RKey(): true}
	if len(keys) != 3 {
		r.Fatalf("three regions over one memory have the keys %v", keys)
	}
	src := a.filled(256, 3)
	try := func(name string, wr rdma.SendWR, want rdma.WCStatus) {
		r.Helper()
		r.sub(name, func(r *rig) {
			l := r.link()
			l.send(wr)
			l.a.want(l.a.scq, wr.WRID, want)
		})
	}
	try("write_through_all", write(1, all, 0, src.sge(0, 256)), rdma.WCSuccess)
	try("read_through_reader", read(2, reader, 0, src.sge(0, 256)), rdma.WCSuccess)
	r.same("what the reader's key reads", src.Load(0, 256), pattern(3, 256))
	src.Store(0, pattern(4, 256))
	try("write_through_reader", write(3, reader, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
	try("write_through_middle", write(4, middle, 0, src.sge(0, 64)), rdma.WCSuccess)
	try("write_before_middle", write(5, middle, -1, src.sge(0, 64)), rdma.WCRemAccessErr)
	try("write_beyond_middle", write(6, middle, 1, src.sge(0, 64)), rdma.WCRemAccessErr)
	want := pattern(3, 256)
	copy(want[64:], pattern(4, 256)[:64])
	r.same("memory behind three keys", all.Load(0, 256), want)
	r.closeRegion(all)
	try("write_through_closed", write(7, all, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
	try("write_through_middle_still", write(8, middle, 0, src.sge(64, 64)), rdma.WCSuccess)
	r.same("the middle", middle.Load(0, 64), pattern(4, 256)[64:128])
}

func regAccessors(r *rig) {
	for i, s := range r.sides {
		keys := map[uint32]bool{}
		for _, kind := range []MemoryKind{Allocated, Ordinary} {
			for _, n := range []int{1, 7, 4096, 100_001} {
				m := s.region(s.pd, kind, n, everything)
				if m.Addr() == 0 || m.Len() != uint64(n) || m.Access() != everything || m.PD() != s.pd {
					r.Errorf("side %d: %v memory of %d bytes: addr %#x, length %d, rights %v, own domain %v",
						i, kind, n, m.Addr(), m.Len(), m.Access(), m.PD() == s.pd)
				}
				if keys[m.RKey()] {
					r.Errorf("side %d: key %#x twice", i, m.RKey())
				}
				keys[m.RKey()] = true
			}
		}
		if s.pd.Context() != s.ctx {
			r.Errorf("side %d: the domain names another context", i)
		}
	}
}

func regZeroBased(r *rig, a, b *side) {
	for _, kind := range []MemoryKind{Allocated, Ordinary} {
		access := everything | rdma.AccessZeroBased
		if r.f.Refuses&rdma.AccessZeroBased != 0 {
			result(b.node.Memory(b.pd, kind, 64, access)).refused(r, "a zero-based region", rdma.ErrNotSupported)
			continue
		}
		if kind == Ordinary && r.f.WholePages {
			continue
		}
		src, dst := a.region(a.pd, kind, 128, access), b.region(b.pd, kind, 128, access)
		if src.Addr() != 0 || dst.Addr() != 0 {
			r.Fatalf("%v: zero-based regions start at %#x and %#x", kind, src.Addr(), dst.Addr())
		}
		src.Store(0, pattern(5, 128))
		r.sub("offsets_"+kind.String(), func(r *rig) {
			l := r.link()
			l.do(write(1, dst, 32, src.sge(16, 96)))
		})
		want := make([]byte, 128)
		copy(want[32:], pattern(5, 128)[16:112])
		r.same("zero-based memory", dst.Load(0, 128), want)
		r.sub("range_"+kind.String(), func(r *rig) {
			l := r.link()
			l.send(write(2, dst, 121, src.sge(0, 8)))
			l.a.want(l.a.scq, 2, rdma.WCRemAccessErr)
		})
		r.same("zero-based memory after a refusal", dst.Load(0, 128), want)
	}
}

func regImplicit(r *rig) {
	for i, s := range r.sides {
		if !s.ctx.QueryDevice().ODP {
			_, err := s.node.Memory(s.pd, Implicit, 64, everything)
			if err == nil {
				r.Errorf("side %d: ODP is false and an implicit region was made", i)
			}
			continue
		}
		peer := r.sides[1-i]
		whole := s.region(s.pd, Implicit, 4096, everything)
		if whole.Bytes() != nil {
			r.Errorf("side %d: an implicit region gives %d bytes", i, len(whole.Bytes()))
		}
		// Memory that was never registered by itself, through the same key.
		other := s.region(s.pd, Implicit, 4096, everything)
		other.MR = whole.MR
		src := peer.filled(4096, uint64(i))
		l := r.connect(peer, s)
		l.do(write(1, whole, 0, src.sge(0, 4096)), write(2, other, 8, src.sge(0, 100)))
		r.same("memory behind the implicit key", whole.Load(0, 4096), pattern(uint64(i), 4096))
		r.same("other memory behind it", other.Load(8, 100), pattern(uint64(i), 4096)[:100])
	}
}

// regStale closes a region and makes others until its index is used again:
// the old key must not open the new region.
func regStale(r *rig, a, b *side) {
	src := a.memory(64)
	old := b.region(b.pd, Ordinary, 64, everything)
	r.closeRegion(old)
	for i := range 8 {
		// One index has 256 keys; 8 successors are within reach of one.
		m := result(b.node.Again(b.pd, old, 0, 64, everything)).must(r, "Again")
		r.own(m.MR)
		if m.RKey() == old.RKey() {
			r.Fatalf("successor %d has the key %#x of the closed region", i, m.RKey())
		}
		r.sub(fmt.Sprintf("successor_%d", i), func(r *rig) {
			l := r.link()
			l.send(write(1, old, 0, src.sge(0, 8)))
			l.a.want(l.a.scq, 1, rdma.WCRemAccessErr)
		})
		r.closeRegion(m)
	}
}
