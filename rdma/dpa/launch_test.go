package dpa

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// Each thread of a group calls the kernel once, with a rank and an OS thread of its own.
func TestLaunchRunsOnEveryThread(t *testing.T) {
	testenv.NoLeaks(t)
	const n = 4
	g := group(t, open(t, Config{Threads: n}), n)
	var calls [n]atomic.Int32
	var threads [n]int
	done := launched(t, g, Launch{Kernel: func(th *Thread) error {
		calls[th.Rank()].Add(1)
		threads[th.Rank()] = th.OSThread()
		if th.NumThreads() != n || th.OSThread() != arch.Thread() {
			return errors.New("not the group's, or not on its thread")
		}
		return nil
	}})
	if err := finished(t, done); err != nil {
		t.Fatal(err)
	}
	for rank := range n {
		if got := calls[rank].Load(); got != 1 || slices.Index(threads[:], threads[rank]) != rank || threads[rank] == os.Getpid() {
			t.Errorf("rank %d: %d calls on OS thread %d of %v, want one, on its own", rank, got, threads[rank], threads)
		}
	}
	if c := g.ctx.Counters(); c != (Counters{Launches: 1, Runs: n}) {
		t.Errorf("counters %+v, want one launch and %d runs", c, n)
	}
}

// A launch begins after the wait event has passed its threshold, not when it has reached it, and after the launches before it.
func TestLaunchWaitsForItsEventAndItsTurn(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{Threads: 2})
	g := group(t, c, 2)
	start, first := event(t, c, CPU, Device), event(t, c, Device, CPU)
	var order []int
	note := func(n int) Kernel {
		return func(th *Thread) error {
			if th.Rank() == 0 {
				order = append(order, n)
			}
			return nil
		}
	}
	if err := g.Launch(Launch{Kernel: note(1), Wait: start, Threshold: 4, Complete: first, Value: 7}); err != nil {
		t.Fatal(err)
	}
	second := launched(t, g, Launch{Kernel: note(2)})
	if err := start.Set(4); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, 10*time.Second, "both threads have seen it and sleep", func() bool { return start.bell.waiting.Load() == 2 })
	if v := must[uint64](t)(first.Get()); v != 0 || c.Counters().Runs != 0 {
		t.Fatalf("at the threshold: the completion event is %d, %d runs, want none", v, c.Counters().Runs)
	}
	if err := start.Add(1); err != nil {
		t.Fatal(err)
	}
	if err := finished(t, second); err != nil {
		t.Fatal(err)
	}
	if v := must[uint64](t)(first.Get()); v != 7 || !slices.Equal(order, []int{1, 2}) {
		t.Errorf("the first launch's event is %d and the order %v, want 7 and [1 2]", v, order)
	}
}

func TestGroupsAreIndependent(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{Threads: 2})
	a, b := group(t, c, 1), group(t, c, 1)
	news := event(t, c, Device, Device)
	done := launched(t, a, Launch{Kernel: func(th *Thread) error { return th.WaitGt(news, 2) }})
	if err := b.Launch(Launch{Kernel: func(th *Thread) error { return th.Add(news, 3) }}); err != nil {
		t.Fatal(err)
	}
	if err := finished(t, done); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewThreadGroup(1); !errors.Is(err, rdma.ErrNoMemory) {
		t.Errorf("a third thread of two: %v, want %v", err, rdma.ErrNoMemory)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Launch(Launch{Kernel: func(*Thread) error { return nil }}); !errors.Is(err, ErrClosed) {
		t.Errorf("launch on a closed group: %v, want %v", err, ErrClosed)
	}
	again := group(t, c, 1)
	if err := finished(t, launched(t, again, Launch{Kernel: func(*Thread) error { return nil }})); err != nil {
		t.Errorf("a group on a thread that was given back: %v", err)
	}
}

