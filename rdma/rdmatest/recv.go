package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func recvCases() []testCase {
	return []testCase{
		{name: "recv/too_small_is_LOC_LEN_ERR", nodes: 2, run: recvTooSmall},
		{name: "recv/bad_sge_is_LOC_PROT_ERR", nodes: 2, run: pair(recvBadSGE)},
		{name: "recv/filled_in_posting_order", nodes: 2, run: pair(recvOrder)},
		{name: "recv/one_message_one_receive", nodes: 2, run: pair(recvWhole)},
		{name: "recv/write_imm_takes_one_and_leaves_its_memory", nodes: 2, run: pair(recvWriteImm)},
		{name: "recv/plain_one_sided_operations_take_none", nodes: 2, run: pair(recvNone)},
		{name: "recv/error_does_not_disturb_other_queue_pairs", nodes: 3, run: recvBystander},
	}
}

func recvTooSmall(r *rig) {
	for _, c := range []struct {
		name string
		room []int // of the receive's SGEs
		size int
	}{
		{"one_byte_too_long", []int{8}, 9}, {"no_room_at_all", nil, 1}, {"two_pieces", []int{8, 8}, 17}, {"far_too_long", []int{16}, 4000},
	} {
		r.sub(c.name, pair(func(r *rig, a, b *side) {
			src, dst := a.filled(4096, 1), b.filled(4096, 2)
			var sgl []rdma.SGE
			pos, named := 64, make([]bool, 4096)
			for _, n := range c.room {
				sgl = append(sgl, dst.sge(pos, n))
				for i := range n {
					named[pos+i] = true
				}
				pos += n + 64
			}
			l := r.link()
			l.recv(receive(1, sgl...), receive(2, dst.sge(0, 8)))
			l.send(unsignaled(send(3, src.sge(0, c.size))), unsignaled(write(4, dst, 2048, src.sge(0, 8))))
			a.fail(a.scq, rdma.WCRemInvReqErr, 3, 4)
			if wc := b.want(b.rcq, 1, rdma.WCLocLenErr); wc.QPNum != l.qb.Num() {
				r.Errorf("the error names queue pair %#x, want %#x", wc.QPNum, l.qb.Num())
			}
			b.want(b.rcq, 2, rdma.WCWRFlushErr)
			a.state(l.qa, rdma.StateErr)
			b.state(l.qb, rdma.StateErr)
			got, want := dst.Load(0, 4096), pattern(2, 4096)
			for i := range named {
				if named[i] {
					want[i] = got[i] // what the receive named may hold anything
				}
			}
			r.same("memory beside the receive", got, want)
			b.none(b.rcq)
			a.none(a.scq)
		}))
	}
}

func recvBadSGE(r *rig, _, b *side) {
	for _, kind := range kinds(r) {
		faults := localFaults(b, kind)
		mute := b.region(b.pd, kind, 64, 0)
		faults = append(faults, localFault{"no_local_write", mute.sge(0, 8)})
		for _, f := range faults {
			r.sub(kind.String()+"_"+f.name, func(r *rig) {
				recvRefused(r, func(l *link) { l.recv(receive(1, f.sge)) })
			})
		}
		r.sub(kind.String()+"_closed_after_post", pair(func(r *rig, _, b *side) {
			m := b.region(b.pd, kind, 64, everything)
			recvRefused(r, func(l *link) {
				l.recv(receive(1, m.sge(0, 8)))
				r.closeRegion(m)
			})
		}))
		r.sub(kind.String()+"_second_of_two", pair(func(r *rig, _, b *side) {
			m := b.region(b.pd, kind, 64, everything)
			bad := m.sge(8, 8)
			bad.LKey ^= 1
			recvRefused(r, func(l *link) { l.recv(receive(1, m.sge(0, 4), bad)) })
		}))
		r.same("memory without local write", mute.Load(0, 64), make([]byte, 64))
	}
}

// recvRefused sends 8 bytes to receive 1, which post posts and whose memory
// the responder's own device refuses.
func recvRefused(r *rig, post func(*link)) {
	r.Helper()
	a, b := r.sides[0], r.sides[1]
	src := a.filled(64, 1)
	l := r.link()
	post(l)
	l.recv(receive(2))
	l.send(unsignaled(send(3, src.sge(0, 8))), unsignaled(send(4)))
	a.fail(a.scq, rdma.WCRemOpErr, 3, 4)
	b.fail(b.rcq, rdma.WCLocProtErr, 1, 2)
	a.state(l.qa, rdma.StateErr)
	b.state(l.qb, rdma.StateErr)
}

