package rxe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/rxevm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// One machine tells ends of commands apart, and goes on after each.
func TestCommandsEnd(t *testing.T) {
	vm := guest(t)
	run := func(t *testing.T, args ...string) (rxevm.Result, string, string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		r, err := vm.Run(testenv.Deadline(t, time.Minute), rxevm.Cmd{Args: args, Stdout: &stdout, Stderr: &stderr})
		if err != nil {
			t.Fatal(err)
		}
		return r, stdout.String(), stderr.String()
	}
	t.Run("status", func(t *testing.T) {
		for _, status := range []int{0, 1, 77, 255} {
			r, stdout, stderr := run(t, "unruly", "exit", fmt.Sprint(status))
			if r.Status.ExitStatus() != status || stdout != "on stdout\n" || stderr != "on stderr\n" || r.Left != nil {
				t.Errorf("%d: %+v, %q, %q", status, r, stdout, stderr)
			}
		}
	})
	t.Run("signal", func(t *testing.T) {
		for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			if r, _, _ := run(t, "unruly", "kill", fmt.Sprint(int(s))); !r.Status.Signaled() || r.Status.Signal() != s {
				t.Errorf("%v: %s", s, rxevm.Ended(r.Status))
			}
		}
	})
	t.Run("left behind", func(t *testing.T) {
		r, _, _ := run(t, "unruly", "leave")
		if r.Status != 0 || len(r.Left) != 1 || !strings.HasPrefix(r.Left[0], "sleep ") {
			t.Errorf("%+v, want one sleep left behind", r)
		}
		if _, out, _ := run(t, "ps"); strings.Contains(out, "sleep 1000") {
			t.Errorf("it still runs:\n%s", out)
		}
	})
	t.Run("much output", func(t *testing.T) {
		_, out, _ := run(t, "unruly", "flood")
		if len(out) != 4<<20 || !strings.HasSuffix(out, fmt.Sprintf("%063d\n", 1<<16-1)) {
			t.Errorf("%d bytes, want %d", len(out), 4<<20)
		}
	})
	t.Run("no such program", func(t *testing.T) {
		_, err := vm.Run(testenv.Deadline(t, time.Minute), rxevm.Cmd{Args: []string{"nosuch"}})
		if err == nil || !strings.Contains(err.Error(), "nosuch") || vm.Err() != nil {
			t.Errorf("%v, then %v", err, vm.Err())
		}
	})
	t.Run("directory and environment", func(t *testing.T) {
		var out bytes.Buffer
		_, err := vm.Run(testenv.Deadline(t, time.Minute), rxevm.Cmd{Args: []string{"sh", "-c", "pwd; echo $A $HOME"}, Env: []string{"A=b"}, Dir: "/tmp", Stdout: &out})
		if err != nil || out.String() != "/tmp\nb /root\n" {
			t.Errorf("%q, %v", &out, err)
		}
	})
	t.Run("hang", func(t *testing.T) {
		// It is stopped when it is known to hang, not after a time.
		ctx, cancel := context.WithCancelCause(context.Background())
		var out bytes.Buffer
		reader, writer := ioPipe(t)
		go func() {
			_, _ = bufio.NewReader(reader).ReadString('\n')
			cancel(errors.New("enough"))
		}()
		_, err := vm.Run(ctx, rxevm.Cmd{Args: []string{"unruly", "hang"}, Stdout: writer, Stderr: &out})
		if !errors.Is(err, rxevm.ErrHang) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("error %v", err)
		}
		if !strings.Contains(out.String(), "hangingHere") {
			t.Errorf("no stack of where it hung: %q", &out)
		}
		if _, out, _ := run(t, "echo", "on"); out != "on\n" || vm.Err() != nil {
			t.Errorf("afterwards: %q, %v", out, vm.Err())
		}
	})
}

func ioPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func TestPutDirectory(t *testing.T) {
	vm := guest(t)
	dir := t.TempDir()
	want := map[string]string{"a": "first", "sub/b": strings.Repeat("0123456789", 100_000), "sub/empty": ""}
	for name, text := range want {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is there is replaced
		if err := vm.Put(dir, "/data/x"); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range want {
		if got := inGuest(t, "cat", "/data/x/"+name); got != text {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(text))
		}
	}
	if err := vm.Put(filepath.Join(dir, "nosuch"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	inGuest(t, "rm", "-r", "/data")
}

func TestKernelPanics(t *testing.T) {
	vm := boot(t)
	defer vm.Close()
	_, err := vm.Output(testenv.Deadline(t, time.Minute), "sh", "-c", "echo c >/proc/sysrq-trigger")
	if !errors.Is(err, rxevm.ErrPanic) || errors.Is(err, rxevm.ErrGone) || !strings.Contains(err.Error(), "sysrq_handle_crash") {
		t.Errorf("error %v, want %v and the console", err, rxevm.ErrPanic)
	}
	if _, again := vm.Output(testenv.Deadline(t, time.Minute), "true"); !errors.Is(again, rxevm.ErrPanic) {
		t.Errorf("the next command: %v", again)
	}
	if err := vm.Put(os.Args[0], ""); !errors.Is(err, rxevm.ErrPanic) {
		t.Errorf("the next file: %v", err)
	}
}

func TestMachineEnds(t *testing.T) {
	vm := boot(t)
	defer vm.Close()
	_, err := vm.Output(testenv.Deadline(t, time.Minute), "sh", "-c", "echo b >/proc/sysrq-trigger; sleep 1000")
	if !errors.Is(err, rxevm.ErrGone) || errors.Is(err, rxevm.ErrPanic) {
		t.Errorf("error %v, want %v", err, rxevm.ErrGone)
	}
}

func TestBootFails(t *testing.T) {
	guest(t) // skips where nothing boots
	t.Run("panic", func(t *testing.T) {
		testenv.NoLeaks(t)
		_, err := rxevm.Boot(testenv.Deadline(t, time.Minute), rxevm.Config{Append: "rdinit=/usr/bin/false"})
		if !errors.Is(err, rxevm.ErrBoot) || !errors.Is(err, rxevm.ErrPanic) || !strings.Contains(err.Error(), "Attempted to kill init") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("hang", func(t *testing.T) {
		testenv.NoLeaks(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		config := rxevm.Config{Append: "rdinit=/usr/bin/yes", Console: true, Progress: func(line string) {
			if strings.Contains(line, "gorun-rxevm-guest") {
				cancel(errors.New("enough"))
			}
		}}
		_, err := rxevm.Boot(ctx, config)
		if !errors.Is(err, rxevm.ErrBoot) || !strings.Contains(err.Error(), "enough") || !strings.Contains(err.Error(), "\tgorun-rxevm-guest") {
			t.Errorf("error %v, want what the console said", err)
		}
	})
	t.Run("no QEMU", func(t *testing.T) {
		testenv.NoLeaks(t)
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, "qemu-system-x86_64"), []byte("#!/bin/sh\nexit 1\n"), 0o777); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		tries := 1
		_, err := rxevm.Boot(testenv.Deadline(t, time.Minute), rxevm.Config{Progress: func(s string) { tries++ }})
		if !errors.Is(err, rxevm.ErrBoot) || !errors.Is(err, rxevm.ErrGone) || tries != 3 {
			t.Errorf("%d tries, error %v", tries, err)
		}
	})
}

// However the command rxe ends, QEMU does too, and no file is left.
func TestNoMachineIsLeft(t *testing.T) {
	guest(t) // skips where nothing boots, and fills the cache
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.Command(filepath.Join(built, "rxe"), "run", "sh", "-c", "echo up; sleep 1000")
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
				t.Errorf("%q, %v", line, err)
			}
			machines := children(t, cmd.Process.Pid)
			if len(machines) != 1 {
				t.Fatalf("children of rxe: %v, not QEMU alone", machines)
			}
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if s == syscall.SIGINT && cmd.ProcessState.ExitCode() != 130 {
				t.Errorf("rxe: %v, want exit status 130", cmd.ProcessState)
			}
			for ctx := testenv.Deadline(t, 10*time.Second); syscall.Kill(machines[0], 0) == nil; time.Sleep(time.Millisecond) {
				if ctx.Err() != nil {
					t.Fatalf("QEMU, process %d, lives", machines[0])
				}
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// children lists the processes that a process has started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range lists {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}
