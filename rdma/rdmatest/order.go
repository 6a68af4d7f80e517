package rdmatest

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func orderCases() []testCase {
	return []testCase{
		{name: "order/flag_after_payload_may_be_polled", nodes: 2, run: orderFlag},
		{name: "order/payload_is_there_with_the_receive", nodes: 2, run: pair(orderReceive)},
		{name: "order/reads_see_earlier_writes_of_their_queue_pair", nodes: 2, run: pair(orderReads)},
		{name: "order/fence_waits_for_reads_and_atomics", nodes: 2, run: pair(orderFence)},
		{name: "order/completions_in_posting_order", nodes: 2, run: pair(orderCompletions)},
	}
}

// orderFlag writes a payload and then a flag of 8 bytes, nothing else, and
// watches the flag in memory while both are on their way.
func orderFlag(r *rig) {
	rounds := unlessSlow(r, 240, 50) // the flag has 255 values
	for _, kind := range kinds(r) {
		r.sub(kind.String(), func(r *rig) { orderFlagIn(r, kind, rounds) })
	}
}

func orderFlagIn(r *rig, kind MemoryKind, rounds int) {
	const most = 64 << 10
	const step = 0x0101010101010101 // one torn byte shows
	a, b := r.sides[0], r.sides[1]
	payload, mark := a.memory(most), a.memory(64)
	dst, flag := b.region(b.pd, kind, most, everything), b.region(b.pd, kind, 64, everything)
	l := r.link()
	start, posted := make(chan uint64), make(chan error, 1)
	defer close(start)
	go func() {
		for k := range start {
			n := sizeOf(k, most)
			payload.Store(0, pattern(k, n))
			mark.store64(8, k*step)
			list := []rdma.SendWR{unsignaled(write(k, dst, most-n, payload.sge(0, n))), write(k, flag, 16, mark.sge(8, 8))}
			switch k % 3 {
			case 1:
				list[1].Flags |= rdma.SendInline
			case 2:
				list[1] = fetchAdd(k, flag, 16, step, mark.sge(0, 8))
			}
			took, err := l.qa.PostSend(list)
			if err == nil && took != 2 {
				err = fmt.Errorf("took %d of 2", took)
			}
			posted <- err
		}
	}()
	for k := uint64(1); k <= uint64(rounds); k++ {
		start <- k
		was, now := (k-1)*step, k*step
		r.until("a flag in memory", func() bool {
			got := flag.Load64(16)
			if got != was && got != now && !(r.f.TornWords && k%3 != 2 && made(got, byte(k-1), byte(k))) {
				r.Fatalf("round %d: the flag is %#x, neither %#x nor %#x", k, got, was, now)
			}
			return got == now
		})
		n := sizeOf(k, most)
		r.same(fmt.Sprintf("round %d: payload before its flag", k), dst.Load(most-n, n), pattern(k, n))
		r.must(<-posted, "round %d: PostSend", k)
		a.done(a.scq, k)
		a.none(a.scq)
	}
}

// made tells whether the bytes of a word are all one or the other.
func made(word uint64, a, b byte) bool {
	for range 8 {
		if byte(word) != a && byte(word) != b {
			return false
		}
		word >>= 8
	}
	return true
}

// sizeOf gives lengths that go through small, odd and large.
func sizeOf(k uint64, most int) int {
	return 1 + int(k*k*2654435761%uint64(most))>>(k%5*3)
}

func orderReceive(r *rig, a, b *side) {
	rounds := unlessSlow[uint64](r, 200, 40)
	const most = 64 << 10
	for _, kind := range kinds(r) {
		src, dst := a.memory(most), b.region(b.pd, kind, most, everything)
		l := r.link()
		for k := range rounds {
			n := sizeOf(k, most)
			src.Store(0, pattern(k, n))
			l.recv(receive(k, dst.sge(0, n)))
			posted := make(chan error, 1)
			go func() {
				wr := send(k, src.sge(0, n))
				if k%2 == 0 {
					wr = writeImm(k, uint32(k), dst, 0, src.sge(0, n))
				}
				took, err := l.qa.PostSend([]rdma.SendWR{wr})
				if err == nil && took != 1 {
					err = fmt.Errorf("took %d of 1", took)
				}
				posted <- err
			}()
			equal(r, b.done(b.rcq, k).ByteLen, uint32(n), "round %d: bytes:", k)
			r.same(fmt.Sprintf("%v, round %d: payload", kind, k), dst.Load(0, n), pattern(k, n))
			r.must(<-posted, "PostSend")
			a.done(a.scq, k)
		}
		r.closeRegion(src, dst)
	}
}

