package rdmatest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

func randomCases() []testCase {
	return []testCase{
		{name: "random/any_program_against_a_model", nodes: 3, run: randomModel},
	}
}

// A stream is one direction of a connection in the random test: its requests
// have memory of their own at both ends, so what they leave is known: the
// model runs them one after the other.
type stream struct {
	s, to    *side
	qp, peer rdma.QP
	rng      *rand.Rand
	nextID   uint64

	src, res Region // at the requester: constant data, and where reads and atomics go
	dst      Region // at the responder: target of one-sided operations
	box      Region // at the responder: receives

	model struct{ src, res, dst, box []byte }
	sent  []uint64      // ids due on s.scq
	recvs []expectation // due on to.rcq for peer
	late  []rdma.RecvWR // receives to post after the sends
}

type expectation struct {
	id  uint64
	len uint32
	imm *uint32
	op  rdma.WCOpcode
}

const (
	streamData = 6000
	streamOps  = 12
	slotSize   = streamData / streamOps
)

// randomModel runs random lists of requests on both directions of links
// between all nodes (and within one) at once, and compares all memory and all
// completions with a model.
func randomModel(r *rig) {
	rounds := unlessBrief(r, 60, 12)
	var streams []*stream
	for seed, ends := range [][2]int{{0, 1}, {1, 2}, {2, 0}, {1, 1}, {0, 1}} {
		l := r.connect(r.sides[ends[0]], r.sides[ends[1]])
		kind := kinds(r)[seed%len(kinds(r))]
		for d, st := range []*stream{{s: l.a, to: l.b, qp: l.qa, peer: l.qb}, {s: l.b, to: l.a, qp: l.qb, peer: l.qa}} {
			st.rng = rand.New(rand.NewPCG(uint64(seed), uint64(d)))
			for _, m := range []struct {
				region *Region
				model  *[]byte
				at     *side
			}{{&st.src, &st.model.src, st.s}, {&st.res, &st.model.res, st.s}, {&st.dst, &st.model.dst, st.to}, {&st.box, &st.model.box, st.to}} {
				*m.region = m.at.region(m.at.pd, kind, streamData, everything)
				*m.model = make([]byte, streamData)
			}
			streams = append(streams, st)
		}
	}
	for round := range rounds {
		lists := make([][]rdma.SendWR, len(streams))
		for i, st := range streams {
			lists[i] = st.plan(r)
		}
		// Posts are cut into several calls, the streams' calls mixed.
		for left := true; left; {
			left = false
			for i, st := range streams {
				if n := min(len(lists[i]), 1+st.rng.IntN(5)); n > 0 {
					post(r, st.qp, lists[i][:n]...)
					lists[i] = lists[i][n:]
					left = true
				}
			}
		}
		for _, st := range streams {
			if len(st.late) > 0 {
				postRecv(r, st.peer, st.late...)
				st.late = nil
			}
		}
		settle(r, streams)
		for i, st := range streams {
			what := fmt.Sprintf("round %d, stream %d", round, i)
			r.same(what+": read and fetched", st.res.Load(0, streamData), st.model.res)
			r.same(what+": target", st.dst.Load(0, streamData), st.model.dst)
			r.same(what+": received", st.box.Load(0, streamData), st.model.box)
			r.same(what+": source", st.src.Load(0, streamData), st.model.src)
		}
	}
}

