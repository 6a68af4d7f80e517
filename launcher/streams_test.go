package launcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestLinesAreWhole(t *testing.T) {
	const np, lines, pieces = 4, 400, 5
	for _, way := range ways {
		for _, tag := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tag %v", way.name, tag), func(t *testing.T) {
				testenv.NoLeaks(t)
				job := Job{NP: np, Argv: roleArgv(t, "lines", fmt.Sprint(lines), fmt.Sprint(pieces)), Output: Output{Prefix: map[bool]string{true: TagPrefix}[tag]}}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				next := [np]int{}
				for line := range strings.Lines(stdout) {
					if tag {
						var ok bool
						rank := line[3:4]
						if line, ok = strings.CutPrefix(line, "[1,"+rank+"]<stdout>:"); !ok || line[1:2] != rank {
							t.Fatalf("tag: got %q", line)
						}
					}
					rank := int(line[1] - '0')
					want := ""
					for k := range pieces {
						want += fmt.Sprintf("<%d:%d:%d>%s", rank, next[rank], k, strings.Repeat(fmt.Sprint(rank), 30))
					}
					if line != want+"\n" {
						t.Fatalf("rank %d, line %d: got %q", rank, next[rank], line)
					}
					next[rank]++
				}
				if next != [np]int{lines, lines, lines, lines} {
					t.Errorf("lines of each rank: got %v, want %d", next, lines)
				}
			})
		}
	}
}

func TestOutputWithoutNewlineAndBinary(t *testing.T) {
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 1, Argv: []string{"cat"}, Stdin: bytes.NewReader(data)}
			overAgents(t, &job, min(way.hosts, 1))
			_, stdout, _, err := runJob(t, job)
			if err != nil || stdout != string(data) {
				t.Errorf("%d bytes changed on their way: got %d, %v", len(data), len(stdout), err)
			}
		})
	}
}

func TestStdin(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcde\n"), 512<<10) // 8 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256(big))
	piped := func(t *testing.T) io.Reader {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		go func() { w.Write(big); w.Close() }()
		return r
	}
	slow := `test $PMI_RANK = 0 && sleep 0.2; sha256sum`
	for _, c := range []struct {
		name  string
		stdin func(t *testing.T) io.Reader
	}{
		{"a pipe", piped},
		{"a reader", func(*testing.T) io.Reader { return bytes.NewReader(big) }},
	} {
		for _, way := range ways {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := Job{NP: 3, Argv: sh(slow), Stdin: c.stdin(t)}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				empty := fmt.Sprintf("%x", sha256.Sum256(nil))
				if strings.Count(stdout, sum) != 1 || strings.Count(stdout, empty) != 2 {
					t.Errorf("rank 0 should read all, the others nothing: got %q", stdout)
				}
			})
		}
	}
}

// endless is input that never ends, and counts.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) { e.n += len(p); return len(p), nil }

func TestRunReturnsWhenStdinIsUnread(t *testing.T) {
	for _, c := range []struct {
		name string
		argv []string
	}{
		{"rank 0 closes it and lives on", sh("exec <&-; test $PMI_RANK = 0 && sleep 0.3; true")},
		{"rank 0 never reads", sh("sleep 0.3")},
		{"rank 0 reads a little", sh("test $PMI_RANK = 0 && head -c 1000 >/dev/null; true")},
	} {
		for _, way := range ways {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				in := new(endless)
				job := Job{NP: 2, Argv: c.argv, Stdin: in}
				overAgents(t, &job, way.hosts)
				if r, _, stderr, err := runJob(t, job); err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				if in.n > 4<<20 {
					t.Errorf("read %d bytes ahead", in.n)
				}
			})
		}
	}
}

// valve is a writer that blocks until it is opened.
type valve struct {
	open    chan struct{}
	blocked chan struct{} // closed by the first Write
	first   bool
	n       int
}

