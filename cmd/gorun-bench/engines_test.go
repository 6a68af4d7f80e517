package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// enginePlan has an engine run all that engines can.
func enginePlan(name, memory string) *plan {
	p := &plan{limit: testenv.Limit(time.Minute), quota: testenv.Limit(time.Minute), budget: time.Millisecond, warmup: 1, iterations: 3, separate: true, memory: memory, engine: name}
	for i := range benchmarks {
		if b := &benchmarks[i]; groups["engines"](b) {
			for _, n := range []int{8, 1000, 200_000} {
				p.points = append(p.points, point{b.name, "float", n})
			}
		}
	}
	return p
}

// Each engine runs every call of its points, whatever the length, and the results are right. The
// daemon, a process of its own, has a script (testdata/scripts/bench/engines.txtar).
func TestEnginesRunTheirCalls(t *testing.T) {
	for _, name := range []string{engineInline, engineThread, engineDPA} {
		for np := 2; np <= 3; np++ {
			for _, memory := range []string{registered, ordinary} {
				t.Run(fmt.Sprintf("%s, %d ranks, %s", name, np, memory), func(t *testing.T) {
					testenv.NoLeaks(t)
					p := enginePlan(name, memory)
					if len(p.points) != 7*3 {
						t.Fatalf("%d points, want three of each of seven collectives", len(p.points))
					}
					a, said := runPlan(t, np, p)
					if !a.ended || said != "" {
						t.Errorf("ended %t, said %q", a.ended, said)
					}
					for i, pt := range p.points {
						// One call that is verified, one to warm up, three or more that are timed: on each rank.
						if s := a.samples[i]; s.wrong || s.executed < uint64(5*np) || s.executed%uint64(np) != 0 {
							t.Errorf("%v: %+v, want at least %d calls by the engine", pt, s, 5*np)
						}
					}
				})
			}
		}
	}
}

// A rank that runs a step of a call by itself is found out, as is an engine that ran where none should.
func TestEngineThatFallsBackIsAnError(t *testing.T) {
	for _, c := range []struct {
		engine string
		cfg    rank.Config
		want   string
	}{
		{engineThread, rank.Config{Progress: rank.ProgressOff}, `engine thread: the progress thread has run 0 of (\d+) calls, and (\d+) were run by others`},
		{engineDaemon, rank.Config{Progress: rank.ProgressOff}, `engine daemon: the daemon has run 0 of (\d+) calls, and (\d+) were run by others`},
	} {
		p := enginePlan(c.engine, registered)
		err := rank.RunConfig{Config: c.cfg}.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, comm *rank.Comm) error {
			return (&worker{ctx: ctx, comm: comm, plan: p, out: io.Discard, err: io.Discard, started: time.Now()}).run()
		})
		// How many calls there are depends on how long each takes.
		if found := regexp.MustCompile(c.want).FindStringSubmatch(fmt.Sprint(err)); found == nil || found[1] == "0" || found[1] != found[2] {
			t.Errorf("%s: got %v, want %q", c.engine, err, c.want)
		}
	}
}

func TestEngineRowsStandApart(t *testing.T) {
	s := &session{params: &params{counts: []int{2}, memories: []string{registered, ordinary}, engines: engines,
		points: []point{{"barrier", "byte", 0}, {"bcast", "byte", 8}}}}
	s.prepare()
	var got []string
	for _, j := range s.jobs {
		s.results.add(j, point{"bcast", "byte", 8}, 0, sample{batch: 1, count: 3, p10: 1, p50: 1, p90: 1, p99: 1, executed: 10})
		got = append(got, fmt.Sprintf("%s/%s/%d", j.engine, j.memory, len(j.points)))
	}
	if want := "inline/registered/2 thread/registered/2 dpa/registered/2 daemon/registered/2 inline/ordinary/1 thread/ordinary/1 dpa/ordinary/1"; strings.Join(got, " ") != want {
		t.Errorf("jobs %q, want %q", got, want)
	}
	rows := s.results.rows(s.params.points)
	if len(rows) != len(s.jobs) || rows[2].Engine != engineDPA || rows[2].Executed != 10 {
		t.Errorf("%d rows, the third %+v; want one for each of %d jobs", len(rows), rows[2], len(s.jobs))
	}
}