// plan draws the stream's next list, posts its receives or keeps them for
// later, and runs the list in the model.
func (st *stream) plan(r *rig) []rdma.SendWR {
	m, rng := &st.model, st.rng
	copy(m.src, pattern(rng.Uint64(), streamData))
	st.src.Store(0, m.src)
	n := 1 + rng.IntN(streamOps)
	late := rng.IntN(3) == 0 && !r.f.differs(r.rule+"/late_receives")
	var list []rdma.SendWR
	reading := false // reads since the last fence: a repeated one would see what comes behind
	for slot := range n {
		st.nextID++
		id, size := st.nextID, rng.IntN(slotSize-8)
		if rng.IntN(4) == 0 {
			size = rng.IntN(17)
		}
		size = cmp.Or(size, 1)
		off := rng.IntN(streamData - size)
		gather := func(m Region, base int) (sgl []rdma.SGE) { // up to 3 adjacent pieces
			c1, c2 := rng.IntN(size+1), rng.IntN(size+1)
			if c1 > c2 {
				c1, c2 = c2, c1
			}
			for _, p := range [][2]int{{0, c1}, {c1, c2}, {c2, size}} {
				if p[1] > p[0] {
					sgl = append(sgl, m.sge(base+p[0], p[1]-p[0]))
				}
			}
			return sgl
		}
		from := rng.IntN(streamData - size)
		var wr rdma.SendWR
		switch rng.IntN(7) {
		case 0, 1:
			sgl := gather(st.src, from)
			wr = write(id, st.dst, off, sgl...)
			copy(m.dst[off:], m.src[from:from+size])
		case 2:
			sgl := gather(st.src, from)
			imm := rng.Uint32()
			wr = writeImm(id, imm, st.dst, off, sgl...)
			copy(m.dst[off:], m.src[from:from+size])
			st.expect(r, late, receive(id), expectation{id, uint32(size), &imm, rdma.WCRecvRDMAWithImm})
		case 3:
			sgl := gather(st.src, from)
			wr = send(id, sgl...)
			copy(m.box[slot*slotSize:], m.src[from:from+size])
			rsgl := gather(st.box, slot*slotSize)
			rsgl = append(rsgl, st.box.sge(slot*slotSize+size, 1+rng.IntN(4)))
			st.expect(r, late, receive(id, rsgl...), expectation{id, uint32(size), nil, rdma.WCRecv})
		case 4:
			sgl := gather(st.res, slot*slotSize)
			wr = read(id, st.dst, off, sgl...)
			copy(m.res[slot*slotSize:], m.dst[off:off+size])
		case 5, 6:
			off, at := off&^7, slot*slotSize+rng.IntN(8)
			old := binary.NativeEndian.Uint64(m.dst[off:])
			binary.NativeEndian.PutUint64(m.res[at:], old)
			next := rng.Uint64()
			if rng.IntN(2) == 0 {
				wr = fetchAdd(id, st.dst, off, next, st.res.sge(at, 8))
				next += old
			} else {
				compare := old ^ uint64(rng.IntN(2))<<uint(rng.IntN(64))
				wr = compareSwap(id, st.dst, off, compare, next, st.res.sge(at, 8))
				if compare != old {
					next = old
				}
			}
			binary.NativeEndian.PutUint64(m.dst[off:], next)
		}
		if !wr.Opcode.Operation().Fetches() && size <= 64 && rng.IntN(2) == 0 {
			wr.Flags |= rdma.SendInline
			if rng.IntN(2) == 0 {
				wr.SGL, wr.Inline = nil, append([]byte(nil), m.src[from:from+size]...)
			}
		}
		moves := wr.Opcode.Operation().Moves
		changes := moves != rdma.MovesFromMemory && moves != rdma.MovesToReceive
		if reading && changes || rng.IntN(3) == 0 {
			wr.Flags |= rdma.SendFence
			reading = false
		}
		reading = reading || moves == rdma.MovesFromMemory
		if slot < n-1 && rng.IntN(2) == 0 {
			wr = unsignaled(wr)
		} else {
			st.sent = append(st.sent, id)
		}
		list = append(list, wr)
	}
	return list
}

// expect posts a receive, or keeps it until the sends are posted, and notes
// its completion.
func (st *stream) expect(r *rig, late bool, wr rdma.RecvWR, e expectation) {
	st.recvs = append(st.recvs, e)
	if late {
		st.late = append(st.late, wr)
		return
	}
	postRecv(r, st.peer, wr)
}

// settle polls all queues until all that is due has come, in each queue pair's
// order, and nothing else.
func settle(r *rig, streams []*stream) {
	r.Helper()
	bySend, byRecv := map[*side]map[uint32]*stream{}, map[*side]map[uint32]*stream{}
	due := 0
	for _, st := range streams {
		for _, m := range []struct {
			by map[*side]map[uint32]*stream
			s  *side
			qp rdma.QP
		}{{bySend, st.s, st.qp}, {byRecv, st.to, st.peer}} {
			if m.by[m.s] == nil {
				m.by[m.s] = map[uint32]*stream{}
			}
			m.by[m.s][m.qp.Num()] = st
		}
		due += len(st.sent) + len(st.recvs)
	}
	r.until("all completions of a round", func() bool {
		for _, s := range r.sides {
			for wc, ok := s.poll(s.scq); ok; wc, ok = s.poll(s.scq) {
				st := bySend[s][wc.QPNum]
				if st == nil || len(st.sent) == 0 || wc.WRID != st.sent[0] || wc.Status != rdma.WCSuccess {
					r.Fatalf("side %d: send completion %+v %q, next due %v", s.index, wc, wc.Status, st)
				}
				st.sent = st.sent[1:]
				due--
			}
			for wc, ok := s.poll(s.rcq); ok; wc, ok = s.poll(s.rcq) {
				st := byRecv[s][wc.QPNum]
				if st == nil || len(st.recvs) == 0 {
					r.Fatalf("side %d: receive completion %+v %q out of the blue", s.index, wc, wc.Status)
				}
				e := st.recvs[0]
				if wc.WRID != e.id || wc.Status != rdma.WCSuccess || wc.ByteLen != e.len || wc.Opcode != e.op ||
					(e.imm != nil) != (wc.Flags&rdma.WCFlagWithImm != 0) || e.imm != nil && wc.ImmData != *e.imm {
					r.Fatalf("side %d: receive completion %+v %q, want %+v", s.index, wc, wc.Status, e)
				}
				st.recvs = st.recvs[1:]
				due--
			}
		}
		return due <= 0
	})
	r.quiet()
}
