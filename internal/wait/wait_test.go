package wait

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// modes are all the ways to wait. The Sleeper is a bell of a local segment.
var modes = []struct {
	name   string
	bell   bool
	config Config
}{
	{"process", true, Config{}},
	{"process without sleeper", false, Config{}},
	{"process oversubscribed", true, Config{Oversubscribed: true}},
	{"process that never parks", false, Config{IdleAfter: math.MaxInt64}},
	{"oversubscribed that never parks", false, Config{Oversubscribed: true, IdleAfter: math.MaxInt64}},
	{"scheduler", true, Config{Scheduler: true}},
	{"scheduler without sleeper", false, Config{Scheduler: true}},
	{"scheduler oversubscribed", true, Config{Scheduler: true, Oversubscribed: true}},
}

// segment makes a local segment that ends with the test.
func segment(t testing.TB, ranks int) *shm.Segment {
	t.Helper()
	s, err := shm.NewLocal(shm.Geometry{Ranks: ranks, ArenaSize: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// waiter makes a Waiter for rank of the segment.
func waiter(c Config, bell bool, s *shm.Segment, rank int) *Waiter {
	if bell {
		c.Sleeper = s.Bell(rank)
	}
	return New(c)
}

// word is ready when its value is at least want.
type word struct {
	v    *uint64
	want uint64
}

func (w *word) Ready() bool { return atomic.LoadUint64(w.v) >= w.want }

// never is never ready and counts how often it was asked.
type never struct{ polls atomic.Int64 }

func (n *never) Ready() bool { n.polls.Add(1); return false }

// after is ready at the n-th poll.
type after struct{ n, polls int }

func (a *after) Ready() bool { a.polls++; return a.polls >= a.n }

// short is a Sleeper whose sleeps last a millisecond at most.
type short struct{ Sleeper }

func (s short) Sleep(ns int64) bool { return s.Sleeper.Sleep(min(ns, int64(time.Millisecond))) }

func TestReadyAtEveryStage(t *testing.T) {
	for _, m := range modes {
		for _, n := range []int{1, 2, 999, 1000, 1001, 1002, 1064, 1065, 1066, 1070, 1130} {
			w := waiter(m.config, m.bell, segment(t, 1), 0)
			if w.sleeper != nil {
				w.sleeper = short{w.sleeper} // a busy machine ends the spin early, and hundreds of sleeps follow
			}
			c := &after{n: n}
			if err := w.Wait(testenv.Deadline(t, time.Minute), c); err != nil || c.polls != n {
				t.Errorf("%s: ready at poll %d: got error %v after %d polls, want none after %d", m.name, n, err, c.polls, n)
			}
		}
	}
}

// slow is never ready, and an answer takes it a millisecond.
type slow struct{ polls int }

func (s *slow) Ready() bool { s.polls++; time.Sleep(time.Millisecond); return false }

// The spin ends by the clock where polls take long.
func TestSpinIsBoundedByTime(t *testing.T) {
	c := new(slow)
	if ready := New(Config{}).spin(c); ready || c.polls != 2*clockEvery {
		t.Errorf("spin of polls that take 1 ms: got ready %v after %d polls, want false after %d", ready, c.polls, 2*clockEvery)
	}
}

func TestReadyBeatsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range modes {
		w := waiter(m.config, m.bell, segment(t, 1), 0)
		if err := w.Wait(ctx, &after{n: 1}); err != nil {
			t.Errorf("%s: ready with an ended context: got error %v, want none", m.name, err)
		}
		if err := w.Wait(ctx, new(never)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: not ready with an ended context: got error %v, want %v", m.name, err, context.Canceled)
		}
	}
}

// recorder is a Sleeper that writes down what is asked of it.
type recorder struct {
	calls  string
	onCall func(call byte)
}

func (r *recorder) note(call byte) {
	r.calls += string(call)
	if r.onCall != nil {
		r.onCall(call)
	}
}
func (r *recorder) Prepare()         { r.note('P') }
func (r *recorder) Sleep(int64) bool { r.note('S'); return true }
func (r *recorder) Cancel()          { r.note('C') }

// Prepare, one more look, then Sleep or Cancel: never anything else.
func TestParkProtocol(t *testing.T) {
	var v uint64
	cases := []struct {
		name   string
		onCall func(cancel func()) func(call byte)
		want   string
		err    error
	}{
		{"ready at the look after Prepare", func(func()) func(byte) {
			return func(c byte) {
				if c == 'P' {
					v = 1
				}
			}
		}, "PC", nil},
		{"ready after Sleep", func(func()) func(byte) {
			return func(c byte) {
				if c == 'S' {
					v = 1
				}
			}
		}, "PS", nil},
		{"context ends between Prepare and Sleep", func(cancel func()) func(byte) {
			return func(c byte) {
				if c == 'P' {
					cancel()
				}
			}
		}, "PC", context.Canceled},
		{"context ends in Sleep", func(cancel func()) func(byte) {
			return func(c byte) {
				if c == 'S' {
					cancel()
				}
			}
		}, "PS", context.Canceled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v = 0
			ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
			defer cancel()
			r := &recorder{onCall: c.onCall(cancel)}
			err := New(Config{Sleeper: r, IdleAfter: 1}).Wait(ctx, &word{&v, 1})
			if r.calls != c.want || !errors.Is(err, c.err) {
				t.Errorf("got calls %q and error %v, want %q and %v", r.calls, err, c.want, c.err)
			}
		})
	}
}

// hours is a Sleeper on whose clock each sleep runs out of time.
type hours struct {
	now    time.Time
	sleeps []time.Duration
}

func (h *hours) Prepare() {}
func (h *hours) Cancel()  {}
func (h *hours) Sleep(ns int64) bool {
	if ns > 0 {
		h.sleeps = append(h.sleeps, time.Duration(ns))
	}
	h.now = h.now.Add(time.Duration(ns))
	return false
}

// Hundreds of ranks that wait for one must leave it the CPUs: the longer a wait lasts, the less often its rank wakes.
func TestSleepsGrowWithTheWait(t *testing.T) {
	h := &hours{now: time.Now()}
	start := h.now
	w := New(Config{Sleeper: h, IdleAfter: 1})
	w.now = func() time.Time { return h.now }
	if err := w.Wait(context.Background(), &until{h, start.Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	const least = int(time.Minute / sleepMost)
	if n := len(h.sleeps); n < least || n > least+60 || h.sleeps[0] != sleepLeast || h.sleeps[n-1] != sleepMost {
		t.Errorf("got %d sleeps in a minute, the first of %v and the last of %v, want %d to %d, of %v and %v",
			n, h.sleeps[0], h.sleeps[n-1], least, least+60, sleepLeast, sleepMost)
	}
	waited := time.Duration(0)
	for i, d := range h.sleeps {
		if d > max(sleepLeast, waited/napDivisor) {
			t.Fatalf("sleep %d, after %v, is of %v, want an eighth at most", i, waited, d)
		}
		waited += d
	}
}

// until is ready when the clock says so.
type until struct {
	h  *hours
	at time.Time
}

func (u *until) Ready() bool { return !u.h.now.Before(u.at) }

// best runs do up to five times and gives the shortest time it took: on a busy
// machine one run says little, and what waits for ever does so every time.
func best(limit time.Duration, do func()) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for range 5 {
		start := time.Now()
		do()
		if shortest = min(shortest, time.Since(start)); shortest < limit {
			break
		}
	}
	return shortest
}

// everyMode runs do beside a goroutine that waits in each mode, with one and
// with two processors.
func everyMode(t *testing.T, do func(t *testing.T)) {
	for _, procs := range []int{1, 2} {
		for _, m := range modes {
			t.Run(m.name+map[int]string{1: " on one processor", 2: " on two processors"}[procs], func(t *testing.T) {
				testenv.NoLeaks(t)
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				ctx, cancel := context.WithCancel(context.Background())
				w := waiter(m.config, m.bell, segment(t, 1), 0)
				waiting, ended := new(never), make(chan error, 1)
				go func() { ended <- w.Wait(ctx, waiting) }()
				for waiting.polls.Load() == 0 {
					runtime.Gosched()
				}
				do(t)
				cancel()
				select {
				case err := <-ended:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("Wait after cancel: got error %v, want %v", err, context.Canceled)
					}
				case <-time.After(testenv.Limit(10 * time.Second)):
					t.Fatal("Wait has not returned 10 s after cancel")
				}
			})
		}
	}
}

var promptly = testenv.Limit(time.Second)

func TestCollectionBesideWait(t *testing.T) {
	everyMode(t, func(t *testing.T) {
		if d := best(promptly, runtime.GC); d > promptly {
			t.Errorf("a collection took %v, want at most %v", d, promptly)
		}
	})
}

func TestTimerBesideWait(t *testing.T) {
	everyMode(t, func(t *testing.T) {
		if d := best(promptly, func() { <-time.After(time.Millisecond) }); d > promptly {
			t.Errorf("a timer of 1 ms took %v, want at most %v", d, promptly)
		}
	})
}

// A context's timer needs the scheduler, which the waiting goroutine itself has
// to let run.
func TestContextExpiry(t *testing.T) {
	for _, procs := range []int{1, 2} {
		for _, m := range modes {
			testenv.NoLeaks(t)
			old := runtime.GOMAXPROCS(procs)
			w := waiter(m.config, m.bell, segment(t, 1), 0)
			d := best(promptly, func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				defer cancel()
				if err := w.Wait(ctx, new(never)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got error %v, want %v", m.name, err, context.DeadlineExceeded)
				}
			})
			if d > promptly {
				t.Errorf("%s, %d processors: a context of 20 ms ended the wait after %v, want at most %v", m.name, procs, d, promptly)
			}
			runtime.GOMAXPROCS(old)
		}
	}
}

