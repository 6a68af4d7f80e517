package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

func TestStatusAndCauseOfEnds(t *testing.T) {
	program := roleArgv(t, "pmi")
	steps := func(s ...string) []string { return append(append([]string(nil), program...), s...) }
	// What a rank does at once may end the job before the other host has started its own, which then have no end.
	const met = `: >"$MEET/$PMI_RANK"; until test -e "$MEET/0" -a -e "$MEET/1" -a -e "$MEET/2" -a -e "$MEET/3"; do sleep 0.01; done; `
	for _, c := range []struct {
		name    string
		argv    []string
		status  int
		rank    int    // of the cause
		message string // part of the cause's line
	}{
		{"all well", sh("exit 0"), 0, -2, ""},
		{"one exits with a status", sh(met + "test $PMI_RANK = 2 || exec sleep 30; exit 3"), 3, 2, "rank 2 (host HOST, sh, pid PID): exited with status 3"},
		{"killed by a signal", sh(met + "test $PMI_RANK = 1 || exec sleep 30; kill -SEGV $$"), 139, 1, "killed by signal 11 (segmentation fault)"},
		{"the others end well before", sh(met + "test $PMI_RANK = 1 || exit 0; sleep 0.2; exit 7"), 7, 1, "exited with status 7"},
		{"one ignores the wish that it end", sh(met + "test $PMI_RANK = 1 && exit 5; trap '' TERM INT; while :; do sleep 1; done"), 5, 1, "exited with status 5"},
		{"pmi, all well", steps("init", "barrier", "cards=100", "barrier", "finalize"), 0, -2, ""},
		{"large cards", steps("init", "cards=30000", "cards=1", "cards=0", "finalize"), 0, -2, ""},
		{"abort", steps("init", "barrier", "@3", "abort=9", "barrier", "finalize"), 9, 3, "aborted the job with status 9"},
		{"abort with 0", steps("init", "barrier", "@3", "abort=0", "barrier", "finalize"), 0, 3, "aborted the job with status 0"},
		{"abort with 256", steps("init", "barrier", "@3", "abort=256", "barrier", "finalize"), 0, 3, "aborted the job with status 0: it gave 256"},
		{"no finalize", steps("init", "barrier", "@1", "exit=0", "barrier", "finalize"), 1, 1, "exited with status 0 after MPI_Init without MPI_Finalize"},
		{"no finalize, and others go on", steps("init", "barrier", "@1", "exit=0", "sleep=30000"), 1, 1, "exited with status 0 after MPI_Init without MPI_Finalize, and 3 others still ran 500ms later"},
		{"no finalize of two, one later", steps("init", "barrier", "@1", "exit=0", "@2", "exit=0", "finalize"), 0, -2, ""},
		{"exit before init", append(sh(met+`exec "$@"`), append([]string{"sh"}, steps("@2", "exit=0", "init", "barrier", "finalize")...)...), 1, -3, "ended before init"},
		{"killed in a fence", steps("init", "barrier", "@0", "kill=9", "barrier", "finalize"), 137, 0, "killed by signal 9"},
		{"breaks the protocol", steps("init", "barrier", "@2", "raw=cmd=frobnicate", "barrier", "finalize"), 1, 2, "frobnicate"},
	} {
		for _, way := range waysOf(c.name) {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := Job{Argv: c.argv, NP: 4, Grace: 400 * time.Millisecond, Env: append(os.Environ(), "MEET="+t.TempDir())}
				if strings.Contains(c.message, "still ran") {
					job.Grace = 100 * time.Millisecond // five times that is waited for
				}
				overAgents(t, &job, way.hosts)
				r, _, stderr, err := runJob(t, job)
				if err != nil {
					t.Fatalf("Run: %v", err)
				}
				if r.ExitStatus != c.status || (r.Cause == nil) != (c.rank == -2) {
					t.Fatalf("got status %d, cause %v, want status %d; stderr %q", r.ExitStatus, r.Cause, c.status, stderr)
				}
				if len(r.Ranks) != job.NP {
					t.Errorf("got the ends of %d ranks, want %d", len(r.Ranks), job.NP)
				}
				if r.Cause == nil {
					return
				}
				want := c.message
				if c.rank >= 0 {
					want = strings.ReplaceAll(want, "HOST", r.Ranks[c.rank].Host)
					want = strings.ReplaceAll(want, "PID", fmt.Sprint(r.Ranks[c.rank].PID))
				}
				if c.rank >= 0 && r.Cause.Rank != c.rank || !strings.Contains(r.Cause.String(), want) {
					t.Errorf("cause: got rank %d, %q, want rank %d, %q", r.Cause.Rank, r.Cause, c.rank, want)
				}
				if strings.Contains(r.Cause.String(), "\n") {
					t.Errorf("cause is more than a line: %q", r.Cause)
				}
			})
		}
	}
}

