package shm

import (
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// nap is a sleep that runs out of time.
const nap = 10 * time.Millisecond

func TestBell(t *testing.T) {
	const long, short = int64(time.Hour), int64(time.Millisecond)
	ranOut := func(b *Bell) bool { return sleeps(b, 1) == 1 }
	cases := []struct {
		name string
		do   func(t *testing.T, b *Bell)
	}{
		{"Sleep without Prepare returns", func(_ *testing.T, b *Bell) { b.Sleep(long) }},
		{"Sleep for nothing returns", func(_ *testing.T, b *Bell) { b.Prepare(); b.Sleep(0); b.Sleep(-1) }},
		{"Ring while awake does nothing", func(t *testing.T, b *Bell) {
			b.Ring()
			b.Prepare()
			if b.Sleep(short); atomic.LoadUint32(b.word) != 1 {
				t.Error("a Ring before Prepare took the word back")
			}
		}},
		{"Ring between Prepare and Sleep", func(t *testing.T, b *Bell) {
			for range 100 {
				b.Prepare()
				b.Ring()
				if ranOut(b) {
					t.Fatal("Sleep after Ring ran to its end")
				}
			}
		}},
		{"Ring after Cancel leaves the next Sleep alone", func(t *testing.T, b *Bell) {
			b.Prepare()
			b.Ring()
			b.Cancel()
			b.Prepare()
			if b.Sleep(short); atomic.LoadUint32(b.word) != 1 {
				t.Error("the word went back without a Ring")
			}
		}},
		{"Prepare again after a Sleep that ran out", func(t *testing.T, b *Bell) {
			b.Prepare()
			b.Sleep(short)
			b.Prepare()
			b.Ring()
			if ranOut(b) {
				t.Error("Sleep after Ring ran to its end")
			}
		}},
		{"Sleep is bounded", func(t *testing.T, b *Bell) {
			b.Prepare()
			if start := time.Now(); true {
				b.Sleep(long)
				if d := time.Since(start); d > testenv.Limit(5*time.Second) {
					t.Errorf("Sleep of an hour took %v, want 100 ms", d)
				}
			}
		}},
		{"many Rings, one wake-up", func(t *testing.T, b *Bell) {
			b.Prepare()
			for range 10 {
				b.Ring()
			}
			b.Sleep(long)
			b.Prepare()
			if b.Sleep(short); atomic.LoadUint32(b.word) != 1 {
				t.Error("the word went back without a Ring")
			}
		}},
		{"scribbled word", func(t *testing.T, b *Bell) {
			for _, v := range []uint32{2, 0xffffffff} {
				b.Prepare()
				atomic.StoreUint32(b.word, v)
				b.Sleep(short)
				b.Ring()
				if got := atomic.LoadUint32(b.word); got != 0 {
					t.Errorf("word %#x after Ring: got %#x, want 0", v, got)
				}
			}
		}},
	}
	for _, k := range kinds {
		for _, c := range cases {
			t.Run(k.name+"/"+c.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				c.do(t, newSegment(t, k.make, smallGeometry).Bell(1))
			})
		}
	}
}

// The second thread of a rank is woken by whoever rings the rank, and neither of the two
// takes the other's wake-up. While it dozes, the rank alone wakes it.
func TestBesideBell(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newSegment(t, k.make, smallGeometry)
			bell, beside := s.Bell(1), s.Beside(1)
			woken := func(b *Bell) bool { return b.Sleep(int64(time.Millisecond)) }
			bell.Prepare()
			beside.Prepare()
			bell.Ring()
			if !woken(beside) || !woken(bell) {
				t.Error("a Ring did not wake both")
			}
			beside.Prepare()
			if bell.Ring(); !woken(beside) {
				t.Error("a Ring did not wake the second thread alone")
			}
			beside.Doze()
			if bell.Ring(); woken(beside) || beside.Hush() {
				t.Error("a Ring ended a Doze, or it was hushed")
			}
			if beside.Wake(); !woken(beside) {
				t.Error("Wake did not end a Doze")
			}
			beside.Prepare()
			if !beside.Hush() || beside.Hush() {
				t.Error("Hush, twice: want true, false")
			}
			if bell.Ring(); woken(beside) {
				t.Error("a Ring ended a Sleep after Hush")
			}
			beside.Prepare()
			if bell.Ring(); !woken(beside) {
				t.Error("a Ring after Hush and Prepare did not end the Sleep")
			}
			if beside.Hush() || !woken(beside) {
				t.Error("Hush put a bell to sleep whose owner is awake")
			}
		})
	}
}

