package rdmatest

import (
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func stridingCases() []testCase {
	return needing([]testCase{
		{name: "striding/one_receive_takes_many_messages", nodes: 2, run: pair(stridingMany)},
		{name: "striding/message_never_spans_two_receives", nodes: 2, run: pair(stridingRest)},
		{name: "striding/longer_than_a_receive_is_LOC_LEN_ERR", nodes: 2, run: stridingTooLong},
		{name: "striding/write_imm_takes_one_stride", nodes: 2, run: pair(stridingImm)},
		{name: "striding/full_until_the_last_is_polled", nodes: 2, run: pair(stridingFull)},
		{name: "striding/flush_is_once_for_each_receive", nodes: 2, run: pair(stridingFlush)},
		{name: "striding/empty_is_RNR", nodes: 2, run: pair(stridingEmpty)},
		{name: "striding/bad_shapes_are_EINVAL", nodes: 1, run: single(stridingBad)},
		{name: "striding/any_sizes_against_a_model", nodes: 2, run: pair(stridingRandom)},
	}, rdma.FeatureStridingRQ, rdma.FeatureExtendedCQ)
}

// strideBytes is a size that devices have.
const strideBytes = 64

var badStrides = map[string]rdma.StridingRQ{
	"strides of 100 bytes": {StrideBytes: 100, Strides: 4}, "three strides": {StrideBytes: strideBytes, Strides: 3},
	"no strides": {StrideBytes: strideBytes}, "strides of nothing": {Strides: 4}, "fewer than none": {StrideBytes: strideBytes, Strides: -4},
}

// strided makes b's queue pair of a link one of receives of n strides.
func strided(n int) func(*setup) {
	return func(u *setup) {
		u.init = func(side int, i *rdma.QPInitAttr) {
			if side == 1 {
				i.Striding = rdma.StridingRQ{StrideBytes: strideBytes, Strides: n}
			}
		}
	}
}

// extended gives a side's receives a queue with extended fields. It is deeper than
// the receive queue, of which each request makes many completions.
func (s *side) extended() {
	s.r.Helper()
	cq := result(s.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 512, Timestamps: true})).owned(s.r, "CreateCQEx")
	s.rcq = cq
}

// nextEx waits for the next completion with its extended fields.
func (s *side) nextEx() rdma.WCEx {
	s.r.Helper()
	var wc [1]rdma.WCEx
	s.r.until("a completion", func() bool {
		n := result(s.rcq.PollEx(wc[:])).must(s.r, "PollEx")
		return n == 1
	})
	return wc[0]
}

// arrived checks a message's completion: which receive it is in, where, how long,
// and whether it is the last there.
func (s *side) arrived(id uint64, offset, n int, last bool) rdma.WCEx {
	s.r.Helper()
	wc := s.nextEx()
	if wc.WRID != id || wc.Status != rdma.WCSuccess || wc.Offset != uint32(offset) || wc.ByteLen != uint32(n) || wc.Flags&rdma.WCFlagLastStride != 0 != last {
		s.r.Fatalf("a completion: %+v, want %d bytes at %d of receive %d, the last there: %v", wc, n, offset, id, last)
	}
	return wc
}

// transmit sends n bytes of the pattern seed and waits until that is complete.
func (l *link) transmit(src Region, seed uint64, n int) {
	l.r.Helper()
	src.Store(0, pattern(seed, max(n, 1)))
	l.do(send(seed, src.sge(0, n)))
}

func stridingMany(r *rig, a, b *side) {
	b.extended()
	src, dst := a.memory(1024), b.memory(1024)
	l := r.link(strided(8))
	// A receive's buffer may be in pieces that have nothing to do with strides.
	l.recv(receive(1, dst.sge(0, 100), dst.sge(100, 412)), receive(2, dst.sge(512, 512)))
	at := 0
	for i, n := range []int{64, 1, 0, 65, 128, 3} { // strides: 1 1 1 2 2 1
		l.transmit(src, uint64(i+10), n)
		wc := b.arrived(1, at*strideBytes, n, i == 5)
		if wc.Opcode != rdma.WCRecv || wc.QPNum != l.qb.Num() || wc.SrcQP != l.qa.Num() {
			r.Errorf("completion of a message: %+v", wc)
		}
		r.same("message", dst.Load(at*strideBytes, n), pattern(uint64(i+10), max(n, 1))[:n])
		at += max((n+strideBytes-1)/strideBytes, 1)
	}
	l.transmit(src, 20, 512)
	b.arrived(2, 0, 512, true)
	r.same("a message as long as a receive", dst.Load(512, 512), pattern(20, 512))
}

