package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func flushCases() []testCase {
	return []testCase{
		{name: "flush/follows_an_error_in_order", nodes: 2, run: pair(flushAfterError)},
		{name: "flush/on_modify_to_ERR", nodes: 2, run: pair(flushOnModify)},
		{name: "flush/posts_in_ERR_flush", nodes: 2, run: pair(flushInErr)},
		{name: "flush/done_work_stays_done", nodes: 2, run: pair(flushDone)},
	}
}

// flushAfterError: one bad request between good ones, in one list. What
// precedes it succeeds, what follows is flushed in order, signaled or not.
func flushAfterError(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l := r.link()
	postRecv(r, l.qa, receive(50, src.sge(0, 8)), receive(51, src.sge(0, 8)), receive(52, src.sge(0, 8)))
	l.recv(receive(60, dst.sge(0, 8)), receive(61, dst.sge(0, 8)))
	bad := unsignaled(write(3, dst, 0, src.sge(0, 8)))
	bad.RKey ^= 1
	l.send(
		write(1, dst, 8, src.sge(8, 8)),
		unsignaled(write(2, dst, 16, src.sge(16, 8))),
		bad,
		unsignaled(write(4, dst, 24, src.sge(0, 8))),
		send(5, src.sge(0, 8)),
		unsignaled(read(6, dst, 0, src.sge(0, 8))),
		fetchAdd(7, dst, 32, 1, src.sge(0, 8)),
		unsignaled(rdma.SendWR{WRID: 8, Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: []byte{1}}),
	)
	a.done(a.scq, 1)
	a.want(a.scq, 3, rdma.WCRemAccessErr)
	for id := uint64(4); id <= 8; id++ {
		if wc := a.want(a.scq, id, rdma.WCWRFlushErr); wc.QPNum != l.qa.Num() {
			r.Errorf("flushed request %d names queue pair %#x, want %#x", id, wc.QPNum, l.qa.Num())
		}
	}
	for id := uint64(50); id <= 52; id++ {
		a.want(a.rcq, id, rdma.WCWRFlushErr)
	}
	b.fail(b.rcq, rdma.WCWRFlushErr, 60, 61)
	l.send(unsignaled(send(9)), unsignaled(send(10)))
	a.fail(a.scq, rdma.WCWRFlushErr, 9, 10)
	want := make([]byte, 64)
	copy(want[8:], pattern(1, 64)[8:24])
	r.same("the responder's memory", dst.Load(0, 64), want)
	r.quiet()
}

// flushOnModify takes a queue pair with waiting work to ERR.
func flushOnModify(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	postRecv(r, l.qa, receive(50, src.sge(0, 8)), receive(51, src.sge(0, 8)))
	l.send(send(1, src.sge(0, 8)), unsignaled(write(2, dst, 8, src.sge(0, 8))))
	l.send(read(3, dst, 0, src.sge(16, 8)))
	r.move(l.qa, rdma.StateErr)
	for id := uint64(1); id <= 3; id++ {
		a.want(a.scq, id, rdma.WCWRFlushErr)
	}
	a.fail(a.rcq, rdma.WCWRFlushErr, 50, 51)
	r.move(l.qa, rdma.StateErr) // once more: nothing is flushed twice
	r.link().works(9)
	r.quiet()
	r.same("the responder's memory", dst.Load(0, 64), make([]byte, 64))
	// The peer is not concerned until it sends.
	equal(r, l.qb.State(), rdma.StateRTS, "the peer is in")
}

func flushInErr(r *rig, a, _ *side) {
	m := a.memory(64)
	l := r.link()
	r.move(l.qa, rdma.StateErr)
	for round := range uint64(40) { // more than the queues hold
		l.send(unsignaled(send(2*round, m.sge(0, 8))), write(2*round+1, m, 0, m.sge(0, 8)))
		postRecv(r, l.qa, receive(1000+round, m.sge(0, 8)))
		a.fail(a.scq, rdma.WCWRFlushErr, 2*round, 2*round+1)
		a.want(a.rcq, 1000+round, rdma.WCWRFlushErr)
	}
	a.none(a.scq)
	a.none(a.rcq)
}

// flushDone: completions that came before the error are not lost to it.
func flushDone(r *rig, a, b *side) {
	src, dst := a.filled(64, 1), b.memory(64)
	l := r.link()
	l.recv(receive(1, dst.sge(0, 8)), receive(2, dst.sge(8, 8)), receive(3, dst.sge(16, 8)))
	l.do(send(4, src.sge(0, 8)), send(5, src.sge(8, 8)))
	r.move(l.qb, rdma.StateErr)
	b.done(b.rcq, 1, 2)
	b.want(b.rcq, 3, rdma.WCWRFlushErr)
	r.same("received", dst.Load(0, 24), append(pattern(1, 64)[:16:16], make([]byte, 8)...))
}
