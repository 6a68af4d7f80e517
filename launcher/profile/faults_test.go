package profile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/agent"
	"github.com/gorun-mpi/gorun/launcher/profile"
	"github.com/gorun-mpi/gorun/rank"
)

const unitVar = "PROFILE_TEST_UNIT"

// TestMain is also an agent, and the ranks, which have a fault each.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--agent" {
		os.Exit(agent.Main(context.Background(), os.Stdin, os.Stdout))
	}
	if len(os.Args) == 3 && os.Args[1] == "--fault" {
		unit, err := time.ParseDuration(os.Getenv(unitVar))
		if err != nil {
			panic(err)
		}
		rank.Main(func(ctx context.Context, c *rank.Comm) error { return faults[os.Args[2]](ctx, c, unit) })
		return
	}
	status := m.Run()
	if artefacts.dir != "" {
		if err := os.RemoveAll(artefacts.dir); err != nil {
			panic(err)
		}
	}
	os.Exit(status)
}

// work takes time, as far as others can see: it needs no CPU, of which a busy machine has none.
func work(unit time.Duration, n float64) { time.Sleep(time.Duration(n * float64(unit))) }

const steps = 6

var faults = map[string]func(ctx context.Context, c *rank.Comm, unit time.Duration) error{
	"late": func(ctx context.Context, c *rank.Comm, unit time.Duration) error {
		if c.Rank() == 2 {
			work(unit, 6)
		}
		return rank.Barrier(ctx, c)
	},
	"twice": func(ctx context.Context, c *rank.Comm, unit time.Duration) (err error) {
		sum := make([]float64, 8)
		for i := 0; i < steps && err == nil; i++ {
			if c.Rank() == 1 {
				work(unit, 2)
			}
			work(unit, 2)
			err = rank.Allreduce(ctx, c, nil, sum, rank.Sum)
		}
		return err
	},
	"serial": func(ctx context.Context, c *rank.Comm, unit time.Duration) (err error) {
		piece := make([]byte, 1<<20)
		for i := 0; i < steps && err == nil; i++ {
			for to := 1; to < c.Size() && err == nil; to++ {
				switch c.Rank() {
				case 0:
					err = rank.Send(ctx, c, piece, to, 0)
				case to:
					_, err = rank.Recv(ctx, c, piece, 0, 0)
					work(unit, 1)
					err = errors.Join(err, rank.Send(ctx, c, piece[:1], 0, 1))
				}
				if c.Rank() == 0 && err == nil {
					_, err = rank.Recv(ctx, c, piece[:1], to, 1)
				}
			}
		}
		return err
	},
	"hot": func(ctx context.Context, c *rank.Comm, unit time.Duration) (err error) {
		n := c.Size()
		send, recv := make([]int, n), make([]int, n)
		for i := range n {
			send[i], recv[i] = 1, 1
		}
		const most = 1 << 20
		send[3] = most
		if c.Rank() == 3 {
			for i := range n {
				recv[i] = most
			}
		}
		out, in := make([]byte, most+n), make([]byte, n*most)
		for i := 0; i < 4*steps && err == nil; i++ {
			err = rank.Alltoallv(ctx, c, out, send, nil, in, recv, nil)
		}
		return err
	},
	"killed": func(ctx context.Context, c *rank.Comm, _ time.Duration) error {
		victim := []int{os.Getpid()}
		if err := rank.Bcast(ctx, c, victim, 0); err != nil {
			return err
		}
		if c.Rank() != 1 {
			_, err := rank.Recv(ctx, c, make([]byte, 1), 1, 0)
			return err
		}
		for { // until it is in its call
			r, err := calls.Read(strings.TrimSuffix(os.Getenv("GORUN_PROFILE"), "1")+"0", 1, 0, nil)
			if err == nil && r.Current >= 0 && r.Calls[r.Current].Op == "Recv" {
				return syscall.Kill(victim[0], syscall.SIGKILL)
			}
			runtime.Gosched()
		}
	},
	"pingpong": func(ctx context.Context, c *rank.Comm, _ time.Duration) (err error) {
		const n = 100_000
		mem := make([]byte, 8)
		began := time.Now()
		for i := 0; i < n && err == nil; i++ {
			if c.Rank() == 0 {
				err = rank.Send(ctx, c, mem, 1, 0)
			}
			if err == nil {
				_, err = rank.Recv(ctx, c, mem, 1-c.Rank(), 0)
			}
			if c.Rank() == 1 && err == nil {
				err = rank.Send(ctx, c, mem, 0, 0)
			}
		}
		if c.Rank() == 0 {
			fmt.Println(int(time.Since(began)) / (2 * n))
		}
		return err
	},
	"order": func(ctx context.Context, c *rank.Comm, unit time.Duration) (err error) {
		for range steps {
			if c.Rank() > 0 {
				if c.Rank() == 1 {
					work(unit, 4)
				}
				err = errors.Join(err, rank.Send(ctx, c, []byte{1}, 0, 0))
				if c.Rank() != 1 {
					work(unit, 4)
				}
				continue
			}
			requests := make([]rank.Request, c.Size()-1)
			for i := range requests {
				requests[i], _ = rank.Irecv(c, make([]byte, 1), i+1, 0)
			}
			for _, q := range requests {
				_, e := q.Wait(ctx)
				err = errors.Join(err, e)
			}
		}
		return err
	},
}