func stridingRest(r *rig, a, b *side) {
	b.extended()
	src, dst := a.memory(512), b.memory(768)
	l := r.link(strided(4))
	l.recv(receive(1, dst.sge(0, 256)), receive(2, dst.sge(256, 256)))
	l.transmit(src, 11, 150)
	b.arrived(1, 0, 150, false)
	l.transmit(src, 12, 65) // two strides, one is left
	if wc := b.arrived(1, 3*strideBytes, 0, true); wc.SrcQP != 0 || wc.QPNum != l.qb.Num() {
		r.Errorf("completion of a rest that was passed by: %+v", wc)
	}
	b.arrived(2, 0, 65, false)
	r.same("what was passed by", dst.Load(3*strideBytes, strideBytes), make([]byte, strideBytes))
	r.same("the message in the next receive", dst.Load(256, 65), pattern(12, 65))
	// With no other receive there the rest is passed by all the same, and the
	// message waits.
	src.Store(0, pattern(13, 256))
	l.send(send(13, src.sge(0, 256)))
	b.arrived(2, 2*strideBytes, 0, true)
	a.none(a.scq)
	l.recv(receive(3, dst.sge(512, 256)))
	a.done(a.scq, 13)
	b.arrived(3, 0, 256, true)
	r.same("the message that waited", dst.Load(512, 256), pattern(13, 256))
}

func stridingTooLong(r *rig) {
	for _, before := range []int{0, 1} {
		r.sub([]string{"into a whole receive", "into a receive that is in use"}[before], pair(func(r *rig, a, b *side) {
			b.extended()
			src, dst := a.memory(1024), b.memory(1024)
			l := r.link(strided(4))
			l.recv(receive(1, dst.sge(0, 512)), receive(2, dst.sge(512, 512))) // longer than its strides
			for i := range before {
				l.transmit(src, uint64(i+10), 8)
				b.arrived(1, 0, 8, false)
			}
			l.fails(rdma.WCRemInvReqErr, send(20, src.sge(0, 257)))
			b.fail(b.rcq, rdma.WCLocLenErr, 1, 2)
			b.none(b.rcq)
		}))
	}
}

func stridingImm(r *rig, a, b *side) {
	b.extended()
	src, dst, far := a.memory(512), b.memory(128), b.memory(512)
	l := r.link(strided(2))
	l.recv(receive(1, dst.sge(0, 128)))
	l.do(writeImm(2, 5, far, 0, src.sge(0, 512)), sendImm(3, 6, src.sge(0, 8)))
	if wc := b.arrived(1, 0, 512, false); wc.Opcode != rdma.WCRecvRDMAWithImm || wc.ImmData != 5 {
		r.Errorf("completion of a write: %+v", wc)
	}
	if wc := b.arrived(1, strideBytes, 8, true); wc.Opcode != rdma.WCRecv || wc.ImmData != 6 || wc.Flags&rdma.WCFlagWithImm == 0 {
		r.Errorf("completion of a send: %+v", wc)
	}
}

// stridingFull: a receive has its place until its last completion is polled.
func stridingFull(r *rig, a, b *side) {
	b.extended()
	src, dst := a.memory(64), b.memory(256)
	l := r.link(strided(4))
	_, init := l.qb.Query()
	for i := range init.Cap.MaxRecvWR {
		l.recv(receive(uint64(i), dst.sge(0, 256)))
	}
	l.fullOfStrides(src, dst, l.qb.PostRecv)
}