func TestCauseKeepsTheLastLinesOfStderr(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: sh("test $PMI_RANK = 1 || exec sleep 30; seq 100 >&2; printf 'the end' >&2; exit 1"), NP: 2}
			overAgents(t, &job, way.hosts)
			r, _, stderr, err := runJob(t, job)
			if err != nil || r.Cause == nil {
				t.Fatalf("got %+v, %v", r, err)
			}
			if got := strings.Join(r.Cause.Stderr, " "); got != "97 98 99 100 the end" {
				t.Errorf("last lines: got %q", got)
			}
			if !strings.HasSuffix(stderr, "99\n100\nthe end") {
				t.Errorf("stderr: got %q", stderr)
			}
		})
	}
}

func TestRunRefusesJobs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		name   string
		job    Job
		field  string
		status int
		text   string
	}{
		{"negative ranks", Job{Argv: sh("true"), NP: -3}, "NP", 1, "-3"},
		{"no program", Job{NP: 1}, "Argv", 1, "no program"},
		{"empty program", Job{NP: 1, Argv: []string{""}}, "Argv", 127, "empty"},
		{"not in PATH", Job{NP: 2, Argv: []string{"no-such-program-here"}}, "Argv", 127, "directories of PATH, nor in the working directory"},
		{"no such file", Job{NP: 2, Argv: []string{"./no-such-file"}}, "Argv", 127, "no such program"},
		{"not executable", Job{NP: 2, Argv: []string{write("plain", "x", 0o644)}}, "Argv", 126, "permission denied"},
		{"a directory", Job{NP: 2, Argv: []string{dir}}, "Argv", 126, "directory"},
		{"no interpreter", Job{NP: 2, Argv: []string{write("script", "#!/no/such/shell\n", 0o755)}}, "Argv", 127, "interpreter"},
		{"no program of this machine", Job{NP: 2, Argv: []string{write("junk", "\x01\x02\x03", 0o755)}}, "Argv", 126, "exec format error"},
		{"no such directory", Job{NP: 2, Argv: sh("true"), Dir: "/no/such/dir"}, "Dir", 1, "no such file"},
		{"no directory", Job{NP: 2, Argv: sh("true"), Dir: "/dev/null"}, "Dir", 1, "not a directory"},
		{"too few slots", Job{NP: 5, Argv: sh("true"), Hosts: []Host{{Name: "localhost", Slots: 2}}, Placing: Placing{NoOversubscribe: true}}, "Hosts", 1, "(5 ranks, 2 slots), and oversubscription is not allowed"},
		{"a hard limit", Job{NP: 5, Argv: sh("true"), Hosts: []Host{{Name: "localhost", Slots: 2, Max: 4}}}, "Hosts", 1, "max_slots allows 4"},
		{"no such mapping", Job{NP: 1, Argv: sh("true"), Placing: Placing{Map: "moon"}}, "Placing.Map", 1, "want slot, node"},
		{"no such order", Job{NP: 1, Argv: sh("true"), Placing: Placing{Rank: "moon"}}, "Placing.Rank", 1, "want slot, node"},
		{"no such binding", Job{NP: 1, Argv: sh("true"), Placing: Placing{Bind: "moon"}}, "Placing.Bind", 1, "want none, hwthread"},
		{"too many to bind", Job{NP: 9999, Argv: sh("true"), Placing: Placing{Bind: "hwthread"}}, "Placing.Bind", 1, "overload-allowed"},
		{"no such CPUs", Job{NP: 1, Argv: sh("true"), Placing: Placing{CPUs: "x"}}, "Placing.CPUs", 1, "want CPU numbers"},
		{"CPUs that are not there", Job{NP: 1, Argv: sh("true"), Placing: Placing{CPUs: "8000", Bind: "core"}}, "Placing.Bind", 1, "none of the CPUs asked for"},
		{"no rankfile", Job{NP: 1, Argv: sh("true"), Placing: Placing{Map: "rankfile"}}, "Placing.Map", 1, "no file was given"},
		{"a rankfile of nonsense", Job{NP: 1, Argv: sh("true"), Placing: Placing{RankFile: "rank x"}}, "Placing.RankFile", 1, "line 1"},
		{"a rankfile and a mapping", Job{NP: 1, Argv: sh("true"), Placing: Placing{RankFile: "rank 0=localhost", Map: "core"}}, "Placing.RankFile", 1, "cannot be combined with"},
		{"negative ranks a host", Job{NP: 1, Argv: sh("true"), Placing: Placing{PerHost: -1}}, "Placing.PerHost", 1, "-1"},
		{"another machine", Job{NP: 1, Argv: sh("true"), Hosts: []Host{{Name: "no-such-host", Slots: 2}}}, "Hosts", 1, "not this machine"},
		{"no such launcher", Job{NP: 1, Argv: sh("true"), Agents: Agents{Launcher: "rocket"}}, "Agents.Launcher", 1, "rocket"},
		{"no agent", Job{NP: 1, Argv: sh("true"), Agents: Agents{Launcher: "fork"}}, "Agents.Command", 1, "needs the command"},
		{"agent not found", Job{NP: 1, Argv: sh("true"), Agents: Agents{Launcher: "fork", Command: []string{"/no/such/agent"}}, Hosts: []Host{{Name: "a", Slots: 1}}}, "Agents.Command", 1, "no such file"},
		{"closed stdin", Job{NP: 1, Argv: sh("true"), Stdin: closedFile(t)}, "Stdin", 1, "closed"},
		{"over agents", Job{NP: 2, Argv: []string{"./no-such-file"}, Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Hosts: []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}}, "Argv", 127, "no-such-file: host "},
		{"no remote shell", Job{NP: 1, Argv: sh("true"), Agents: Agents{Launcher: "ssh", Shell: []string{"no-such-shell"}, Command: roleArgv(t, "agent")}, Hosts: []Host{{Name: "elsewhere.invalid", Slots: 1}}}, "Agents.Shell", 1, "host elsewhere.invalid: exec: "},
		{"no such file, before another host is there", Job{NP: 2, Argv: []string{"./no-such-file"}, Agents: Agents{Launcher: "ssh", Shell: []string{write("shell", "#!/bin/sh\nexec sleep 600\n", 0o755)}, Command: roleArgv(t, "agent")}, Network: Network{Interface: "lo"},
			Hosts: []Host{{Name: "localhost", Slots: 1}, {Name: "192.0.2.1", Slots: 1}}}, "Argv", 127, ": no such program"},
		{"on one host", Job{Apps: []App{{Argv: []string{"true"}, NP: 1}, {Argv: []string{"./no-such-file"}, NP: 1}}, Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Hosts: []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}}, "Argv", 127, "no-such-file: host b: no such program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			r, stdout, stderr, err := runJob(t, c.job)
			var je *JobError
			if !errors.As(err, &je) {
				t.Fatalf("got %+v, error %v, want a *JobError; wrote %q %q", r, err, stdout, stderr)
			}
			if je.Field != c.field || je.ExitStatus != c.status || r.ExitStatus != c.status || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got field %s, status %d (%d), %q, want field %s, status %d, %q", je.Field, je.ExitStatus, r.ExitStatus, err, c.field, c.status, c.text)
			}
		})
	}
}