func job(fault string, out *bytes.Buffer) launcher.Job {
	unit := testenv.Limit(10 * time.Millisecond)
	return launcher.Job{NP: 4, Argv: []string{os.Args[0], "--fault", fault}, Env: append(os.Environ(), unitVar+"="+unit.String()),
		Stdout: out, Stderr: out, Profile: true, Timeout: testenv.Limit(time.Minute)}
}

func run(t *testing.T, fault string) *profile.Report {
	t.Helper()
	var out bytes.Buffer
	return finished(t, job(fault, &out), &out)
}

// finished runs a job that must end well.
func finished(t *testing.T, j launcher.Job, out *bytes.Buffer) *profile.Report {
	t.Helper()
	result, err := launcher.Run(context.Background(), j)
	if err != nil || result.ExitStatus != 0 {
		t.Fatalf("%v, %+v\n%s", err, result.Cause, out.String())
	}
	if len(result.Profile) != j.NP {
		t.Fatalf("%d ranks have recorded calls, want %d\n%s", len(result.Profile), j.NP, out.String())
	}
	return profile.Analyze(result.Profile)
}

// A rank that is killed has left its last call.
func TestKilledRanks(t *testing.T) {
	var out bytes.Buffer
	result, err := launcher.Run(context.Background(), job("killed", &out))
	if err != nil || result.Cause == nil || result.Cause.Rank != 0 || len(result.Profile) != 4 {
		t.Fatalf("%v, %+v, %d records\n%s", err, result.Cause, len(result.Profile), out.String())
	}
	r := &result.Profile[0]
	if r.Current < 0 || r.Calls[r.Current].Op != "Recv" || r.Finalized {
		t.Errorf("%+v, want one that is in Recv", r)
	}
	for i := range result.Profile {
		if r := &result.Profile[i]; r.CPU <= 0 || r.Memory <= 0 {
			t.Errorf("rank %d has used %v and %d bytes", i, r.CPU, r.Memory)
		}
	}
	var text strings.Builder
	if err := profile.Analyze(result.Profile).Summary(&text, ""); err != nil || !strings.Contains(text.String(), "ranks ended without Finalize: their last calls are there") {
		t.Errorf("%v, %s", err, text.String())
	}
}

