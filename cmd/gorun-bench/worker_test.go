package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// locked lets ranks that are goroutines write to one buffer.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// runPlan runs a plan on ranks that are goroutines, and gives rank 0's answer and
// what all had to say.
func runPlan(t *testing.T, np int, p *plan) (*answer, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "plan")
	if err := writePlan(name, p); err != nil {
		t.Fatal(err)
	}
	a := &answer{points: len(p.points), samples: map[int]sample{}}
	out := &lines{take: a.line}
	var said locked
	cfg := rank.RunConfig{}
	p.configureEngine(&cfg.Config)
	err := cfg.Run(testenv.Deadline(t, 3*time.Minute), np, func(ctx context.Context, c *rank.Comm) error {
		read, err := loadPlan(name)
		if err != nil {
			return err
		}
		return (&worker{ctx: ctx, comm: c, plan: read, out: out, err: &said, started: time.Now()}).run()
	})
	if err != nil || out.err != nil {
		t.Fatalf("%d ranks: %v, %v\n%s", np, err, out.err, said.b.String())
	}
	return a, said.b.String()
}

// Every benchmark of the table gives right results, on as many ranks as it
// takes, in both kinds of memory, for sizes that do and do not fit lines.
func TestBenchmarksAreRight(t *testing.T) {
	for np := 2; np <= 5; np++ {
		for _, memory := range []string{registered, ordinary} {
			t.Run(fmt.Sprintf("%d ranks, %s", np, memory), func(t *testing.T) {
				p := &plan{limit: testenv.Limit(time.Minute), quota: testenv.Limit(time.Minute), budget: time.Millisecond, warmup: 1, iterations: 3, separate: np%2 == 0, memory: memory, sleeps: memory == ordinary}
				for i := range benchmarks {
					b := &benchmarks[i]
					if b.make == nil || !b.runsOn(np) {
						continue
					}
					types := []string{"byte"}
					if b.how&reduces != 0 {
						types = []string{"char", "int", "long", "float", "double"}
					}
					for _, typ := range types {
						for _, n := range []int{8, 1000, 40000} {
							p.points = append(p.points, point{b.name, typ, n})
						}
					}
				}
				a, said := runPlan(t, np, p)
				if !a.ended || said != "" {
					t.Errorf("ended %t, said %q", a.ended, said)
				}
				for i, pt := range p.points {
					s, ok := a.samples[i]
					if !ok || s.wrong || s.count < leastSamples || s.p50 <= 0 || s.p10 > s.p50 || s.p50 > s.p90 || s.p90 > s.p99 {
						t.Errorf("%v %s: got %+v", pt, pt.typ, s)
					}
					if want := find(pt.benchmark).how&overlaps != 0; s.overlapped != want {
						t.Errorf("%v: overlap %t, want %t", pt, s.overlapped, want)
					} else if want && p.sleeps && s.alone < 0.99*s.p50 { // but for what rounding takes
						t.Errorf("%v: work of %v us took %v us alone, the mean of the ranks", pt, s.p50, s.alone)
					}
				}
			})
		}
	}
}

// A result that is wrong on one rank is never timed; nor is one that becomes
// wrong while it is timed good.
func TestWrongResultsAreFound(t *testing.T) {
	for _, spoilt := range []int{1, 3} { // the call that spoils
		var out, said locked
		err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
			w := &worker{ctx: ctx, comm: c, rank: c.Rank(), size: c.Size(), out: &out, err: &said, started: time.Now(),
				control: make([]int64, 1), numbers: make([]float64, 2), plan: &plan{budget: time.Millisecond, warmup: 1, iterations: 3}}
			p := point{"bcast", "byte", 100}
			b := *find(p.benchmark)
			b.kind = 0 // nothing to explain
			good, err := b.make(w, p)
			if err != nil {
				return err
			}
			calls, bad := 0, false
			m := &measured{worker: w, benchmark: &b, point: p, call: call{
				step: func() error {
					calls++
					bad = bad || calls == spoilt && w.rank == 2
					return good.step()
				},
				check: func() (string, error) {
					if bad {
						return "byte 7", nil
					}
					return good.check()
				},
			}}
			return m.run(4)
		})
		if err != nil {
			t.Fatal(err)
		}
		if out.b.String() != "wrong 4\n" || !strings.Contains(said.b.String(), "rank 2: bcast of 100 bytes: byte 7 is wrong") {
			t.Errorf("spoilt in call %d: answered %q and said %q", spoilt, out.b.String(), said.b.String())
		}
	}
}