func (v *valve) Write(p []byte) (int, error) {
	if !v.first {
		v.first = true
		close(v.blocked)
	}
	<-v.open
	v.n += len(p)
	return len(p), nil
}

func TestRanksWaitForASlowWriter(t *testing.T) {
	const size = 20 << 20
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			v := &valve{open: make(chan struct{}), blocked: make(chan struct{})}
			var errs buffer
			job := Job{
				NP: 2, Stdout: v, Stderr: &errs,
				// Rank 0 writes more than fits anywhere. Rank 1 must get on
				// with its PMI and its errors meanwhile.
				Argv: sh(fmt.Sprintf(`test $PMI_RANK = 0 && exec head -c %d /dev/zero; for i in 1 2 3; do echo on $i >&2; done; echo over >&2`, size)),
			}
			overAgents(t, &job, way.hosts)
			done := make(chan Result, 1)
			ctx := testenv.Deadline(t, 60*time.Second)
			go func() {
				r, err := Run(ctx, job)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			for _, c := range []<-chan struct{}{v.blocked, errs.await("over\n")} {
				select {
				case <-c:
				case <-ctx.Done():
					t.Fatal("rank 1 stands still while rank 0's output is not taken")
				}
			}
			close(v.open)
			if r := <-done; r.ExitStatus != 0 || v.n != size {
				t.Errorf("got status %d, cause %v, %d bytes, want %d", r.ExitStatus, r.Cause, v.n, size)
			}
		})
	}
}

func TestTimeoutEndsAJobWhoseOutputIsNeverTaken(t *testing.T) {
	testenv.NoLeaks(t)
	v := &valve{open: make(chan struct{}), blocked: make(chan struct{})}
	t.Cleanup(func() { close(v.open) })
	job := Job{NP: 1, Argv: []string{"cat", "/dev/zero"}, Stdout: v, Timeout: 300 * time.Millisecond, Grace: 200 * time.Millisecond}
	r, _, _, err := runJob(t, job)
	if err != nil || r.ExitStatus != 124 {
		t.Errorf("got %+v, %v, want status 124", r, err)
	}
}

// TestRunReturnsWhenAGrandchildKeepsWriting has one that left its group, so that the end
// of the ranks does not end it. What the ranks wrote comes all the same.
func TestRunReturnsWhenAGrandchildKeepsWriting(t *testing.T) {
	testenv.Need(t, "setsid")
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			dir := t.TempDir()
			t.Cleanup(func() {
				text, err := os.ReadFile(dir + "/pid")
				if err != nil {
					t.Fatal(err)
				}
				var pid int
				if _, err := fmt.Sscan(string(text), &pid); err != nil {
					t.Fatal(err)
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
			})
			job := Job{NP: 1, Dir: dir, Grace: 100 * time.Millisecond, Argv: sh(`trap '' PIPE
				setsid sh -c 'echo $$ >pid.new; mv pid.new pid; while :; do echo noise 2>&3 || exit 0; done' 3>/dev/null &
				until test -e pid; do :; done
				echo the last word`)}
			overAgents(t, &job, min(way.hosts, 1))
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || !strings.Contains(stdout, "the last word\n") {
				t.Errorf("got %+v, %v, %d bytes, %q", r, err, len(stdout), stderr)
			}
		})
	}
}

func TestJobEndsWhenTheOutputPipeIsClosed(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			defer w.Close()
			job := Job{NP: 2, Argv: []string{"yes"}, Stdout: w}
			overAgents(t, &job, way.hosts)
			res, _, stderr, err := runJob(t, job)
			if err != nil || res.ExitStatus != 141 || res.Cause == nil || !res.Cause.Quiet() {
				t.Errorf("got %+v, cause %v, %v, %q, want a quiet 141", res, res.Cause, err, stderr)
			}
		})
	}
}

