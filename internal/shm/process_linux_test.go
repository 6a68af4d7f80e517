package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// children are what this test binary does in place of its tests when it is
// started with childFlag, a name and arguments.
var children = map[string]func(args []string) error{
	"attach": attachChild,
	"peer":   peerChild,
	"create": createChild,
	"sleep":  sleepChild,
	"keep":   keepChild,
}

const childFlag = "--shm-child"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childFlag {
		if err := children[os.Args[2]](os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child prepares a child with the segment as descriptor 3, under the shell's
// ulimit with the given arguments if there are any.
func child(t testing.TB, s *Segment, ulimit string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{self, childFlag}, args...)
	if ulimit != "" {
		argv = append([]string{testenv.Need(t, "sh"), "-c", "ulimit " + ulimit + ` && exec "$0" "$@"`}, argv...)
	}
	cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), argv[0], argv[1:]...)
	cmd.Stderr = new(bytes.Buffer)
	if s != nil {
		file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(s.FD()), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		cmd.ExtraFiles = []*os.File{file}
	}
	return cmd
}

func run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Run(); err != nil {
		t.Errorf("child %q: %v: %s", cmd.Args[1:], err, cmd.Stderr)
	}
}

// attachChild opens an inherited segment, maps all arenas and marks them.
func attachChild([]string) error {
	s, err := Open(3)
	if err != nil {
		return err
	}
	return mark(s)
}

// peerChild does so with the segment of process PID at descriptor FD.
func peerChild(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	fd, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	s, err := OpenPeer(pid, fd)
	if err != nil {
		return err
	}
	return mark(s)
}

func mark(s *Segment) error {
	for r := range s.Ranks() {
		a, err := s.Arena(r)
		if err != nil {
			return err
		}
		a[len(a)-1] = byte(r + 1)
	}
	return s.Close()
}

// createChild makes a segment of the default geometry for N ranks, as a launcher
// does, and maps an arena.
func createChild(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	s, err := Create(DefaultGeometry(n, Limit()))
	if err != nil {
		return err
	}
	if _, err := s.Arena(n - 1); err != nil {
		return err
	}
	return s.Close()
}

// sleepChild is rank 1: it sleeps until rung and says so in its arena.
func sleepChild([]string) error {
	s, err := Open(3)
	if err != nil {
		return err
	}
	a, err := s.Arena(1)
	if err != nil {
		return err
	}
	b := s.Bell(1)
	b.Prepare()
	fmt.Println("prepared")
	for range 1000 {
		start := time.Now()
		b.Sleep(int64(nap))
		if time.Since(start) < nap && a[0] != 0 {
			return s.Close()
		}
	}
	return fmt.Errorf("not woken in 1000 sleeps")
}

func TestProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	cases := []struct {
		name string
		args func(s *Segment) []string
	}{
		{"inherited", func(*Segment) []string { return []string{"attach"} }},
		{"through /proc", func(s *Segment) []string {
			return []string{"peer", strconv.Itoa(os.Getpid()), strconv.Itoa(s.FD())}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSegment(t, Create, smallGeometry)
			run(t, child(t, s, "", c.args(s)...))
			for r := range s.Ranks() {
				if a := arena(t, s, r); a[len(a)-1] != byte(r+1) {
					t.Errorf("arena %d: the child's mark is %d, want %d", r, a[len(a)-1], r+1)
				}
			}
		})
	}
}

func TestRingAcrossProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	s := newSegment(t, Create, smallGeometry)
	cmd := child(t, s, "", "sleep")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 64)); err != nil {
		t.Errorf("read from child: %v", err)
	}
	arena(t, s, 1)[0] = 1
	s.Bell(1).Ring()
	if err := cmd.Wait(); err != nil {
		t.Errorf("child: %v: %s", err, cmd.Stderr)
	}
}

