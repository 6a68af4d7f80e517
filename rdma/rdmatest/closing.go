package rdmatest

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

func closeCases() []testCase {
	return []testCase{
		{name: "close/with_work_queued", nodes: 2, run: pair(closeQueued)},
		{name: "close/under_a_peers_fire", nodes: 2, run: closeFire},
		{name: "close/while_others_poll", nodes: 2, run: pair(closePolling)},
		{name: "close/with_completions_unpolled", nodes: 2, run: pair(closeUnpolled)},
		{name: "close/many_at_once", nodes: 2, run: pair(closeMany)},
	}
}

// closeQueued closes a queue pair whose sends wait and whose receives are
// posted. Everything it used can be closed after it, and nothing completes.
func closeQueued(r *rig, a, b *side) {
	dst := b.memory(64)
	pd, scq, rcq := a.newPD(), a.newCQ(64), a.newCQ(64)
	src := a.region(pd, Allocated, 64, everything)
	mine := *a
	mine.pd, mine.scq, mine.rcq = pd, scq, rcq
	l := r.connect(&mine, b, func(u *setup) { u.attr.Timeout, u.attr.RetryCnt = 8, 1 })
	a.untilRNR(1, func() {
		l.send(send(1, src.sge(0, 8)), write(2, dst, 0, src.sge(0, 8)), read(3, dst, 0, src.sge(8, 8)))
		postRecv(r, l.qa, receive(4, src.sge(16, 8)))
	})
	beside := r.link()
	r.close(l.qa)
	for i := range uint64(3) { // what was on its way has passed before these
		beside.works(100 + i)
	}
	mine.none(scq)
	mine.none(rcq)
	l.recv(receive(5, dst.sge(8, 8)))
	post(r, l.qb, write(6, src, 0, dst.sge(0, 8)))
	b.want(b.scq, 6, rdma.WCRetryExcErr)
	b.want(b.rcq, 5, rdma.WCWRFlushErr)
	r.same("the peer's memory", dst.Load(0, 64), make([]byte, 64))
	mine.none(scq)
	mine.none(rcq)
	r.closeRegion(src)
	r.close(scq, rcq, pd)
	r.link().works(7)
}

// closeFire closes the target's queue pair while the peer writes as fast as it
// can: the writer learns of it, and nobody hangs.
func closeFire(r *rig) {
	for round := range 8 {
		r.sub(string(rune('a'+round)), pair(func(r *rig, target, peer *side) {
			flag := target.region(target.pd, Allocated, 64, everything)
			m := target.memory(32 << 10)
			src, old := peer.memory(32<<10), peer.memory(64)
			src.store64(0, 1)
			l := r.connect(peer, target, func(u *setup) { u.attr.Timeout, u.attr.RetryCnt = 8, 1 })
			ended := make(chan error, 1)
			status := rdma.WCSuccess
			go func() {
				var err error
				status, err = l.fire(flag, 0, src, 8, func(k int) rdma.SendWR {
					if k%3 == 1 {
						return fetchAdd(0, flag, 8, 1, old.sge(0, 8))
					}
					return write(0, m, 0, src.sge(0, 1+k%(32<<10)))
				}, nil)
				ended <- err
			}()
			r.until("the first write", func() bool { return flag.Load64(0) != 0 })
			r.until("some atomics", func() bool { return flag.Load64(8) > uint64(3*round) })
			r.close(l.qb)
			if err := <-ended; err != nil || !r.f.fits(status, rdma.WCRetryExcErr) {
				r.Errorf("the writer ended with %q, %v, want %q", status, err, rdma.WCRetryExcErr)
			}
			r.closeRegion(m)
		}))
	}
}