// failing is a writer that cannot.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestJobFailsWhenOutputCannotBeWritten(t *testing.T) {
	testenv.NoLeaks(t)
	r, _, _, err := runJob(t, Job{NP: 2, Argv: []string{"yes"}, Stdout: failing{}})
	if err != nil || r.ExitStatus != 1 || r.Cause == nil || !strings.Contains(r.Cause.String(), "standard output: the disk is full") {
		t.Errorf("got %+v, cause %v, %v", r, r.Cause, err)
	}
}

func TestSignalsToTheLauncher(t *testing.T) {
	for _, c := range []struct {
		name   string
		argv   []string
		send   []syscall.Signal
		status int
		text   string // that the ranks write before the next signal
	}{
		{"INT ends", sh("echo ready; exec sleep 60"), []syscall.Signal{syscall.SIGINT}, 130, ""},
		{"TERM ends", sh("echo ready; exec sleep 60"), []syscall.Signal{syscall.SIGTERM}, 143, ""},
		{"USR1 is passed on", roleArgv(t, "signalled"), []syscall.Signal{syscall.SIGUSR1}, 0, "user defined signal 1"},
		{"INT, TERM and KILL", roleArgv(t, "signalled"), []syscall.Signal{syscall.SIGINT}, 130, "interrupt\n"},
		{"a later INT kills", sh("trap '' INT TERM; echo ready; while :; do sleep 1; done"), []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130, ""},
	} {
		for _, way := range ways {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				signals := make(chan os.Signal, len(c.send))
				var out, errs buffer
				job := Job{NP: 2, Argv: c.argv, Signals: signals, Stdout: &out, Stderr: &errs, Grace: time.Second}
				if len(c.send) > 1 {
					job.Grace = 100 * time.Second // nothing but the second one can end it
				}
				overAgents(t, &job, way.hosts)
				ctx := testenv.Deadline(t, 30*time.Second)
				done := make(chan Result, 1)
				go func() {
					r, err := Run(ctx, job)
					if err != nil {
						t.Error(err)
					}
					done <- r
				}()
				select {
				case <-out.await("ready\nready\n"):
				case r := <-done:
					t.Fatalf("ended early: %+v, %v, %q", r, r.Cause, errs.String())
				}
				for _, s := range c.send {
					signals <- s
				}
				var r Result
				for again := time.Tick(10 * time.Millisecond); ; {
					select {
					case r = <-done:
					case <-again:
						if len(c.send) > 1 {
							select {
							case signals <- c.send[1]:
							default:
							}
						}
						continue
					}
					break
				}
				if r.ExitStatus != c.status || ctx.Err() != nil {
					t.Errorf("got status %d, cause %v, want %d", r.ExitStatus, r.Cause, c.status)
				}
				if !strings.Contains(out.String(), c.text) {
					t.Errorf("the ranks wrote %q, want %q in it", out.String(), c.text)
				}
			})
		}
	}
}

// TestOneStopForAll has a service manager stop all processes of a job at once, so that ranks get a signal twice, which the launcher
// gets twice too: they have their time to save.
func TestOneStopForAll(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			signals := make(chan os.Signal, 2)
			var out, errs buffer
			job := Job{NP: 2, Argv: sh(`trap 'n=$((n+1)); echo told $n' TERM; n=0; echo ready $$ $PPID; until [ $n = 2 ]; do :; done; echo saved`), Signals: signals, Stdout: &out, Stderr: &errs, Grace: time.Minute}
			overAgents(t, &job, way.hosts)
			go func() {
				lines := func(n int, begin string) (all []string) {
					testenv.Holds(30*time.Second, func() bool {
						all = slices.DeleteFunc(strings.Split(out.String(), "\n"), func(line string) bool { return !strings.HasPrefix(line, begin) })
						return len(all) == n
					})
					return all
				}
				for _, line := range lines(2, "ready") {
					var rank, parent int
					if _, err := fmt.Sscanf(line, "ready %d %d", &rank, &parent); err != nil {
						t.Error(err)
					}
					if parent != os.Getpid() {
						_ = syscall.Kill(parent, syscall.SIGTERM)
					}
					_ = syscall.Kill(-rank, syscall.SIGTERM)
				}
				lines(2, "told 1")
				signals <- syscall.SIGTERM
				signals <- syscall.SIGTERM
			}()
			r, _, _, err := runJob(t, job)
			if err != nil || r.ExitStatus != 143 || strings.Count(out.String(), "saved\n") != 2 {
				t.Errorf("got status %d, cause %v, %v, %q, %q", r.ExitStatus, r.Cause, err, out.String(), errs.String())
			}
		})
	}
}

