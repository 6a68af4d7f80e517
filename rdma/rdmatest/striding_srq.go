package rdmatest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

// The rules of strides on a shared receive queue, in which messages of several queue
// pairs lie in one receive.
func sharedStridingCases() []testCase {
	return needing([]testCase{
		{name: "striding/shared_receive_takes_messages_of_many", nodes: 2, run: pair(sharedStridingMany)},
		{name: "striding/shared_longer_than_a_receive_is_LOC_LEN_ERR", nodes: 2, run: pair(sharedStridingTooLong)},
		{name: "striding/shared_full_until_the_last_is_polled", nodes: 2, run: pair(sharedStridingFull)},
		{name: "striding/shared_empty_is_RNR", nodes: 2, run: pair(sharedStridingEmpty)},
		{name: "striding/shared_bad_shapes_are_EINVAL", nodes: 1, run: single(sharedStridingBad)},
		{name: "striding/shared_any_sizes_against_a_model", nodes: 2, run: pair(sharedStridingModel)},
		{name: "striding/shared_by_many_peers_at_once", nodes: 4, run: sharedStridingPeers},
	}, rdma.FeatureStridingRQ, rdma.FeatureSRQ, rdma.FeatureExtendedCQ)
}

// stridedSRQ gives a side a shared queue of receives of n strides, and completions
// with extended fields.
func (s *side) stridedSRQ(maxWR, n int) rdma.SRQ {
	s.r.Helper()
	s.extended()
	return result(s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: maxWR, MaxSGE: 2}, Striding: rdma.StridingRQ{StrideBytes: strideBytes, Strides: n}})).owned(s.r, "CreateSRQ of %d receives of %d strides", maxWR, n)
}

func sharedStridingMany(r *rig, a, b *side) {
	srq := b.stridedSRQ(4, 8)
	src, dst := a.memory(1024), b.memory(1536)
	links := []*link{r.link(from(1, srq)), r.link(from(1, srq)), r.link(from(1, srq))}
	postSRQ(r, srq, receive(1, dst.sge(0, 100), dst.sge(100, 412)), receive(2, dst.sge(512, 512)))
	at := 0
	for i, n := range []int{64, 1, 0, 65, 100} { // strides: 1 1 1 2 2; one is left
		l := links[i%3]
		l.transmit(src, uint64(i+10), n)
		wc := b.arrived(1, at*strideBytes, n, false)
		if wc.Opcode != rdma.WCRecv || wc.QPNum != l.qb.Num() || wc.SrcQP != l.qa.Num() {
			r.Errorf("completion of a message on queue pair %#x: %+v", l.qb.Num(), wc)
		}
		r.same("message", dst.Load(at*strideBytes, n), pattern(uint64(i+10), max(n, 1))[:n])
		at += max((n+strideBytes-1)/strideBytes, 1)
	}
	links[1].transmit(src, 20, 65)
	if wc := b.arrived(1, 7*strideBytes, 0, true); wc.SrcQP != 0 {
		r.Errorf("completion of a rest that was passed by: %+v", wc)
	}
	b.arrived(2, 0, 65, false)
	r.same("the message in the next receive", dst.Load(512, 65), pattern(20, 65))
	// A write with immediate takes a stride.
	links[2].do(writeImm(30, 5, dst, 1024, src.sge(0, 400)))
	if wc := b.arrived(2, 2*strideBytes, 400, false); wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ImmData != 5 {
		r.Errorf("completion of a write: %+v", wc)
	}
	links[0].transmit(src, 31, 5*strideBytes)
	b.arrived(2, 3*strideBytes, 5*strideBytes, true)
	b.none(b.rcq)
}

func sharedStridingTooLong(r *rig, a, b *side) {
	srq := b.stridedSRQ(4, 4)
	src, dst := a.memory(1024), b.memory(1024)
	l, other := r.link(from(1, srq)), r.link(from(1, srq))
	postSRQ(r, srq, receive(1, dst.sge(0, 512)), receive(2, dst.sge(512, 256))) // the first is longer than its strides
	other.transmit(src, 10, 8)
	b.arrived(1, 0, 8, false)
	l.fails(rdma.WCRemInvReqErr, send(20, src.sge(0, 257)))
	// It fails, and the receive is given back by a completion of its own.
	b.want(b.rcq, 1, rdma.WCLocLenErr)
	b.arrived(1, strideBytes, 0, true)
	b.state(l.qb, rdma.StateErr)
	// The others go on.
	other.transmit(src, 11, 256)
	b.arrived(2, 0, 256, true)
	b.none(b.rcq)
}

func sharedStridingFull(r *rig, a, b *side) {
	srq := b.stridedSRQ(2, 4)
	src, dst := a.memory(64), b.memory(256)
	l := r.link(from(1, srq))
	postSRQ(r, srq, receive(0, dst.sge(0, 256)), receive(1, dst.sge(0, 256)))
	l.fullOfStrides(src, dst, srq.PostRecv)
}

func sharedStridingEmpty(r *rig, a, b *side) {
	srq := b.stridedSRQ(2, 2)
	src, dst := a.memory(64), b.memory(128)
	l := r.link(from(1, srq))
	postSRQ(r, srq, receive(1, dst.sge(0, 128)))
	l.transmit(src, 10, 8)
	l.transmit(src, 11, 64)
	a.untilRNR(1, func() { l.send(send(12, src.sge(0, 8))) })
	postSRQ(r, srq, receive(2, dst.sge(0, 128)))
	a.done(a.scq, 12)
	b.arrived(1, 0, 8, false)
	b.arrived(1, strideBytes, 64, true)
	b.arrived(2, 0, 8, false)
}

