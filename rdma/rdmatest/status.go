package rdmatest

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func statusCases() []testCase {
	return []testCase{
		{name: "status/no_responder_resources_is_REM_INV_REQ", nodes: 2, run: pair(statusNoResources)},
		{name: "status/misaligned_atomic_is_REM_INV_REQ", nodes: 2, run: pair(statusMisaligned)},
		{name: "status/completion_fields", nodes: 2, run: pair(statusFields)},
	}
}

// statusNoResources: with max_dest_rd_atomic 0 the responder answers no read
// and no atomic; writes pass.
func statusNoResources(r *rig, _, b *side) {
	m := b.memory(64)
	none := func(u *setup) {
		u.each = func(side int, attr *rdma.QPAttr) {
			if side == 1 {
				attr.MaxDestRdAtomic = 0
			}
		}
	}
	for _, op := range remoteOps(rdma.SGE{}) {
		if op.need == rdma.AccessRemoteWrite {
			continue
		}
		r.sub(op.name, func(r *rig) {
			wr := op.wr
			wr.RemoteAddr, wr.RKey = m.Base, m.RKey()
			refusedRemotely(r, wr, rdma.WCRemInvReqErr, []Region{m}, none)
		})
	}
	r.link(none).works(1)
}

func statusMisaligned(r *rig, _, b *side) {
	for _, kind := range kinds(r) {
		m := b.region(b.pd, kind, 64, everything)
		for _, op := range remoteOps(rdma.SGE{}) {
			if op.need != rdma.AccessRemoteAtomic {
				continue
			}
			for _, off := range []uint64{1, 4, 7} {
				r.sub(fmt.Sprintf("%v_%s_at_%d", kind, op.name, off), func(r *rig) {
					wr := op.wr
					wr.RemoteAddr, wr.RKey = m.Base+off, m.RKey()
					refusedRemotely(r, wr, rdma.WCRemInvReqErr, []Region{m})
				})
			}
		}
	}
}

// statusFields checks every field of the successful completion of every
// operation, on both sides.
func statusFields(r *rig, a, b *side) {
	src, dst := a.memory(256), b.memory(256)
	l := r.link()
	mine, theirs := l.qa.Num(), l.qb.Num()
	const imm, withImm = 0xdeadbeef, rdma.WCFlagWithImm
	for i, c := range []struct {
		name string
		wr   rdma.SendWR
		want rdma.WC  // of the requester; ByteLen of writes and sends is free
		recv *rdma.WC // of the responder
	}{
		{"write", write(0, dst, 0, src.sge(0, 24)), rdma.WC{Opcode: rdma.WCRDMAWrite}, nil},
		{"write_imm", writeImm(0, imm, dst, 0, src.sge(0, 24)), rdma.WC{Opcode: rdma.WCRDMAWrite},
			&rdma.WC{Opcode: rdma.WCRecvRDMAWithImm, ByteLen: 24, ImmData: imm, Flags: withImm}},
		{"write_imm_0", writeImm(0, 0, dst, 0, src.sge(0, 3), src.sge(7, 4)), rdma.WC{Opcode: rdma.WCRDMAWrite},
			&rdma.WC{Opcode: rdma.WCRecvRDMAWithImm, ByteLen: 7, Flags: withImm}},
		{"send", send(0, src.sge(0, 24)), rdma.WC{Opcode: rdma.WCSend}, &rdma.WC{Opcode: rdma.WCRecv, ByteLen: 24}},
		{"send_imm", sendImm(0, imm, src.sge(0, 1)), rdma.WC{Opcode: rdma.WCSend},
			&rdma.WC{Opcode: rdma.WCRecv, ByteLen: 1, ImmData: imm, Flags: withImm}},
		{"send_imm_all_ones", sendImm(0, ^uint32(0)), rdma.WC{Opcode: rdma.WCSend},
			&rdma.WC{Opcode: rdma.WCRecv, ImmData: ^uint32(0), Flags: withImm}},
		{"read", read(0, dst, 0, src.sge(64, 10), src.sge(90, 7)), rdma.WC{Opcode: rdma.WCRDMARead, ByteLen: 17}, nil},
		{"fetch_add", fetchAdd(0, dst, 64, 1, src.sge(128, 8)), rdma.WC{Opcode: rdma.WCFetchAdd, ByteLen: 8}, nil},
		{"cmp_swap", compareSwap(0, dst, 64, 1, 2, src.sge(128, 8)), rdma.WC{Opcode: rdma.WCCompSwap, ByteLen: 8}, nil},
	} {
		// Identities use all 64 bits.
		id := 0xfedcba9876543210 + uint64(i)
		rid := 0x8123456789abcdef + uint64(i)
		if c.recv != nil {
			l.recv(receive(rid, dst.sge(128, 64)))
		}
		c.wr.WRID = id
		l.send(c.wr)
		got := a.next(a.scq)
		want := c.want
		want.WRID, want.QPNum = id, mine
		if !c.wr.Opcode.Operation().Fetches() {
			want.ByteLen = got.ByteLen
		}
		want.VendorErr, want.SrcQP = got.VendorErr, got.SrcQP
		if got != want {
			r.Errorf("%s: the requester's completion is\n%+v, want\n%+v", c.name, got, want)
		}
		if c.recv == nil {
			b.none(b.rcq)
			continue
		}
		got, want = b.next(b.rcq), *c.recv
		want.WRID, want.QPNum, want.SrcQP = rid, theirs, mine
		want.VendorErr = got.VendorErr
		if want.Flags&withImm == 0 {
			want.ImmData = got.ImmData
		}
		if got != want {
			r.Errorf("%s: the responder's completion is\n%+v, want\n%+v", c.name, got, want)
		}
		b.none(b.rcq)
		b.none(b.scq)
	}
}
