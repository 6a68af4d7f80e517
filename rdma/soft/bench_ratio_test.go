package soft

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// The benchmarks here are ratios: what the device takes over what the same
// movement takes without it, in rounds of both in turn. The metric "x-limit" is
// the median of the rounds' quotients.

// inTurn runs rounds of ours and limit and reports the median quotient. Each
// gives how long one operation took.
func inTurn(b *testing.B, what string, ours, limit func() time.Duration) {
	b.Helper()
	const rounds = 21
	quotients, times := make([]float64, rounds), make([]float64, rounds)
	for b.Loop() {
		for i := range rounds {
			l := limit()
			o := ours()
			quotients[i], times[i] = float64(o)/float64(l), float64(o.Nanoseconds())
		}
	}
	slices.Sort(quotients)
	slices.Sort(times)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(times[rounds/2], "ns/"+what)
	b.ReportMetric(quotients[rounds/2], "x-limit")
}

// twoThreads gives a pair of queue pairs each way, and runs far on a thread of its
// own until the benchmark ends.
type twoThreads struct {
	a, b   *node
	qa, qb *queuePair
	stop   atomic.Bool
	gone   chan struct{}
}

func threads(b *testing.B) *twoThreads {
	b.Helper()
	if runtime.GOMAXPROCS(0) < 2 {
		testenv.Unsupported(b, "needs two processors: GOMAXPROCS is 1")
	}
	n := nodes(b, 2, Config{})
	t := &twoThreads{a: n[0], b: n[1], gone: make(chan struct{})}
	t.qa, t.qb = pair(b, n[0], n[1], attrs())
	arch.RegisterMembarrier()
	n[0].p.checkQuiet()
	n[1].p.checkQuiet()
	return t
}

// far runs f again and again on another thread, until end is called.
func (t *twoThreads) far(f func()) (end func()) {
	go func() {
		defer close(t.gone)
		runtime.LockOSThread()
		for !t.stop.Load() {
			f()
		}
	}()
	return func() {
		t.stop.Store(true)
		<-t.gone
	}
}

// BenchmarkPostToVisible hands a counter of 8 bytes to and fro between two
// threads: by an inline write that the other side sees in its memory, beside a
// plain store of a cache line.
func BenchmarkPostToVisible(b *testing.B) {
	t := threads(b)
	const trips = 500
	here, there := t.a.alloc(64, all), t.b.alloc(64, all)
	hereWord, thereWord := word64(here.Bytes()), word64(there.Bytes())
	var plainHere, plainThere struct {
		_ [64]byte
		v uint64
		_ [64]byte
	}
	write := func(q *queuePair, to rdma.MR, word []byte) func(uint64) {
		wrs := []rdma.SendWR{{Flags: rdma.SendInline | rdma.SendSignaled, Inline: word, RemoteAddr: to.Addr(), RKey: to.RKey()}}
		wc := make([]rdma.WC, 1)
		return func(v uint64) {
			*word64(word) = v
			if _, err := q.PostSend(wrs); err != nil {
				panic(err)
			}
			if k, _ := q.send.Poll(wc); k != 1 || wc[0].Status != rdma.WCSuccess {
				panic(wc[0].Status)
			}
		}
	}
	ping, pong := write(t.qa, there, make([]byte, 8)), write(t.qb, here, make([]byte, 8))
	var seenPlain, seen uint64
	end := t.far(func() {
		for range 1000 {
			if v := atomic.LoadUint64(&plainThere.v); v != seenPlain {
				seenPlain = v
				arch.StoreRelease64(&plainHere.v, v)
			}
			if v := atomic.LoadUint64(thereWord); v != seen {
				seen = v
				pong(v)
			}
		}
	})
	defer end()
	var plain, posted uint64
	half := func(trip func()) time.Duration {
		start := time.Now()
		for range trips {
			trip()
		}
		return time.Since(start) / (2 * trips)
	}
	inTurn(b, "write", func() time.Duration {
		return half(func() {
			posted++
			ping(posted)
			for atomic.LoadUint64(hereWord) != posted {
			}
		})
	}, func() time.Duration {
		return half(func() {
			plain++
			arch.StoreRelease64(&plainThere.v, plain)
			for atomic.LoadUint64(&plainHere.v) != plain {
			}
		})
	})
}