// closePolling makes and closes queue pairs while a goroutine polls their CQ.
func closePolling(r *rig, a, b *side) {
	dst := b.memory(64)
	src := a.memory(64)
	var stop atomic.Bool
	var polls, successes atomic.Uint64
	failed := make(chan error, 1)
	go func() {
		wc := make([]rdma.WC, 4)
		for !stop.Load() {
			n, err := a.scq.Poll(wc)
			if err != nil {
				failed <- err
				return
			}
			for _, c := range wc[:n] {
				if c.Status == rdma.WCSuccess {
					successes.Add(1)
				}
			}
			polls.Add(1)
		}
		failed <- nil
	}()
	for i := range uint64(30) {
		l := r.link()
		l.send(write(i, dst, 0, src.sge(0, 8)))
		r.until("the completion at the poller", func() bool { return successes.Load() == i+1 })
		l.send(send(i, src.sge(0, 8))) // waits for a receive
		r.close(l.qa, l.qb)
	}
	stop.Store(true)
	r.must(<-failed, "Poll beside closes")
	if polls.Load() == 0 {
		r.Errorf("the poller did not run")
	}
}

// closeUnpolled: completions left in the queue by closed queue pairs do no
// harm to later ones, whichever way the device keeps or drops them.
func closeUnpolled(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	for range 3 {
		l := r.link()
		l.recv(receive(900, dst.sge(0, 8)))
		l.send(write(901, dst, 0, src.sge(0, 8)), send(902, src.sge(0, 8)), write(903, dst, 0, src.sge(0, 8)))
		a.done(a.scq, 901)
		r.close(l.qa, l.qb)
	}
	l := r.link()
	l.recv(receive(1, dst.sge(0, 8)))
	l.send(send(2, src.sge(0, 8)))
	last := func(s *side, cq rdma.CQ, id uint64, num uint32) {
		r.Helper()
		for {
			wc := s.next(cq)
			if wc.WRID == id {
				if wc.Status != rdma.WCSuccess || wc.QPNum != num {
					r.Errorf("side %d: %+v, want a success of queue pair %#x", s.index, wc, num)
				}
				return
			}
			if wc.WRID < 900 {
				r.Fatalf("side %d: unexpected %+v", s.index, wc)
			}
		}
	}
	last(a, a.scq, 2, l.qa.Num())
	last(b, b.rcq, 1, l.qb.Num())
	a.none(a.scq)
	b.none(b.rcq)
}

// closeMany closes a dozen queue pairs in one call while the peer writes to some
// of them: it leaves nothing behind that one after the other would not.
func closeMany(r *rig, target, peer *side) {
	flags := target.region(target.pd, Allocated, 64, everything)
	const links, busy, size = 12, 3, 16 << 10
	m := target.memory(busy * size) // each writer has its own part
	src := peer.memory(size)
	src.store64(0, 1)
	type end struct {
		status rdma.WCStatus
		err    error
	}
	ends := make(chan end, busy)
	qps := make([]rdma.QP, 1, links+2) // the first is nil
	for i := range links {
		writer := *peer
		writer.scq = peer.newCQ(64)
		l := r.connect(&writer, target, func(u *setup) { u.attr.Timeout, u.attr.RetryCnt = 8, 1 })
		qps = append(qps, l.qb)
		r.disown(l.qb)
		if i < busy {
			go func() {
				status, err := l.fire(flags, 8*i, src, 8, func(k int) rdma.SendWR { return write(0, m, i*size, src.sge(0, 1+k%size)) }, nil)
				ends <- end{status, err}
			}()
		}
	}
	for i := range busy {
		r.until("the first write", func() bool { return flags.Load64(8*i) != 0 })
	}
	if err := rdma.CloseQPs(append(qps, qps[1])); err != nil { // the first of them twice
		r.Errorf("CloseQPs: %v", err)
	}
	for range busy {
		if e := <-ends; e.err != nil || !r.f.fits(e.status, rdma.WCRetryExcErr) {
			r.Errorf("a writer ended with %q, %v, want %q", e.status, e.err, rdma.WCRetryExcErr)
		}
	}
	for _, qp := range qps[1:] {
		r.must(qp.Close(), "closing once more")
	}
	r.closeRegion(m)
	r.link().works(1)
	r.must(rdma.CloseQPs(nil), "CloseQPs of none")
}
