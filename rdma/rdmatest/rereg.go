package rdmatest

import (
	"fmt"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

func reregCases() []testCase {
	return needing([]testCase{
		{name: "rereg/translation", nodes: 2, run: pair(reregTranslation)},
		{name: "rereg/domain", nodes: 2, run: pair(reregDomain)},
		{name: "rereg/rights", nodes: 2, run: pair(reregRights)},
		{name: "rereg/everything_at_once", nodes: 2, run: pair(reregAll)},
		{name: "rereg/refused_changes_nothing", nodes: 2, run: pair(reregRefused)},
		{name: "rereg/failure_leaves_a_region_that_can_only_be_closed", nodes: 2, run: pair(reregFailed)},
		{name: "rereg/nothing_touches_the_old_memory", nodes: 3, run: reregUnderFire},
	}, rdma.FeatureReregMR)
}

// rereg changes a region of the side, which must go well.
func (s *side) rereg(m Region, flags rdma.ReregFlags, pd rdma.PD, to Region, access rdma.Access) Region {
	s.r.Helper()
	return result(s.node.Rereg(m, flags, pd, piece{to, 0, to.Size}, access)).must(s.r, "rereg %#x", uint8(flags))
}

func reregTranslation(r *rig, a, b *side) {
	src := a.filled(128, 1)
	m, to := b.region(b.pd, Ordinary, 64, everything), b.region(b.pd, Ordinary, 128, everything)
	was := m
	r.try("before", write(1, m, 0, src.sge(0, 64)), rdma.WCSuccess)
	m = b.rereg(m, rdma.ReregTranslation, nil, to, 0)
	if m.Len() != 128 || m.Access() != everything || m.Addr() != to.Addr() || m.Addr() == was.Base {
		r.Errorf("the region is %d bytes at %#x with %v, want 128 at %#x with %v", m.Len(), m.Addr(), m.Access(), to.Addr(), everything)
	}
	r.try("new_memory", write(2, m, 64, src.sge(64, 64)), rdma.WCSuccess)
	r.try("old_memory", write(3, was, 0, src.sge(64, 8)), rdma.WCRemAccessErr)
	want := make([]byte, 128)
	copy(want[64:], pattern(1, 128)[64:])
	r.same("the new memory", to.Load(0, 128), want)
	r.same("the old memory", was.Load(0, 64), pattern(1, 128)[:64])

	// As local memory, too.
	near, other := a.region(a.pd, Ordinary, 64, everything), a.region(a.pd, Ordinary, 64, everything)
	other.Store(0, pattern(2, 64))
	old := near.sge(0, 8)
	near = a.rereg(near, rdma.ReregTranslation, nil, other, 0)
	r.try("from_new_memory", write(4, to, 0, near.sge(0, 64)), rdma.WCSuccess)
	r.same("what the new memory had", to.Load(0, 64), pattern(2, 64))
	r.try("from_old_memory", write(5, to, 0, old), rdma.WCLocProtErr)
}

func reregDomain(r *rig, a, b *side) {
	src := a.memory(64)
	first := result(b.ctx.AllocPD()).must(r, "AllocPD")
	m, err := b.node.Memory(first, Ordinary, 64, everything)
	if err != nil {
		r.Fatal(err)
	}
	r.try("before", write(1, m, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
	second := b.newPD()
	r.own(m.MR)
	m = b.rereg(m, rdma.ReregPD, b.pd, Region{}, 0)
	if m.PD() != b.pd {
		r.Error("the region names another domain")
	}
	r.try("after", write(2, m, 0, src.sge(0, 8)), rdma.WCSuccess)
	r.must(first.Close(), "close the domain that the region has left")
	m = b.rereg(m, rdma.ReregPD, second, Region{}, 0)
	r.try("away_again", write(3, m, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
	r.wantErr("close the domain that the region is in", second.Close(), rdma.ErrBusy)
}

func reregRights(r *rig, a, b *side) {
	src := a.memory(64)
	for _, kind := range []MemoryKind{Ordinary, Allocated} {
		m := b.region(b.pd, kind, 64, 0)
		m.Store(0, pattern(3, 64))
		for i, access := range []rdma.Access{rdma.AccessRemoteRead, everything, rdma.AccessLocalWrite | rdma.AccessRemoteWrite, 0} {
			m = b.rereg(m, rdma.ReregAccess, nil, Region{}, access)
			if m.Access() != access || m.Len() != 64 {
				r.Errorf("%d bytes with %v, want 64 with %v", m.Len(), m.Access(), access)
			}
			for _, op := range remoteOps(src.sge(0, 8)) {
				if op.wr.Opcode.Operation().Received != 0 {
					continue // which waits for a receive
				}
				want := rdma.WCSuccess
				if access&op.need == 0 {
					want = rdma.WCRemAccessErr
				}
				wr := op.wr
				wr.Flags, wr.RemoteAddr, wr.RKey = rdma.SendSignaled, m.Base, m.RKey()
				r.try(fmt.Sprintf("%v_%d_%s", kind, i, op.name), wr, want)
			}
		}
	}
}

func reregAll(r *rig, a, b *side) {
	src := a.filled(64, 1)
	m := b.region(b.newPD(), Ordinary, 64, 0)
	to := b.region(b.pd, Ordinary, 64, 0)
	m = b.rereg(m, rdma.ReregTranslation|rdma.ReregPD|rdma.ReregAccess, b.pd, to, everything)
	r.try("write", write(1, m, 0, src.sge(0, 64)), rdma.WCSuccess)
	r.same("the new memory", to.Load(0, 64), pattern(1, 64))
}

func reregRefused(r *rig, a, b *side) {
	src := a.memory(64)
	m := b.region(b.pd, Ordinary, 64, everything)
	for i, bad := range []struct {
		name   string
		flags  rdma.ReregFlags
		n      int
		access rdma.Access
	}{
		{"no flag", 0, 64, everything},
		{"a flag that there is not", 1 << 3, 64, everything},
		{"remote write without local write", rdma.ReregAccess, 64, rdma.AccessRemoteWrite},
		{"a right that there is not", rdma.ReregAccess, 64, 1 << 31},
		{"no memory", rdma.ReregTranslation, 0, 0},
	} {
		result(b.node.Rereg(m, bad.flags, nil, piece{m, 0, bad.n}, bad.access)).refused(r, bad.name, rdma.ErrInvalid)
		r.try(fmt.Sprintf("after_%d", i), write(1, m, 0, src.sge(0, 64)), rdma.WCSuccess)
	}
}

// reregFailed moves a region to memory that is not there.
func reregFailed(r *rig, a, b *side) {
	src := a.memory(64)
	m := b.region(b.pd, Ordinary, 64, everything)
	gone := b.region(b.pd, Paged, pageSize, everything)
	b.pages(gone, 0, pageSize, pagesHide)
	result(b.node.Rereg(m, rdma.ReregTranslation, nil, piece{gone, 0, pageSize}, 0)).refused(r, "rereg to memory that is not there", syscall.EFAULT)
	r.try("after", write(1, m, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
	result(b.node.Rereg(m, rdma.ReregAccess, nil, piece{}, everything)).refused(r, "rereg of a region that a rereg has spoilt", rdma.ErrInvalid)
	r.closeRegion(m)
}

// reregUnderFire moves a region to other memory while two peers write to it.
// When that is done, what the program stores in the old memory stays.
func reregUnderFire(r *rig) {
	underFire(r, 4, everything, []MemoryKind{Ordinary}, func(r *rig, f *fire) {
		to := f.target.region(f.target.pd, Ordinary, f.m.Size, everything)
		f.w = f.m
		f.stop = func() { f.target.rereg(f.m, rdma.ReregTranslation, nil, to, 0) }
	})
}