// BenchmarkWrite64KiBAgainstCopy writes 64 KiB into a peer's segment memory,
// beside copy between the same two places.
func BenchmarkWrite64KiBAgainstCopy(b *testing.B) {
	n := nodes(b, 2, Config{})
	qa, _ := pair(b, n[0], n[1], attrs())
	arch.RegisterMembarrier()
	n[0].p.checkQuiet()
	const size, times = 64 << 10, 200
	src, dst := n[0].alloc(size, all), n[1].alloc(size, all)
	wrs := []rdma.SendWR{{Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, size)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}}
	wc := make([]rdma.WC, 1)
	timed := func(f func()) func() time.Duration {
		return func() time.Duration {
			start := time.Now()
			for range times {
				f()
			}
			return time.Since(start) / times
		}
	}
	inTurn(b, "write", timed(func() {
		if _, err := qa.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		if k, _ := n[0].cq.Poll(wc); k != 1 {
			b.Fatal("no completion")
		}
	}), timed(func() { copy(dst.Bytes(), src.Bytes()) }))
}

// BenchmarkMessageRate sends messages of 8 bytes from one thread to another,
// which polls them and posts receives anew, beside a loop that copies 8 bytes
// each into a ring of memory and hands over a counter.
func BenchmarkMessageRate(b *testing.B) {
	t := threads(b)
	const window, messages = 64, 64 * 64
	src, dst := t.a.alloc(64, all), t.b.alloc(64*window, all)
	credit := t.a.alloc(64, all)
	creditWord := word64(credit.Bytes())

	// The receiver gives credit for half a window at a time, by a write.
	recvs := make([]rdma.RecvWR, window/2)
	for i := range recvs {
		recvs[i] = rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 64*i, 8)}}
	}
	postRecv(b, t.qb, recvs...)
	postRecv(b, t.qb, recvs...)
	grant := make([]byte, 8)
	grants := []rdma.SendWR{{Flags: rdma.SendInline | rdma.SendSignaled, Inline: grant, RemoteAddr: credit.Addr(), RKey: credit.RKey()}}
	wcs := make([]rdma.WC, window)
	var taken, granted uint64
	var ring struct {
		_    [64]byte
		sent uint64
		_    [64]byte
		read uint64
		_    [64]byte
		slot [window * 8]byte
	}
	sink := make([]byte, 8)
	end := t.far(func() {
		for range 100 {
			k, err := t.b.cq.Poll(wcs)
			if err != nil {
				panic(err)
			}
			for _, wc := range wcs[:k] {
				if wc.Opcode == rdma.WCRecv {
					taken++
				}
			}
			for taken-granted >= window/2 {
				granted += window / 2
				if _, err := t.qb.PostRecv(recvs); err != nil {
					panic(err)
				}
				*word64(grant) = granted
				if _, err := t.qb.PostSend(grants); err != nil {
					panic(err)
				}
			}
			for read, sent := ring.read, atomic.LoadUint64(&ring.sent); read != sent; {
				copy(sink, ring.slot[read%window*8:][:8])
				read++
				if read%(window/2) == 0 || read == sent {
					arch.StoreRelease64(&ring.read, read)
				}
			}
		}
	})
	defer end()
	const batch = 8
	wrs := make([]rdma.SendWR, batch)
	for i := range wrs {
		wrs[i] = rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}}
	}
	wrs[batch-1].Flags = rdma.SendSignaled
	mine := make([]rdma.WC, window)
	var posted, sent uint64
	inTurn(b, "message", func() time.Duration {
		start := time.Now()
		for range messages / batch {
			for posted+batch > atomic.LoadUint64(creditWord)+window {
			}
			if _, err := t.qa.PostSend(wrs); err != nil {
				b.Fatal(err)
			}
			posted += batch
			t.a.cq.Poll(mine)
		}
		return time.Since(start) / messages
	}, func() time.Duration {
		start := time.Now()
		for range messages {
			for sent == atomic.LoadUint64(&ring.read)+window {
			}
			copy(ring.slot[sent%window*8:][:8], src.Bytes())
			sent++
			arch.StoreRelease64(&ring.sent, sent)
		}
		return time.Since(start) / messages
	})
}