func closedFile(t *testing.T) *os.File {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return f
}

func TestRunFailsWhenTheAgentIsNone(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{NP: 2, Argv: sh("true"), Agents: Agents{Launcher: "fork", Command: sh("echo what is this >&2; exit 4")}, Hosts: []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}}
	r, _, _, err := runJob(t, job)
	if err != nil || r.Cause == nil || r.ExitStatus != 1 || !strings.Contains(r.Cause.String(), "exited with status 4: what is this") {
		t.Fatalf("got %+v, cause %v, error %v", r, r.Cause, err)
	}
}

func TestEnvironment(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{
				NP:      4,
				Argv:    sh(`for v in PMI_RANK PMI_SIZE PMI_FD PMI_PORT PMI_ID PMIX_RANK GORUN_PMI GORUN_HOST_INDEX GORUN_LOCAL_RANK GORUN_LOCAL_SIZE GORUN_SEGMENT GORUN_EMULATE OMPI_COMM_WORLD_RANK MPI_LOCALRANKID GORUN_OWN A; do eval echo "$PMI_RANK $v=\${$v-unset}"; done`),
				Env:     []string{"PATH=" + os.Getenv("PATH"), "PMI_FD=77", "PMI_PORT=x:1", "PMI_ID=9", "PMIX_RANK=4", "GORUN_HOST=outer", "GORUN_LOCAL_RANK=8", "GORUN_OWN=kept", "A=1", "A=2"},
				Hosting: hosting.Settings{Emulate: []string{"mlx5_0", "mlx5_1"}},
			}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			index, local, size := "0", "3", "4"
			if way.hosts > 0 {
				index, local, size = "1", "1", "2"
			}
			for _, want := range []string{
				"3 PMI_RANK=3", "3 PMI_SIZE=4", "3 PMI_FD=unset", "3 PMI_ID=3", "3 PMIX_RANK=unset", "3 GORUN_PMI=cards",
				"3 GORUN_HOST_INDEX=" + index, "3 GORUN_LOCAL_RANK=" + local, "3 GORUN_LOCAL_SIZE=" + size, "3 GORUN_SEGMENT=4",
				"3 GORUN_EMULATE=mlx5_0,mlx5_1", "3 OMPI_COMM_WORLD_RANK=3", "3 MPI_LOCALRANKID=" + local, "3 GORUN_OWN=kept", "3 A=2",
			} {
				if !strings.Contains(stdout, want+"\n") {
					t.Errorf("rank 3 has not %s", want)
				}
			}
			if !strings.Contains(stdout, "3 PMI_PORT=127.0.0.1:") {
				t.Errorf("rank 3 has no PMI_PORT")
			}
		})
	}
}

