package rdmatest

import (
	"fmt"
	"syscall"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

func odpCases() []testCase {
	demand := needing([]testCase{
		{name: "odp/registration_touches_no_page", nodes: 2, run: odpUntouched},
		{name: "odp/reclaimed_pages_come_back", nodes: 2, run: pair(odpReclaim)},
		{name: "odp/pages_that_are_not_there_fail_the_request", nodes: 2, run: pair(odpHidden)},
		{name: "odp/read_only_pages_fail_the_write", nodes: 2, run: odpReadOnly},
		{name: "odp/more_than_there_is_memory", nodes: 2, run: pair(odpHuge)},
		{name: "odp/advice", nodes: 2, run: odpAdvice},
		{name: "odp/bad_advice_is_told", nodes: 2, run: odpBadAdvice},
	}, rdma.FeatureODP)
	return append(demand,
		testCase{name: "reg/memory_that_is_not_there_is_EFAULT", nodes: 2, run: pinHidden},
		testCase{name: "reg/read_only_memory_is_EFAULT_for_writing", nodes: 2, run: pair(pinReadOnly)},
	)
}

// pages does to a side's Paged memory what op says, and gives what it found.
func (s *side) pages(m Region, off, n int, op pageOp) int {
	s.r.Helper()
	return result(s.node.Pages(m, off, n, op)).must(s.r, "pages %d to %d: operation %d", off/pageSize, (off+n)/pageSize, op)
}

// demanded makes pages on demand, in the ways that the side has: each under a
// key of its own, and, where there is one, the key of the whole address space.
func (s *side) demanded(n int) map[string]Region {
	s.r.Helper()
	own := s.region(s.pd, Paged, n, everything|rdma.AccessOnDemand)
	all := map[string]Region{"explicit": own}
	if s.ctx.QueryDevice().ODP {
		whole := s.region(s.pd, Implicit, 1, everything)
		named := s.region(s.pd, Paged, n, everything|rdma.AccessOnDemand)
		// The key of one with the memory of the other.
		all["implicit"] = Region{MR: whole.MR, Base: named.Base, Size: n, memory: named.memory}
		all["implicit pages"] = named
	}
	return all
}

// pagesOf is the region whose pages the program may turn.
func pagesOf(all map[string]Region, name string) Region {
	if name == "implicit" {
		return all["implicit pages"]
	}
	return all[name]
}

// eachDemanded runs part for every kind of on-demand memory of side 1.
func eachDemanded(r *rig, n int, part func(r *rig, m, turn Region)) {
	for _, name := range []string{"explicit", "implicit"} {
		r.sub(name, pair(func(r *rig, _, b *side) {
			if name == "implicit" && !b.ctx.QueryDevice().ODP {
				return // reg/implicit_names_any_memory holds the device to it
			}
			all := b.demanded(n)
			part(r, all[name], pagesOf(all, name))
		}))
	}
}

// odpUntouched: a page is there when it was accessed, not before.
func odpUntouched(r *rig) {
	const n = 64 * pageSize
	src := r.sides[0].filled(64, 1)
	eachDemanded(r, n, func(r *rig, m, turn Region) {
		b := r.sides[1]
		equal(r, b.pages(turn, 0, n, pagesCount), 0, "pages that registration brought in:")
		r.try("write", write(1, m, 5*pageSize, src.sge(0, 64)), rdma.WCSuccess)
		if got := b.pages(turn, 5*pageSize, pageSize, pagesCount); got != 1 {
			r.Error("the page that was written is not there")
		}
		equal(r, b.pages(turn, 32*pageSize, 32*pageSize, pagesCount), 0, "pages far away that a write of 64 bytes brought in:")
		r.same("written on demand", turn.Load(5*pageSize, 64), pattern(1, 64))
	})
}

func odpReclaim(r *rig, a, _ *side) {
	const n = 4 * pageSize
	src := a.filled(n, 1)
	eachDemanded(r, n, func(r *rig, m, turn Region) {
		b := r.sides[1]
		for round := range 3 {
			r.try(fmt.Sprintf("write_%d", round), write(1, m, 0, src.sge(0, n)), rdma.WCSuccess)
			r.same("written", turn.Load(0, n), pattern(1, n))
			b.pages(turn, 0, n, pagesDiscard)
			got := a.filled(n, 9)
			r.try(fmt.Sprintf("read_%d", round), read(2, m, 0, got.sge(0, n)), rdma.WCSuccess)
			r.same("read from pages that were reclaimed", got.Load(0, n), make([]byte, n))
		}
	})
	// The requester's own pages.
	near := a.region(a.pd, Paged, n, everything|rdma.AccessOnDemand)
	dst := r.sides[1].memory(n)
	near.Store(0, pattern(2, n))
	r.try("from_pages", write(3, dst, 0, near.sge(0, n)), rdma.WCSuccess)
	a.pages(near, 0, n, pagesDiscard)
	r.try("from_reclaimed_pages", write(4, dst, 0, near.sge(0, n)), rdma.WCSuccess)
	r.same("written from reclaimed pages", dst.Load(0, n), make([]byte, n))
}

// odpHidden: the request fails and the processes live. When the pages are
// there again, so is the memory, under the same key.
func odpHidden(r *rig, a, _ *side) {
	const n = 4 * pageSize
	src := a.filled(n, 1)
	eachDemanded(r, n, func(r *rig, m, turn Region) {
		b := r.sides[1]
		b.pages(turn, pageSize, pageSize, pagesHide)
		for _, op := range remoteOps(src.sge(0, 8)) {
			if op.wr.Opcode.Operation().Received != 0 {
				continue
			}
			wr := op.wr
			wr.RemoteAddr, wr.RKey = m.Base+pageSize, m.RKey()
			r.sub(op.name, func(r *rig) { refusedRemotely(r, wr, rdma.WCRemAccessErr, nil) })
		}
		r.try("across", write(2, m, 0, src.sge(0, n)), rdma.WCRemAccessErr)
		r.sub("receive", func(r *rig) {
			l := r.link()
			l.recv(receive(7, rdma.SGE{Addr: m.Base + pageSize, Length: 64, LKey: m.LKey()}))
			l.send(send(8, src.sge(0, 64)))
			r.sides[0].want(r.sides[0].scq, 8, rdma.WCRemOpErr)
			r.sides[1].want(r.sides[1].rcq, 7, rdma.WCLocProtErr)
		})
		r.try("beside", write(3, m, 2*pageSize, src.sge(0, pageSize)), rdma.WCSuccess)
		b.pages(turn, pageSize, pageSize, pagesReadWrite)
		r.try("there_again", write(4, m, pageSize, src.sge(0, pageSize)), rdma.WCSuccess)
		r.same("written when it was there again", turn.Load(pageSize, pageSize), pattern(1, n)[:pageSize])
	})
	near := a.region(a.pd, Paged, n, everything|rdma.AccessOnDemand)
	a.pages(near, pageSize, pageSize, pagesHide)
	dst := r.sides[1].memory(n)
	for _, op := range append(remoteOps(rdma.SGE{}), struct {
		name string
		need rdma.Access
		wr   rdma.SendWR
	}{"send", 0, rdma.SendWR{Opcode: rdma.WRSend}}) {
		wr := op.wr
		wr.WRID, wr.SGL, wr.RemoteAddr, wr.RKey = 6, []rdma.SGE{near.sge(pageSize, 8)}, dst.Base, dst.RKey()
		r.sub("local_"+op.name, func(r *rig) {
			l := r.link()
			l.recv(receive(9, dst.sge(64, 8)))
			l.send(wr)
			r.sides[0].want(r.sides[0].scq, 6, rdma.WCLocProtErr)
		})
	}
}

func odpReadOnly(r *rig) {
	const n = 2 * pageSize
	src := r.sides[0].filled(n, 1)
	eachDemanded(r, n, func(r *rig, m, turn Region) {
		a, b := r.sides[0], r.sides[1]
		turn.Store(0, pattern(2, n))
		b.pages(turn, 0, pageSize, pagesReadOnly)
		r.try("write", write(1, m, 0, src.sge(0, 64)), rdma.WCRemAccessErr)
		got := a.memory(n)
		r.try("read", read(2, m, 0, got.sge(0, n)), rdma.WCSuccess)
		r.same("read-only memory", got.Load(0, n), pattern(2, n))
	})
}

// odpHuge registers far more than the machine has, of which one page in the
// middle is used.
func odpHuge(r *rig, a, b *side) {
	const n = 1 << 40
	m, err := b.node.Memory(b.pd, Paged, n, everything|rdma.AccessOnDemand)
	if err != nil {
		testenv.Unsupported(r.T, fmt.Sprintf("no %d bytes of addresses for a process: %v", n, err))
	}
	r.own(m.MR)
	src := a.filled(64, 1)
	l := r.link()
	for i, off := range []int{0, n / 2, n - 64} {
		l.do(write(uint64(i), m, off, src.sge(0, 64)))
		r.same("written", m.Load(off, 64), pattern(1, 64))
	}
	r.try("beyond", write(9, m, n-63, src.sge(0, 64)), rdma.WCRemAccessErr)
	b.pages(m, 0, n, pagesDiscard)
}

func odpAdvice(r *rig) {
	const n = 16 * pageSize
	for i, s := range r.sides {
		for _, c := range []struct {
			name   string
			advice rdma.Advice
			want   int // pages in memory at least
		}{
			{"prefetch", rdma.AdvisePrefetch, 0}, // of pages that nobody wrote there is but one, and it may count or not
			{"prefetch for writing", rdma.AdvisePrefetchWrite, 16},
			{"prefetch without faults", rdma.AdvisePrefetchNoFault, 0},
		} {
			for _, flags := range []rdma.AdviseFlags{0, rdma.AdviseFlush} {
				m := s.region(s.pd, Paged, n, everything|rdma.AccessOnDemand)
				r.must(s.pd.AdviseMR(c.advice, flags, []rdma.SGE{m.sge(0, 8*pageSize), m.sge(8*pageSize, 8*pageSize)}), "side %d: %s, flags %d", i, c.name, flags)
				in := s.pages(m, 0, n, pagesCount)
				if flags == rdma.AdviseFlush && in < c.want {
					r.Errorf("side %d: %s: %d pages are in memory, want %d", i, c.name, in, c.want)
				}
				if c.advice == rdma.AdvisePrefetchNoFault && in != 0 {
					r.Errorf("side %d: %s brought %d pages in", i, c.name, in)
				}
			}
		}
		r.must(s.pd.AdviseMR(rdma.AdvisePrefetch, 0, nil), "side %d: advice about nothing", i)
	}
}

func odpBadAdvice(r *rig) {
	for i, s := range r.sides {
		demand := everything | rdma.AccessOnDemand
		m := s.region(s.pd, Paged, pageSize, demand)
		mute := s.region(s.pd, Paged, pageSize, rdma.AccessOnDemand)
		pinned := s.region(s.pd, Paged, pageSize, everything)
		foreign := s.region(s.newPD(), Paged, pageSize, demand)
		closed := s.region(s.pd, Paged, pageSize, demand)
		r.closeRegion(closed)
		gone := s.region(s.pd, Paged, 2*pageSize, demand)
		s.pages(gone, pageSize, pageSize, pagesHide)
		for _, c := range []struct {
			name   string
			advice rdma.Advice
			flags  rdma.AdviseFlags
			sge    rdma.SGE
			want   error
		}{
			{"unknown advice", 3, 0, m.sge(0, 8), rdma.ErrInvalid},
			{"unknown flags", rdma.AdvisePrefetch, 2, m.sge(0, 8), rdma.ErrInvalid},
			{"no such key", rdma.AdvisePrefetch, 0, rdma.SGE{Addr: m.Base, Length: 8, LKey: m.LKey() ^ 1}, syscall.EFAULT},
			{"a stale key", rdma.AdvisePrefetch, 0, closed.sge(0, 8), syscall.EFAULT},
			{"another domain's key", rdma.AdvisePrefetch, 0, foreign.sge(0, 8), syscall.EFAULT},
			{"beyond the region", rdma.AdvisePrefetch, 0, m.sge(pageSize-7, 8), syscall.EFAULT},
			{"before the region", rdma.AdvisePrefetch, 0, m.sge(-1, 8), syscall.EFAULT},
			{"no right to write", rdma.AdvisePrefetchWrite, 0, mute.sge(0, 8), syscall.EFAULT},
			{"not on demand", rdma.AdvisePrefetch, 0, pinned.sge(0, 8), rdma.ErrInvalid},
			{"pages that are not there", rdma.AdvisePrefetchWrite, rdma.AdviseFlush, gone.sge(0, 2*pageSize), syscall.EFAULT},
		} {
			r.wantErr(fmt.Sprintf("side %d: %s", i, c.name), s.pd.AdviseMR(c.advice, c.flags, []rdma.SGE{m.sge(0, 8), c.sge}), c.want)
		}
		r.must(s.pd.AdviseMR(rdma.AdvisePrefetch, rdma.AdviseFlush, []rdma.SGE{mute.sge(0, 8)}), "side %d: prefetch for reading of a region without local write", i)
	}
}

// pinHidden: without on-demand paging all memory must be there at registration.
func pinHidden(r *rig) {
	const n = 3 * pageSize
	for i, s := range r.sides {
		m := s.region(s.pd, Paged, n, everything)
		again := func(off, size int) error {
			again, err := s.node.Again(s.pd, m, off, size, everything)
			if err == nil {
				s.r.own(again.MR)
			}
			return err
		}
		s.pages(m, pageSize, pageSize, pagesHide)
		for _, bad := range []struct{ off, n int }{{0, n}, {pageSize, pageSize}, {pageSize - 1, 2}, {pageSize, 1}, {2*pageSize - 1, 1}} {
			r.wantErr(fmt.Sprintf("side %d: %d bytes at %d of which some are not there", i, bad.n, bad.off), again(bad.off, bad.n), syscall.EFAULT)
		}
		for _, good := range []struct{ off, n int }{{0, pageSize}, {2 * pageSize, pageSize}, {pageSize - 1, 1}} {
			r.must(again(good.off, good.n), "side %d: %d bytes at %d beside memory that is not there", i, good.n, good.off)
		}
		gone := s.region(s.pd, Paged, n, everything)
		r.closeRegion(gone)
		s.pages(gone, 0, n, pagesUnmap)
		if _, err := s.node.Again(s.pd, gone, 0, n, everything); err == nil {
			r.Errorf("side %d: memory that was unmapped was registered", i)
		} else {
			r.wantErr("memory that was unmapped", err, syscall.EFAULT)
		}
	}
}

func pinReadOnly(r *rig, a, _ *side) {
	for i, s := range r.sides {
		m := s.region(s.pd, Paged, 2*pageSize, everything)
		m.Store(0, pattern(1, 64))
		s.pages(m, 0, pageSize, pagesReadOnly)
		for _, access := range []rdma.Access{rdma.AccessLocalWrite, everything} {
			result(s.node.Again(s.pd, m, 0, 2*pageSize, access)).refused(r, fmt.Sprintf("side %d: read-only memory with %v", i, access), syscall.EFAULT)
		}
		reader := result(s.node.Again(s.pd, m, 0, 2*pageSize, rdma.AccessRemoteRead)).must(r, "side %d: read-only memory for reading", i)
		r.own(reader.MR)
		if s != a {
			got := a.memory(64)
			r.try("read", read(1, reader, 0, got.sge(0, 64)), rdma.WCSuccess)
			r.same("read-only memory", got.Load(0, 64), pattern(1, 64))
		}
	}
}
