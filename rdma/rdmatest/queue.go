package rdmatest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

func cqCases() []testCase {
	return []testCase{
		{name: "cq/filled_to_the_last_entry", nodes: 2, run: pair(cqFull)},
		{name: "cq/send_overrun_kills_it_and_its_queue_pairs", nodes: 2, run: pair(cqSendOverrun)},
		{name: "cq/receive_overrun_kills_it_and_its_queue_pairs", nodes: 2, run: pair(cqRecvOverrun)},
		{name: "cq/polls_of_every_size", nodes: 2, run: pair(cqPolls)},
		{name: "cq/shared_by_both_directions_and_many", nodes: 2, run: pair(cqShared)},
		{name: "cq/concurrent_posts_and_polls", nodes: 2, run: pair(cqConcurrent)},
	}
}

// ownCQs gives the link's queue pair of one side CQs of its own.
func ownCQs(which int, send, recv rdma.CQ) func(*setup) {
	return func(u *setup) {
		u.cap.MaxSendWR, u.cap.MaxRecvWR = 64, 64
		u.init = func(side int, i *rdma.QPInitAttr) {
			if side != which {
				return
			}
			if send != nil {
				i.SendCQ = send
			}
			if recv != nil {
				i.RecvCQ = recv
			}
		}
	}
}

// rounds of exactly Cap completions on both sides: none is lost, none is an
// overrun.
func cqFull(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	scq, rcq := a.newCQ(5), b.newCQ(5)
	full := min(scq.Cap(), rcq.Cap(), 64)
	l := r.connect(a, b, func(u *setup) {
		u.cap.MaxSendWR, u.cap.MaxRecvWR = 64, 64
		u.init = func(side int, i *rdma.QPInitAttr) {
			if side == 0 {
				i.SendCQ = scq
			} else {
				i.RecvCQ = rcq
			}
		}
	})
	for round := range uint64(5) {
		for i := range uint64(full) {
			l.recv(receive(round*100+i, dst.sge(0, 8)))
		}
		for i := range uint64(full) {
			l.send(send(round*100+i, src.sge(0, 8)))
		}
		a.done(scq, ids(round*100, full)...)
		b.done(rcq, ids(round*100, full)...)
		a.none(scq)
		b.none(rcq)
	}
}

// broken waits until Poll tells that the queue is broken.
func (s *side) broken(cq rdma.CQ) {
	s.r.Helper()
	var wc [4]rdma.WC
	s.r.until("an error of Poll", func() bool {
		_, err := cq.Poll(wc[:])
		return err != nil
	})
	if _, err := cq.Poll(wc[:]); err == nil {
		s.r.Errorf("a broken queue works again")
	}
}

func cqSendOverrun(r *rig, a, _ *side) {
	src, dst := a.memory(64), r.sides[1].memory(64)
	scq := a.newCQ(4)
	if scq.Cap() > 60 {
		r.Logf("a queue of 4 holds %d: not overrun here", scq.Cap())
		return
	}
	l, other := r.link(ownCQs(0, scq, nil)), r.link(ownCQs(0, scq, nil))
	bystander := r.link()
	for i := range scq.Cap() + 2 {
		l.send(write(uint64(i), dst, 0, src.sge(0, 8)))
	}
	a.state(l.qa, rdma.StateErr)
	a.broken(scq)
	a.state(other.qa, rdma.StateErr)
	equal(r, bystander.qa.State(), rdma.StateRTS, "a queue pair with another CQ is in")
	bystander.works(1)
	r.close(l.qa, other.qa, scq)
}

func cqRecvOverrun(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	rcq := b.newCQ(4)
	if rcq.Cap() > 60 {
		r.Logf("a queue of 4 holds %d: not overrun here", rcq.Cap())
		return
	}
	l, other := r.link(ownCQs(1, nil, rcq)), r.link(ownCQs(1, nil, rcq))
	bystander := r.link()
	bystander.recv(receive(1, dst.sge(0, 8)))
	for i := range rcq.Cap() + 2 {
		l.recv(receive(uint64(i), dst.sge(0, 8)))
	}
	last := uint64(rcq.Cap() + 1)
	for i := range last {
		l.send(unsignaled(send(i, src.sge(0, 8))))
	}
	l.send(send(last, src.sge(0, 8)))
	// A device may notice only when somebody looks. A queue pair that it has taken along
	// answers no more, and the sends behind fail when their retries are spent: not waited for.
	r.until("the overrun, or the last send", func() bool {
		wc, ok := a.poll(a.scq)
		return ok && wc.WRID == last || l.qb.State() == rdma.StateErr
	})
	r.close(l.qa)
	b.broken(rcq)
	b.state(l.qb, rdma.StateErr)
	b.state(other.qb, rdma.StateErr)
	bystander.send(send(900, src.sge(0, 8)))
	b.done(b.rcq, 1)
	a.done(a.scq, 900)
	r.close(l.qb, other.qb, rcq)
}

