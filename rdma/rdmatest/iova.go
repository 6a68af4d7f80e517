package rdmatest

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func iovaCases() []testCase {
	return needing([]testCase{
		{name: "iova/addresses_count_from_it", nodes: 2, run: pair(iovaAddresses)},
		{name: "iova/range_is_exact_up_to_the_top", nodes: 2, run: pair(iovaRange)},
		{name: "iova/bad_arguments_are_EINVAL", nodes: 2, run: iovaRefused},
	}, rdma.FeatureIOVA)
}

// at registers all of m's memory once more, with addresses from about iova on:
// they lie in their pages as the memory does.
func (s *side) at(m Region, iova uint64) Region {
	s.r.Helper()
	iova = iova&^(pageSize-1) | m.Base%pageSize
	again := result(s.node.AgainAt(s.pd, m, 0, m.Size, iova, everything)).must(s.r, "register at IOVA %#x", iova)
	if again.Addr() != iova {
		s.r.Errorf("a region registered at IOVA %#x begins at %#x", iova, again.Addr())
	}
	s.r.own(again.MR)
	return again
}

// try posts one request of side 0 on a link of its own.
func (r *rig) try(name string, wr rdma.SendWR, want rdma.WCStatus, changes ...func(*setup)) {
	r.Helper()
	r.sub(name, func(r *rig) {
		r.Helper()
		l := r.link(changes...)
		l.send(wr)
		l.a.want(l.a.scq, wr.WRID, want)
	})
}

// iovaAddresses names both ends of every operation by IOVAs.
func iovaAddresses(r *rig, a, b *side) {
	for _, kind := range []MemoryKind{Ordinary, Paged} {
		const n = 8192
		near, far := a.region(a.pd, kind, n, everything), b.region(b.pd, kind, n, everything)
		src, dst := a.at(near, 0x1000_0000), b.at(far, 0x7700_0000_0000_0000)
		if got := src.Addr() &^ (pageSize - 1); got != 0x1000_0000 || src.Base != src.Addr() {
			r.Errorf("%v: registered at %#x, want the page at %#x", kind, src.Addr(), 0x1000_0000)
		}
		near.Store(0, pattern(1, n))
		l := r.link()
		l.recv(receive(10, dst.sge(6000, 100)))
		l.do(write(1, dst, 8, src.sge(16, 4000)), read(2, dst, 8, src.sge(4096, 2000)), fetchAdd(3, dst, 8, 1, src.sge(8000, 8)), send(4, src.sge(0, 100)))
		b.done(b.rcq, 10)
		sent := pattern(1, n)
		r.same("received at an IOVA", far.Load(6000, 100), sent[:100])
		r.same("written at an IOVA", far.Load(16, 3992), sent[24:4016])
		r.same("read from an IOVA", near.Load(4096, 2000), sent[16:2016])
		r.same("the atomic's result", near.Load(8000, 8), sent[16:24])
		r.try(kind.String()+"_by_the_true_address", rdma.SendWR{WRID: 1, Flags: rdma.SendSignaled, SGL: []rdma.SGE{src.sge(0, 8)}, RemoteAddr: far.Base, RKey: dst.RKey()}, rdma.WCRemAccessErr)
		r.try(kind.String()+"_from_the_true_address", write(2, far, 0, rdma.SGE{Addr: near.Base, Length: 8, LKey: src.LKey()}), rdma.WCLocProtErr)
		r.try(kind.String()+"_the_region_of_the_true_address_is_good_still", write(3, far, 0, near.sge(0, 8)), rdma.WCSuccess)
	}
}

// iovaRange puts a region where its last byte has the largest address that
// there is: one byte more wraps.
func iovaRange(r *rig, a, b *side) {
	src := a.filled(pageSize, 1)
	far := b.region(b.pd, Paged, pageSize, everything)
	top := b.at(far, ^uint64(pageSize-1))
	r.try("all", write(1, top, 0, src.sge(0, pageSize)), rdma.WCSuccess)
	r.same("written at the top", far.Load(0, pageSize), pattern(1, pageSize))
	r.try("last_byte", write(2, top, pageSize-1, src.sge(7, 1)), rdma.WCSuccess)
	want := pattern(1, pageSize)
	want[pageSize-1] = want[7]
	for i, bad := range []struct{ off, n int }{{-1, 8}, {pageSize - 7, 8}, {pageSize, 8}, {pageSize - 1, 2}, {1, pageSize}} {
		r.try(fmt.Sprintf("%d_bytes_at_%d", bad.n, bad.off), write(uint64(i), top, bad.off, src.sge(0, bad.n)), rdma.WCRemAccessErr)
	}
	r.same("after the refusals", far.Load(0, pageSize), want)
}

func iovaRefused(r *rig) {
	for i, s := range r.sides {
		m := s.region(s.pd, Paged, 2*pageSize, everything)
		for _, bad := range []struct {
			name   string
			n      int
			iova   uint64
			access rdma.Access
		}{
			{"it wraps", 2 * pageSize, ^uint64(pageSize - 1), everything},
			{"it lies otherwise in its page", pageSize, 0x1000_0008, everything},
			{"remote write without local write", pageSize, 0x1000_0000, rdma.AccessRemoteWrite},
			{"zero-based and with an IOVA", pageSize, 0x1000_0000, everything | rdma.AccessZeroBased},
			{"no memory", 0, 0x1000_0000, everything},
		} {
			result(s.node.AgainAt(s.pd, m, 0, bad.n, bad.iova, bad.access)).refused(r, fmt.Sprintf("side %d: %s", i, bad.name), rdma.ErrInvalid)
		}
	}
}