func TestDescriptors(t *testing.T) {
	testenv.NoLeaks(t)
	// One that this process was given without close-on-exec, as by a shell.
	extra, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(extra)
	_, stdout, _, err := runJob(t, Job{NP: 2, Argv: sh(`test $PMI_RANK = 1 || exit 0; exec ls -l /proc/self/fd`)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(stdout) {
		left, target, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if !ok || strings.HasPrefix(target, "/proc/") { // the directory that ls reads
			continue
		}
		kind, _, _ := strings.Cut(target, ":")
		names = append(names, left[strings.LastIndexByte(left, ' ')+1:]+" "+kind)
	}
	sort.Strings(names)
	if got, want := strings.Join(names, ", "), "0 /dev/null, 1 pipe, 2 pipe, 4 /memfd"; got != want {
		t.Errorf("descriptors of rank 1: got %s, want %s", got, want)
	}
}

func TestDirectory(t *testing.T) {
	testenv.NoLeaks(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p"), []byte("#!/bin/sh\npwd -P\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	want, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, _, err := runJob(t, Job{NP: 1, Argv: []string{"./p"}, Dir: dir})
	if err != nil || stdout != want+"\n" {
		t.Errorf("got %q, %v, want %q", stdout, err, want)
	}
}

func TestManyRanks(t *testing.T) {
	testenv.NoLeaks(t)
	r, _, stderr, err := runJob(t, Job{NP: 300, Argv: []string{"true"}})
	if err != nil || r.ExitStatus != 0 || len(r.Ranks) != 300 {
		t.Fatalf("got status %d, %d ranks, cause %v, error %v; %q", r.ExitStatus, len(r.Ranks), r.Cause, err, stderr)
	}
}

func TestFirstRanksOfManyFail(t *testing.T) {
	testenv.NoLeaks(t)
	r, _, _, err := runJob(t, Job{NP: 300, Argv: []string{"false"}})
	if err != nil || r.ExitStatus != 1 || r.Cause == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
}

// TestRanksAreStartedUntilOneFails needs a CPU for the first rank to fail on while the others are started.
func TestRanksAreStartedUntilOneFails(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	testenv.NoLeaks(t)
	if r, _, _, err := runJob(t, Job{NP: 300, Argv: []string{"false"}}); err != nil || len(r.Ranks) == 300 {
		t.Errorf("%d ranks were started though the first ones had failed, %v", len(r.Ranks), err)
	}
}

func TestRunJobsConcurrently(t *testing.T) {
	testenv.NoLeaks(t)
	each := testenv.Fewer(5, 2)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range each {
				want := (i*5 + k) % 3
				var out buffer
				job := Job{NP: 3, Argv: roleArgv(t, "pmi", "init", "barrier", "say=x", "finalize", fmt.Sprint("exit=", want)), Stdout: &out}
				r, err := Run(context.Background(), job)
				if err != nil || r.ExitStatus != want || want == 0 && out.String() != "x\nx\nx\n" {
					t.Errorf("job %d.%d: got status %d, cause %v, error %v, output %q, want status %d", i, k, r.ExitStatus, r.Cause, err, out.String(), want)
				}
			}
		})
	}
	wg.Wait()
}

