package pmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi/pmitest"
)

// asClient in the environment makes the test binary a rank.
const asClient = "GORUN_TEST_PMI_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) != "" {
		if err := clientMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// clientMain is a rank under a foreign launcher: all its calls once.
func clientMain() error {
	env, found, err := FromEnviron(os.Environ())
	if err != nil || !found {
		return fmt.Errorf("environment: found %v, %v", found, err)
	}
	c, err := Dial(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	defer cancel()
	for round := range 3 {
		all, err := c.AllGather(ctx, testCard(c.Rank()+1, round))
		if err != nil {
			return err
		}
		for r := range all {
			if want := testCard(r+1, round); !bytes.Equal(all[r], want) {
				return fmt.Errorf("rank %d round %d: card of rank %d is %x, want %x", c.Rank(), round, r, all[r], want)
			}
		}
	}
	if err := c.Put(fmt.Sprint("key-", c.Rank()), "value"); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for r := range c.Size() {
		if got, err := c.Get(fmt.Sprint("key-", r)); err != nil || got != "value" {
			return fmt.Errorf("rank %d gets %q, %v", c.Rank(), got, err)
		}
	}
	if c.Rank() == 0 {
		if err := clientNames(ctx, c); err != nil {
			return err
		}
		// A program that is no MPI's, and that is gone before the job is.
		codes, err := c.Spawn(ctx, []SpawnApp{{Program: "/bin/sh", Args: []string{"-c", "echo spawned in $(pwd), PMI_SPAWNED=$PMI_SPAWNED"}, N: 2, Info: [][2]string{{"wdir", "/"}}}, {Program: "/bin/true", N: 1}}, map[string]string{"k": "v"})
		if err != nil || codes != nil {
			return fmt.Errorf("spawn: codes %v, %w", codes, err)
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if os.Getenv(asClient) == "abort" && c.Rank() == 0 {
		if err := c.Abort(7, "as the test wants"); err != nil {
			return err
		}
		<-ctx.Done()
	}
	fmt.Printf("rank %d of %d is fine\n", c.Rank(), c.Size())
	return c.Finalize()
}

// clientNames publishes a service, finds it and takes it back.
func clientNames(ctx context.Context, c *Client) error {
	if err := c.Publish(ctx, "svc", "tag#0$port"); err != nil {
		return err
	}
	if err := c.Publish(ctx, "svc", "again"); !errors.Is(err, ErrRefused) {
		return fmt.Errorf("published twice: %w", err)
	}
	if port, err := c.Lookup(ctx, "svc"); err != nil || port != "tag#0$port" {
		return fmt.Errorf("lookup: %q, %w", port, err)
	}
	if err := c.Unpublish(ctx, "svc"); err != nil {
		return err
	}
	if port, err := c.Lookup(ctx, "svc"); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("lookup of what is not there: %q, %w", port, err)
	}
	if err := c.Unpublish(ctx, "svc"); !errors.Is(err, ErrRefused) {
		return fmt.Errorf("unpublished twice: %w", err)
	}
	return nil
}

func TestClientUnderMPICH(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	mpiexec := testenv.Need(t, "mpiexec.mpich")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"np 1": {"-n", "1"}, "np 2": {"-n", "2"}, "np 4": {"-n", "4"}, "port": {"-pmi-port", "-n", "2"},
		"two hosts": {"-launcher", "fork", "-hosts", "a,b", "-n", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), mpiexec, append(args, self)...)
			cmd.Env = append(os.Environ(), asClient+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got, want := strings.Count(string(out), "is fine"), int(args[len(args)-1][0]-'0'); got != want {
				t.Errorf("%d ranks are fine, want %d:\n%s", got, want, out)
			}
			if got := strings.Count(string(out), "spawned in /, PMI_SPAWNED=1"); got != 2 {
				t.Errorf("%d processes were spawned, want 2:\n%s", got, out)
			}
		})
	}
	t.Run("abort", func(t *testing.T) {
		testenv.NoLeaks(t)
		cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), mpiexec, "-n", "2", self)
		cmd.Env = append(os.Environ(), asClient+"=abort")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 7 {
			t.Errorf("status %d, %v, want 7\n%s", code, err, out)
		}
	})
}