// orderReads alternates writes and reads of the same memory in one list. The
// writes are fenced: a read that the device had to repeat might else come
// behind the next write. A read behind a write needs no fence.
func orderReads(r *rig, a, b *side) {
	const n, steps = 5000, 8
	src, got, dst := a.memory(steps*n), a.memory(steps*n), b.memory(n)
	l := r.link()
	for round := range uint64(20) {
		p := pattern(round, steps*n)
		src.Store(0, p)
		var list []rdma.SendWR
		for i := range steps {
			over := unsignaled(write(0, dst, 0, src.sge(i*n, n)))
			over.Flags |= rdma.SendFence
			list = append(list, over, unsignaled(read(0, dst, 0, got.sge(i*n, n))))
		}
		list[len(list)-1].Flags |= rdma.SendSignaled
		l.send(list...)
		a.done(a.scq, 0)
		r.same("what the reads saw", got.Load(0, steps*n), p)
	}
}

// orderFence passes data on that a read or an atomic has just brought. With the
// fence the request behind carries the new data.
func orderFence(r *rig, a, b *side) {
	const n = 48 << 10
	near, far := a.memory(n+64), b.memory(2*n)
	l := r.link()
	fenced := func(wr rdma.SendWR) rdma.SendWR {
		wr.Flags |= rdma.SendFence
		return wr
	}
	for round := range uint64(20) {
		p := pattern(round, n)
		far.Store(0, p)
		near.Store(0, make([]byte, n+64))
		l.send(unsignaled(read(1, far, 0, near.sge(0, n))), fenced(write(2, far, n, near.sge(0, n))))
		a.done(a.scq, 2)
		r.same("written behind a read", far.Load(n, n), p)
		// The fetched value travels on in a send.
		l.recv(receive(9, far.sge(n+8, 8)))
		far.store64(0, round+7)
		near.Store(n, make([]byte, 64))
		l.send(unsignaled(fetchAdd(3, far, 0, 1, near.sge(n, 8))), fenced(send(4, near.sge(n, 8))))
		a.done(a.scq, 4)
		b.done(b.rcq, 9)
		equal(r, far.Load64(n+8), round+7, "round %d: the send behind an atomic carried", round)
		// A chain through both memories.
		far.store64(0, 100+round)
		far.Store(8, make([]byte, 64))
		l.send(
			unsignaled(read(5, far, 0, near.sge(0, 8))), fenced(unsignaled(write(6, far, 8, near.sge(0, 8)))),
			unsignaled(read(7, far, 8, near.sge(8, 8))), fenced(unsignaled(write(8, far, 16, near.sge(8, 8)))),
			unsignaled(fetchAdd(9, far, 16, 1, near.sge(16, 8))), fenced(write(10, far, 24, near.sge(16, 8))),
		)
		a.done(a.scq, 10)
		for i, want := range []uint64{100 + round, 100 + round, 101 + round, 100 + round} {
			equal(r, far.Load64(8*i), want, "round %d: step %d of the chain left", round, i)
		}
	}
}

// orderCompletions mixes requests that take long with such that do not.
func orderCompletions(r *rig, a, b *side) {
	const big = 256 << 10
	src, got, dst := a.memory(big+64), a.memory(big+64), b.memory(big+64)
	l := r.link()
	for round := range uint64(10) {
		for i := range uint64(4) {
			l.recv(receive(i, dst.sge(0, 64)))
		}
		var list []rdma.SendWR
		for i := range uint64(20) {
			id := round*100 + i
			switch i % 5 {
			case 0:
				list = append(list, read(id, dst, 0, got.sge(0, big)))
			case 1:
				list = append(list, write(id, dst, big, src.sge(big, 8)))
			case 2:
				list = append(list, fetchAdd(id, dst, big, 1, got.sge(big, 8)))
			case 3:
				list = append(list, send(id, src.sge(0, 64)))
			case 4:
				list = append(list, write(id, dst, 0, src.sge(0, big)))
			}
		}
		l.send(list...)
		a.done(a.scq, ids(round*100, 20)...)
		b.done(b.rcq, ids(0, 4)...)
	}
}
