//go:build linux

// Rxe runs programs in a virtual machine with Soft-RoCE devices rxe0 and rxe1;
// see package rxevm.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/rxevm"
)

const usage = `usage: rxe packages
       rxe run [-f FILE]... [-e NAME=VALUE]... [-t DURATION] [-v] PROGRAM [ARGUMENT...]

Boots a virtual machine with the Soft-RoCE devices rxe0 and rxe1, copies PROGRAM
and every FILE with their shared libraries to where its PATH finds them, runs
PROGRAM, and exits as it did (128 + N: signal N; 125: the machine failed, 124: no end in time;
130: interrupted).
A PROGRAM without a slash is one of the guest: sh, ip, rdma, ibv_devinfo ...
"rxe packages" lists the Debian packages that are missing for it.

`

func main() {
	rxevm.Init()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// list collects the values of a flag that may be given many times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rxe", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	var files, env list
	flags.Var(&files, "f", "a `FILE` or directory that the program needs, by its own name in the guest's PATH")
	flags.Var(&env, "e", "`NAME=VALUE` for the program's environment")
	limit := flags.Duration("t", 10*time.Minute, "how long the program may run")
	verbose := flags.Bool("v", false, "show the guest's console")
	if len(args) == 1 && args[0] == "packages" {
		for _, p := range rxevm.Packages() {
			fmt.Fprintln(stdout, p)
		}
		return 0
	}
	if len(args) == 0 || args[0] != "run" {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); err != nil || flags.NArg() == 0 {
		if err == nil {
			flags.Usage()
		}
		return 2
	}
	r, err := inGuest(ctx, rxevm.Cmd{Args: flags.Args(), Env: env, Stdout: stdout, Stderr: stderr}, files, *limit, *verbose)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "rxe: interrupted")
		return 130
	case errors.Is(err, rxevm.ErrHang):
		fmt.Fprintln(stderr, "rxe:", err)
		return 124
	case err != nil:
		fmt.Fprintln(stderr, "rxe:", err)
		return 125
	case r.Status.Signaled():
		fmt.Fprintln(stderr, "rxe:", rxevm.Ended(r.Status))
		return 128 + int(r.Status.Signal())
	}
	return r.Status.ExitStatus()
}

func inGuest(ctx context.Context, c rxevm.Cmd, files []string, limit time.Duration, console bool) (rxevm.Result, error) {
	vm, err := rxevm.Boot(ctx, rxevm.Config{Console: console, Progress: func(s string) { fmt.Fprintln(c.Stderr, "rxe:", s) }})
	if err != nil {
		return rxevm.Result{}, err
	}
	defer vm.Close()
	defer context.AfterFunc(ctx, vm.Close)() // interrupted: the guest has nothing to lose
	if strings.Contains(c.Args[0], "/") {
		files = append(files, c.Args[0])
		c.Args[0] = filepath.Base(c.Args[0])
	}
	for _, f := range files {
		if err := vm.Put(f, ""); err != nil {
			return rxevm.Result{}, err
		}
	}
	limited, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	r, err := vm.Run(limited, c)
	if r.Left != nil {
		fmt.Fprintln(c.Stderr, "rxe: left behind:", strings.Join(r.Left, ", "))
	}
	return r, err
}
