package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/internal/endsignal"
)

// script is a contender that answers a plan as a function says.
func script(system, memory, variant string, run func(ctx context.Context, p *plan, out io.Writer) error) *contender {
	return &contender{system: system, memory: memory, variant: variant, run: func(ctx context.Context, _ int, name string, out, _ io.Writer) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		p, err := readPlan(f)
		if err != nil {
			return err
		}
		return run(ctx, p, out)
	}}
}

// answers gives every point the same time, the end included.
func answers(us float64) func(context.Context, *plan, io.Writer) error {
	return func(_ context.Context, p *plan, out io.Writer) error {
		for i := range p.points {
			fmt.Fprintf(out, "point %d %v\n", i, sample{batch: 1, count: 10, p10: us, p50: us, p90: us, p99: us})
		}
		fmt.Fprintln(out, "end")
		return nil
	}
}

func scripted(t *testing.T, runs int, contenders ...*contender) (*session, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := &session{params: &params{runs: runs, budget: time.Millisecond}, log: logline.New(&log, logline.Info), errs: &log, scratch: &scratch{dir: t.TempDir()},
		versions: map[string]string{}, progress: &progress{}, lateness: 50 * time.Millisecond}
	for _, c := range contenders {
		s.jobs = append(s.jobs, &job{contender: c, np: 2, points: []point{{"barrier", "byte", 0}, {"bcast", "byte", 8}}})
	}
	return s, &log
}

// A benchmark that always fails spoils its own row.
func TestFailureSpoilsItsOwnRow(t *testing.T) {
	s, _ := scripted(t, 2, script(gorun, registered, "", func(_ context.Context, p *plan, out io.Writer) error {
		for i, at := range p.points {
			if at.benchmark == "barrier" {
				return errors.New("exit status 7")
			}
			fmt.Fprintf(out, "point %d %v\n", i, sample{batch: 1, count: 10, p10: 1, p50: 1, p90: 1, p99: 1})
		}
		fmt.Fprintln(out, "end")
		return nil
	}))
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"barrier 0 on 2 ranks, gorun registered failed"}
	if got := s.results.faults(); !slices.Equal(got, want) {
		t.Errorf("faults %q, want %q", got, want)
	}
	if n := s.results.count(s.jobs[0], point{"bcast", "byte", 8}); n != 2 {
		t.Errorf("the benchmark behind it was measured in %d rounds, want 2", n)
	}
}