func TestCompletionEventCountsWithAdd(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{})
	g, done := group(t, c, 1), event(t, c, Device, CPU)
	const n = 1000
	for range n {
		if err := g.Launch(Launch{Kernel: func(*Thread) error { return nil }, Complete: done, Value: 2, Add: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := done.WaitGt(soon(t), 2*n-1); err != nil {
		t.Fatal(err)
	}
	if v := must[uint64](t)(done.Get()); v != 2*n {
		t.Errorf("the event is %d, want %d", v, 2*n)
	}
}

func TestRPCReturnsTheValue(t *testing.T) {
	testenv.NoLeaks(t)
	g := group(t, open(t, Config{Threads: 2}), 2)
	var calls atomic.Int32
	v, err := g.RPC(soon(t), func(th *Thread) (uint64, error) { calls.Add(1); return 42 + uint64(th.Rank()), nil })
	if v != 42 || err != nil || calls.Load() != 1 {
		t.Errorf("got %d, %v by %d calls, want 42 by one", v, err, calls.Load())
	}
	wrong := errors.New("wrong")
	if v, err = g.RPC(soon(t), func(*Thread) (uint64, error) { return 1, wrong }); v != 0 || !errors.Is(err, wrong) {
		t.Errorf("got %d, %v, want 0 and %v", v, err, wrong)
	}
}

// The RPC that runs and the one that is queued behind it both end with their callers' contexts.
func TestRPCEndsWithItsContext(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{})
	g, never, begun := group(t, c, 1), event(t, c, CPU, Device), event(t, c, Device, CPU)
	errs := make(chan error, 2)
	call := func(ctx context.Context, kernel func(*Thread) (uint64, error)) {
		_, err := g.RPC(ctx, kernel)
		errs <- err
	}
	running, cancel := context.WithCancel(t.Context())
	queued, cancelQueued := context.WithCancel(t.Context())
	go call(running, func(th *Thread) (uint64, error) {
		if err := th.Set(begun, 1); err != nil {
			return 0, err
		}
		return 0, th.WaitGt(never, 0)
	})
	if err := begun.WaitGt(soon(t), 0); err != nil {
		t.Fatal(err)
	}
	go call(queued, func(*Thread) (uint64, error) { return 0, errors.New("it ran") })
	cancelQueued()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("the queued one: %v, want %v", err, context.Canceled)
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("the running one: %v, want %v", err, context.Canceled)
	}
	if v, err := g.RPC(soon(t), func(*Thread) (uint64, error) { return 5, nil }); v != 5 || err != nil {
		t.Errorf("the next one: %d, %v, want 5", v, err)
	}
}

// With a CPU for the process and one for the thread, the thread has the latter, its OS thread no other, and no other Context has it, also
// of another process.
func TestThreadsArePinnedWhereThereAreCPUs(t *testing.T) {
	testenv.NoLeaks(t)
	cpus := arch.CPUs()
	if len(cpus) < 2 {
		testenv.Unsupported(t, "this process may use one CPU only")
	}
	pd := domains(t, 1, fabric{})[0]
	pinned := func() (c *Context) {
		testenv.Await(t, 30*time.Second, "no other process has a CPU", func() bool {
			if c = must[*Context](t)(New(pd, Config{})); c.Pinned() == nil {
				closed(t, c)
			}
			return c.Pinned() != nil
		})
		return c
	}
	c := pinned()
	cpu := c.Pinned()
	if len(cpu) != 1 || !slices.Contains(cpus[1:], cpu[0]) {
		t.Fatalf("pinned to %v of %v, want one of them but the first", cpu, cpus)
	}
	err := finished(t, launched(t, group(t, c, 1), Launch{Kernel: func(*Thread) error {
		if got := arch.CPUs(); !slices.Equal(got, cpu) {
			return errors.New("the thread may run elsewhere")
		}
		return nil
	}}))
	if err != nil {
		t.Error(err)
	}
	for range len(cpus) {
		if other := openOn(t, pd, Config{}); slices.Equal(other.Pinned(), cpu) {
			t.Errorf("another Context is pinned to %v, too", cpu)
		}
	}
	closed(t, c)
	crowded := open(t, Config{Threads: len(cpus)})
	if crowded.Pinned() != nil {
		t.Errorf("%d threads on %d CPUs are pinned to %v, want none", len(cpus), len(cpus), crowded.Pinned())
	}
}

