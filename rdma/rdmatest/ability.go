package rdmatest

import (
	"fmt"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

func abilityCases() []testCase {
	return []testCase{
		{name: "ability/progress_alone_brings_everything", nodes: 2, run: pair(abilityProgress)},
		{name: "ability/work_is_done_without_any_call", nodes: 2, run: pair(abilityAlone)},
		{name: "ability/sleeper_wakes_for_peers", nodes: 2, run: pair(abilitySleeper)},
	}
}

// abilityProgress watches memory and calls Progress, and polls no CQ until all
// is there.
func abilityProgress(r *rig, a, b *side) {
	pa, ok := a.ctx.(rdma.Progresser)
	if !ok {
		return
	}
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	for k := uint64(1); k <= 30; k++ {
		src.store64(0, k)
		l.recv(receive(k, dst.sge(8, 8)))
		l.send(send(k, src.sge(0, 8)), write(k, dst, 0, src.sge(0, 8)))
		r.until("a write under Progress", func() bool {
			pa.Progress()
			return dst.Load64(0) == k
		})
		equal(r, dst.Load64(8), k, "round %d: the send before the write brought", k)
		a.done(a.scq, k, k)
		b.done(b.rcq, k)
	}
	r.until("a Progress that has nothing to do", func() bool { return !pa.Progress() })
}

// abilityAlone posts and then calls the device no more: the work is done, if
// more slowly.
func abilityAlone(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	for k := uint64(1); k <= 10; k++ {
		src.store64(0, k)
		l.send(write(k, dst, 0, src.sge(0, 8)))
		r.until("a write of an idle program", func() bool { return dst.Load64(0) == k })
		a.done(a.scq, k)
	}
	// The same for work that had to wait.
	src.store64(0, 77)
	a.untilRNR(1, func() { l.send(send(1), write(2, dst, 0, src.sge(0, 8))) })
	l.recv(receive(3))
	r.until("a write behind a late receive", func() bool { return dst.Load64(0) == 77 })
	a.done(a.scq, 1, 2)
}

// abilitySleeper sleeps far longer than the test may take and is woken by a
// peer's write and by a peer's send.
func abilitySleeper(r *rig, target, peer *side) {
	sl, ok := target.ctx.(rdma.Sleeper)
	if !ok {
		return
	}
	sl.Prepare()
	sl.Cancel()
	start := time.Now()
	sl.Prepare()
	sl.Sleep(int64(time.Millisecond))
	sl.Cancel()
	if took := time.Since(start); took > time.Second {
		r.Errorf("a sleep of 1 ms took %v", took)
	}
	word := target.memory(64)
	mine := peer.memory(64)
	l := r.connect(peer, target)
	sleepUntil := func(ready func() bool) {
		r.Helper()
		start := time.Now()
		for !ready() {
			sl.Prepare()
			if ready() {
				sl.Cancel()
				break
			}
			sl.Sleep(int64(time.Minute))
			if took := time.Since(start); took > r.f.Patience {
				r.Fatalf("not woken within %v", took)
			}
		}
	}
	for k := uint64(1); k <= 60; k++ {
		byWrite := k%2 == 0
		if !byWrite {
			l.recv(receive(k, word.sge(8, 8)))
		}
		mine.store64(0, k)
		posted := make(chan error, 1)
		go func() {
			wr := write(k, word, 0, mine.sge(0, 8))
			if !byWrite {
				wr = send(k, mine.sge(0, 8))
			}
			n, err := l.qa.PostSend([]rdma.SendWR{wr})
			if err == nil && n != 1 {
				err = fmt.Errorf("took %d of 1", n)
			}
			posted <- err
		}()
		if byWrite {
			sleepUntil(func() bool { return word.Load64(0) == k })
		} else {
			sleepUntil(func() bool {
				wc, ok := target.poll(target.rcq)
				if ok && (wc.WRID != k || wc.Status != rdma.WCSuccess) {
					r.Fatalf("receive %d: %+v", k, wc)
				}
				return ok
			})
		}
		r.must(<-posted, "PostSend")
		peer.done(peer.scq, k)
	}
}