// Ranks of several hosts are in one profile, and ranks that are no program of package rank are counted.
func TestHostsAndOthers(t *testing.T) {
	var out bytes.Buffer
	j := job("late", &out)
	j.Hosts, j.Agents.Launcher = []launcher.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}, "fork"
	j.Agents.Command = []string{os.Args[0], "--agent"}
	result, err := launcher.Run(context.Background(), j)
	if err != nil || result.ExitStatus != 0 || len(result.Profile) != 4 {
		t.Fatalf("%v, %+v, %d records\n%s", err, result.Cause, len(result.Profile), out.String())
	}
	r := profile.Analyze(result.Profile)
	if r.Ranks[0].Host != "a" || r.Ranks[3].Host != "b" || len(r.Clocks) != 1 || r.Clocks[0] != (profile.Clock{Host: "b"}) {
		t.Errorf("hosts %q and %q, clocks %+v", r.Ranks[0].Host, r.Ranks[3].Host, r.Clocks)
	}
	if len(r.Faults) == 0 || !strings.HasPrefix(r.Faults[0].Text, "rank 2 comes ") {
		t.Errorf("faults %+v", r.Faults)
	}
	j = job("late", &out)
	j.NP, j.Argv = 2, []string{"true"}
	if result, err = launcher.Run(context.Background(), j); err != nil || len(result.Profile) != 0 {
		t.Errorf("%v, %d records of true", err, len(result.Profile))
	}
}

// named is what the first line says of a program's fault. Its places are in that file.
func named(file string) map[string][]string {
	return map[string][]string{
		"late":   {"rank 2 comes ", " late to Barrier " + file + ":", ", once: ", " others wait for it in Barrier"},
		"twice":  {"rank 1 has ", " times the work of the others", "wait for it in Allreduce (" + file + ":"},
		"serial": {"rank 0 sends to 3 ranks one after the other (Send " + file + ":", "Bcast, Scatter"},
		"hot":    {"rank 3 receives ", "times as many bytes as the mean in Alltoallv (" + file + ":"},
		"order":  {"rank 0 waits for rank 1 in Wait (" + file + ":", "while messages of others are there: WaitAny"},
	}
}

// The first line names what is wrong with a program.
func TestFaultsAreNamed(t *testing.T) {
	for fault, want := range named("faults_test.go") {
		t.Run(fault, func(t *testing.T) { checkSummary(t, run(t, fault), want) })
	}
}

// checkSummary wants words in the first line of a summary.
func checkSummary(t *testing.T, r *profile.Report, want []string) {
	t.Helper()
	var text strings.Builder
	if err := r.Summary(&text, "gorun: "); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(text.String(), "\n")
	for _, part := range want {
		if !strings.Contains(first, part) {
			t.Errorf("no %q in the first line of\n%s", part, text.String())
		}
	}
	if n := strings.Count(text.String(), "\n"); n > 25 {
		t.Errorf("%d lines\n%s", n, text.String())
	}
	for i, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		if !strings.HasPrefix(line, "gorun: ") {
			t.Errorf("line %s is %q", strconv.Itoa(i+1), line)
		}
	}
}

// BenchmarkCost is what a message of 8 bytes takes with and without a profile, in turns: the medians, in nanoseconds.
func BenchmarkCost(b *testing.B) {
	var took [2][]int
	for b.Loop() {
		for with := range took {
			var out bytes.Buffer
			j := job("pingpong", &out)
			j.NP, j.Profile = 2, with == 1
			result, err := launcher.Run(context.Background(), j)
			n, bad := strconv.Atoi(strings.TrimSpace(out.String()))
			if err != nil || result.ExitStatus != 0 || bad != nil {
				b.Fatalf("%v, %+v, %s", err, result.Cause, out.String())
			}
			took[with] = append(took[with], n)
		}
	}
	for with, name := range [2]string{"ns-without", "ns-with"} {
		slices.Sort(took[with])
		b.ReportMetric(float64(took[with][len(took[with])/2]), name)
	}
}
