package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestMain lets the tests' binary be the guard of the sessions in it.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == guardWord {
		os.Exit(runGuard(os.Args[2], os.Args[3:], os.Stdin))
	}
	os.Exit(m.Run())
}

// However a command ends, its guard ends what bears its marker and removes its
// directories; others' processes live on.
func TestGuard(t *testing.T) {
	testenv.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newScratch(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(env []string) *exec.Cmd {
		c := exec.Command("sleep", "60")
		c.Env = env
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ours, other := start(s.environ()), start(append(os.Environ(), s.marker+"0"))
	// The command is gone when its end of the pipe is.
	s.pipe.Close()
	if err := s.guard.Wait(); err != nil {
		t.Errorf("guard: %v", err)
	}
	for _, d := range s.directories() {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it gone", d, err)
		}
	}
	if err := ours.Wait(); err == nil || !ours.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("a process of the session: %v, want it killed", err)
	}
	done := make(chan error, 1)
	go func() { done <- other.Wait() }()
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another's process: %v", err)
	}
	other.Process.Kill()
	select {
	case <-done:
	case <-time.After(testenv.Limit(10 * time.Second)):
		t.Error("the other process does not end")
	}
}
