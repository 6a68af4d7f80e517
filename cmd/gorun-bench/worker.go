package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft/softtls"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// The worker is a rank that measures the points of a plan, the twin of
// testdata/mpi/bench.c: the same loops, the same verification, the same answer.
// Change both or neither.

// What both workers do alike.
const (
	windowSize   = 64 // messages under way in bw, bibw and mr
	mostSamples  = 20000
	leastSamples = 3
	overlapCalls = 250 // at most, for each phase of the overlap
)

// worker is one rank at work on a plan.
type worker struct {
	ctx        context.Context
	comm       *rank.Comm
	rank, size int
	plan       *plan
	out, err   io.Writer

	started  time.Time
	perRound float64 // microseconds of a round of work
	product  float64 // of work, so that it is done
	control  []int64 // of rank 0's decisions, registered or not as rank likes
	numbers  []float64
	engine   *engine // nil: the plan names none
}

// runWorker is the program of a rank: "init" joins and leaves, anything else is
// the plan's file.
func runWorker(ctx context.Context, what string, environ []string, std stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		fmt.Fprintln(std.err, "gorun-bench:", err)
		return statusFailed
	}
	p := &plan{}
	if what != "init" {
		if p, err = loadPlan(what); err != nil {
			fmt.Fprintln(std.err, "gorun-bench:", err)
			return statusFailed
		}
	}
	cfg := onDevices(p.devices, &env)
	p.configureEngine(&cfg)
	world, err := rank.Init(ctx, cfg)
	if err != nil {
		fmt.Fprintln(std.err, "gorun-bench:", err)
		return statusFailed
	}
	if what != "init" {
		w := &worker{ctx: ctx, comm: world.Comm(), plan: p, out: std.out, err: std.err, started: time.Now()}
		if err := w.run(); err != nil {
			fmt.Fprintln(std.err, "gorun-bench:", err)
			world.Abort(statusFailed, err.Error())
			return statusFailed
		}
	}
	if err := world.Finalize(ctx); err != nil {
		fmt.Fprintln(std.err, "gorun-bench:", err)
		return statusFailed
	}
	return 0
}

// onDevices has a rank use these devices, those of libibverbs among them.
func onDevices(names []string, env *rank.Environment) rank.Config {
	cfg := rank.Config{Environment: env, Devices: names, Secure: softtls.Handshake}
	if len(names) > 0 {
		cfg.Providers = []rdma.Provider{verbs.New(verbs.Config{})}
	}
	return cfg
}

