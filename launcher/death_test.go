package launcher

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// marked are the processes that carry an entry in their environment.
func marked(entry string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00")) {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killedWithin bounds how long the guardian takes where others have the CPUs.
const killedWithin = time.Minute

// expectNone waits for all processes with the entry to end, and fails if one is
// still alive after killedWithin.
func expectNone(t *testing.T, entry string) {
	t.Helper()
	deadline := time.Now().Add(killedWithin)
	for {
		left := marked(entry)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			if !endsBefore(pid, deadline) {
				cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("still alive after %v: %d %q", killedWithin, pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// endsBefore waits for a process to end, whoever its parent is.
func endsBefore(pid int, deadline time.Time) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err == unix.ESRCH
	}
	defer unix.Close(fd)
	for {
		left := time.Until(deadline).Milliseconds()
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, left)))
		if n > 0 || left <= 0 {
			return n > 0
		}
		if err != nil && err != unix.EINTR {
			return false
		}
	}
}

// launcherProcess starts a launcher to be killed. Its job's processes, and it
// itself, carry the entry.
func launcherProcess(t *testing.T, job Job) (cmd *exec.Cmd, out *bufio.Reader, entry string) {
	t.Helper()
	entry = fmt.Sprintf("LAUNCHER_TEST=%s-%d-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid(), time.Now().UnixNano())
	text, err := json.Marshal(map[string]any{"NP": job.NP, "Argv": job.Argv, "Hosts": job.Hosts, "Agents": job.Agents})
	if err != nil {
		t.Fatal(err)
	}
	argv := roleArgv(t, "launcher", string(text))
	cmd = exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), entry)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(pipe), entry
}

func TestLauncherIsKilled(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"ranks", "echo up; exec sleep 100"},
		{"grandchildren", "sleep 100 & echo up; wait"},
		{"grandchildren that ignore signals", "trap '' HUP TERM INT; sh -c 'trap \"\" HUP TERM; sleep 100' & echo up; wait"},
		{"grandchildren of ended ranks", "sleep 100 >/dev/null & echo up; test $PMI_RANK != 0 || sleep 100"},
		{"in groups and sessions of their own", "setsid sleep 100 & setsid setsid sh -c 'sleep 100 & sleep 100' & echo up; wait"},
	} {
		for _, way := range ways {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.Need(t, "setsid")
				testenv.NoLeaks(t)
				job := Job{NP: 4, Argv: sh(c.script)}
				overAgents(t, &job, way.hosts)
				cmd, out, entry := launcherProcess(t, job)
				for i := range job.NP {
					if line, err := out.ReadString('\n'); line != "up\n" {
						t.Fatalf("line %d: got %q, %v", i, line, err)
					}
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				cmd.Wait()
				expectNone(t, entry)
			})
		}
	}
}

// TestJobInsideAJobIsKilled kills the outer launcher: its guardian must not leave
// what the inner one's would have taken care of.
func TestJobInsideAJobIsKilled(t *testing.T) {
	testenv.Need(t, "setsid")
	testenv.NoLeaks(t)
	inner := `{"NP":2,"Argv":["sh","-c","sleep 100 & setsid sleep 100 & echo up; wait"]}`
	cmd, out, entry := launcherProcess(t, Job{NP: 2, Argv: roleArgv(t, "launcher", inner)})
	for range 4 {
		if line, err := out.ReadString('\n'); line != "up\n" {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	expectNone(t, entry)
}

// TestLauncherIsKilledWhileStarting kills at all times of the start.
func TestLauncherIsKilledWhileStarting(t *testing.T) {
	testenv.NoLeaks(t)
	n := testenv.Fewer(40, 5)
	for i := range n {
		job := Job{NP: 24, Argv: sh("sleep 100 & setsid sleep 100 & wait")}
		overAgents(t, &job, i%2*2)
		cmd, _, entry := launcherProcess(t, job)
		time.Sleep(time.Duration(i) * time.Millisecond) // that is the variety
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		expectNone(t, entry)
	}
}

func TestAgentIsKilled(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			testenv.NoLeaks(t)
			entry := fmt.Sprintf("LAUNCHER_TEST=%d-%d", os.Getpid(), time.Now().UnixNano())
			var out, errs buffer
			job := Job{NP: 4, Argv: sh("sleep 100 & echo rank $PMI_RANK $PPID $GORUN_HOST; wait"), Env: append(os.Environ(), entry), Stdout: &out, Stderr: &errs, Grace: 200 * time.Millisecond}
			overAgents(t, &job, 2)
			ctx := testenv.Deadline(t, 30*time.Second)
			go func() {
				for rank := range job.NP {
					<-out.await(fmt.Sprintf("rank %d ", rank))
				}
				for line := range strings.Lines(out.String()) {
					if f := strings.Fields(line); len(f) == 4 && f[3] == "b" {
						pid, _ := strconv.Atoi(f[2])
						syscall.Kill(pid, signal)
						return
					}
				}
			}()
			r, err := Run(ctx, job)
			if err != nil || r.ExitStatus == 0 || r.Cause == nil || r.Cause.Host != "b" || r.Cause.Rank != -1 {
				t.Fatalf("got %+v, cause %v, error %v; %q", r, r.Cause, err, errs.String())
			}
			if want := fmt.Sprintf("was killed by signal %d", int(signal)); !strings.Contains(r.Cause.String(), want) || r.Cause.PID == 0 {
				t.Errorf("cause: got %q, want %q in it, and the agent's pid", r.Cause, want)
			}
			expectNone(t, entry)
		})
	}
}

