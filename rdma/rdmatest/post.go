package rdmatest

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func postCases() []testCase {
	return []testCase{
		{name: "post/send_needs_RTS", nodes: 2, run: pair(postSendStates)},
		{name: "post/receive_needs_INIT", nodes: 2, run: pair(postRecvStates)},
		{name: "post/receives_of_INIT_serve_in_RTS", nodes: 2, run: pair(postRecvInit)},
		{name: "post/SQD_holds_requests_back", nodes: 2, run: pair(postSQD)},
		{name: "post/list_stops_at_first_bad", nodes: 2, run: pair(postStops)},
		{name: "post/full_send_queue_is_ENOMEM", nodes: 2, run: pair(postSendFull)},
		{name: "post/full_receive_queue_is_ENOMEM", nodes: 2, run: pair(postRecvFull)},
		{name: "post/slices_are_free_after_post", nodes: 2, run: pair(postSlices)},
		{name: "post/empty_list", nodes: 2, run: postEmpty},
	}
}

func postSendStates(r *rig, a, _ *side) {
	m := r.sides[0].memory(64)
	for _, state := range []rdma.QPState{rdma.StateReset, rdma.StateInit, rdma.StateRTR} {
		qp, _ := r.in(state)
		for _, wr := range []rdma.SendWR{send(1, m.sge(0, 8)), write(2, m, 0, m.sge(0, 8)), read(3, m, 0, m.sge(0, 8))} {
			result(qp.PostSend([]rdma.SendWR{wr, wr})).refused(r, fmt.Sprintf("PostSend of opcode %d in %v", wr.Opcode, state), rdma.ErrInvalid)
		}
	}
	r.link().works(4)
	a.none(a.scq)
}

func postRecvStates(r *rig, s, _ *side) {
	m := s.memory(64)
	for _, state := range rcStates {
		r.sub(state.String(), pair(func(r *rig, s, _ *side) {
			qp, _ := r.in(state)
			n, err := qp.PostRecv([]rdma.RecvWR{receive(1, m.sge(0, 8)), receive(2, m.sge(0, 8))})
			switch {
			case state == rdma.StateReset && (n != 0 || !errors.Is(err, rdma.ErrInvalid)):
				r.Errorf("PostRecv in RESET: %d, %v, want 0, EINVAL", n, err)
			case state != rdma.StateReset && (n != 2 || err != nil):
				r.Errorf("PostRecv in %v: %d, %v, want 2, nil", state, n, err)
			case state == rdma.StateErr:
				s.fail(s.rcq, rdma.WCWRFlushErr, 1, 2)
			}
			s.none(s.rcq)
		}))
	}
}

func postRecvInit(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link(func(u *setup) { u.until = [2]rdma.QPState{rdma.StateInit, rdma.StateInit} })
	l.recv(receive(1, dst.sge(0, 8)), receive(2, dst.sge(8, 8)))
	u := defaults()
	l.step(1, l.qb, u, rdma.StateRTR)
	l.recv(receive(3, dst.sge(16, 8)))
	l.step(0, l.qa, u, rdma.StateRTR)
	l.step(0, l.qa, u, rdma.StateRTS)
	src.Store(0, pattern(1, 24))
	// b stays in RTR: it may receive there.
	l.send(send(4, src.sge(0, 8)), send(5, src.sge(8, 8)), send(6, src.sge(16, 8)))
	for i := range uint64(3) {
		a.done(a.scq, 4+i)
		b.done(b.rcq, 1+i)
	}
	r.same("receives", dst.Load(0, 24), pattern(1, 24))
}

func postSQD(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l, beside := r.link(), r.link()
	l.do(write(1, dst, 0, src.sge(0, 8)))
	r.move(l.qa, rdma.StateSQD)
	l.send(write(2, dst, 8, src.sge(8, 8)), write(3, dst, 16, src.sge(16, 8)))
	// Traffic on another queue pair passes, so the device had its time.
	for i := range uint64(20) {
		beside.works(100 + i)
	}
	a.none(a.scq)
	r.same("memory while the send queue rests", dst.Load(8, 16), make([]byte, 16))
	// The peer's requests are still answered.
	l.back().do(read(4, src, 0, dst.sge(32, 8)))
	r.must(l.qa.Modify(rdma.QPAttr{State: rdma.StateRTS}, rdma.QPStateMask), "modify SQD to RTS")
	a.done(a.scq, 2, 3)
	r.same("memory after SQD", dst.Load(0, 24), pattern(1, 64)[:24])
}

