package rdmatest

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/rdma"
)

func accessCases() []testCase {
	return []testCase{
		{name: "access/remote_violations_are_REM_ACCESS_ERR", nodes: 2, run: pair(accessRemote)},
		{name: "access/local_violations_are_LOC_PROT_ERR", nodes: 2, run: pair(accessLocal)},
		{name: "access/local_check_comes_first", nodes: 2, run: pair(accessLocalFirst)},
		{name: "access/qp_flags_come_before_the_key", nodes: 2, run: pair(accessFlagsFirst)},
		{name: "access/whole_range_and_not_a_byte_more", nodes: 2, run: pair(accessRange)},
		{name: "write/rkey_stale_after_dereg", nodes: 2, run: pair(writeStale)},
	}
}

const regionSize = 4096

// A remoteOp is an operation that names remote memory, 8 bytes of it.
type remoteOp struct {
	name string
	need rdma.Access
	wr   rdma.SendWR
}

// to is the operation on these addresses.
func (op *remoteOp) to(addr uint64, rkey uint32) rdma.SendWR {
	wr := op.wr
	wr.RemoteAddr, wr.RKey = addr, rkey
	return wr
}

// remoteOps are all of them.
func remoteOps(local rdma.SGE) []remoteOp {
	one := []rdma.SGE{local}
	return []remoteOp{
		{"write", rdma.AccessRemoteWrite, rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: one}},
		{"write_imm", rdma.AccessRemoteWrite, rdma.SendWR{Opcode: rdma.WRRDMAWriteWithImm, SGL: one}},
		{"read", rdma.AccessRemoteRead, rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: one}},
		{"fetch_add", rdma.AccessRemoteAtomic, rdma.SendWR{Opcode: rdma.WRAtomicFetchAndAdd, SGL: one, CompareAdd: 3}},
		{"cmp_swap", rdma.AccessRemoteAtomic, rdma.SendWR{Opcode: rdma.WRAtomicCmpAndSwp, SGL: one, CompareAdd: 0, Swap: 5}},
	}
}

// accessRemote violates each step of the key check, alone and with all later
// steps violated as well, with each operation. The status is the same; what
// shows a wrong order is a byte that changed, a crash, or a success.
func accessRemote(r *rig, _, b *side) {
	otherPD := b.newPD()
	for _, kind := range kinds(r) {
		closed := b.region(b.pd, kind, regionSize, everything)
		r.closeRegion(closed)
		good := b.region(b.pd, kind, regionSize, everything)
		foreign := b.region(otherPD, kind, regionSize, everything)
		foreignMute := b.region(otherPD, kind, regionSize, rdma.AccessLocalWrite)
		// far is an address outside each region, and one that wraps.
		const top = ^uint64(0)
		for _, op := range remoteOps(rdma.SGE{}) {
			weak := b.region(b.pd, kind, regionSize, everything&^op.need)
			type fault struct {
				name string
				rkey uint32
				addr uint64
			}
			unused := good.RKey() ^ 0x00abcd00
			faults := []fault{
				{"index", unused, good.Base},
				{"index_largest", 0xffffff00 | good.RKey()&0xff, good.Base},
				{"index_zero_key", 0, good.Base},
				{"index_and_later", unused, top - 7},
				{"key", good.RKey() ^ 1, good.Base},
				{"key_high_bit", good.RKey() ^ 0x80, good.Base},
				{"key_and_later", weak.RKey() ^ 1, top - 7},
				{"key_of_closed", closed.RKey(), closed.Base},
				{"pd", foreign.RKey(), foreign.Base},
				{"pd_and_later", foreignMute.RKey(), top - 7},
				{"rights", weak.RKey(), weak.Base},
			}
			if kind != Implicit { // which has no end but that of the address space
				faults = append(faults,
					fault{"range_before", good.RKey(), good.Base - 8},
					fault{"range_beyond", good.RKey(), good.Base + regionSize},
					fault{"range_far", good.RKey(), good.Base + 1<<40},
					fault{"range_and_rights", weak.RKey(), weak.Base + regionSize},
					fault{"range_low", good.RKey(), 0},
				)
				if op.need != rdma.AccessRemoteAtomic { // those would be misaligned too
					faults = append(faults,
						fault{"range_crosses_start", good.RKey(), good.Base - 1},
						fault{"range_crosses_end", good.RKey(), good.Base + regionSize - 7})
				}
			}
			faults = append(faults, fault{"range_wraps", good.RKey(), top - 7})
			if op.need != rdma.AccessRemoteAtomic {
				faults = append(faults, fault{"range_wraps_within", good.RKey(), top - 3})
			}
			for _, f := range faults {
				r.sub(fmt.Sprintf("%v_%s_%s", kind, op.name, f.name), func(r *rig) {
					refusedRemotely(r, op.to(f.addr, f.rkey), rdma.WCRemAccessErr, []Region{good, foreign, foreignMute, weak})
				})
			}
		}
	}
}

