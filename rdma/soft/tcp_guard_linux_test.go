package soft

import (
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// Nothing of what comes wakes the guard while the owner polls. Where this machine keeps
// the test from polling for longer than a tick, the guard may rightly take over, until the owner
// has looked often enough.
func TestGuardSleepsWhileOwnerPolls(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(8, all), n[1].alloc(8, all)
	exchange := func() {
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
		post(t, qa, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
		n[1].poll(1, n[0])
	}
	exchange() // the links are up
	looked := time.Now()
	late, before := uint64(0), n[0].p.tcp.Load().counts.sleeps.Load()
	var wc [1]rdma.WC
	for range 200 {
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
		post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
		for got := 0; got < 2; {
			k, _ := n[1].cq.Poll(wc[:])
			got += k
			k, _ = n[0].cq.Poll(wc[:])
			got += k
			if now := time.Now(); now.Sub(looked) > tick/paceMost {
				late, looked = late+1, now
			} else {
				looked = now
			}
		}
	}
	// One: the guard stood in before the test began to poll.
	if woken := n[0].p.tcp.Load().counts.sleeps.Load() - before; woken > 1+late*(relieveAfter+1) {
		t.Errorf("the guard woke %d times during 200 messages, with %d pauses of the owner", woken, late)
	}
}

// The owner and its guard take turns.
func TestGuardTurns(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(8, all), n[1].alloc(8, all)
	postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
	post(t, qa, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
	n[1].poll(1, n[0])

	w := n[1].p.tcp.Load()
	looks := func() (before, behind bool) {
		testenv.Await(t, 10*time.Second, "the guard stands in for an owner that does not poll", w.guard.on.Load)
		for range relieveAfter {
			w.guard.relieve()
		}
		before = w.guard.on.Load()
		w.guard.relieve()
		return before, w.guard.on.Load()
	}
	for try := 0; ; try++ {
		before, behind := looks()
		if before && !behind {
			break
		}
		if try == 20 { // a guard that is not asleep yet sees the first look, and goes off by itself
			t.Fatalf("the guard is on: %v after %d looks, %v after one more; want true, false", before, relieveAfter, behind)
		}
	}
	// Asleep, the owner hears of what comes by its bell.
	bell := w.p.self.bell
	bell.Prepare()
	w.guard.takeOver()
	if w.guard.polled.Load() {
		t.Error("an owner that sleeps counts as one that polls")
	}
	postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
	post(t, qa, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
	testenv.Await(t, 10*time.Second, "the guard rings", func() bool { return bell.Sleep(int64(time.Millisecond)) })
	bell.Cancel()
	n[1].poll(1, n[0])
}

// What comes while the owner is inside a poll, and off its CPU there, does not keep the guard busy.
func TestGuardWaitsForAnOwnerInsideAPoll(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(8, all), n[1].alloc(8, all)
	message := func() {
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
		post(t, qa, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
	}
	message()
	n[1].poll(1, n[0])

	w := n[1].p.tcp.Load()
	testenv.Await(t, 10*time.Second, "the guard has stood in before", func() bool { return w.guard.on.Load() })
	w.p.work.turn.Lock()
	before, begin := w.counts.sleeps.Load(), time.Now()
	message()
	testenv.Await(t, 10*time.Second, "the message wakes the guard", func() bool { return w.counts.sleeps.Load() > before })
	testenv.Await(t, 10*time.Second, "some ticks", func() bool { return time.Since(begin) > 30*tick })
	if woken, ticks := w.counts.sleeps.Load()-before, uint64(time.Since(begin)/tick); woken > ticks+2 {
		t.Errorf("the guard woke %d times in %d ticks", woken, ticks)
	}
	w.p.work.turn.Unlock()
	n[1].poll(1, n[0])
}
