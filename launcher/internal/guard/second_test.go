package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// secondOf waits for a second guardian other than one, and returns its process.
func secondOf(t *testing.T, first, other int) int {
	t.Helper()
	second := 0
	testenv.Await(t, 20*time.Second, fmt.Sprintf("a second of guardian %d", first), func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first))
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil && pid != other {
				second = pid
			}
		}
		return second != 0
	})
	return second
}

func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, 20*time.Second, fmt.Sprintf("process %d is stopped", pid), func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(stat), ") T ")
	})
}

// TestStarterAndGuardiansAreKilled kills, with the starter, one of the guardians, or
// stops it: the other does its work.
func TestStarterAndGuardiansAreKilled(t *testing.T) {
	for _, c := range []struct {
		name   string
		second bool // it is it that suffers
		stop   bool
	}{
		{"the first is killed", false, false},
		{"the second is killed", true, false},
		{"the first is stopped", false, true},
		{"the second is stopped", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			dir := filepath.Join(t.TempDir(), "job")
			if err := os.MkdirAll(filepath.Join(dir, "in"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd, first, pids := start(t, "="+dir, "+sleep 100 & sleep 100", "!exec sleep 100")
			second := secondOf(t, first, 0)
			victim := first
			if c.second {
				victim = second
			}
			if c.stop {
				stop(t, victim)
			} else if err := unix.Kill(victim, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for _, pid := range append(pids, first, second) {
				awaitEnd(t, pid)
			}
			awaitRemoved(t, dir)
		})
	}
}

// TestSecondIsReplaced kills the second while all is well.
func TestSecondIsReplaced(t *testing.T) {
	testenv.NoLeaks(t)
	g, err := Start(fmt.Sprintf("GUARD_TEST=%d.second", os.Getpid()), 0)
	if err != nil {
		t.Fatal(err)
	}
	second := 0
	for range 5 {
		second = secondOf(t, g.PID(), second)
		if err := unix.Kill(second, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	second = secondOf(t, g.PID(), second)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if alive(second) {
		t.Error("the second lives after Wait")
	}
}

// TestReplace has the starter replace the first, whose second goes.
func TestReplace(t *testing.T) {
	testenv.NoLeaks(t)
	g, err := Start(fmt.Sprintf("GUARD_TEST=%d.replace", os.Getpid()), 0)
	if err != nil {
		t.Fatal(err)
	}
	first := g.PID()
	second := secondOf(t, first, 0)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if fd := g.FD(); fd >= 0 { // else the kernel has none
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20000); n != 1 {
			t.Fatalf("the end of the first is not seen: %v", err)
		}
	}
	if err := g.Replace(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, second)
	if !alive(g.PID()) || g.PID() == first {
		t.Errorf("guardian %d after %d: it does not live", g.PID(), first)
	}
	secondOf(t, g.PID(), 0)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestReleaseEndsAStoppedGuardian releases guardians of which one is stopped.
func TestReleaseEndsAStoppedGuardian(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, strike := range []bool{false, true} {
			t.Run(fmt.Sprintf("both=%v,strike=%v", both, strike), func(t *testing.T) {
				testenv.NoLeaks(t)
				g, err := Start(fmt.Sprintf("GUARD_TEST=%d.stopped", os.Getpid()), 0)
				if err != nil {
					t.Fatal(err)
				}
				if both {
					stop(t, secondOf(t, g.PID(), 0))
				}
				stop(t, g.PID())
				end := g.Wait
				if strike {
					end = g.Strike
				}
				if err := end(); err != nil {
					t.Error(err)
				}
				if alive(g.PID()) {
					t.Error("it lives")
				}
			})
		}
	}
}

// TestDisband has processes that only their control group knows.
func TestDisband(t *testing.T) {
	testenv.NoLeaks(t)
	dir := controlGroup(t)
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	defer os.Remove(below)
	cmd, _, pids := start(t, "#"+dir, ".exec sleep 100", ".exec sleep 100")
	for i, pid := range pids {
		file := filepath.Join([]string{dir, below}[i], "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Fatal(err)
		}
		defer syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range pids {
		awaitEnd(t, pid)
	}
	awaitRemoved(t, dir)
}

// controlGroup makes one below this process's.
func controlGroup(t *testing.T) string {
	t.Helper()
	text, _ := os.ReadFile("/proc/self/cgroup")
	_, own, _ := strings.Cut("\n"+string(text), "\n0::")
	own, _, _ = strings.Cut(own, "\n")
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		dir := filepath.Join(mount, own, fmt.Sprintf("gorun-guard-test-%d", os.Getpid()))
		if _, err := os.Stat(filepath.Join(mount, own, "cgroup.procs")); err == nil && os.Mkdir(dir, 0o755) == nil {
			if _, err := os.Stat(dir + "/cgroup.kill"); err == nil {
				return dir
			}
			os.Remove(dir)
		}
	}
	testenv.Unsupported(t, "this process can make no control group of the unified hierarchy")
	return ""
}