// kinds are the kinds of memory that all sides have.
func kinds(r *rig) []MemoryKind {
	k := []MemoryKind{Allocated, Ordinary}
	for _, s := range r.sides {
		if !s.ctx.QueryDevice().ODP {
			return k
		}
	}
	return append(k, Implicit)
}

// refusedRemotely posts a request with an 8-byte local SGE that the responder
// must refuse: the status at the requester, both queue pairs in ERR, the
// responder's receives flushed, requests behind it flushed, and not a byte
// changed on either side.
func refusedRemotely(r *rig, wr rdma.SendWR, status rdma.WCStatus, guarded []Region, changes ...func(*setup)) {
	r.Helper()
	a, b := r.sides[0], r.sides[1]
	src, dst := a.filled(64, 1), b.memory(64)
	for i, m := range guarded {
		m.Store(0, pattern(uint64(100+i), m.Size))
	}
	l := r.link(changes...)
	l.recv(receive(1, dst.sge(0, 8)), receive(2, dst.sge(8, 8)))
	wr.WRID, wr.SGL = 3, []rdma.SGE{src.sge(8, 8)}
	wr.Flags &^= rdma.SendSignaled // an error completes all the same
	l.send(wr, unsignaled(write(4, dst, 32, src.sge(0, 8))))
	wc := a.want(a.scq, 3, status)
	if wc.QPNum != l.qa.Num() {
		r.Errorf("the error names queue pair %#x, want %#x", wc.QPNum, l.qa.Num())
	}
	a.want(a.scq, 4, rdma.WCWRFlushErr)
	b.fail(b.rcq, rdma.WCWRFlushErr, 1, 2)
	a.state(l.qa, rdma.StateErr)
	b.state(l.qb, rdma.StateErr)
	for i, m := range guarded {
		r.same(fmt.Sprintf("guarded region %d", i), m.Load(0, m.Size), pattern(uint64(100+i), m.Size))
	}
	r.same("the requester's memory", src.Load(0, 64), pattern(1, 64))
	r.same("the responder's memory", dst.Load(0, 64), make([]byte, 64))
	r.quiet()
}

// A localFault is an SGE that a side may not use.
type localFault struct {
	name string
	sge  rdma.SGE
}

// localFaults are such of 8 bytes.
func localFaults(s *side, kind MemoryKind) []localFault {
	closed := s.region(s.pd, kind, 64, everything)
	s.r.closeRegion(closed)
	good := s.region(s.pd, kind, 64, everything)
	foreign := s.region(s.newPD(), kind, 64, everything)
	faults := []localFault{
		{"index", rdma.SGE{Addr: good.Base, Length: 8, LKey: good.LKey() ^ 0x00abcd00}},
		{"zero", rdma.SGE{Addr: good.Base, Length: 8}},
		{"key", rdma.SGE{Addr: good.Base, Length: 8, LKey: good.LKey() ^ 1}},
		{"stale", closed.sge(0, 8)},
		{"pd", foreign.sge(0, 8)},
		{"wrap", rdma.SGE{Addr: ^uint64(3), Length: 8, LKey: good.LKey()}},
	}
	if kind != Implicit {
		faults = append(faults, localFault{"before", good.sge(-1, 8)}, localFault{"crosses_end", good.sge(57, 8)}, localFault{"beyond", good.sge(64, 8)})
	}
	return faults
}

func accessLocal(r *rig, a, b *side) {
	for _, kind := range kinds(r) {
		faults := localFaults(a, kind)
		mute := a.region(a.pd, kind, 64, 0)
		dst := b.region(b.pd, kind, 64, everything)
		for _, op := range append(remoteOps(rdma.SGE{}), remoteOp{"send", 0, rdma.SendWR{Opcode: rdma.WRSend}}) {
			all := faults
			if op.need != rdma.AccessRemoteAtomic && kind != Implicit { // a result has 8 bytes, and here is no end
				all = append(slices.Clip(all), localFault{"huge", mute.sge(0, 1<<31)})
			}
			if op.wr.Opcode.Operation().Fetches() { // which write to local memory
				all = append(slices.Clip(all), localFault{"no_local_write", mute.sge(0, 8)})
			} else {
				r.sub(fmt.Sprintf("%v_%s_local_read_is_granted", kind, op.name), pair(func(r *rig, a, _ *side) {
					l := r.link()
					l.recv(receive(9, dst.sge(8, 8)))
					wr := op.to(dst.Base, dst.RKey())
					wr.WRID, wr.Flags, wr.SGL = 5, rdma.SendSignaled, []rdma.SGE{mute.sge(0, 8)}
					l.do(wr)
					b := r.sides[1]
					r.move(l.qb, rdma.StateErr) // consumed or not, the receive completes
					b.next(b.rcq)
				}))
			}
			for _, f := range all {
				r.sub(fmt.Sprintf("%v_%s_%s", kind, op.name, f.name), func(r *rig) {
					refusedLocally(r, op.to(dst.Base, dst.RKey()), f.sge, dst)
				})
			}
		}
		r.same("memory without local write", mute.Load(0, 64), make([]byte, 64))
	}
}

