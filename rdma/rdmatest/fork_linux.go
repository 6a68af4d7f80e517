package rdmatest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// ConnFD is where a process started by Start finds the connection for Serve.
// The descriptors in the command's ExtraFiles follow it.
const ConnFD = 3

// A Child is a node in a process of its own, started by Start.
type Child struct {
	*Proc
	cmd  *exec.Cmd
	once sync.Once // reaping
}

// Start runs cmd, whose program calls Serve on ConnFD, and opens its node. The
// process is ended and reaped with the test.
func Start(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("socketpair: %v", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "agent"), os.NewFile(uintptr(pair[1]), "driver")
	cmd.ExtraFiles = append([]*os.File{theirs}, cmd.ExtraFiles...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		t.Fatalf("start a node: %v", err)
	}
	c := &Child{cmd: cmd}
	t.Cleanup(c.end)
	if c.Proc, err = Drive(ours); err != nil {
		t.Fatalf("process %d: %v", cmd.Process.Pid, err)
	}
	return c
}

// PID is the process's id, which stays its own until the test ends.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// end closes the connection, so that the process leaves by itself, and reaps it.
func (c *Child) end() {
	c.once.Do(func() {
		if c.Proc != nil {
			c.Proc.Close()
		}
		c.Continue()
		late := time.AfterFunc(10*time.Second, func() { c.cmd.Process.Kill() })
		_ = c.cmd.Wait()
		late.Stop()
	})
}

// Stop halts the process and returns when it stands still.
func (c *Child) Stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(testenv.Limit(10 * time.Second)); ; runtime.Gosched() {
		switch s, ok := proc.Of(c.PID()); {
		case !ok:
			return fmt.Errorf("process %d is gone", c.PID())
		case s.State == 'T':
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not stop", c.PID())
		}
	}
}

// Continue lets a stopped process go on.
func (c *Child) Continue() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL in whatever it is doing, and returns when
// it is dead. It is not reaped before the test ends, so that its id is not
// given to another process.
func (c *Child) Kill() error {
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, c.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// Reap waits for the end of the process and gives its id back.
func (c *Child) Reap() { c.end() }