func TestWaitAllocatesNothing(t *testing.T) {
	for _, m := range modes {
		if m.config.IdleAfter == 0 {
			m.config.IdleAfter = 1
		}
		w := waiter(m.config, m.bell, segment(t, 1), 0)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		c := new(after)
		// As many polls as reach the second sleep where there is one, with a
		// spin that ends by its number and not by its time.
		w.spins = min(w.spins, 2*clockEvery)
		polls := w.spins + w.yields + 6
		if n := testing.AllocsPerRun(20, func() {
			*c = after{n: polls}
			if err := w.Wait(ctx, c); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a wait, want 0", m.name, n)
		}
		cancel()
	}
}

// Ranks that are goroutines go through a barrier, again and again: with more of
// them than processors, the one that is waited for must always get one.
func TestGoroutineBarrier(t *testing.T) {
	rounds := uint64(5_000)
	if testing.Short() || arch.RaceEnabled {
		rounds = 500
	}
	for _, procs := range []int{1, 2} {
		for _, m := range modes {
			if !m.config.Scheduler {
				continue
			}
			t.Run(m.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				ctx := testenv.Deadline(t, time.Minute)
				s := segment(t, 4)
				var arrived [4]struct {
					v uint64
					_ [arch.CacheLine - 8]byte
				}
				var wg sync.WaitGroup
				for me := range arrived {
					w := waiter(m.config, m.bell, s, me)
					wg.Go(func() {
						for round := uint64(1); round <= rounds; round++ {
							arch.StoreRelease64(&arrived[me].v, round)
							for peer := range arrived {
								if peer != me {
									s.Bell(peer).Ring()
								}
							}
							for peer := range arrived {
								if err := w.Wait(ctx, &word{&arrived[peer].v, round}); err != nil {
									t.Errorf("rank %d waits for %d in round %d: %v", me, peer, round, err)
									return
								}
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