// Under ulimit -v a launcher makes a smaller segment, and a rank that has the
// same limit can map all of it.
func TestAddressSpaceLimit(t *testing.T) {
	if arch.RaceEnabled {
		return // the race detector alone reserves terabytes
	}
	testenv.NoLeaks(t)
	const limit = 2 << 30
	for _, ranks := range []int{1, 4, 64, 300} {
		t.Run(strconv.Itoa(ranks)+" ranks", func(t *testing.T) {
			s := newSegment(t, Create, DefaultGeometry(ranks, limit))
			run(t, child(t, s, fmt.Sprintf("-v %d", limit>>10), "attach"))
			run(t, child(t, nil, fmt.Sprintf("-v %d", limit>>10), "create", strconv.Itoa(ranks)))
		})
	}
	t.Run("too much", func(t *testing.T) {
		s := newSegment(t, Create, Geometry{Ranks: 1, ArenaSize: 1 << 32})
		cmd := child(t, s, fmt.Sprintf("-v %d", limit>>10), "attach")
		err := cmd.Run()
		if got := fmt.Sprint(cmd.Stderr); err == nil || !strings.Contains(got, "ulimit -v") || strings.Contains(got, "goroutine") {
			t.Errorf("attach 4 GiB under 2 GiB: got %v and %q, want an error that names ulimit -v", err, got)
		}
	})
}

// A memfd is a file to ulimit -f, and beyond it a signal kills the launcher.
func TestFileSizeLimit(t *testing.T) {
	testenv.NoLeaks(t)
	// dash and bash count in blocks of 512 and 1024 bytes.
	run(t, child(t, nil, "-f 1048576", "create", "4"))
	cmd := child(t, nil, "-f 64", "create", "4")
	err := cmd.Run()
	if got := fmt.Sprint(cmd.Stderr); err == nil || !strings.Contains(got, "ulimit -f") || strings.Contains(got, "SIGXFSZ") {
		t.Errorf("create under ulimit -f 64: got %v and %q, want an error that names ulimit -f", err, got)
	}
}

// A thread that keeps its processor while it sleeps does not have Go's monitor look every 20 us,
// and no collection waits for the end of its sleep.
func TestSleepKeepsProcessor(t *testing.T) {
	testenv.NoLeaks(t)
	run(t, child(t, newSegment(t, Create, smallGeometry), "", "keep"))
}

var errSleeps = errors.New("the thread sleeps")

// keepChild has a thread sleep on a bell that nobody rings.
func keepChild([]string) error {
	s, err := Open(3)
	if err != nil {
		return err
	}
	defer s.Close()
	// Without KeepProcessor there are 20 to 60 switches to each sleep, with it 3; on a machine that is
	// busy there are more, so the best of some runs counts.
	const runs, naps, mostSwitches, collections = 8, 40, 8, 100
	arch.AddProcessors(1)
	slept, over := make(chan error), make(chan struct{})
	arch.GoThread(func() {
		defer close(slept)
		b := s.Bell(0)
		b.KeepProcessor(true)
		err, least := error(nil), math.MaxInt
		for run := 0; run < runs && err == nil && least > naps*mostSwitches; run++ {
			var before, after int
			before, err = otherSwitches()
			for range naps {
				b.Prepare()
				b.Sleep(int64(nap))
			}
			if err == nil {
				after, err = otherSwitches()
			}
			least = min(least, after-before)
		}
		if err == nil && least > naps*mostSwitches {
			err = fmt.Errorf("%d sleeps had other threads of the process wake %d times or more, want %d at most", naps, least, naps*mostSwitches)
		}
		slept <- err
		for {
			select {
			case <-over:
				return
			default:
				b.Prepare()
				b.Sleep(int64(nap))
			}
		}
	})
	for err = errSleeps; err == errSleeps; arch.Yield() {
		select { // busy, as a rank is beside its progress thread
		case err = <-slept:
		default:
		}
	}
	defer func() {
		close(over)
		<-slept
	}()
	if err != nil {
		return err
	}
	// One that waited for sleeps to end took three of them.
	least := time.Hour
	for range collections {
		begun := time.Now()
		runtime.GC()
		if least = min(least, time.Since(begun)); least < 2*nap {
			return nil
		}
	}
	return fmt.Errorf("the fastest of %d collections took %v beside a thread that sleeps for %v", collections, least, nap)
}

// otherSwitches is how often the other threads of this process have gone to sleep.
func otherSwitches() (sum int, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		if task.Name() == strconv.Itoa(arch.Thread()) {
			continue
		}
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return 0, fmt.Errorf("status of thread %s: %w", task.Name(), err)
		}
		sum += n
	}
	return sum, nil
}