// launch starts a program as the ranks of a job served by engines, and returns
// the output lines, sorted, and the exit codes by rank.
func (j *testJob) launch(t *testing.T, onEvent func(j *testJob, kill func()), argv ...string) (lines []string, codes []int) {
	t.Helper()
	ctx := testenv.Deadline(t, time.Minute)
	var out bytes.Buffer
	var mu sync.Mutex
	var cmds []*exec.Cmd
	for _, env := range j.envs {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		sock := os.NewFile(uintptr(env.FD), "rank's end")
		cmd.ExtraFiles = []*os.File{sock}
		env.FD = 3
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "PMI") }), env.Environ()...)
		w := writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(b)
		})
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sock.Close()
		cmds = append(cmds, cmd)
	}
	if onEvent != nil {
		onEvent(j, func() {
			for _, cmd := range cmds {
				cmd.Process.Kill()
			}
		})
	}
	for _, cmd := range cmds {
		cmd.Wait()
		codes = append(codes, cmd.ProcessState.ExitCode())
	}
	lines = strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	return lines, codes
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// compileMPI compiles a C program of testdata with MPICH.
func compileMPI(t *testing.T, name string) string {
	t.Helper()
	mpicc := testenv.Need(t, "mpicc.mpich")
	exe := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command(mpicc, "-o", exe, filepath.Join("testdata", name+".c")).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", name, err, out)
	}
	return exe
}

func TestMPICHProgram(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	hello := compileMPI(t, "hello")
	for name, hostOf := range map[string][]int{"np 1": {0}, "np 2": {0, 0}, "np 4": {0, 0, 0, 0}, "np 3 on two hosts": {0, 1, 0}} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			j := newTestJob(t, hostOf, pmitest.Stores(hostsOf(hostOf)))
			lines, codes := j.launch(t, nil, hello)
			n := len(hostOf)
			for r, line := range lines {
				if want := fmt.Sprintf("rank %d of %d sum %d universe %d", r, n, n*(n-1)/2, testUniverse); line != want || codes[r] != 0 {
					t.Errorf("rank %d says %q and exits %d, want %q", r, line, codes[r], want)
				}
			}
			if len(lines) != n {
				t.Errorf("%d lines, want %d", len(lines), n)
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			for _, ev := range j.events {
				if v, ok := ev.(Violation); ok {
					t.Errorf("violation %v", v.Err)
				}
			}
		})
	}
	t.Run("spawn", func(t *testing.T) {
		testenv.NoLeaks(t)
		j := newTestJob(t, []int{0, 0}, pmitest.Stores(1))
		lines, codes := j.launch(t, nil, hello, "spawn")
		if got := strings.Join(lines, "\n"); !strings.Contains(got, "cannot spawn") || codes[0] != 0 {
			t.Errorf("exits %v:\n%s", codes, got)
		}
	})
	t.Run("abort", func(t *testing.T) {
		testenv.NoLeaks(t)
		ctx := testenv.Deadline(t, time.Minute)
		j := newTestJob(t, []int{0, 0}, pmitest.Stores(1))
		j.launch(t, func(j *testJob, kill func()) {
			defer kill()
			if a := await(ctx, j, func(Abort) bool { return true }); a.Rank != 1 || a.Code != 7 {
				t.Errorf("got %+v, want rank 1 and code 7", a)
			}
		}, hello, "abort")
	})
	t.Run("exit without finalize", func(t *testing.T) {
		testenv.NoLeaks(t)
		ctx := testenv.Deadline(t, time.Minute)
		j := newTestJob(t, []int{0, 0}, pmitest.Stores(1))
		j.launch(t, func(j *testJob, kill func()) {
			defer kill()
			if v := j.violation(ctx); v.Rank != 1 || !strings.Contains(v.Err.Error(), "without finalize") {
				t.Errorf("got %v, want rank 1 without finalize", v.Err)
			}
		}, hello, "exit")
	})
}

// The PMI_PORT form of the server: MPICH's client over TCP.
func TestMPICHProgramOverPort(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	hello := compileMPI(t, "hello")
	testenv.NoLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := NewEngine(EngineConfig{Size: 1, Ranks: []int{0}, Mapping: Mapping([]int{0})})
	served := make(chan error, 1)
	go func() { served <- serveOne(l, e) }()
	cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), hello)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "PMI") }),
		Env{FD: -1, Port: l.Addr().String(), ID: "0", Rank: -1}.Environ()...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "rank 0 of 1 ") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// serveOne serves the one rank that connects.
func serveOne(l net.Listener, e *Engine) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 4096)
	for first := true; ; first = false {
		n, err := conn.Read(buf)
		if err != nil {
			return nil
		}
		if first {
			if rank, err := InitAck(buf[:n]); err != nil || rank != 0 {
				return fmt.Errorf("first line: rank %d, %w", rank, err)
			}
		}
		events := e.Receive(0, buf[:n])
		for i := 0; i < len(events); i++ {
			switch ev := events[i].(type) {
			case Reply:
				conn.Write(ev.Data)
			case Fence:
				events = append(events, e.FenceDone(ev.Epoch, [][]byte{ev.Contribution})...)
			case Violation:
				return ev.Err
			}
		}
	}
}
