package orphan

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// daemon is a script that leaves a daemon behind and prints its number.
const daemon = `setsid env -i sh -c 'echo $$; exec sleep 600 >/dev/null' & sleep 0; exit 0`

// left runs a script to its end and returns the numbers that it prints.
func left(t *testing.T, script string, env ...string) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(20*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env = append(os.Environ(), env...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		pids = append(pids, pid)
	}
	if err := cmd.Wait(); err != nil || len(pids) == 0 {
		t.Fatalf("%v, processes %v", err, pids)
	}
	return pids
}

// gone tells whether a process has ended and was waited for.
func gone(pid int) bool { return unix.Kill(pid, 0) == unix.ESRCH }

func TestAdopt(t *testing.T) {
	testenv.Need(t, "setsid")
	// A child from before, which is not the job's.
	mine := exec.Command("sleep", "600")
	mine.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := mine.Start(); err != nil {
		t.Fatal(err)
	}
	defer mine.Wait()
	defer mine.Process.Kill()

	a, err := Adopt()
	if err != nil {
		t.Fatal(err)
	}
	daemons := left(t, daemon)
	family := left(t, `setsid setsid sh -c 'echo $$; setsid sleep 600 >/dev/null & sleep 600 >/dev/null & echo $!; exec >/dev/null; wait' & exit 0`)
	for _, pid := range append(daemons, family...) {
		if gone(pid) {
			t.Fatalf("%d has ended by itself", pid)
		}
	}
	if killed := a.End(); killed < len(daemons)+len(family) {
		t.Errorf("killed %d, want %d or more", killed, len(daemons)+len(family))
	}
	for _, pid := range append(daemons, family...) {
		if !gone(pid) {
			t.Errorf("%d is still there", pid)
		}
	}
	if gone(mine.Process.Pid) {
		t.Error("a child from before was killed")
	}
	var is int32
	if err := getSubreaper(&is); err != nil || is != 0 {
		t.Errorf("a subreaper afterwards: %d, %v", is, err)
	}
}

// End lets the guardian of an agent that has died do its work, though it was stopped, or the machine leaves it no
// CPU for a second.
func TestAdoptAwaitsGuardians(t *testing.T) {
	testenv.Need(t, "setsid")
	dir := t.TempDir()
	guardian, work := filepath.Join(dir, "gorun-guardian"), filepath.Join(dir, "work") // its process has that name
	script := "#!/bin/sh\necho $$\nexec >/dev/null\nkill -STOP $$\nsleep 1.1\nrm '" + work + "'\n"
	if err := errors.Join(os.WriteFile(guardian, []byte(script), 0o700), os.WriteFile(work, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	a, err := Adopt()
	if err != nil {
		t.Fatal(err)
	}
	pids := left(t, "setsid '"+guardian+"' & exit 0")
	a.End()
	if _, err := os.Stat(work); !errors.Is(err, os.ErrNotExist) || !gone(pids[0]) {
		t.Errorf("its work is not done: %v; gone: %t", err, gone(pids[0]))
	}
}

// TestReap has orphans end while the job runs, beside a child that somebody else
// waits for.
func TestReap(t *testing.T) {
	testenv.Need(t, "setsid")
	a, err := Adopt()
	if err != nil {
		t.Fatal(err)
	}
	defer a.End()
	own := exec.Command("sh", "-c", "exit 7")
	own.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	spares(t, own)
}

func TestSweep(t *testing.T) {
	testenv.Need(t, "setsid")
	marker := fmt.Sprintf("GORUN_TEST_SWEEP_%d=1", os.Getpid())
	pids := left(t, `setsid sh -c 'echo $$; exec sleep 600 >/dev/null' & exit 0`, marker)
	others := left(t, `setsid sh -c 'echo $$; exec sleep 600 >/dev/null' & exit 0`, marker+"1")
	defer unix.Kill(others[0], unix.SIGKILL)
	Sweep(marker)
	// It has been sent the signal, and may be on its way out.
	testenv.Await(t, 20*time.Second, fmt.Sprintf("the end of %d", pids[0]), func() bool {
		return !proc.Alive(pids[0])
	})
	if !proc.Alive(others[0]) {
		t.Errorf("%d, whose marker is another, was killed", others[0])
	}
}

// A child that leads a session, and that somebody waits for, is none, however long it has been dead.
func TestReapSparesLeaders(t *testing.T) {
	testenv.Need(t, "setsid")
	a, err := Adopt()
	if err != nil {
		t.Fatal(err)
	}
	defer a.End()
	own := exec.Command("sh", "-c", "exit 7")
	own.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if _, err := a.Lead(func() (int, error) {
		err := own.Start()
		return own.Process.Pid, err
	}); err != nil {
		t.Fatal(err)
	}
	// The reaper waits for a daemon that has ended later only when it has looked at all.
	if err := unix.Waitid(unix.P_PID, own.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	spares(t, own)
}

// spares has the reaper wait for daemons that are killed, and then finds a child of this process, which ends with status 7,
// still to be waited for.
func spares(t *testing.T, own *exec.Cmd) {
	t.Helper()
	daemons := left(t, daemon)
	for _, pid := range daemons {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Await(t, 20*time.Second, fmt.Sprintf("%d is waited for", daemons[0]), func() bool { return gone(daemons[0]) })
	if err := own.Wait(); fmt.Sprint(err) != "exit status 7" {
		t.Errorf("own child: %v", err)
	}
}
