package e2e

import (
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
	"golang.org/x/sys/unix"
)

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "exits STATUS program args...")
	want := number(ts, args[0])
	// timeout(1) passes the exit status on, 128+N for signal N.
	err := ts.Exec("timeout", append([]string{"--signal=KILL", strconv.FormatFloat(runLimit.Seconds(), 'f', 0, 64)}, args[1:]...)...)
	got, err := status(err)
	ts.Check(err)
	if got != want {
		hung := ""
		if got == 128+int(syscall.SIGKILL) {
			hung = fmt.Sprintf(" (killed, perhaps because it hung for %v)", runLimit)
		}
		ts.Fatalf("exit status %d%s, want %d", got, hung, want)
	}
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "start NAME program args...")
	name, s := args[0], of(ts)
	if s.started[name] != nil {
		ts.Fatalf("%s runs already", name)
	}
	env := environ(ts)
	path := args[1]
	if strings.Contains(path, "/") {
		path = ts.MkAbs(path)
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), env
	cmd.Stdout, cmd.Stderr = create(ts, name+".out"), create(ts, name+".err")
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, done: make(chan error, 1)}
	go func() {
		p.done <- cmd.Wait()
		cmd.Stdout.(*os.File).Close()
		cmd.Stderr.(*os.File).Close()
	}()
	s.started[name] = p
}

func create(ts *testscript.TestScript, name string) *os.File {
	file, err := os.Create(filepath.Join(ts.Getenv("WORK"), name))
	ts.Check(err)
	return file
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "signal SIGNAL NAME")
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 {
		ts.Fatalf("no signal %s", args[0])
	}
	ts.Check(lookup(ts, args[1]).cmd.Process.Signal(sig))
}

func cmdEnds(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "ends NAME STATUS")
	p, want := lookup(ts, args[0]), number(ts, args[1])
	select {
	case err := <-p.done:
		delete(of(ts).started, args[0])
		got, err := status(err)
		ts.Check(err)
		if got != want {
			ts.Fatalf("%s: exit status %d, want %d\nstderr:\n%s", args[0], got, want, ts.ReadFile(filepath.Join(ts.Getenv("WORK"), args[0]+".err")))
		}
	case <-time.After(runLimit):
		ts.Fatalf("%s still runs after %v", args[0], runLimit)
	}
}

func lookup(ts *testscript.TestScript, name string) *process {
	p := of(ts).started[name]
	if p == nil {
		ts.Fatalf("%s was not started", name)
	}
	return p
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "await FILE...")
	for _, name := range args {
		if !testenv.Holds(awaitLimit, func() bool { _, err := os.Stat(ts.MkAbs(name)); return err == nil }) {
			ts.Fatalf("%s did not come within %v", name, awaitLimit)
		}
	}
}

// cmdSays waits until a started program has written a text to standard error.
func cmdSays(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "says NAME TEXT")
	lookup(ts, args[0])
	file := filepath.Join(ts.Getenv("WORK"), args[0]+".err")
	if !testenv.Holds(awaitLimit, func() bool { return strings.Contains(ts.ReadFile(file), args[1]) }) {
		ts.Fatalf("%s did not say %q within %v but\n%s", args[0], args[1], awaitLimit, ts.ReadFile(file))
	}
}

func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "gone")
	ts.Check(of(ts).gone())
}

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func number(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}