// Each launch is a job by itself, so that it fails by itself.
func TestLaunchesAreJobsOfTheirOwn(t *testing.T) {
	s := &session{params: &params{counts: []int{4}, memories: []string{ordinary, registered},
		points: []point{{benchmark: "launch"}, {benchmark: "init"}, {benchmark: "barrier", typ: "byte"}}}}
	s.prepare()
	var got []string
	for _, j := range s.jobs {
		var names []string
		for _, p := range j.points {
			names = append(names, p.benchmark)
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := []string{"launch", "init", "barrier"}; !slices.Equal(got, want) {
		t.Errorf("jobs %q, want %q", got, want)
	}
}

// A peer that hangs or fails is tried twice in a round and the others go on;
// one that hangs only once where there is a deadline.
func TestPeerThatHangsOrFails(t *testing.T) {
	for deadline, tries := range map[time.Duration]int{0: 2, time.Minute: 1} {
		testPeerThatHangsOrFails(t, deadline, tries)
	}
}

func testPeerThatHangsOrFails(t *testing.T, deadline time.Duration, tries int) {
	hangs := 0
	hanging := script(openmpi, ordinary, "core", func(ctx context.Context, _ *plan, _ io.Writer) error {
		hangs++
		<-ctx.Done()
		return context.Cause(ctx)
	})
	failing := script(mpich, ordinary, "", func(context.Context, *plan, io.Writer) error { return errors.New("exit status 7") })
	s, log := scripted(t, 1, script(gorun, registered, "", answers(1)), hanging, failing, script(gorun, ordinary, "", answers(2)))
	s.params.quick = true // a short quota
	s.params.deadline = deadline
	for _, j := range s.jobs {
		j.points = j.points[:1]
	}
	s.lateness = -s.params.quotaOf(1) + 30*time.Millisecond
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := s.results.rows([]point{{"barrier", "byte", 0}})
	var b strings.Builder
	if err := writeTable(&b, rows); err != nil {
		t.Fatal(err)
	}
	if hangs != tries || strings.Count(b.String(), "failed") != 4 || !strings.Contains(b.String(), "1.00") || !strings.Contains(b.String(), "2.00") || !s.results.bad() {
		t.Errorf("%d tries, table\n%s", hangs, b.String())
	}
	for _, want := range []string{"np 2, openmpi, core: failed in round 1: did not end within", "np 2, mpich: exit status 7; tried again", "failed in round 1", "exit status 7"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
}

// An MPI that hangs for ever, or prints something else and ends well, is not
// waited for in every round.
func TestFruitlessJobsAreLeftOut(t *testing.T) {
	hangs, nonsense := 0, 0
	hanging := script(openmpi, ordinary, "core", func(ctx context.Context, _ *plan, _ io.Writer) error {
		hangs++
		<-ctx.Done()
		return context.Cause(ctx)
	})
	talking := script(mpich, ordinary, "", func(_ context.Context, _ *plan, out io.Writer) error {
		nonsense++
		fmt.Fprintln(out, "Hello, world")
		return nil
	})
	s, log := scripted(t, 20, hanging, talking, script(gorun, registered, "", answers(1)))
	s.lateness = -s.params.quotaOf(2) + 30*time.Millisecond
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hangs != 2 || nonsense != 2 || s.jobs[2].took == 0 || !s.results.bad() || s.results.count(s.jobs[2], s.jobs[2].points[0]) != 20 {
		t.Errorf("%d and %d tries, want 2 each and 20 rounds of the other; log\n%s", hangs, nonsense, log)
	}
	for _, want := range []string{"openmpi, core: left out", "mpich: left out", "ended without a last word, after 0 of 2 results"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
}

// What a job gave before it failed counts, and its next try measures the rest.
func TestSecondTryMeasuresTheRest(t *testing.T) {
	var plans []string
	c := script(mpich, ordinary, "", func(ctx context.Context, p *plan, out io.Writer) error {
		plans = append(plans, fmt.Sprint(p.points))
		if len(plans) == 1 {
			fmt.Fprintln(out, "point 0 1 10 1 2 3 4")
			return errors.New("died")
		}
		return answers(5)(ctx, p, out)
	})
	s, _ := scripted(t, 1, c)
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(plans), "[[barrier 0 bcast 8] [bcast 8]]"; got != want || s.results.bad() {
		t.Errorf("plans %s, want %s; bad %t", got, want, s.results.bad())
	}
}

// A job whose quota ends early begins the next round with what it has least of.
func TestSlowJobsTakeTurns(t *testing.T) {
	var plans []string
	c := script(mpich, ordinary, "", func(_ context.Context, p *plan, out io.Writer) error {
		plans = append(plans, fmt.Sprint(p.points))
		fmt.Fprintln(out, "point 0 1 10 1 2 3 4\nend")
		return nil
	})
	s, _ := scripted(t, 3, c)
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(plans), "[[barrier 0 bcast 8] [bcast 8 barrier 0] [bcast 8 barrier 0]]"; got != want {
		t.Errorf("plans %s, want %s", got, want)
	}
}

// What was measured before the session ended stays.
func TestInterruptKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	rounds := 0
	last := script(openmpi, ordinary, "", func(one context.Context, p *plan, out io.Writer) error {
		if rounds++; rounds < 3 {
			return answers(4)(one, p, out)
		}
		cancel(endsignal.Received(2))
		<-one.Done()
		return context.Cause(one)
	})
	s, _ := scripted(t, 100, script(gorun, registered, "", answers(1)), last)
	s.lateness = time.Minute
	err := s.run(ctx)
	rows := s.results.rows([]point{{"barrier", "byte", 0}})
	if !errors.Is(err, endsignal.Received(2)) || len(rows) != 4 || rows[0].Runs != 3 || rows[0].Pairs != 2 || rows[0].Ratio != 0.25 {
		t.Errorf("error %v, rows %+v; want the signal, and 3 runs with 2 pairs", err, rows)
	}
}

// Rounds end before the deadline would pass. Time is the test's own.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := script(gorun, registered, "", func(ctx context.Context, p *plan, out io.Writer) error {
			time.Sleep(20 * time.Millisecond) // what a job takes
			return answers(1)(ctx, p, out)
		})
		s, log := scripted(t, 1000, slow)
		s.params.deadline = 50 * time.Millisecond
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if runs := s.results.rows(nil)[0].Runs; runs < 1 || runs > 2 || !strings.Contains(log.String(), "of 1000 rounds were made") {
			t.Errorf("%d rounds, log %s", runs, log.String())
		}
	})
}