// TestJobFailsWhenAnAgentDoesNotAnswer stops an agent, which can then not be told to end.
func TestJobFailsWhenAnAgentDoesNotAnswer(t *testing.T) {
	testenv.NoLeaks(t)
	entry := fmt.Sprintf("LAUNCHER_TEST=%d-%d", os.Getpid(), time.Now().UnixNano())
	job := Job{NP: 2, Dir: t.TempDir(), Env: append(os.Environ(), entry), Grace: 100 * time.Millisecond,
		Argv: sh("if test $PMI_RANK = 1; then kill -STOP $PPID; : >stopped; exec sleep 100; fi; until test -e stopped; do :; done; exit 5")}
	overAgents(t, &job, 2)
	r, _, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 5 || r.Cause == nil || r.Cause.Rank != 0 {
		t.Errorf("got %+v, cause %v, error %v; %q", r, r.Cause, err, stderr)
	}
	expectNone(t, entry)
}

// TestAgentIsKilledInAFence does it while the other host waits for it.
func TestAgentIsKilledInAFence(t *testing.T) {
	testenv.NoLeaks(t)
	var out, errs buffer
	job := Job{NP: 2, Argv: sh(strings.Join(roleArgv(t, "pmi", "init", "barrier", "@1", "say=up", "@1", "sleep=1000000", "barrier", "finalize"), " ") + " & echo $PPID; wait"), Stdout: &out, Stderr: &errs, Grace: 200 * time.Millisecond}
	overAgents(t, &job, 2)
	ctx := testenv.Deadline(t, 30*time.Second)
	job.Argv = sh(strings.Replace(job.Argv[2], "echo $PPID", "echo $PPID >&2; test $PMI_RANK = 1 && echo pid $PPID", 1))
	go func() {
		<-out.await("up\n")
		for line := range strings.Lines(out.String()) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "pid" {
				pid, _ := strconv.Atoi(f[1])
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}()
	start := time.Now()
	r, err := Run(ctx, job)
	if err != nil || r.Cause == nil || r.Cause.Host != "b" {
		t.Fatalf("got %+v, cause %v, error %v; %q", r, r.Cause, err, errs.String())
	}
	if took := time.Since(start); took > testenv.Limit(5*time.Second) {
		t.Errorf("it took %v", took)
	}
}

// TestDaemonsEnd has ranks leave daemons behind: they end with the job, though no
// process group leads to them.
func TestDaemonsEnd(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.Need(t, "setsid")
			testenv.NoLeaks(t)
			entry := fmt.Sprintf("LAUNCHER_TEST=daemons-%d-%d", os.Getpid(), time.Now().UnixNano())
			dir := t.TempDir()
			job := Job{NP: 2, Dir: dir, Env: append(os.Environ(), entry),
				Argv: sh(`( setsid setsid sh -c ': > up.'$PMI_RANK'; exec sleep 600 >/dev/null 2>&1' & ); while [ ! -e up.$PMI_RANK ]; do sleep 0.01; done; echo left`)}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || stdout != "left\nleft\n" {
				t.Fatalf("got %+v, error %v, %q %q", r, err, stdout, stderr)
			}
			if pids := marked(entry); pids != nil {
				t.Errorf("still alive: %v", pids)
				expectNone(t, entry)
			}
		})
	}
}

// guardiansOf are the guardians among a process's children.
func guardiansOf(pid int) []int {
	return slices.DeleteFunc(testenv.Children(pid), func(child int) bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return !bytes.Contains(stat, []byte("(gorun-guardian) ")) || bytes.Contains(stat, []byte(") Z "))
	})
}

// guardian waits for a child of a process that is a guardian, and not other.
func guardian(t *testing.T, pid, other int) int {
	t.Helper()
	found := 0
	testenv.Await(t, 30*time.Second, fmt.Sprintf("a guardian of process %d", pid), func() bool {
		for _, g := range guardiansOf(pid) {
			if g != other {
				found = g
			}
		}
		return found != 0
	})
	return found
}

