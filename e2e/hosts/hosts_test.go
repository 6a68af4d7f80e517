// Package hosts tests gorun over several hosts, which it reaches by ssh. See
// internal/testbed for what the hosts are.
package hosts

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// all has tests run every case, as make test-hosts does; without it, as in CI, they run one of each kind.
var all = flag.Bool("all", false, "every case, for minutes")

// bin has the commands, at a path that all hosts share.
var bin string

func TestMain(m *testing.M) {
	if !testenv.Chosen(testenv.Hosts, testenv.Batch, testenv.Faults) {
		os.Exit(m.Run()) // no host is used
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("/var/tmp", "gorun-hosts-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, argv := range [][]string{
		{"go", "build", "-o", dir, "./cmd/gorun", "./cmd/gorun-agent", "./cmd/a2a", "./cmd/gorun-bench", "./cmd/gorun-bench-init", "./cmd/gorun-info", "./e2e/hosts/rank"},
		{"scripts/build-pmix", dir},
	} {
		build := exec.Command(argv[0], argv[1:]...)
		build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", argv, err, out)
			return 1
		}
	}
	bin = dir
	return m.Run()
}

// ran is how gorun ended on the first host of a bed.
type ran struct {
	status   int
	out, err string
	took     time.Duration
}

// gorun runs it on the first host.
func gorun(t *testing.T, b *testbed.Bed, args ...string) ran {
	t.Helper()
	return run(t, b, append([]string{filepath.Join(bin, "gorun")}, args...)...)
}

// run runs a command on the first host.
func run(t *testing.T, b *testbed.Bed, argv ...string) ran {
	t.Helper()
	return runFor(t, b, 40*time.Second, argv...)
}

// runFor runs it for so long at most.
func runFor(t *testing.T, b *testbed.Bed, limit time.Duration, argv ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := b.Hosts[0].Command(ctx, argv...)
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("given\n"), &out, &complaints
	cmd.WaitDelay = time.Second
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%q: %v\n%s%s", argv, errors.Join(err, ctx.Err()), out.String(), complaints.String())
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), complaints.String(), time.Since(began)}
}

// leftLimit is how long what is left of a job may take to go.
const leftLimit = 5 * time.Second

