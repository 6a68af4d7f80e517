//go:build linux

package rxevm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Cmd is a command for the guest.
type Cmd struct {
	// Args: the program, which is looked for in the guest's PATH, and its arguments.
	Args []string
	// Env is added to the guest's environment.
	Env []string
	// Dir is a directory of the guest; empty: /.
	Dir string
	// Stdout and Stderr get what the command prints, as it does; nil: nobody.
	Stdout, Stderr io.Writer
}

// Result is how a command ended.
type Result struct {
	Status syscall.WaitStatus
	// Left names the processes that lived when the command ended. They have been killed.
	Left []string
}

// answerTime is how long the guest has for the end of a command that it was
// told to stop, its stacks included.
const answerTime = time.Minute

// bin is where Put places programs; it comes first in the guest's PATH.
const bin = "/run/bin"

// Run runs a command to its end. An error means that the guest could not say how the command
// ended; the text shows the console's last lines where they matter. A
// command that runs when ctx ends is stopped (ErrHang): a Go program prints its stacks
// for that, everything is killed, and the machine can run more. Panics of the
// kernel (ErrPanic), other ends of the machine (ErrGone) and processes that
// nothing can kill (ErrHang) are the end of this VM: what is run after them fails at once.
func (vm *VM) Run(ctx context.Context, cmd Cmd) (Result, error) {
	if vm.broken != nil {
		return Result{}, fmt.Errorf("the guest cannot run any more: %w", vm.broken)
	}
	if err := vm.send(frame{Run: &command{Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir}}); err != nil {
		return Result{}, err
	}
	var hang error
	var answer <-chan time.Time
	ended := ctx.Done()
	for {
		select {
		case f, ok := <-vm.frames:
			switch {
			case !ok:
				return Result{}, vm.spoil(vm.why())
			case f.Stdout != nil:
				write(cmd.Stdout, f.Stdout)
			case f.Stderr != nil:
				write(cmd.Stderr, f.Stderr)
			case f.Done != nil && f.Done.Stuck != nil:
				vm.Close()
				return Result{}, vm.spoil(fmt.Errorf("%w, and nothing kills %s", ErrHang, strings.Join(f.Done.Stuck, ", ")))
			case f.Done != nil && f.Done.Err != "":
				return Result{}, fmt.Errorf("in the guest: %s", f.Done.Err)
			case f.Done != nil:
				return Result{Status: syscall.WaitStatus(f.Done.Status), Left: f.Done.Left}, hang
			}
		case <-ended:
			ended = nil
			hang = fmt.Errorf("%s: %w: %w", cmd.Args[0], ErrHang, context.Cause(ctx))
			answer = time.After(answerTime)
			if err := vm.send(frame{Stop: true}); err != nil {
				return Result{}, err
			}
		case <-answer:
			vm.Close()
			return Result{}, vm.spoil(fmt.Errorf("%w, and the guest does not answer", hang))
		}
	}
}

// write passes output on; a reader that does not want it is no reason to end the command.
func write(w io.Writer, b []byte) {
	if w != nil {
		_, _ = w.Write(b)
	}
}

// spoil ends the use of the machine.
func (vm *VM) spoil(err error) error {
	vm.broken = err
	return fmt.Errorf("%w%s", err, vm.console.tail())
}

// takeTime is how long the guest may leave a frame where it is.
const takeTime = time.Minute

func (vm *VM) send(f frame) error {
	_ = vm.channel.SetWriteDeadline(time.Now().Add(takeTime))
	err := vm.out.send(f)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		vm.Close()
		return vm.spoil(fmt.Errorf("%w: nothing reads what it is sent", ErrHang))
	}
	if err != nil {
		return vm.spoil(vm.why())
	}
	return nil
}

// Output is Run for commands whose output is wanted whole, both streams in one.
// A command that fails is an error with that output.
func (vm *VM) Output(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	r, err := vm.Run(ctx, Cmd{Args: args, Stdout: &out, Stderr: &out})
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("%s", Ended(r.Status))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), err
}

// Ended says how a process ended.
func Ended(s syscall.WaitStatus) string {
	if s.Signaled() {
		return fmt.Sprintf("signal: %v", s.Signal())
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// Put copies a file or a directory of the host into the guest, as to; empty:
// into the first directory of the guest's PATH, by its own name. The shared
// libraries that programs need come with them.
func (vm *VM) Put(host, to string) error {
	if vm.broken != nil {
		return fmt.Errorf("the guest cannot run any more: %w", vm.broken)
	}
	if to == "" {
		to = filepath.Join(bin, filepath.Base(host))
	}
	return filepath.WalkDir(host, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(host, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := vm.putFile(filepath.Join(to, rel), data); err != nil {
			return err
		}
		return vm.putLibraries(name, data)
	})
}

func (vm *VM) putLibraries(name string, data []byte) error {
	libs, err := libraries(name, data)
	if err != nil {
		return err
	}
	for _, lib := range libs {
		to, err := placed(lib)
		if err != nil {
			return err
		}
		if vm.have[to] {
			continue
		}
		vm.have[to] = true
		data, err := os.ReadFile(lib)
		if err != nil {
			return err
		}
		if err := vm.putFile(to, data); err != nil {
			return err
		}
	}
	return nil
}

func (vm *VM) putFile(to string, data []byte) error {
	for first := true; first || len(data) > 0; first = false {
		n := min(chunk, len(data))
		if err := vm.send(frame{File: &file{Name: to, Mode: 0o755, Data: data[:n], First: first}}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