// recvOrder runs many messages of different lengths through a queue that is
// refilled as it goes, so that its indices wrap many times.
func recvOrder(r *rig, a, b *side) {
	const depth, total, most = 7, 400, 96
	src, dst := a.memory(most), b.memory(depth*most)
	l := r.link(func(u *setup) { u.cap.MaxRecvWR = depth })
	for i := range depth {
		l.recv(receive(uint64(i), dst.sge(i*most, most)))
	}
	for i := range uint64(total) {
		n := int(i*37) % (most + 1)
		src.Store(0, pattern(i, most))
		l.do(send(i, src.sge(0, n)))
		wc := b.done(b.rcq, i)
		slot := int(i % depth)
		if wc.ByteLen != uint32(n) {
			r.Fatalf("message %d: %d bytes, want %d", i, wc.ByteLen, n)
		}
		r.same("message", dst.Load(slot*most, n), pattern(i, most)[:n])
		l.recv(receive(i+depth, dst.sge(slot*most, most)))
	}
}

// recvWhole: a short message leaves the rest of its receive alone, and the
// next message takes the next receive.
func recvWhole(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.filled(192, 2)
	l := r.link()
	l.recv(receive(1, dst.sge(0, 64)), receive(2, dst.sge(64, 64)), receive(3, dst.sge(128, 64)))
	l.send(send(4, src.sge(0, 5)), send(5), send(6, src.sge(5, 64-5)))
	for i, n := range []uint32{5, 0, 59} {
		a.done(a.scq, uint64(4+i))
		equal(r, b.done(b.rcq, uint64(1+i)).ByteLen, n, "bytes of message %d:", i)
	}
	want := pattern(2, 192)
	copy(want, pattern(1, 64)[:5])
	copy(want[128:], pattern(1, 64)[5:])
	r.same("receives", dst.Load(0, 192), want)
}

func recvWriteImm(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(128)
	l := r.link()
	// Of three receives one names memory, one names none, one names memory it
	// may not use: a write with immediate looks at none of them.
	bad := dst.sge(64, 8)
	bad.LKey ^= 1
	l.recv(receive(1, dst.sge(64, 64)), receive(2), receive(3, bad), receive(4, dst.sge(64, 32)))
	l.do(writeImm(5, 50, dst, 0, src.sge(0, 16)), writeImm(6, 60, dst, 16, src.sge(16, 16)), writeImm(7, 70, dst, 32, src.sge(32, 16)),
		send(8, src.sge(0, 32)))
	for i := range uint32(3) {
		wc := b.done(b.rcq, uint64(1+i))
		if wc.ImmData != 50+10*i || wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ByteLen != 16 {
			r.Errorf("write with immediate %d: %+v", i, wc)
		}
	}
	if wc := b.done(b.rcq, 4); wc.Opcode != rdma.WCRecv || wc.ByteLen != 32 || wc.Flags&rdma.WCFlagWithImm != 0 {
		r.Errorf("the send behind: %+v", wc)
	}
	want := make([]byte, 128)
	copy(want, pattern(1, 64)[:48])
	copy(want[64:], pattern(1, 64)[:32])
	r.same("memory", dst.Load(0, 128), want)
}

func recvNone(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(128)
	l := r.link()
	l.recv(receive(1, dst.sge(64, 8)))
	l.do(write(2, dst, 0, src.sge(0, 8)), read(3, dst, 0, src.sge(0, 8)), fetchAdd(4, dst, 0, 1, src.sge(0, 8)),
		compareSwap(5, dst, 0, 1, 2, src.sge(0, 8)), send(6, src.sge(0, 4)))
	if wc := b.done(b.rcq, 1); wc.ByteLen != 4 || wc.Opcode != rdma.WCRecv {
		r.Errorf("the receive: %+v, want the send's 4 bytes", wc)
	}
	b.none(b.rcq)
}

// recvBystander breaks one of three queue pairs that share their CQs.
func recvBystander(r *rig) {
	a, b, c := r.sides[0], r.sides[1], r.sides[2]
	src, dst := a.memory(64), b.memory(64)
	broken, beside, far := r.link(), r.link(), r.connect(c, b)
	beside.recv(receive(10, dst.sge(8, 8)))
	far.recv(receive(20, dst.sge(16, 8)))
	broken.recv(receive(1, dst.sge(0, 4)))
	broken.fails(rdma.WCRemInvReqErr, send(2, src.sge(0, 8)))
	b.want(b.rcq, 1, rdma.WCLocLenErr)
	b.state(broken.qb, rdma.StateErr)
	for _, l := range []*link{beside, far} {
		if l.qa.State() != rdma.StateRTS || l.qb.State() != rdma.StateRTS {
			r.Errorf("bystanders are in %v and %v", l.qa.State(), l.qb.State())
		}
		l.works(5)
	}
	beside.do(send(6, src.sge(0, 8)))
	b.done(b.rcq, 10)
	from := c.memory(64)
	far.do(send(7, from.sge(0, 8)))
	b.done(b.rcq, 20)
	b.none(b.rcq)
}