// A window of gorun stands beside the MPIs' of the same kind, and all else beside the one row they have.
func TestWindowsBesideTheirLike(t *testing.T) {
	put, bcast := point{"put", "byte", 8}, point{"bcast", "byte", 8}
	for _, c := range []struct{ memories, want string }{
		{"registered,ordinary", "gorun registered put bcast, gorun ordinary put bcast, openmpi ordinary put bcast, openmpi ordinary put bcast, openmpi registered put, openmpi registered put"},
		{"registered", "gorun registered put bcast, openmpi ordinary bcast, openmpi ordinary bcast, openmpi registered put, openmpi registered put"},
		{"ordinary", "gorun ordinary put bcast, openmpi ordinary put bcast, openmpi ordinary put bcast"},
	} {
		s := &session{params: &params{counts: []int{2}, memories: strings.Split(c.memories, ","), points: []point{put, bcast}},
			scratch: &scratch{}, peers: []*peer{{name: openmpi}}, cpus: 2}
		s.prepare()
		var got []string
		for _, j := range s.jobs {
			text := j.system + " " + j.memory
			for _, p := range j.points {
				text += " " + p.benchmark
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("--memory %s: jobs %s\nwant %s", c.memories, text, c.want)
		}
	}

	var r results
	for _, one := range []struct {
		system, memory string
		us             float64
	}{{gorun, registered, 1}, {gorun, ordinary, 6}, {openmpi, registered, 2}, {openmpi, ordinary, 3}} {
		for _, p := range []point{put, bcast} {
			if p == put || one.system == gorun || one.memory == ordinary {
				r.add(&job{contender: &contender{system: one.system, memory: one.memory}, np: 2}, p, 0, sample{batch: 1, count: 1, p10: one.us, p50: one.us, p90: one.us, p99: one.us})
			}
		}
	}
	rows := r.rows([]point{put, bcast})
	var got []string
	for _, l := range linesOf(rows) {
		got = append(got, fmt.Sprintf("%s %s %g %s", l.gorun.Benchmark, l.gorun.Memory, l.gorun.Ratio, l.peers[openmpi].Memory))
	}
	if want := "put registered 0.5 registered, put ordinary 2 ordinary, bcast registered 0.3333 ordinary, bcast ordinary 2 ordinary"; strings.Join(got, ", ") != want {
		t.Errorf("lines %s\nwant %s", strings.Join(got, ", "), want)
	}
	// Files from before the MPIs had both kinds.
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.System == openmpi && r.Memory == registered })
	if l := linesOf(rows)[0]; l.gorun.Memory != registered || l.peers[openmpi] == nil || l.peers[openmpi].Memory != ordinary {
		t.Errorf("without the MPIs' second kind: %+v beside %+v", l.gorun, l.peers[openmpi])
	}
}
