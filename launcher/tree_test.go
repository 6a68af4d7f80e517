package launcher

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// overTree lets a job run on so many hosts of a tree, with a script before the part that plays the remote shell. logged are the
// logins: each a host, whether it was a relay's, and whether it was from here.
func overTree(t testing.TB, job *Job, hosts int, script string) (logged func() []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	job.Agents.Tree = 2
	overShells(t, job, hosts, `case $2 in *--relay*) what=relay;; *) what=agent;; esac; echo $1 $what $PPID >>`+log+"\n"+script+"\n"+play)
	return func() (lines []string) {
		text, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			from := "there"
			if f[2] == strconv.Itoa(os.Getpid()) {
				from = "here"
			}
			lines = append(lines, f[0]+" "+f[1]+" "+from)
		}
		slices.Sort(lines)
		return lines
	}
}

func TestBlocksOfATree(t *testing.T) {
	for _, c := range []struct {
		job    Job
		others int
		want   string // the blocks' sizes
	}{
		{Job{}, 64, ""},
		{Job{}, 65, "8 8 8 8 8 8 8 8 1"},
		{Job{Agents: Agents{Tree: 2}}, 1, ""},
		{Job{Agents: Agents{Tree: 1}}, 1, ""},
		{Job{Agents: Agents{Tree: 2}}, 5, "2 2 1"},
		{Job{Agents: Agents{AtOnce: 2}}, 100, "50 50"},
		{Job{Agents: Agents{Tree: -1}}, 100, ""},
		{Job{Agents: Agents{Stage: true}}, 100, ""},
		{Job{Continuous: true}, 100, ""},
		{Job{Restarts: Restarts{Max: 1}}, 100, ""},
		{Job{Elastic: &Elastic{}}, 100, ""},
		{Job{Agents: Agents{Launcher: slurm.Launcher}}, 100, ""},
		{Job{Agents: Agents{Launcher: launcherFork}}, 100, ""},
	} {
		job := c.job
		if job.Agents.Launcher == "" {
			job.Agents.Launcher = launcherSSH
		}
		job.run.gate = make(chan struct{}, max(job.Agents.AtOnce, 32-30*min(1, job.Agents.AtOnce)))
		hosts := []string{"localhost"}
		for i := range c.others {
			hosts = append(hosts, fmt.Sprint("far", i))
		}
		var sizes []string
		for _, b := range job.blocks(hosts) {
			sizes = append(sizes, strconv.Itoa(len(b)))
		}
		if got := strings.Join(sizes, " "); got != c.want {
			t.Errorf("%+v, %d others: got blocks of %q, want %q", c.job, c.others, got, c.want)
		}
	}
}