func (w *worker) run() (err error) {
	w.rank, w.size = w.comm.Rank(), w.comm.Size()
	w.control, w.numbers = make([]int64, 1), make([]float64, 2)
	if w.engine, err = w.openEngine(); err != nil {
		return fmt.Errorf("engine %s: %w", w.plan.engine, err)
	}
	defer func() { err = errors.Join(err, w.engine.close()) }()
	if w.plan.sleeps {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// Or the kernel adds 50 us to every sleep, to wake several threads at once.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	}
	// Nobody outlives a lost launcher: gorun's guardian ends the rank, and the
	// limit is the driver's.
	w.calibrate()
	for i := range w.plan.points {
		begin := int64(0)
		if w.now() < w.plan.quota.Seconds()*1e6 {
			begin = 1
		}
		if begin, err = w.decide(begin); err != nil {
			return err
		}
		if begin == 0 {
			break
		}
		if err := w.point(i); err != nil {
			return err
		}
	}
	if w.rank == 0 {
		fmt.Fprintln(w.out, "end")
	}
	return nil
}

// now is the time since the start in microseconds. It reads one clock, once.
func (w *worker) now() float64 { return float64(time.Since(w.started)) / 1e3 }

// decide gives all ranks what rank 0 thinks.
func (w *worker) decide(n int64) (int64, error) {
	w.control[0] = n
	err := rank.Bcast(w.ctx, w.comm, w.control, 0)
	return w.control[0], err
}

func (w *worker) barrier() error { return rank.Barrier(w.ctx, w.comm) }

// A measured is one point at work: its buffers and the call on them.
type measured struct {
	*worker
	*benchmark
	point point
	call
	// meet: a barrier before each call, which is timed by itself.
	meet bool
}

// point verifies one call and then times many.
func (w *worker) point(index int) error {
	p := w.plan.points[index]
	b := find(p.benchmark)
	if b == nil {
		return fmt.Errorf("no benchmark %s", p.benchmark)
	}
	c, err := b.make(w, p)
	if err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	if w.engine != nil {
		w.engine.run(&c)
	}
	m := &measured{worker: w, benchmark: b, point: p, call: c, meet: w.plan.separate && b.how&meets != 0}
	if err := m.run(index); err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	return c.free()
}

// prepare overwrites the results on all ranks.
func (m *measured) prepare() error {
	if m.spoil != nil {
		m.spoil()
	}
	return m.barrier()
}

func (m *measured) run(index int) error {
	if err := m.prepare(); err != nil {
		return err
	}
	if err := m.step(); err != nil {
		return err
	}
	good, err := m.verify()
	if err != nil {
		return err
	}
	s := sample{wrong: true}
	if good {
		if err := m.prepare(); err != nil {
			return err
		}
		if s, err = m.measure(); err != nil {
			return err
		}
	}
	executed := []uint64{0}
	if m.engine != nil {
		if executed[0], err = m.engine.executed(); err != nil {
			return err
		}
		if err := rank.Allreduce(m.ctx, m.comm, nil, executed, rank.Sum); err != nil {
			return err
		}
	}
	if m.rank != 0 {
		return nil
	}
	if m.engine != nil {
		fmt.Fprintf(m.out, "executed %d %d\n", index, executed[0])
	}
	if m.kind != 0 {
		fmt.Fprintf(m.out, "chosen %d %s\n", index, m.comm.Explain(m.kind, m.point.bytes))
	}
	if s.wrong {
		fmt.Fprintf(m.out, "wrong %d\n", index)
	} else {
		fmt.Fprintf(m.out, "point %d %v\n", index, s)
	}
	return nil
}

// verify tells whether the result is right on all ranks. Who finds it wrong says so.
func (m *measured) verify() (bool, error) {
	wrong, err := m.check()
	if err != nil {
		return false, err
	}
	good := []int64{1}
	if wrong != "" {
		good[0] = 0
		fmt.Fprintf(m.err, "gorun-bench: rank %d: %s of %d bytes: %s is wrong\n", m.rank, m.name, m.point.bytes, wrong)
	}
	err = rank.Allreduce(m.ctx, m.comm, nil, good, rank.Min)
	return good[0] == 1, err
}

// calls makes k calls and gives the time spent in them: each by itself behind a
// barrier, or all together.
func (m *measured) calls(k int) (float64, error) {
	if !m.meet {
		t := m.now()
		for range k {
			if err := m.step(); err != nil {
				return 0, err
			}
		}
		return m.now() - t, nil
	}
	spent := 0.0
	for range k {
		if err := m.barrier(); err != nil {
			return 0, err
		}
		t := m.now()
		if err := m.step(); err != nil {
			return 0, err
		}
		spent += m.now() - t
	}
	return spent, nil
}

// warmUp calls until a tenth of the budget is spent, or as often as asked, and
// gives all ranks rank 0's least time a call, barriers included.
func (m *measured) warmUp() (float64, error) {
	chunk, least := max(1, m.plan.warmup), 1e12
	for {
		t := m.now()
		if _, err := m.calls(chunk); err != nil {
			return 0, err
		}
		each := (m.now() - t) / float64(chunk)
		least = min(least, each)
		m.numbers[0], m.numbers[1] = least, 0
		if m.plan.warmup >= 0 || each*float64(chunk)*10 >= m.budget() {
			m.numbers[1] = 1
		}
		if err := rank.Bcast(m.ctx, m.comm, m.numbers, 0); err != nil {
			return 0, err
		}
		if m.numbers[1] != 0 {
			return m.numbers[0], nil
		}
		chunk *= 4
	}
}

// budget is the time for a point in microseconds.
func (m *measured) budget() float64 { return m.plan.budget.Seconds() * 1e6 }

// slice is how many samples to take next; rank 0 says. A guess may be wrong, and
// ranks that outnumber the CPUs become a thousand times slower from one call to
// the next, so the time is spent in small pieces.
func (m *measured) slice(n, batch int, each, spent float64) (int, error) {
	more := 0
	if m.plan.iterations > 0 {
		more = (m.plan.iterations+batch-1)/batch - n
	} else if left := m.budget() - spent; left >= m.budget()*0.1 {
		more = int(min(left/2, m.budget()/16)/(each*float64(batch))) + 1
	}
	if n+more < leastSamples {
		more = leastSamples - n
		if n == 0 {
			more = 1
		}
	}
	more = min(more, mostSamples-n)
	agreed, err := m.decide(int64(more))
	return int(agreed), err
}

func (m *measured) measure() (sample, error) {
	each, err := m.warmUp()
	if err != nil {
		return sample{}, err
	}
	each = max(each, 0.001)
	batch := 1
	if each < 1 {
		batch = int(5/each) + 1
	}
	wanted := m.budget() / each // calls
	if m.plan.iterations > 0 {
		wanted = float64(m.plan.iterations)
	}
	if wanted > float64(batch*mostSamples) {
		batch = int(wanted/mostSamples) + 1
	}
	if err := m.barrier(); err != nil {
		return sample{}, err
	}
	samples := make([]float64, 0, mostSamples)
	begun := m.now()
	for last := begun; ; last = m.now() {
		more, err := m.slice(len(samples), batch, each, m.now()-begun)
		if err != nil {
			return sample{}, err
		}
		if more == 0 {
			break
		}
		for range more {
			took, err := m.calls(batch)
			if err != nil {
				return sample{}, err
			}
			samples = append(samples, took/float64(batch))
		}
		each = (m.now() - last) / float64(more*batch)
	}
	if err := m.average(samples); err != nil {
		return sample{}, err
	}
	s := sample{batch: batch, count: len(samples), p10: quantile(samples, 10), p50: quantile(samples, 50), p90: quantile(samples, 90), p99: quantile(samples, 99)}
	if m.how&overlaps != 0 {
		if err := m.overlap(&s); err != nil {
			return sample{}, err
		}
	}
	good, err := m.verify()
	s.wrong = !good
	return s, err
}

// average makes, on rank 0, the ranks' samples into their mean over the ranks
// that count, sorted.
func (m *measured) average(samples []float64) error {
	counting := m.size
	switch {
	case m.how&origin != 0:
		counting = 1
	case m.how&senders != 0:
		counting = m.size / 2
	}
	if m.rank >= counting {
		clear(samples)
	}
	sums := make([]float64, len(samples))
	if err := rank.Reduce(m.ctx, m.comm, samples, sums, rank.Sum, 0); err != nil {
		return err
	}
	scale := 1 / float64(counting)
	if m.how&half != 0 {
		scale /= 2
	}
	if m.how&perMessage != 0 {
		messages := windowSize
		if m.how&origin == 0 {
			messages *= m.size / 2
		}
		if m.how&bothWays != 0 {
			messages *= 2
		}
		scale /= float64(messages)
	}
	for i, sum := range sums {
		samples[i] = sum * scale
	}
	slices.Sort(samples)
	return nil
}

// overlap is the same calls with work of the same length between start and wait, the work
// alone, and the blocking calls; medians over the calls, of the means over the ranks.
func (m *measured) overlap(s *sample) error {
	m.numbers[0] = s.p50
	if err := rank.Bcast(m.ctx, m.comm, m.numbers, 0); err != nil {
		return err
	}
	compute := m.compute(m.numbers[0])
	n := min(s.batch*s.count, overlapCalls)
	spent := make([]float64, 4*n, 4*n+1) // and what a daemon has worked: the slices below are summed with it
	computed, total, alone, comm := spent[:n], spent[n:2*n], spent[2*n:3*n], spent[3*n:]
	timed := func(into []float64, f func() error) error {
		for i := range into {
			if err := m.barrier(); err != nil {
				return err
			}
			t := m.now()
			if err := f(); err != nil {
				return err
			}
			into[i] = m.now() - t
		}
		return nil
	}
	if err := timed(comm, m.block); err != nil {
		return err
	}
	if err := timed(alone, func() error { compute(); return nil }); err != nil {
		return err
	}
	beside, before := 0, m.offloaded()
	if err := timed(total, func() error {
		if err := m.start(); err != nil {
			return err
		}
		begun := m.now()
		compute()
		computed[beside] = m.now() - begun
		beside++
		return m.wait()
	}); err != nil {
		return err
	}
	spent = append(spent, (m.offloaded()-before)/float64(n))
	if err := rank.Allreduce(m.ctx, m.comm, nil, spent, rank.Sum); err != nil {
		return err
	}
	s.daemon = spent[4*n] / float64(m.size)
	median := func(of []float64) float64 {
		slices.Sort(of)
		return quantile(of, 50) / float64(m.size)
	}
	s.compute, s.total, s.alone, s.comm = median(computed), median(total), median(alone), median(comm)
	s.overlapped = true
	return nil
}

// offloaded is how many microseconds a daemon has worked for this rank.
func (m *measured) offloaded() float64 {
	return float64(m.comm.World().Counters().Collective.OffloadNanoseconds) / 1e3
}

// compute is work that takes so many microseconds on this rank's CPU, or a sleep.
func (m *measured) compute(us float64) func() {
	if m.plan.sleeps {
		length := unix.NsecToTimespec(int64(us * 1e3))
		return func() { sleep(length) }
	}
	rounds := int(us/m.perRound) + 1
	return func() { m.product = work(rounds) }
}

// work computes without looking at the clock.
//
//go:noinline
func work(rounds int) float64 {
	x := 1.0
	for range rounds {
		x = x*0.999999 + 0.000001
	}
	return x
}

func (w *worker) calibrate() {
	w.perRound = 1e9
	for range 5 {
		t := w.now()
		w.product = work(100000)
		w.perRound = min(w.perRound, (w.now()-t)/100000)
	}
}
