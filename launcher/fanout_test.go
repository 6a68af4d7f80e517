package launcher

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// overShells lets a job run on so many hosts, which a script in a remote shell's place plays; it has the host as $1, and the
// command as $2.
func overShells(t testing.TB, job *Job, hosts int, script string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	job.Agents.Shell, job.Agents.Command, job.Network.Interface = []string{file}, roleArgv(t, "agent"), "lo"
	for i := range hosts {
		job.Hosts = append(job.Hosts, Host{Name: fmt.Sprint("far", i), Slots: 1})
	}
}

// play is the end of such a script.
const play = `exec env -u SSH_CONNECTION sh -c "$2"`

// Remote shells are on their way a few at a time, and all hosts come to run.
func TestManyHostsStartInTurns(t *testing.T) {
	const limit = 8
	// With "core" the agents are asked for their machines first.
	for placed, hosts := range map[string]int{"": 48, "core": 24} {
		hosts = testenv.Fewer(hosts, 12)
		t.Run("bind to "+placed, func(t *testing.T) {
			testenv.NoLeaks(t)
			log := filepath.Join(t.TempDir(), "log")
			job := Job{NP: hosts, Argv: sh("echo on $GORUN_HOST"), Placing: Placing{Bind: placed}, Agents: Agents{AtOnce: limit}}
			overShells(t, &job, hosts, `echo + >>`+log+`; ls / >/dev/null; echo - >>`+log+`; `+play)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, stdout, stderr, err := runJob(t, job)
			runtime.ReadMemStats(&after)
			if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "\n") != hosts {
				t.Fatalf("%+v, %v, cause %v\n%s%s", r.ExitStatus, err, r.Cause, stdout, stderr)
			}
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			now, most, all := 0, 0, 0
			for line := range strings.Lines(string(text)) {
				if now--; line == "+\n" {
					now += 2
					all++
				}
				most = max(most, now)
			}
			if most > limit || most < 1 || all != hosts {
				t.Errorf("%d shells, up to %d on their way at a time, want %d and at most %d", all, most, hosts, limit)
			}
			t.Logf("%d bytes allocated for each host", (after.TotalAlloc-before.TotalAlloc)/uint64(hosts))
		})
	}
}

// A host that fails while others wait for their turn, and one hangs, ends the job with one line and at once.
func TestAHostFailsWhileOthersWaitForTheirTurn(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	for _, placed := range []string{"", "core"} {
		t.Run("bind to "+placed, func(t *testing.T) {
			testenv.NoLeaks(t)
			log := filepath.Join(t.TempDir(), "log")
			job := Job{NP: 64, Argv: sh("echo on $GORUN_HOST"), Placing: Placing{Bind: placed}, Agents: Agents{AtOnce: 1}}
			overShells(t, &job, 64, `echo + >>`+log+`; if mkdir `+log+`.first; then echo no way to $1 >&2; exit 255; fi; exec sleep 1000`)
			began := time.Now()
			r, stdout, _, err := runJob(t, job)
			if err != nil || r.ExitStatus != 1 || r.Cause == nil || stdout != "" {
				t.Fatalf("%+v, %v\n%s", r, err, stdout)
			}
			shell := job.Agents.Shell[0]
			if got := r.Cause.String(); !strings.Contains(got, noAgent+shell+" exited with status 255: no way to far") || !strings.Contains(got, "; try "+shell+" far") {
				t.Errorf("got %q", got)
			}
			// Each that ends leaves its place to one that is not told yet.
			if text, err := os.ReadFile(log); err != nil || len(text)/2 > 32 {
				t.Errorf("%d shells were started, %v", len(text)/2, err)
			}
			if took := time.Since(began); took >= 2*DefaultGrace {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Ranks of a host start while another is still on its way, once the first rank's host is there.
func TestRanksStartBeforeAllHostsAreThere(t *testing.T) {
	testenv.NoLeaks(t)
	mark := filepath.Join(t.TempDir(), "mark")
	job := Job{NP: 3, Argv: sh("echo >>" + mark)}
	// The last host waits for ranks of others.
	overShells(t, &job, 3, `if [ $1 = far2 ]; then while [ ! -e `+mark+` ]; do ls / >/dev/null; done; fi; `+play)
	r, _, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 {
		t.Fatalf("%+v, %v\n%s", r, err, stderr)
	}
	if text, err := os.ReadFile(mark); err != nil || string(text) != "\n\n\n" {
		t.Errorf("%q, %v, want a line of each rank", text, err)
	}
}

var all = flag.Bool("all", false, "128 agents and 1,024 ranks in TestManyAgents, as make scale has it")

// Many agents of one machine start and end ranks, without gorun's memory growing by much for each.
func TestManyAgents(t *testing.T) {
	testenv.Part(t, testenv.Large)
	testenv.NoLeaks(t)
	hosts, limit := 16, 30*time.Second
	if *all {
		hosts, limit = 128, 90*time.Second
	}
	job := Job{NP: 8 * hosts, Argv: []string{"true"}, Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Timeout: limit}
	for i := range hosts {
		job.Hosts = append(job.Hosts, Host{Name: fmt.Sprint("h", i), Slots: 8})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	r, _, stderr, err := runJob(t, job)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if err != nil || r.ExitStatus != 0 || len(r.Ranks) != 8*hosts {
		t.Fatalf("%d ranks, status %d, %v, cause %v\n%s", len(r.Ranks), r.ExitStatus, err, r.Cause, stderr)
	}
	perHost := (after.TotalAlloc - before.TotalAlloc) / uint64(hosts)
	if perHost > 512<<10 {
		t.Errorf("%d bytes were allocated for each host", perHost)
	}
	t.Logf("%d agents, %d ranks: %v, %d KiB allocated for each host", hosts, 8*hosts, took, perHost>>10)
}