// gorun logs in to the first host of each block, and the relay there to the others. All that ranks write and read passes.
func TestTreeOfLogins(t *testing.T) {
	for _, placed := range []string{"", "core"} {
		t.Run("bind to "+placed, func(t *testing.T) {
			testenv.NoLeaks(t)
			const lines = 2000
			job := Job{NP: 6, Argv: sh(`cat; seq -f "$PMI_RANK: %.0f" ` + strconv.Itoa(lines) + `; echo said >&2`), Placing: Placing{Bind: placed}, Stdin: strings.NewReader(strings.Repeat("input\n", 50000))}
			logged := overTree(t, &job, 6, "")
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || strings.Count(stderr, "said\n") != 6 || strings.Count(stdout, "input\n") != 50000 {
				t.Fatalf("%+v, %v, cause %v\n%d lines of input\n%s", r.ExitStatus, err, r.Cause, strings.Count(stdout, "input\n"), stderr)
			}
			for rank := range 6 {
				n := 0
				for line := range strings.Lines(stdout) {
					if text, ok := strings.CutPrefix(line, fmt.Sprint(rank, ": ")); ok {
						if n++; text != fmt.Sprintln(n) {
							t.Fatalf("rank %d, line %d: %q", rank, n, text)
						}
					}
				}
				if n != lines {
					t.Errorf("rank %d: %d lines, want %d", rank, n, lines)
				}
			}
			want := []string{"far0 relay here", "far1 agent there", "far2 relay here", "far3 agent there", "far4 relay here", "far5 agent there"}
			if got := logged(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A host that its relay cannot log in to is logged in to from here, as are those whose relay is none.
func TestTreeFallsBack(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         []string
	}{
		{"one refuses", `if [ $1 = far1 ] && [ $PPID != $HERE ]; then echo Permission denied >&2; exit 255; fi`,
			[]string{"far0 relay here", "far1 agent here", "far1 agent there", "far2 relay here", "far3 agent there"}},
		{"another version", `if [ $1 = far1 ] && [ $PPID != $HERE ]; then printf '\000gorun-agent 0.0.1 1 5\n'; exec sleep 1000; fi`,
			[]string{"far0 relay here", "far1 agent here", "far1 agent there", "far2 relay here", "far3 agent there"}},
		{"a relay is an agent", `if [ $1 = far0 ]; then set -- far0 "${2% *--relay*}"; fi`,
			[]string{"far0 agent here", "far0 relay here", "far1 agent here", "far2 relay here", "far3 agent there"}},
		{"a relay ends at once", `if [ $1 = far0 ] && [ $what = relay ]; then set -- far0 "$2 </dev/null"; fi`,
			[]string{"far0 agent here", "far0 relay here", "far1 agent here", "far2 relay here", "far3 agent there"}},
		{"a program without relays", `if [ $what = relay ]; then echo usage >&2; exit 2; fi`,
			[]string{"far0 agent here", "far0 relay here", "far1 agent here", "far2 agent here", "far2 relay here", "far3 agent here"}},
		{"no such shell there", `if [ $what = relay ]; then PATH=/usr/bin:/bin; fi`,
			[]string{"far0 relay here", "far1 agent here", "far2 relay here", "far3 agent here"}},
	} {
		for _, placed := range []string{"", "core"} {
			t.Run(c.name+", bind to "+placed, func(t *testing.T) {
				testenv.NoLeaks(t)
				var log bytes.Buffer
				job := Job{NP: 4, Argv: sh("echo on $GORUN_HOST"), Placing: Placing{Bind: placed}, Log: slog.New(slog.NewTextHandler(&log, nil))}
				logged := overTree(t, &job, 4, "HERE="+strconv.Itoa(os.Getpid())+"; "+c.script)
				dir, name := filepath.Split(job.Agents.Shell[0])
				t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
				job.Agents.Shell[0] = name
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "on far") != 4 {
					t.Fatalf("%+v, %v, cause %v\n%s%s\n%s", r.ExitStatus, err, r.Cause, stdout, stderr, &log)
				}
				if got := logged(); !slices.Equal(got, c.want) {
					t.Errorf("got %q, want %q\n%s", got, c.want, &log)
				}
			})
		}
	}
}

// apartFrom plays a remote shell beside what it starts, whose pids it writes to a file: what is killed here leaves that alone.
const apartFrom = `env -u SSH_CONNECTION sh -c "echo $1 $what \$\$ >>$PIDS; $2"; exit`

// pidOf is the process of a host that apartFrom has started.
func pidOf(t *testing.T, file, host, what string) (pid int) {
	t.Helper()
	testenv.Await(t, time.Minute, what+" of "+host, func() bool {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == host && f[1] == what {
				pid, _ = strconv.Atoi(f[2])
			}
		}
		return pid != 0
	})
	return pid
}

// expectEnds waits for the ends of all processes that apartFrom has started.
func expectEnds(t *testing.T, file string) {
	t.Helper()
	text, _ := os.ReadFile(file) // which is not there where nothing was started
	for line := range strings.Lines(string(text)) {
		pid, _ := strconv.Atoi(strings.Fields(line)[2])
		if !endsBefore(pid, time.Now().Add(killedWithin)) {
			t.Errorf("still alive: %s", line)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// A relay that is lost ends the job, which names its host, and all behind it end.
func TestRelayIsLost(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, pids string)
		says string
	}{
		{"kill -9 of the relay", func(t *testing.T, pids string) { _ = syscall.Kill(pidOf(t, pids, "far2", "relay"), syscall.SIGKILL) }, "the relay there (pid "},
		{"kill -9 of its own agent", func(t *testing.T, pids string) {
			for _, pid := range testenv.Children(pidOf(t, pids, "far2", "relay")) {
				if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(text, []byte("agent")) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}, "was killed by signal 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			pids := filepath.Join(t.TempDir(), "pids")
			entry := fmt.Sprintf("LAUNCHER_TEST=%d-%d", os.Getpid(), time.Now().UnixNano())
			var out, errs buffer
			job := Job{NP: 6, Argv: sh("sleep 1000 & echo rank $PMI_RANK; wait"), Env: append(os.Environ(), entry), Stdout: &out, Stderr: &errs, Grace: 200 * time.Millisecond}
			overTree(t, &job, 6, "PIDS="+pids+"; "+apartFrom)
			go func() {
				for rank := range job.NP {
					<-out.await(fmt.Sprintf("rank %d", rank))
				}
				c.do(t, pids)
			}()
			began := time.Now()
			r, err := Run(testenv.Deadline(t, 30*time.Second), job)
			if err != nil || r.ExitStatus == 0 || r.Cause == nil || r.Cause.Host != "far2" || r.Cause.Rank != -1 || !strings.Contains(r.Cause.String(), c.says) {
				t.Errorf("got %+v, cause %v, error %v; %q", r, r.Cause, err, errs.String())
			}
			expectNone(t, entry)
			expectEnds(t, pids)
			t.Logf("%v after %v", r.Cause, time.Since(began))
		})
	}
}

// A relay that is stopped does not keep a job from its end, and ends itself when its host's agent hears no more of gorun.
func TestRelayIsStopped(t *testing.T) {
	testenv.NoLeaks(t)
	dir := t.TempDir()
	pids, stopped := filepath.Join(dir, "pids"), filepath.Join(dir, "stopped")
	entry := fmt.Sprintf("LAUNCHER_TEST=%d-%d", os.Getpid(), time.Now().UnixNano())
	var out, errs buffer
	job := Job{NP: 4, Argv: sh("echo rank $PMI_RANK; test $PMI_RANK = 0 || exec sleep 1000; until [ -e " + stopped + " ]; do ls / >/dev/null; done; exit 3"),
		Env: append(os.Environ(), entry), Stdout: &out, Stderr: &errs, Grace: 100 * time.Millisecond, Agents: Agents{Timeout: time.Second}}
	overTree(t, &job, 4, "PIDS="+pids+"; "+apartFrom)
	go func() {
		for rank := range job.NP {
			<-out.await(fmt.Sprintf("rank %d", rank))
		}
		_ = syscall.Kill(pidOf(t, pids, "far2", "relay"), syscall.SIGSTOP)
		if err := os.WriteFile(stopped, nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	began := time.Now()
	r, err := Run(testenv.Deadline(t, 30*time.Second), job)
	// On a busy machine its watchdog may be sooner than the rank's end.
	byRank := r.ExitStatus == 3 && r.Cause != nil && r.Cause.Rank == 0
	byRelay := r.ExitStatus == 1 && r.Cause != nil && r.Cause.Host == "far2"
	if err != nil || !byRank && !byRelay {
		t.Errorf("got %+v, cause %v, error %v; %q", r, r.Cause, err, errs.String())
	}
	t.Logf("ended after %v", time.Since(began))
	expectNone(t, entry)
	expectEnds(t, pids)
	t.Logf("nothing left after %v", time.Since(began))
}

// A job that is told to end while its logins are under way ends them all.
func TestTreeEndsWhileLoginsAreUnderWay(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"behind a relay", `if [ $1 = far3 ]; then : >$DIR/there; exec sleep 1000; fi`},
		{"to a relay", `if [ $1 = far2 ]; then : >$DIR/there; exec sleep 1000; fi`},
		{"waiting for their turn", `if [ $1 = far1 ]; then : >$DIR/there; exec sleep 1000; fi`},
	} {
		for _, placed := range []string{"", "core"} {
			t.Run(c.name+", bind to "+placed, func(t *testing.T) {
				testenv.NoLeaks(t)
				dir := t.TempDir()
				signals := make(chan os.Signal, 1)
				job := Job{NP: 4, Argv: sh("sleep 1000"), Placing: Placing{Bind: placed}, Signals: signals}
				if strings.Contains(c.name, "turn") {
					job.Agents.AtOnce = 1
				}
				overTree(t, &job, 4, strings.ReplaceAll(c.script, "$DIR", dir)+"\nPIDS="+dir+"/pids; "+apartFrom)
				go func() {
					testenv.Await(t, time.Minute, "the login", func() bool { _, err := os.Stat(filepath.Join(dir, "there")); return err == nil })
					signals <- syscall.SIGTERM
				}()
				r, _, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 143 {
					t.Errorf("%+v, %v, cause %v\n%s", r.ExitStatus, err, r.Cause, stderr)
				}
				expectEnds(t, dir+"/pids")
			})
		}
	}
}

// A relay's host that cannot be reached is named as without a tree, and tried once. A relay that hangs is waited for by its own host alone.
func TestRelayDoesNotCome(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		testenv.NoLeaks(t)
		job := Job{NP: 4, Argv: sh("exec sleep 1000")}
		logged := overTree(t, &job, 4, `if [ $1 = far2 ]; then echo no way to $1 >&2; exit 255; fi`)
		r, _, _, err := runJob(t, job)
		if err != nil || r.Cause == nil || r.Cause.Host != "far2" || !strings.Contains(r.Cause.String(), noAgent+job.Agents.Shell[0]+" exited with status 255: no way to far2; try "+job.Agents.Shell[0]+" far2") {
			t.Errorf("%+v, cause %v, %v", r.ExitStatus, r.Cause, err)
		}
		if got := logged(); slices.Contains(got, "far2 agent here") {
			t.Errorf("logins %q, want one to far2", got)
		}
	})
	t.Run("comes, and is cut off", func(t *testing.T) {
		testenv.NoLeaks(t)
		job := Job{NP: 4, Argv: sh("exec sleep 1000")}
		logged := overTree(t, &job, 4, `if [ $1 = far2 ]; then env -u SSH_CONNECTION sh -c "$2" | head -n 1; echo no answer of $1 >&2; exit 255; fi`)
		r, _, _, err := runJob(t, job)
		if err != nil || r.Cause == nil || r.Cause.Host != "far2" || !strings.HasSuffix(r.Cause.String(), " is lost: "+job.Agents.Shell[0]+" exited with status 255: no answer of far2") {
			t.Errorf("%+v, cause %v, %v", r.ExitStatus, r.Cause, err)
		}
		if got := logged(); slices.Contains(got, "far2 agent here") {
			t.Errorf("logins %q, want one to far2", got)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		testenv.NoLeaks(t)
		job := Job{NP: 4, Argv: sh("echo on $GORUN_HOST"), run: jobRun{secondAfter: 20 * time.Millisecond}}
		logged := overTree(t, &job, 4, `if [ $1 = far2 ] && [ $what = relay ]; then exec sleep 1000; fi`)
		r, stdout, stderr, err := runJob(t, job)
		if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "on far") != 4 {
			t.Errorf("%+v, %v, cause %v\n%s%s", r.ExitStatus, err, r.Cause, stdout, stderr)
		}
		if got := logged(); !slices.Contains(got, "far2 agent here") || !slices.Contains(got, "far3 agent here") {
			t.Errorf("logins %q, want far2 and far3 to be logged in to from here", got)
		}
	})
}