func postStops(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(256)
	l := r.link()
	_, init := l.qa.Query()
	tooMany := make([]rdma.SGE, init.Cap.MaxSendSGE+1)
	for i := range tooMany {
		tooMany[i] = src.sge(0, 1)
	}
	long := make([]byte, init.Cap.MaxInlineData+1)
	id := uint64(0)
	for _, bad := range []struct {
		name string
		wr   rdma.SendWR
	}{
		{"too many SGEs", write(2, dst, 128, tooMany...)},
		{"unknown opcode", rdma.SendWR{WRID: 2, Opcode: 99, Flags: rdma.SendSignaled, SGL: src2(src), RemoteAddr: dst.Base, RKey: dst.RKey()}},
		{"inline too long", rdma.SendWR{WRID: 2, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: long, RemoteAddr: dst.Base, RKey: dst.RKey()}},
	} {
		for _, at := range []int{0, 1, 2} {
			dst.Store(0, make([]byte, 256))
			id += 10
			list := []rdma.SendWR{write(id, dst, 0, src.sge(0, 8)), write(id+1, dst, 8, src.sge(8, 8)),
				write(id+2, dst, 16, src.sge(16, 8)), write(id+3, dst, 24, src.sge(24, 8))}
			list[at] = bad.wr
			n, err := l.qa.PostSend(list)
			if n != at || err == nil {
				r.Errorf("%s at %d: PostSend took %d, %v", bad.name, at, n, err)
			}
			a.done(a.scq, ids(id, at)...)
			// Neither the bad one nor those behind it are done.
			l.works(id + 9)
			a.none(a.scq)
			want := make([]byte, 256)
			copy(want, pattern(1, 64)[:8*at])
			r.same(bad.name, dst.Load(0, 256), want)
			equal(r, l.qa.State(), rdma.StateRTS, "%s: a refused post left the queue pair in", bad.name)
		}
	}
	_, init = l.qb.Query()
	tooMany = make([]rdma.SGE, init.Cap.MaxRecvSGE+1)
	for i := range tooMany {
		tooMany[i] = dst.sge(i, 1)
	}
	n, err := l.qb.PostRecv([]rdma.RecvWR{receive(1, dst.sge(0, 8)), receive(2, tooMany...), receive(3, dst.sge(16, 8))})
	if n != 1 || !errors.Is(err, rdma.ErrInvalid) {
		r.Fatalf("PostRecv with too many SGEs at 1: %d, %v, want 1, EINVAL", n, err)
	}
	l.recv(receive(4, dst.sge(32, 8)))
	l.send(send(500, src.sge(0, 8)), send(501, src.sge(8, 8)))
	b.done(b.rcq, 1, 4)
	a.done(a.scq, 500, 501)
}

func src2(m Region) []rdma.SGE { return []rdma.SGE{m.sge(0, 8)} }

// postSendFull fills a send queue whose first request cannot be done yet.
func postSendFull(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l := r.link(func(u *setup) { u.cap.MaxSendWR, u.cap.MaxRecvWR = 8, 8 })
	_, init := l.qa.Query()
	room := init.Cap.MaxSendWR
	list := []rdma.SendWR{send(0, src.sge(0, 8))}
	for i := 1; i < room+3; i++ {
		list = append(list, write(uint64(i), dst, 8, src.sge(8, 8)))
	}
	n, err := l.qa.PostSend(list)
	if n != room || !errors.Is(err, rdma.ErrNoMemory) {
		r.Fatalf("PostSend of %d to a queue of %d: %d, %v, want %d, ENOMEM", len(list), room, n, err, room)
	}
	result(l.qa.PostSend(list[room:room+1])).refused(r, "PostSend to a full queue", rdma.ErrNoMemory)
	l.recv(receive(99, dst.sge(0, 8)))
	a.done(a.scq, ids(0, room)...)
	b.done(b.rcq, 99)
	l.works(1000)
	a.none(a.scq)
}

func postRecvFull(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link(func(u *setup) { u.cap.MaxRecvWR = 8 })
	_, init := l.qb.Query()
	room := init.Cap.MaxRecvWR
	var list []rdma.RecvWR
	for i := range room + 2 {
		list = append(list, receive(uint64(i), dst.sge(0, 8)))
	}
	for round := range 3 {
		n, err := l.qb.PostRecv(list)
		if n != room || !errors.Is(err, rdma.ErrNoMemory) {
			r.Fatalf("round %d: PostRecv of %d to a queue of %d: %d, %v, want %d, ENOMEM", round, len(list), room, n, err, room)
		}
		for i := range room {
			l.do(send(uint64(i), src.sge(0, 8)))
			b.done(b.rcq, uint64(i))
		}
	}
	b.none(b.rcq)
}

// postSlices scribbles over every slice that was posted while the requests
// still wait for a receive.
func postSlices(r *rig, a, b *side) {
	src, dst := a.filled(128, 1), b.memory(128)
	l := r.link()
	sgl := []rdma.SGE{src.sge(0, 8), src.sge(16, 8)}
	wsgl := []rdma.SGE{src.sge(32, 8)}
	list := []rdma.SendWR{send(1, sgl...), write(2, dst, 32, wsgl...)}
	list[0].SGL, list[1].SGL = sgl, wsgl
	l.send(list...)
	for _, s := range [][]rdma.SGE{sgl, wsgl} {
		for i := range s {
			s[i] = rdma.SGE{Addr: 8, Length: 1 << 30, LKey: 0xdeadbeef}
		}
	}
	clear(list)
	rsgl := []rdma.SGE{dst.sge(0, 8), dst.sge(8, 8)}
	rlist := []rdma.RecvWR{{WRID: 3, SGL: rsgl}, {WRID: 4, SGL: rsgl}}
	l.recv(rlist...)
	clear(rsgl)
	clear(rlist)
	a.done(a.scq, 1, 2)
	wc := b.done(b.rcq, 3)
	if wc.ByteLen != 16 {
		r.Errorf("received %d bytes, want 16", wc.ByteLen)
	}
	p := pattern(1, 128)
	r.same("sent", dst.Load(0, 16), append(append([]byte(nil), p[0:8]...), p[16:24]...))
	r.same("written", dst.Load(32, 8), p[32:40])
	l.do(send(5, src.sge(64, 16)))
	b.done(b.rcq, 4)
	r.same("sent to the second receive", dst.Load(0, 16), p[64:80])
}

func postEmpty(r *rig) {
	l := r.link()
	before := r.sides[0].ctx.Counters()
	if n, err := l.qa.PostSend(nil); n != 0 || err != nil {
		r.Errorf("PostSend(nil): %d, %v", n, err)
	}
	if n, err := l.qb.PostRecv(nil); n != 0 || err != nil {
		r.Errorf("PostRecv(nil): %d, %v", n, err)
	}
	if after := r.sides[0].ctx.Counters(); after != before {
		r.Errorf("posting nothing changed the counters from %+v to %+v", before, after)
	}
	l.works(1)
}