// fullOfStrides uses up the first of the receives of 4 strides that fill the queue of
// post, which has no place for another until all of it is polled.
func (l *link) fullOfStrides(src, dst Region, post func([]rdma.RecvWR) (int, error)) {
	r, b := l.r, l.b
	r.Helper()
	refused := func(when string) {
		r.Helper()
		result(post([]rdma.RecvWR{receive(999, dst.sge(0, 256))})).refused(r, when, rdma.ErrNoMemory)
	}
	refused("all posted")
	for i := range 4 {
		l.transmit(src, uint64(i), 8)
		refused("a message came")
		b.arrived(0, i*strideBytes, 8, i == 3)
		if i < 3 {
			refused("a receive is in use")
		}
	}
	if n, err := post([]rdma.RecvWR{receive(1000, dst.sge(0, 256))}); n != 1 {
		r.Fatalf("the receive has been polled: %v", err)
	}
	refused("one posted again")
}

func stridingFlush(r *rig, a, b *side) {
	b.extended()
	src, dst := a.memory(64), b.memory(1024)
	l := r.link(strided(4))
	for i := range 4 {
		l.recv(receive(uint64(i), dst.sge(256*i, 256)))
	}
	for i := range 6 {
		l.transmit(src, uint64(i), 8)
	}
	r.move(l.qb, rdma.StateErr)
	for i := range 6 { // they were complete before
		b.arrived(uint64(i/4), i%4*strideBytes, 8, i == 3)
	}
	for i := uint64(1); i < 4; i++ {
		b.want(b.rcq, i, rdma.WCWRFlushErr)
	}
	b.none(b.rcq)
}

func stridingEmpty(r *rig, a, b *side) {
	b.extended()
	src, dst := a.memory(64), b.memory(128)
	l := r.link(strided(2))
	l.recv(receive(1, dst.sge(0, 128)))
	l.transmit(src, 10, 8)
	l.transmit(src, 11, 64)
	a.untilRNR(1, func() { l.send(send(12, src.sge(0, 8))) })
	l.recv(receive(2, dst.sge(0, 128)))
	a.done(a.scq, 12)
	b.arrived(1, 0, 8, false)
	b.arrived(1, strideBytes, 64, true)
	b.arrived(2, 0, 8, false)
}

func stridingBad(r *rig, s *side) {
	for name, shape := range badStrides {
		init := rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Type: rdma.RC, Cap: defaults().cap, Striding: shape}
		result(s.pd.CreateQP(init)).refused(r, name, rdma.ErrInvalid)
	}
	s.extended()
	m := s.memory(256)
	l := r.connect(s, s, strided(4))
	result(l.qb.PostRecv([]rdma.RecvWR{receive(1, m.sge(0, 255))})).refused(r, "a receive shorter than its strides", rdma.ErrInvalid)
}

// stridingRandom: messages of any sizes, several outstanding, against a model of
// the rules.
func stridingRandom(r *rig, a, b *side) {
	b.extended()
	const strides, depth, total = 8, 8, 400
	const size = strides * strideBytes
	src, dst := a.memory(16*size), b.memory(depth*size)
	l := r.link(strided(strides))
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range depth {
		l.recv(receive(uint64(i), dst.sge(i*size, size)))
	}
	buffer, used := uint64(0), 0 // where the next message begins
	done := func() {
		l.recv(receive(buffer+depth, dst.sge(int(buffer%depth)*size, size)))
		buffer, used = buffer+1, 0
	}
	for id := uint64(0); id < total; {
		burst := 1 + rng.IntN(4)
		var sizes []int
		for k := range burst {
			n := rng.IntN(size + 1)
			if rng.IntN(2) == 0 {
				n = rng.IntN(2 * strideBytes)
			}
			sizes = append(sizes, n)
			src.Store(k*size, pattern(id+uint64(k), size))
			l.send(send(id+uint64(k), src.sge(k*size, n)))
		}
		for k, n := range sizes {
			takes := max((n+strideBytes-1)/strideBytes, 1)
			if takes > strides-used {
				b.arrived(buffer, used*strideBytes, 0, true)
				done()
			}
			b.arrived(buffer, used*strideBytes, n, used+takes == strides)
			r.same("message", dst.Load(int(buffer%depth)*size+used*strideBytes, n), pattern(id+uint64(k), size)[:n])
			if used += takes; used == strides {
				done()
			}
		}
		a.done(a.scq, ids(id, burst)...)
		id += uint64(burst)
	}
}