func sharedStridingBad(r *rig, s *side) {
	for name, shape := range badStrides {
		result(s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 4, MaxSGE: 1}, Striding: shape})).refused(r, name, rdma.ErrInvalid)
	}
	srq := s.stridedSRQ(4, 4)
	m := s.memory(256)
	result(srq.PostRecv([]rdma.RecvWR{receive(1, m.sge(0, 255))})).refused(r, "a receive shorter than its strides", rdma.ErrInvalid)
}

// sharedStridingModel: messages of any sizes on any of three queue pairs, against a
// model of the rules.
func sharedStridingModel(r *rig, a, b *side) {
	const strides, depth = 8, 8
	const size = strides * strideBytes
	srq := b.stridedSRQ(depth, strides)
	src, dst := a.memory(size), b.memory(depth*size)
	links := []*link{r.link(from(1, srq)), r.link(from(1, srq)), r.link(from(1, srq))}
	total := unlessSlow[uint64](r, 400, 100)
	for i := range uint64(depth) {
		postSRQ(r, srq, receive(i, dst.sge(int(i)*size, size)))
	}
	rng := rand.New(rand.NewPCG(3, 5))
	buffer, used := uint64(0), 0
	done := func() {
		postSRQ(r, srq, receive(buffer+depth, dst.sge(int(buffer%depth)*size, size)))
		buffer, used = buffer+1, 0
	}
	for id := range total {
		n := rng.IntN(size + 1)
		if rng.IntN(2) == 0 {
			n = rng.IntN(2 * strideBytes)
		}
		links[rng.IntN(3)].transmit(src, id, n)
		takes := max((n+strideBytes-1)/strideBytes, 1)
		if takes > strides-used {
			b.arrived(buffer, used*strideBytes, 0, true)
			done()
		}
		b.arrived(buffer, used*strideBytes, n, used+takes == strides)
		r.same("message", dst.Load(int(buffer%depth)*size+used*strideBytes, n), pattern(id, max(n, 1))[:n])
		if used += takes; used == strides {
			done()
		}
	}
}

// sharedStridingPeers: three peers send at once. No two messages are in one place, each
// peer's come in order, and the last completion of a receive is the last.
func sharedStridingPeers(r *rig) {
	const strides, depth = 8, 4
	const size = strides * strideBytes
	b := r.sides[0]
	srq := b.stridedSRQ(depth, strides)
	dst := b.memory(depth * size)
	each := unlessSlow[uint64](r, 500, 80)
	type sender struct {
		*link
		src       Region
		sent, got uint64
		open      int
		rng       *rand.Rand
	}
	senders := map[uint32]*sender{}
	for i, s := range r.sides[1:] {
		s.scq = s.newCQ(64)
		l := r.connect(s, b, from(1, srq))
		senders[l.qb.Num()] = &sender{link: l, src: s.memory(8 * size), rng: rand.New(rand.NewPCG(uint64(i), 7))}
	}
	for i := range uint64(depth) {
		postSRQ(r, srq, receive(i, dst.sge(int(i)*size, size)))
	}
	taken := [depth]uint{} // bits of the strides of each receive
	left := each * uint64(len(senders))
	r.until("all messages", func() bool {
		for _, s := range senders {
			for wc, ok := s.a.poll(s.a.scq); ok; wc, ok = s.a.poll(s.a.scq) {
				if wc.Status != rdma.WCSuccess {
					r.Fatalf("message %d: %q", wc.WRID, wc.Status)
				}
				s.open--
			}
			for s.sent < each && s.open < 4 && s.rng.IntN(4) > 0 {
				n := 8 + 8*s.rng.IntN(size/8)
				if s.rng.IntN(2) == 0 {
					n = 8 + 8*s.rng.IntN(2*strideBytes/8)
				}
				s.sent++
				s.open++
				at := int(s.sent%8) * size
				msg := make([]byte, n)
				for i := 0; i < n; i += 8 {
					binary.NativeEndian.PutUint64(msg[i:], uint64(s.qb.Num())<<32|s.sent)
				}
				s.src.Store(at, msg)
				s.send(send(s.sent, s.src.sge(at, n)))
			}
		}
		var list [4]rdma.WCEx
		n := result(b.rcq.PollEx(list[:])).must(r, "PollEx")
		for _, wc := range list[:n] {
			if wc.Status != rdma.WCSuccess {
				r.Fatalf("a completion: %+v %q", wc, wc.Status)
			}
			if wc.ByteLen > 0 {
				first, count := wc.Offset/strideBytes, (wc.ByteLen+strideBytes-1)/strideBytes
				mine := uint(1<<count-1) << first
				if taken[wc.WRID]&mine != 0 || first+count > strides {
					r.Fatalf("two messages in one place: %+v, %#x is taken", wc, taken[wc.WRID])
				}
				taken[wc.WRID] |= mine
				s := senders[wc.QPNum]
				s.got++
				msg := dst.Load(int(wc.WRID)*size+int(wc.Offset), int(wc.ByteLen))
				for i := 0; i < len(msg); i += 8 {
					if v := binary.NativeEndian.Uint64(msg[i:]); v != uint64(wc.QPNum)<<32|s.got {
						r.Fatalf("message %d of queue pair %#x: word %d is %#x", s.got, wc.QPNum, i/8, v)
					}
				}
				left--
			}
			if wc.Flags&rdma.WCFlagLastStride != 0 {
				if taken[wc.WRID] == 0 {
					r.Fatalf("the last of a receive with nothing in it: %+v", wc)
				}
				taken[wc.WRID] = 0
				dst.Store(int(wc.WRID)*size, make([]byte, size)) // it is the program's again
				postSRQ(r, srq, receive(wc.WRID, dst.sge(int(wc.WRID)*size, size)))
			}
		}
		return left == 0
	})
}