// Ranks of one process hand a token round; each sleeps whenever it has nothing.
// A lost wake-up is a sleep that ran to its end although the token was there, and its giver had rung: without a CPU
// a giver may be late between the two.
func TestBellHandOver(t *testing.T) {
	rounds := uint64(30_000)
	if testing.Short() || arch.RaceEnabled || runtime.GOMAXPROCS(0) == 1 {
		rounds = 3_000 // on one processor each futex waits for the runtime to take it away
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newSegment(t, k.make, Geometry{Ranks: 3, ArenaSize: 1 << 16})
			n := s.Ranks()
			var token struct {
				_ [arch.CacheLine]byte
				v uint64 // how often it was handed over; rank v mod n has it
				_ [arch.CacheLine]byte
			}
			rung := make([]struct { // by rank: the token for which it has rung the next one
				v uint64
				_ [arch.CacheLine]byte
			}, n)
			var lost atomic.Int64
			var wg sync.WaitGroup
			for me := range n {
				before, next := (me+n-1)%n, (me+1)%n
				wg.Go(func() {
					mine := func() bool { return atomic.LoadUint64(&token.v)%uint64(n) == uint64(me) }
					b := s.Bell(me)
					for range rounds / uint64(n) {
						for !mine() {
							b.Prepare()
							if mine() {
								b.Cancel()
								break
							}
							start := time.Now()
							b.Sleep(int64(nap))
							if time.Since(start) >= nap && mine() && atomic.LoadUint64(&rung[before].v) == atomic.LoadUint64(&token.v) && atomic.LoadUint32(b.word) != 0 {
								lost.Add(1)
							}
						}
						v := atomic.LoadUint64(&token.v) + 1
						arch.StoreRelease64(&token.v, v)
						s.Bell(next).Ring()
						atomic.StoreUint64(&rung[me].v, v)
					}
				})
			}
			wg.Wait()
			if n := lost.Load(); n != 0 {
				t.Errorf("%d of %d wake-ups were lost, want 0", n, rounds)
			}
		})
	}
}

