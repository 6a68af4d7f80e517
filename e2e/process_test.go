package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/rogpeppe/go-internal/testscript"
)

// Bounds. A hang fails the script that hangs, not the whole run.
var runLimit = testenv.Limit(60 * time.Second)

const (
	awaitLimit = 20 * time.Second
	goneLimit  = 5 * time.Second
)

// script is what the commands of one script share.
type script struct {
	marker  string // in the environment of all its processes
	tmp     string // its TMPDIR
	started map[string]*process
}

type scriptKey struct{}

// process is a program of "start".
type process struct {
	cmd  *exec.Cmd
	done chan error // receives what Wait gave
}

func of(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

// finish ends what the script left running, and fails if anything of it lives
// on or lies about.
func (s *script) finish() error {
	var errs []error
	for name, p := range s.started {
		p.cmd.Process.Kill()
		<-p.done
		errs = append(errs, fmt.Errorf("the script started %s and has no \"ends\" for it", name))
	}
	if err := s.gone(); err != nil {
		errs = append(errs, err)
	}
	entries, err := os.ReadDir(s.tmp)
	if err != nil {
		errs = append(errs, err)
	}
	for _, e := range entries {
		errs = append(errs, fmt.Errorf("left in TMPDIR: %s", e.Name()))
	}
	return errors.Join(errs...)
}

// gone waits until no process bears the marker. What does after the limit is
// killed and named.
func (s *script) gone() error {
	var living []int
	if testenv.Holds(goneLimit, func() bool { living = s.living(); return living == nil }) {
		return nil
	}
	var names []string
	for _, pid := range living {
		names = append(names, fmt.Sprintf("%d %s", pid, cmdline(pid)))
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return fmt.Errorf("still alive after %v: %s", goneLimit, strings.Join(names, "; "))
}

// living are the processes with the marker in their environment. A process
// that is between fork and exec has its parent's.
func (s *script) living() []int {
	var pids []int
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range entries {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+s.marker+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func cmdline(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
}

// environ is the script's environment, which testscript keeps to itself but
// runs commands in. It replaces what "stdout" looks at.
func environ(ts *testscript.TestScript) []string {
	ts.Check(ts.Exec("env", "-0"))
	return strings.FieldsFunc(ts.ReadFile("stdout"), func(r rune) bool { return r == 0 })
}

// status is the exit status as a shell has it.
func status(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case !ok:
		return 0, err
	}
	if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}