func cqPolls(r *rig, a, _ *side) {
	src, dst := a.memory(64), r.sides[1].memory(64)
	l := r.link()
	if n, err := a.scq.Poll(nil); n != 0 || err != nil {
		r.Errorf("Poll(nil) of an empty queue: %d, %v", n, err)
	}
	const count = 24
	for size := 1; size <= count+3; size++ {
		for i := range uint64(count) {
			l.send(write(i, dst, 0, src.sge(0, 8)))
		}
		if n, err := a.scq.Poll(nil); n != 0 || err != nil {
			r.Errorf("Poll(nil): %d, %v", n, err)
		}
		wc := make([]rdma.WC, size+1)
		mark := rdma.WC{WRID: 12345}
		next := uint64(0)
		r.until("all completions", func() bool {
			wc[size] = mark
			n, err := a.scq.Poll(wc[:size:size])
			if err != nil || n < 0 || n > size || wc[size] != mark {
				r.Fatalf("Poll of %d: %d, %v", size, n, err)
			}
			for _, c := range wc[:n] {
				if c.WRID != next || c.Status != rdma.WCSuccess {
					r.Fatalf("completion %d is of request %d, %q", next, c.WRID, c.Status)
				}
				next++
			}
			return next == count
		})
		a.none(a.scq)
	}
}

// cqShared puts sends and receives of several queue pairs into one queue.
func cqShared(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	cq := b.newCQ(256)
	const links, each = 5, 12
	var l [links]*link
	for i := range l {
		l[i] = r.connect(a, b, ownCQs(1, cq, cq))
		for k := range uint64(each) {
			l[i].recv(receive(k, dst.sge(0, 8)))
		}
	}
	for k := range uint64(each) {
		for i := range l {
			l[i].send(unsignaled(send(k, src.sge(0, 8))))
			post(r, l[i].qb, write(k, src, 16, dst.sge(8, 8)))
		}
	}
	sends, recvs := map[uint32]uint64{}, map[uint32]uint64{}
	for range 2 * links * each {
		wc := b.next(cq)
		count := sends
		if wc.Opcode == rdma.WCRecv {
			count = recvs
		}
		if wc.Status != rdma.WCSuccess || wc.WRID != count[wc.QPNum] {
			r.Fatalf("queue pair %#x, opcode %d: request %d, %q, want request %d", wc.QPNum, wc.Opcode, wc.WRID, wc.Status, count[wc.QPNum])
		}
		count[wc.QPNum]++
	}
	for i := range l {
		if n := l[i].qb.Num(); sends[n] != each || recvs[n] != each {
			r.Errorf("queue pair %#x: %d sends and %d receives, want %d of each", n, sends[n], recvs[n], each)
		}
	}
	b.none(cq)
}

// cqConcurrent lets goroutines post on shared queue pairs and poll one queue.
// Every request completes exactly once.
func cqConcurrent(r *rig, a, b *side) {
	const posters, pollers, each = 4, 3, 300
	src, dst := a.memory(64), b.memory(64)
	links := []*link{r.link(), r.link()}
	var seen [posters * each]atomic.Int32
	var room = make(chan struct{}, 24) // less than any queue holds
	var done atomic.Int32
	var wg sync.WaitGroup
	errs := make(chan error, posters+pollers)
	var failed atomic.Bool
	fail := func(err error) {
		failed.Store(true)
		errs <- err
	}
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				for ok := false; !ok; {
					select {
					case room <- struct{}{}:
						ok = true
					default:
						if failed.Load() {
							return
						}
						runtime.Gosched()
					}
				}
				wr := fetchAdd(uint64(p*each+i), dst, 0, 1, src.sge(8, 8))
				if i%2 == 0 {
					wr = write(wr.WRID, dst, 8+8*p, src.sge(0, 8))
				}
				if n, err := links[i%2].qa.PostSend([]rdma.SendWR{wr}); n != 1 || err != nil {
					fail(fmt.Errorf("PostSend: %d, %w", n, err))
					return
				}
			}
		})
	}
	for range pollers {
		wg.Go(func() {
			wc := make([]rdma.WC, 7)
			if !waitFor(2*r.f.Patience, func() bool {
				n, err := a.scq.Poll(wc)
				if err != nil {
					fail(fmt.Errorf("Poll: %w", err))
					return true
				}
				for _, c := range wc[:n] {
					if c.Status != rdma.WCSuccess || c.WRID >= uint64(len(seen)) || seen[c.WRID].Add(1) != 1 {
						fail(fmt.Errorf("completion %+v, or twice", c))
						return true
					}
					<-room
					done.Add(1)
				}
				return failed.Load() || done.Load() == int32(len(seen))
			}) {
				fail(fmt.Errorf("%d of %d completions in time", done.Load(), len(seen)))
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		r.Error(err)
	}
	if got := dst.Load64(0); !r.Failed() && got != posters*each/2 {
		r.Errorf("the atomics left %d, want %d", got, posters*each/2)
	}
}
