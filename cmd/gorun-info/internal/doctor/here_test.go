package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The trials succeed on a machine that runs these tests, but for what it may
// forbid, and leave nothing.
func TestTrials(t *testing.T) {
	v := Here()
	ctx := testenv.Deadline(t, 20*time.Second)
	dir := t.TempDir()
	for name, try := range map[string]func() error{
		"file":     func() error { return v.TryFile(dir) },
		"group":    func() error { return v.TryGroup(dir) }, // a directory is one
		"memfd":    v.TryMemfd,
		"loopback": func() error { return v.TryLoopback(ctx) },
		"open":     func() error { return v.TryOpen("/dev/null") },
	} {
		if err := try(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if err := v.TryFile(filepath.Join(dir, "none")); err == nil {
		t.Error("a file could be made in a directory that is not there")
	}
	if err := v.TryOpen(filepath.Join(dir, "none")); err == nil {
		t.Error("a device that is not there could be opened")
	}
}

// Reading a process's memory from its child works, or the machine says why not,
// and a wrong address is an error in any case.
func TestReach(t *testing.T) {
	ctx := testenv.Deadline(t, 20*time.Second)
	if err := tryReach(ctx); err != nil {
		testenv.Unsupported(t, "needs process_vm_readv: "+err.Error())
	}
	for _, args := range [][]string{{strconv.Itoa(os.Getpid()), "16"}, {"x", "16"}, {"1", "x"}, {}} {
		out, err := exec.CommandContext(ctx, os.Args[0], append([]string{ReachWord}, args...)...).CombinedOutput()
		if err == nil || len(out) == 0 {
			t.Errorf("%q: got %q and no error, want one", args, out)
		}
	}
}

// What a program's children hold open, or a program that does not end, holds
// nobody up; its words are bounded.
func TestRunProgram(t *testing.T) {
	ctx := testenv.Deadline(t, 20*time.Second)
	out, errs, err := runProgram(ctx, "sh", "-c", "echo out; echo err >&2; exit 3")
	if out != "out\n" || errs != "err\n" || err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %q, %q, %v", out, errs, err)
	}
	if out, _, err = runProgram(ctx, "sh", "-c", "yes 12345678 | head -c 300000"); err != nil || len(out) != spoke {
		t.Errorf("got %d bytes, %v, want %d", len(out), err, spoke)
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	pids := filepath.Join(t.TempDir(), "pid")
	if _, _, err = runProgram(short, "sh", "-c", "sleep 300 & echo $! >"+pids+"; wait"); err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("a program that does not end: got %v", err)
	}
	// A machine under load may have come to nothing in that time.
	if text, err := os.ReadFile(pids); err == nil && len(text) > 0 {
		testenv.Await(t, 30*time.Second, "its child has ended", func() bool {
			stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// The real machine can be examined whole; what is found is its own affair.
func TestExamineHere(t *testing.T) {
	v := Here()
	v.Environ, v.Ranks, v.Beside, v.Version = os.Environ(), 2, t.TempDir(), "x"
	v.PMIx = func(context.Context) PMIxSupport { return PMIxSupport{Problem: "not asked"} }
	before, err := filepath.Glob("/dev/shm/gorun-info-*")
	if err != nil {
		t.Fatal(err)
	}
	found := Examine(testenv.Deadline(t, 60*time.Second), v, nil)
	if len(found) != len(checks()) {
		t.Errorf("got %d findings of %d checks", len(found), len(checks()))
	}
	for _, f := range found {
		if strings.Contains(f.Found, "no answer within") || f.Found == "" || f.Why == "" || f.State == OK && f.Fix != "" {
			t.Errorf("got %+v", f)
		}
	}
	after, err := filepath.Glob("/dev/shm/gorun-info-*")
	if err != nil || len(after) > len(before) {
		t.Errorf("left: %v, %v", after, err)
	}
}

// A FIFO or a device in the place of a file is not waited for.
func TestKernelFiles(t *testing.T) {
	k := Here().Root.(kernelFiles)
	if _, err := k.ReadFile("dev/zero"); err == nil {
		t.Error("a device was read")
	}
	if text, err := k.ReadFile("proc/self/comm"); err != nil || len(text) == 0 {
		t.Errorf("got %q, %v", text, err)
	}
}
