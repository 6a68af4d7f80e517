package soft

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

func TestNumbersOfBlocksDiffer(t *testing.T) {
	const blocks = 64
	seen := map[uint16]int{}
	for block := range blocks {
		n, last := Numbers{block, blocks}, uint16(0)
		for range 2 * (1 << (24 - queueBits)) / blocks {
			last = n.next(last)
			if other, taken := seen[last]; last == 0 || taken && other != block {
				t.Fatalf("blocks %d and %d both have %d", other, block, last)
			}
			seen[last] = block
		}
	}
	if want := 1<<(24-queueBits) - 1; len(seen) != want {
		t.Errorf("all blocks together have %d generations, expected %d", len(seen), want)
	}
	if n := (Numbers{}); n.next(0) != 1 || n.next(1<<(24-queueBits)-1) != 1 {
		t.Errorf("without blocks: %d follows 0, %d the last", n.next(0), n.next(1<<(24-queueBits)-1))
	}
	if _, err := New(Config{Numbers: Numbers{3, 3}}); err == nil {
		t.Error("block 3 of 3 was taken")
	}
}

// The numbers of one block show in queue pairs, and those of shared queues have 24 bits.
func TestNumbersOfABlock(t *testing.T) {
	n := nodes(t, 2, Config{Numbers: Numbers{5, 64}})[1]
	if num := n.queue().Num(); num>>18 != 5 {
		t.Errorf("queue pair %#x is not of block 5", num)
	}
	for range 10 {
		if num := n.p.numberOf(7); num>>24 != 0 || num>>srqIndexBits&0x3ff != 1 || num>>22 == 0 {
			t.Errorf("shared queue %#x, expected 24 bits with rank 1", num)
		}
	}
}

// What initiators complete wakes a program that polls nothing, by its descriptor, and the words of its queue tell of it.
func TestWakerIsCalled(t *testing.T) {
	ns := nodes(t, 2, Config{})
	a, b := ns[0], ns[1]
	ch := must[rdma.CompChannel](t)(b.ctx.CreateCompChannel()).(*compChannel)
	var called, events atomic.Int32
	ch.Wake(func() { called.Add(1) })
	b.ctx.WakeAsync(func() { events.Add(1) })
	polled := b.cq
	b.cq = must[rdma.CQ](t)(b.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 16, Channel: ch})).(*completionQueue)
	b.owned = append(b.owned, b.cq, ch)
	words := PollWords(b.cq)
	set := func() (sum uint32) {
		for _, w := range words {
			sum |= atomic.LoadUint32(w)
		}
		return sum
	}
	qa, qb := pair(t, a, b, attrs())
	b.cq = polled
	cq := qb.recv
	if err := cq.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	if got, err := ch.Next(); got != nil || err != nil || set() != 0 {
		t.Fatalf("before anything has come: %v, %v, words %d", got, err, set())
	}
	if _, err := qb.PostRecv([]rdma.RecvWR{{WRID: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := qa.PostSend([]rdma.SendWR{{Opcode: rdma.WRSend}}); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, 10*time.Second, "a call", func() bool { return called.Load() == 1 })
	if got, err := ch.Next(); got != rdma.CQ(cq) || err != nil || set() == 0 {
		t.Errorf("got %v, %v, words %d", got, err, set())
	}
	var wc [2]rdma.WC
	if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].WRID != 1 || set() != 0 {
		t.Errorf("polled %d of %v, %v, words %d", n, wc, err, set())
	}
	if _, ok := b.ctx.NextAsync(); ok || events.Load() != 0 {
		t.Error("there is an asynchronous event")
	}
	b.ctx.events.add(rdma.AsyncEvent{Type: rdma.EventPortErr})
	if e, ok := b.ctx.NextAsync(); !ok || e.Type != rdma.EventPortErr || events.Load() != 1 {
		t.Errorf("got %v %t, %d calls", e, ok, events.Load())
	}
	b.ctx.Watch(true)
	b.ctx.Watch(false)
	runtime.KeepAlive(words)
}