// jobDirectory is that of a job, one of whose processes says so.
func jobDirectory(t *testing.T, out *bufio.Reader) string {
	t.Helper()
	line, err := out.ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || !strings.Contains(dir, "gorun-job-") {
		t.Fatalf("got %q, %v, want a job directory", line, err)
	}
	return dir
}

// expectGone waits for a file to go.
func expectGone(t *testing.T, file string) {
	t.Helper()
	testenv.Await(t, killedWithin, file+" is removed", func() bool {
		_, err := os.Stat(file)
		return os.IsNotExist(err)
	})
}

// TestLauncherAndGuardianAreKilled kills them together, and the guardian before.
func TestLauncherAndGuardianAreKilled(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("before=%v", before), func(t *testing.T) {
			testenv.NoLeaks(t)
			cmd, out, entry := launcherProcess(t, Job{NP: 1, Argv: sh("sleep 100 & echo $GORUN_DIR; sleep 100; true")})
			dir := jobDirectory(t, out)
			g := guardian(t, cmd.Process.Pid, 0)
			guardian(t, g, 0) // its second
			if err := syscall.Kill(g, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if before {
				guardian(t, cmd.Process.Pid, g)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			expectNone(t, entry)
			expectGone(t, dir)
		})
	}
}

// TestGuardianIsStopped has a job end, in ways that wait for the guardian.
func TestGuardianIsStopped(t *testing.T) {
	for _, hosts := range []int{0, 2} {
		t.Run(fmt.Sprintf("hosts=%d", hosts), func(t *testing.T) {
			testenv.NoLeaks(t)
			said := make(chan string, max(1, hosts)) // by each rank: its parent
			job := Job{NP: max(1, hosts), Dir: t.TempDir(), Argv: sh("echo $PPID; until [ -e stopped ]; do sleep 0.01; done; exit 3"), Lines: func(l Line) { said <- l.Text }}
			overAgents(t, &job, hosts)
			ctx := testenv.Deadline(t, 30*time.Second)
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for range job.NP {
					select {
					case text := <-said:
						parent, _ := strconv.Atoi(text)
						for _, g := range guardiansOf(parent) {
							syscall.Kill(g, syscall.SIGSTOP)
						}
					case <-ctx.Done():
					}
				}
				if err := os.WriteFile(filepath.Join(job.Dir, "stopped"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}()
			r, _, stderr, err := runJob(t, job) // which takes a minute at most
			<-watched
			if err != nil || r.ExitStatus != 3 {
				t.Errorf("got %+v, cause %v, error %v; %q", r, r.Cause, err, stderr)
			}
		})
	}
}

// TestDaemonWithoutEnvironmentIsKilled has a rank leave a daemon that neither its
// group nor its environment gives away; its launcher is killed, or ends. Only a
// control group knows it.
func TestDaemonWithoutEnvironmentIsKilled(t *testing.T) {
	testenv.Need(t, "setsid")
	const daemon = `setsid setsid env -i sh -c 'echo $$ $$; exec sleep 600 >/dev/null 2>&1' & `
	for _, c := range []struct {
		name, rest string
		hosts      int
	}{
		{"kill", "wait; exec sleep 600", 0},
		{"kill, agents", "wait; exec sleep 600", 2},
		{"end", "until [ -e over ]; do sleep 0.01; done", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			dir := t.TempDir()
			job := Job{NP: 2, Argv: sh("cd " + dir + "; grep ^0::.*gorun-job- /proc/self/cgroup || { echo 0::; exit; }; " + daemon + c.rest)}
			overAgents(t, &job, c.hosts)
			cmd, out, entry := launcherProcess(t, job)
			defer cmd.Wait()
			defer cmd.Process.Kill()
			var daemons []int
			for len(daemons) < job.NP {
				line, err := out.ReadString('\n')
				if err != nil {
					t.Fatalf("%q, %v", line, err)
				}
				if group, ok := strings.CutPrefix(line, "0::"); ok {
					if !strings.Contains(group, "gorun-job-") {
						testenv.Unsupported(t, "no control group can be made here")
					}
					continue
				}
				var a, b int
				if n, _ := fmt.Sscan(line, &a, &b); n != 2 || a != b {
					t.Fatalf("got %q", line)
				}
				daemons = append(daemons, a)
			}
			if strings.HasPrefix(c.name, "kill") {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(filepath.Join(dir, "over"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			expectNone(t, entry)
			for _, pid := range daemons {
				if !endsBefore(pid, time.Now().Add(killedWithin)) {
					t.Errorf("daemon %d is alive", pid)
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}