// A peer's release store and Ring against the owner's Prepare and look, at every
// distance from each other: when both are done, the owner has seen the store or
// the word is back at 0. Without the barrier in Prepare, or without the one in
// Ring of a process that is not registered, 1-3 % of the rounds lose the
// wake-up on a 2-core Sapphire Rapids.
func TestBellAgainstStore(t *testing.T) {
	for _, covered := range []bool{false, true} {
		t.Run(map[bool]string{true: "registered", false: "unregistered"}[covered], func(t *testing.T) {
			testenv.NoLeaks(t)
			rounds := testenv.Fewer(uint64(20_000), 2_000)
			if covered && !registerBusy() {
				testenv.Unsupported(t, "the kernel has no membarrier(GLOBAL_EXPEDITED), or forbids it")
			}
			s := newSegment(t, Create, smallGeometry)
			s.covered.end()
			s.covered.on.Store(covered)
			b := s.Bell(0)
			type line struct {
				v uint64
				_ [arch.CacheLine - 8]byte
			}
			// Each holds the number of the last round it took part in.
			var news, turn, done line
			// As in a message, other stores go before the news. Their lines
			// are in the owner's cache, so they hold the news up in the
			// store buffer, while the look at the word passes them all.
			var payload [8]line
			await := func(l *line, round uint64) {
				for misses := 1; atomic.LoadUint64(&l.v) != round; misses++ {
					if misses%200 == 0 {
						arch.YieldSafe()
						runtime.Gosched()
					}
					arch.Pause()
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := uint64(1); ; i++ {
					await(&turn, i)
					last := i >= rounds
					for k := range payload {
						arch.StoreRelease64(&payload[k].v, i)
					}
					arch.StoreRelease64(&news.v, i)
					b.Ring()
					arch.StoreRelease64(&done.v, i)
					if last {
						return
					}
				}
			})
			// On a machine that is busy with other things a round can take a
			// time slice: then there are fewer of them.
			end := time.Now().Add(5 * time.Second)
			lost := 0
			for i := uint64(1); i <= rounds; i++ {
				if i < rounds && time.Now().After(end) {
					rounds = i // the peer waits for its turn and sees this
				}
				arch.StoreRelease64(&turn.v, i)
				for range i % 1024 {
					_ = atomic.LoadUint32(b.word)
				}
				b.Prepare()
				seen := atomic.LoadUint64(&news.v) == i
				await(&done, i)
				if !seen && atomic.LoadUint32(b.word) != 0 {
					lost++
				}
				b.Cancel()
				for k := range payload {
					_ = atomic.LoadUint64(&payload[k].v)
				}
			}
			wg.Wait()
			if lost != 0 {
				t.Errorf("%d of %d wake-ups were lost, want 0", lost, rounds)
			}
		})
	}
}

// registerBusy registers while this process keeps its CPUs busy, so that the kernel
// leaves none of them out: see arch.RegisterMembarrier.
func registerBusy() bool {
	var registered atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer registered.Store(true)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !registered.Load() {
				arch.Pause()
			}
		})
	}
	return arch.RegisterMembarrier()
}

func TestBellAllocatesNothing(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newSegment(t, k.make, smallGeometry)
			b := s.Bell(0)
			if n := testing.AllocsPerRun(100, func() {
				b.Prepare()
				b.Sleep(int64(10 * time.Microsecond))
				b.Ring()
				b.Sleep(int64(10 * time.Microsecond))
				b.Cancel()
				b.Ring()
				_ = s.Dead(1)
				_, _ = s.Arena(1)
			}); n != 0 {
				t.Errorf("got %v allocations, want 0", n)
			}
		})
	}
}

// Bells and rank entries of different ranks are on different cache lines.
func TestLines(t *testing.T) {
	s := newSegment(t, NewLocal, smallGeometry)
	address := func(rank int) uintptr { return reflect.ValueOf(s.Bell(rank).word).Pointer() }
	if d := address(1) - address(0); d < 2*arch.CacheLine {
		t.Errorf("the words of two bells are %d bytes apart, want at least %d", d, 2*arch.CacheLine)
	}
}

// A process registers for barriers once it has had others' arenas for a while, and
// Close does not leave that behind.
func TestCoverage(t *testing.T) {
	testenv.NoLeaks(t)
	if !arch.RegisterMembarrier() {
		testenv.Unsupported(t, "the kernel has no membarrier(GLOBAL_EXPEDITED), or forbids it")
	}
	s := newSegment(t, NewLocal, smallGeometry)
	if s.covered.finished != nil || s.covered.on.Load() {
		t.Error("registers before it maps an arena")
	}
	arena(t, s, 0)
	if s.covered.finished != nil || s.covered.on.Load() {
		t.Error("registers for its own arena")
	}
	arena(t, s, 1)
	testenv.Await(t, 10*time.Second, "registered", s.covered.on.Load)
}

func BenchmarkRingAwake(b *testing.B) {
	s := newSegment(b, NewLocal, smallGeometry)
	bell := s.Bell(1)
	for _, c := range []struct {
		name string
		on   bool
	}{{"registered", true}, {"unregistered", false}} {
		b.Run(c.name, func(b *testing.B) {
			s.covered.end()
			s.covered.on.Store(c.on)
			for b.Loop() {
				bell.Ring()
			}
		})
	}
}