// TestSuspend sends TSTP: the command is told to stop itself once the ranks have
// been sent it. CONT waits until they have noticed, or the kernel takes the TSTP
// back.
func TestSuspend(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			signals := make(chan os.Signal, 1)
			suspended := make(chan struct{})
			var out, errs buffer
			job := Job{NP: 2, Argv: roleArgv(t, "signalled"),
				Signals: signals, Suspend: func() { close(suspended) }, Stdout: &out, Stderr: &errs}
			overAgents(t, &job, way.hosts)
			ctx := testenv.Deadline(t, 30*time.Second)
			done := make(chan Result, 1)
			go func() {
				r, err := Run(ctx, job)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			for _, step := range []struct {
				wait   <-chan struct{}
				signal syscall.Signal
			}{{out.await("ready\nready\n"), syscall.SIGTSTP}, {out.await("stopped\nstopped\n"), syscall.SIGCONT}, {suspended, syscall.SIGUSR1}} {
				select {
				case <-step.wait:
					signals <- step.signal
				case <-ctx.Done():
				}
			}
			if r := <-done; r.ExitStatus != 0 || ctx.Err() != nil {
				t.Errorf("got status %d, cause %v, %q, %q", r.ExitStatus, r.Cause, out.String(), errs.String())
			}
		})
	}
}

func TestTimeoutAndContextEndJobs(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 2, Argv: []string{"sleep", "60"}, Timeout: 200 * time.Millisecond}
			overAgents(t, &job, way.hosts)
			r, _, _, err := runJob(t, job)
			if err != nil || r.ExitStatus != 124 || !strings.Contains(r.Cause.String(), "timeout of 200ms") {
				t.Errorf("timeout: got %+v, cause %v, %v", r, r.Cause, err)
			}
			job.Timeout = 0
			ctx, cancel := context.WithCancelCause(context.Background())
			var out buffer
			job.Stdout, job.Argv = &out, sh("echo ready; exec sleep 60")
			go func() { <-out.await("ready"); cancel(errors.New("enough")) }()
			r, err = Run(ctx, job)
			if err != nil || r.ExitStatus != 1 || r.Cause == nil || !strings.Contains(r.Cause.String(), "enough") {
				t.Errorf("cancel: got %+v, cause %v, %v", r, r.Cause, err)
			}
			ctx, cancel = context.WithCancelCause(context.Background())
			cancel(errors.New("before"))
			r, err = Run(ctx, job)
			if err != nil || r.ExitStatus != 1 || r.Cause == nil {
				t.Errorf("cancelled before: got %+v, cause %v, %v", r, r.Cause, err)
			}
		})
	}
}

// TestTerminal runs a launcher whose input is a terminal, which a rank in its
// own process group could not read.
func TestTerminal(t *testing.T) {
	script := testenv.Need(t, "script")
	testenv.NoLeaks(t)
	argv := roleArgv(t, "launcher", `{"NP":2,"Argv":["sh","-c","head -n 1"]}`)
	for i, a := range argv {
		argv[i] = "'" + a + "'"
	}
	cmd := exec.Command(script, "-qefc", strings.Join(argv, " "), "/dev/null")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "typed")
	err = cmd.Wait() // rank 0 ends without the end of its input
	in.Close()
	if err != nil || strings.Count(out.String(), "typed") != 2 { // the echo and the answer
		t.Errorf("got %q, %v", out.String(), err)
	}
}