func TestManyJobsInARow(t *testing.T) {
	testenv.NoLeaks(t)
	n := testenv.Fewer(200, 20)
	for i := range n {
		if r, _, _, err := runJob(t, Job{NP: 2, Argv: []string{"true"}}); err != nil || r.ExitStatus != 0 {
			t.Fatalf("job %d: got %+v, cause %v, error %v", i, r, r.Cause, err)
		}
	}
}

func TestJobInAJob(t *testing.T) {
	testenv.NoLeaks(t)
	inner := `{"NP":2,"Argv":["sh","-c","echo inner $PMI_RANK of $PMI_SIZE; ls /proc/self/fd | wc -l"]}`
	_, stdout, stderr, err := runJob(t, Job{NP: 2, Argv: roleArgv(t, "launcher", inner)})
	if err != nil {
		t.Fatal(err)
	}
	// 0, 1, 2, the segment and the directory that ls reads.
	for text, want := range map[string]int{"inner 0 of 2\n": 2, "inner 1 of 2\n": 2, "5\n": 4} {
		if got := strings.Count(stdout, text); got != want {
			t.Errorf("%q: got %d times, want %d: %q %q", text, got, want, stdout, stderr)
		}
	}
}

func TestLimitedAddressSpace(t *testing.T) {
	testenv.NoLeaks(t)
	argv := roleArgv(t, "launcher", `{"NP":4,"Argv":["sh","-c","echo fine"]}`)
	cmd := exec.Command("sh", append([]string{"-c", "ulimit -v 4000000; exec \"$@\"", "sh"}, argv...)...)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "fine\nfine\nfine\nfine\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// Whatever is short of a descriptor, the launcher or the child that moves its own
// about, the limit is named.
func TestTooFewDescriptors(t *testing.T) {
	testenv.NoLeaks(t)
	argv := roleArgv(t, "launcher", `{"NP":50,"Argv":["sleep","30"]}`)
	for limit := 56; limit < 64; limit++ {
		cmd := exec.Command("sh", append([]string{"-c", fmt.Sprintf("ulimit -n %d; exec \"$@\"", limit), "sh"}, argv...)...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "too many open files") || !strings.Contains(string(out), "ulimit -Hn") {
			t.Errorf("limit %d: got %q, %v, want an error that names the limit", limit, out, err)
		}
	}
}