// Calls that do nothing any more, after the first, do not live on its result.
func TestCallsThatDoNothingAreFound(t *testing.T) {
	var said locked
	for i := range benchmarks {
		b := benchmarks[i]
		if b.make == nil || b.how&sizeless != 0 {
			continue
		}
		np := 3
		if !b.runsOn(np) {
			np = 2
		}
		var out locked
		err := rank.Run(np, func(ctx context.Context, c *rank.Comm) error {
			w := &worker{ctx: ctx, comm: c, rank: c.Rank(), size: c.Size(), out: &out, err: &said, started: time.Now(), perRound: 1,
				control: make([]int64, 1), numbers: make([]float64, 2), plan: &plan{budget: time.Millisecond, warmup: 1, iterations: 3}}
			p := point{b.name, "byte", 64}
			if b.how&reduces != 0 {
				p.typ = "float"
			}
			made, err := b.make(w, p)
			if err != nil {
				return err
			}
			calls, lazy := 0, b
			lazy.kind = 0 // nothing to explain
			lazy.how &^= overlaps
			step := made.step
			made.step = func() error {
				if calls++; calls > 1 {
					return nil
				}
				return step()
			}
			m := &measured{worker: w, benchmark: &lazy, point: p, call: made}
			if err := m.run(0); err != nil {
				return err
			}
			return made.free()
		})
		if err != nil || out.b.String() != "wrong 0\n" {
			t.Errorf("%s: answered %q, error %v; want it wrong", b.name, out.b.String(), err)
		}
	}
}

// The pattern tells ranks, places and neighbours apart.
func TestPatternIsFoundWrong(t *testing.T) {
	block := make([]byte, 3000)
	fillBlock(block, 1, 2)
	if wrong := wrongByte(block, 1, 2); wrong != "" {
		t.Errorf("right, but %s", wrong)
	}
	for _, c := range []struct{ from, to int }{{0, 2}, {2, 2}, {1, 1}, {1, 3}, {2, 1}} {
		if wrongByte(block, c.from, c.to) == "" {
			t.Errorf("the block of 1 for 2 passes for that of %d for %d", c.from, c.to)
		}
	}
	if wrongByte(block[1:], 1, 2) == "" || wrongByte(append(block[256:512:512], block[256:]...), 1, 2) == "" {
		t.Error("a block out of place passes")
	}
	sum := make([]float32, 300)
	for i := range sum {
		sum[i] = float32(elementOf(4, 0, i+5) + elementOf(4, 1, i+5) + elementOf(4, 2, i+5))
	}
	if wrong := wrongElement(sum, 4, 5, 0, 3); wrong != "" {
		t.Errorf("right, but %s", wrong)
	}
	if wrongElement(sum, 4, 5, 0, 2) == "" || wrongElement(sum, 4, 6, 0, 3) == "" || wrongElement(sum[1:], 4, 5, 0, 3) == "" {
		t.Error("a wrong sum passes")
	}
}

// A quota that is over ends the plan before its next point.
func TestShareEnds(t *testing.T) {
	p := &plan{limit: time.Minute, budget: time.Millisecond, warmup: 1, points: []point{{"barrier", "byte", 0}}}
	if a, _ := runPlan(t, 2, p); !a.ended || len(a.samples) != 0 {
		t.Errorf("ended %t with %v, want no point", a.ended, a.samples)
	}
}

// So it does in C: the twin reads the same plan.
func TestShareEndsInC(t *testing.T) {
	testenv.Part(t, testenv.Results)
	for name, tool := range map[string]string{mpich: "mpiexec.mpich", openmpi: "mpirun.openmpi"} {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, tool)
			p, err := buildPeer(t.Context(), name, &scratch{dir: t.TempDir(), marker: markerName + "=quota"})
			if err != nil {
				t.Fatal(err)
			}
			a := &answer{points: 1, samples: map[int]sample{}}
			file := filepath.Join(t.TempDir(), "plan")
			if err := writePlan(file, &plan{limit: time.Minute, budget: time.Millisecond, warmup: 1, points: []point{{"barrier", "byte", 0}}}); err != nil {
				t.Fatal(err)
			}
			var said locked
			if err := p.variants(false, true, "")[1].run(testenv.Deadline(t, time.Minute), 2, file, &lines{take: a.line}, &said); err != nil {
				t.Fatalf("%v\n%s", err, said.b.String())
			}
			if !a.ended || len(a.samples) != 0 {
				t.Errorf("ended %t with %v, want no point", a.ended, a.samples)
			}
		})
	}
}

func TestInitOnly(t *testing.T) {
	var out, errs bytes.Buffer
	environ := []string{} // a world of one
	if status := runWorker(t.Context(), "init", environ, stdio{out: &out, err: &errs}); status != 0 || out.Len()+errs.Len() > 0 {
		t.Errorf("init: status %d, %q, %q", status, out.String(), errs.String())
	}
}