// refusedLocally posts a request that the requester's own device refuses: the
// responder hears nothing of it.
func refusedLocally(r *rig, wr rdma.SendWR, sge rdma.SGE, dst Region) {
	r.Helper()
	a, b := r.sides[0], r.sides[1]
	dst.Store(0, pattern(7, dst.Size))
	l := r.link()
	l.recv(receive(1, dst.sge(16, 8)))
	wr.WRID, wr.SGL = 3, []rdma.SGE{sge}
	l.send(wr)
	a.want(a.scq, 3, rdma.WCLocProtErr)
	a.state(l.qa, rdma.StateErr)
	equal(r, l.qb.State(), rdma.StateRTS, "the responder is in")
	b.none(b.rcq)
	r.same("the responder's memory", dst.Load(0, dst.Size), pattern(7, dst.Size))
	r.move(l.qb, rdma.StateErr)
	b.want(b.rcq, 1, rdma.WCWRFlushErr)
}

// accessLocalFirst: with both ends at fault the requester finds its own first
// and nothing goes out.
func accessLocalFirst(r *rig, a, b *side) {
	good := a.memory(64)
	dst := b.memory(64)
	for _, op := range remoteOps(rdma.SGE{}) {
		r.sub(op.name, func(r *rig) {
			bad := good.sge(0, 8)
			bad.LKey ^= 1
			refusedLocally(r, op.to(dst.Base+1, dst.RKey()^1), bad, dst)
		})
	}
}

// accessFlagsFirst: an operation that the responder's queue pair does not
// allow is REM_INV_REQ_ERR whether or not the key is good.
func accessFlagsFirst(r *rig, _, b *side) {
	m := b.memory(64)
	for _, op := range remoteOps(rdma.SGE{}) {
		for _, key := range []struct {
			name string
			rkey uint32
		}{{"good_key", m.RKey()}, {"bad_key", m.RKey() ^ 1}} {
			r.sub(op.name+"_"+key.name, func(r *rig) {
				refusedRemotely(r, op.to(m.Base, key.rkey), rdma.WCRemInvReqErr, []Region{m}, func(u *setup) {
					u.each = func(side int, attr *rdma.QPAttr) {
						if side == 1 {
							attr.AccessFlags &^= op.need
						}
					}
				})
			})
		}
	}
}

// accessRange: every byte of a region of odd size is reachable, both ways.
func accessRange(r *rig, a, b *side) {
	const n = 301
	for _, kind := range []MemoryKind{Allocated, Ordinary} {
		src, dst := a.region(a.pd, kind, n, everything), b.region(b.pd, kind, n, everything)
		l := r.link()
		want := make([]byte, n)
		for i, w := range []struct{ off, n int }{{0, n}, {0, 1}, {n - 1, 1}, {n - 8, 8}, {1, n - 1}, {0, n - 1}, {293, 8}} {
			src.Store(0, pattern(uint64(i), n))
			l.do(write(uint64(i), dst, w.off, src.sge(n-w.n, w.n)))
			copy(want[w.off:], pattern(uint64(i), n)[n-w.n:])
			r.same("written", dst.Load(0, n), want)
			l.do(read(uint64(i), dst, w.off, src.sge(0, w.n)))
			r.same("read back", src.Load(0, w.n), want[w.off:w.off+w.n])
		}
	}
}

func writeStale(r *rig, a, b *side) {
	src := a.filled(64, 1)
	for _, kind := range kinds(r) {
		r.sub(kind.String(), pair(func(r *rig, a, b *side) {
			dst := b.region(b.pd, kind, 64, everything)
			l := r.link()
			l.do(write(1, dst, 0, src.sge(0, 64)))
			r.closeRegion(dst)
			l.fails(rdma.WCRemAccessErr, write(2, dst, 0, src.sge(0, 64)))
			b.state(l.qb, rdma.StateErr)
		}))
	}
	a.none(a.scq)
}