// A thread that has slept is woken by the launch, not by the end of its sleep. Whoever launches may lose the CPU
// just before it wakes the thread, so the least of three groups counts.
func TestIdleThreadsAreWoken(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{Threads: 2})
	var overslept uint64
	for range 3 {
		g := group(t, c, 2)
		for range 5 {
			testenv.Await(t, 10*time.Second, "both threads sleep", func() bool { return g.bell.waiting.Load() == 2 })
			if err := finished(t, launched(t, g, Launch{Kernel: func(*Thread) error { return nil }})); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		overslept = 0
		for _, d := range g.threads {
			n := d.waiter.woken.Counts()
			if overslept += n.Overslept; n.Sleeps == 0 {
				t.Errorf("thread %d has not slept", d.rank)
			}
		}
		if overslept == 0 {
			return
		}
	}
	t.Errorf("%d sleeps ended by their time alone, want none", overslept)
}

func TestLaunchDoesNotAllocate(t *testing.T) {
	if arch.RaceEnabled {
		return // the detector allocates
	}
	c := open(t, Config{Threads: 2})
	g, done := group(t, c, 2), event(t, c, Device, CPU)
	ctx, seq := soon(t), uint64(0)
	kernel := func(*Thread) error { return nil }
	const runs = 1000
	var before, after runtime.MemStats
	for round := range 2 { // the first makes what is kept
		runtime.ReadMemStats(&before)
		for range runs {
			seq++
			if err := g.Launch(Launch{Kernel: kernel, Complete: done, Value: seq}); err != nil {
				t.Fatal(err)
			}
			if err := done.WaitGt(ctx, seq-1); err != nil {
				t.Fatal(err)
			}
		}
		// The collector may empty the pool of waiters.
		if runtime.ReadMemStats(&after); round > 0 && after.Mallocs-before.Mallocs > runs/10 {
			t.Errorf("%d allocations in %d launches, want none", after.Mallocs-before.Mallocs, runs)
		}
	}
}

func TestLaunchRefusesBadArguments(t *testing.T) {
	testenv.NoLeaks(t)
	c, other := open(t, Config{Threads: 3}), open(t, Config{})
	g := group(t, c, 2)
	kernel := func(*Thread) error { return nil }
	cc := must[*CompletionContext](t)(c.NewCompletionContext(4))
	defer cc.Close()
	for name, l := range map[string]Launch{
		"no kernel":               {},
		"an event of another":     {Kernel: kernel, Wait: event(t, other, CPU, Device)},
		"a negative deadline":     {Kernel: kernel, Deadline: -1},
		"a queue for two threads": {Kernel: kernel, On: cc},
	} {
		if err := g.Launch(l); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %v, want %v", name, err, rdma.ErrInvalid)
		}
	}
	for name, cfg := range map[string]Config{
		"too many threads": {Threads: MaxThreads + 1}, "a place beyond": {Place: 2, Processes: 2}, "a negative time": {MaxRunTime: -1},
	} {
		if c, err := New(c.pd, cfg); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %v, %v, want %v", name, c, err, rdma.ErrInvalid)
		}
	}
}

// BenchmarkLaunch is a launch of an empty kernel and the wait for its end.
func BenchmarkLaunch(b *testing.B) {
	for _, n := range []int{1, 2} {
		b.Run(plural(n, "thread"), func(b *testing.B) {
			c := open(b, Config{Threads: n})
			g, done := group(b, c, n), event(b, c, Device, CPU)
			seq := uint64(0)
			for b.Loop() {
				seq++
				if err := g.Launch(Launch{Kernel: func(*Thread) error { return nil }, Complete: done, Value: seq}); err != nil {
					b.Fatal(err)
				}
				if err := done.WaitGt(b.Context(), seq-1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