func TestJobs(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	mpi := func(compiler, name string) string {
		cc := testenv.Need(t, compiler)
		program := filepath.Join(b.Dir, compiler+"-"+name)
		if out, err := exec.Command(cc, "-o", program, filepath.Join("..", "..", "testdata", "mpi", name+".c")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return program
	}
	for _, c := range []struct {
		name string
		args []string
		want []string // all, in standard output
	}{
		{"a2a on three hosts", []string{"-H", "h1:2,h2:2,h3:2", bin + "/a2a", "-m", "48"}, []string{"Rank 5 |", "on every rank"}},
		{"a2a on one other host", []string{"-H", "h2:3", bin + "/a2a", "-m", "48"}, []string{"Rank 2 |", "on every rank"}},
		{"placed by topology", []string{"--map-by", "core", "--oversubscribe", "-np", "4", "-H", "h2:2,h3:2", "hostname"}, []string{"h2", "h3"}},
		{"the directory and the environment travel", []string{"-x", "SOME=thing", "-H", "h2", "sh", "-c", "pwd; echo $SOME"}, []string{b.Dir, "thing"}},
		{"input of rank 0 on another host", []string{"-H", "h2,h3", "sh", "-c", "cat; hostname"}, []string{"given\n", "h2", "h3"}},
		{"an alias that has no address", []string{"-H", "h1,alias", bin + "/a2a", "-m", "16"}, []string{"on every rank"}},
		{"MASTER_ADDR is rank 0's host", []string{"-H", "h1,h2", "sh", "-c", "echo at $MASTER_ADDR"}, []string{"at 10.9.0.1"}},
		{"MASTER_ADDR is another host", []string{"-H", "h2,h1", "sh", "-c", "echo at $MASTER_ADDR"}, []string{"at 10.9.0.2"}},
		{"ranks are told that gorun decides about hosts", []string{"--agent-timeout", "9", "-H", "h1,h2", "sh", "-c", "echo $(hostname) $GORUN_HOST_LEASE"}, []string{"h1 9s", "h2 9s"}},
		{"an interface by its network", []string{"--interface", "10.9.0.0/16", "-H", "h1,h2", "sh", "-c", "echo at $GORUN_ADDRESS"}, []string{"at 10.9.0.1", "at 10.9.0.2"}},
		{"an interface with IPv6", []string{"--interface", "fd09::/64", "-H", "h1,h2", bin + "/a2a", "-m", "16"}, []string{"on every rank"}},
		{"another shell", []string{"--rsh", "ssh -q", "--launch-agent", bin + "/gorun-agent", "-H", "h3", "hostname"}, []string{"h3"}},
		{"MPICH", []string{"-H", "h1:2,h2:2", mpi("mpicc.mpich", "hello")}, []string{"3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := gorun(t, b, c.args...)
			if got.status != 0 {
				t.Errorf("gorun %q: status %d\n%s%s", c.args, got.status, got.out, got.err)
			}
			for _, want := range c.want {
				if !strings.Contains(got.out, want) {
					t.Errorf("gorun %q: no %q in\n%s%s", c.args, want, got.out, got.err)
				}
			}
			b.Idle(leftLimit)
		})
	}
}

// Ranks of two hosts share no segment, although the hosts have one kernel.
func TestHostsShareNoSegment(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	got := gorun(t, b, "-H", "h1,h2", "sh", "-c", `stat -L -c "%d:%i" /proc/self/fd/$GORUN_SEGMENT`)
	f := strings.Fields(got.out)
	if len(f) != 2 || f[0] == f[1] {
		t.Errorf("segments %q, want two (status %d)\n%s", f, got.status, got.err)
	}
}

// What does not start is one line that names the host, with what ssh says.
func TestHostsThatDoNotStart(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	script := func(name, text string) string {
		path := filepath.Join(b.Dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"an unknown host", []string{"-H", "h2,nohost"}, []string{"nohost", "Could not resolve hostname", "try ssh nohost"}}, // which is tried three times
		{"no agent there", []string{"--launch-agent", "/nowhere/gorun-agent", "-H", "h2"}, []string{"h2", "/nowhere/gorun-agent", "status 127", "try ssh h2"}},
		{"an agent of another version", []string{"--launch-agent", script("old", `printf '\000gorun-agent 0.0.9 1 77\n'; exec cat`), "-H", "h2"}, []string{"h2", "gorun 0.0.9", "expected 0."}},
		{"no agent at all", []string{"--launch-agent", script("chatter", "echo Welcome to h2"), "-H", "h2"}, []string{"h2", "Welcome to h2"}},
		{"no shell", []string{"--rsh", "no-such-shell", "-H", "h2"}, []string{"no-such-shell"}},
		{"no such interface", []string{"--interface", "ib7", "-H", "h1,h2"}, []string{"--interface ib7", "eth0 10.9.0."}},
		{"no such directory", []string{"--wdir", "/tmp/only-here", "-H", "h2"}, []string{"/tmp/only-here"}},
		{"no such program", []string{"-H", "h2", "/tmp/no-such-program"}, []string{"/tmp/no-such-program"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Also when the hosts are asked for their machines before.
			for i, args := range [][]string{c.args, append([]string{"--map-by", "core", "--oversubscribe"}, c.args...), append([]string{"--continuous"}, c.args...)} {
				if i > 0 && slices.Contains(c.args, "h2,nohost") {
					break // it takes seconds
				}
				args = append(slices.Clip(args), "hostname")
				got := gorun(t, b, args...)
				if got.status == 0 {
					t.Errorf("gorun %q: status 0\n%s", args, got.out)
				}
				for _, want := range c.want {
					if !strings.Contains(got.err, want) {
						t.Errorf("gorun %q: no %q in\n%s", args, want, got.err)
					}
				}
				if got.took > 15*time.Second {
					t.Errorf("gorun %q took %v", args, got.took)
				}
				b.Idle(leftLimit)
			}
		})
	}
}

// A login script that writes before the agent does no harm, and -v tells of it.
func TestLoginScriptMayWrite(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	loud := filepath.Join(b.Dir, "loud")
	if err := os.WriteFile(loud, []byte("#!/bin/sh\necho Welcome; echo Terms of use\nprintf 'no newline '\nexec "+bin+"/gorun-agent\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := gorun(t, b, "-v", "--launch-agent", loud, "-H", "h1,h2", "hostname")
	if got.status != 0 || len(strings.Fields(got.out)) != 2 || !strings.Contains(got.err, "host=h2 line=no newline") {
		t.Errorf("status %d\n%s%s", got.status, got.out, got.err)
	}
	b.Idle(leftLimit)
}
