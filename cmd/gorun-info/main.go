// Gorun-info reports what this machine offers to gorun's jobs and which problems
// they would meet.
//
//	gorun-info                      an overview
//	gorun-info doctor [HOST...]     every check, with what to do
//	gorun-info devices              the RDMA devices, and what keeps others away
//	gorun-info top [PID]            what a running job does
//	gorun-info topo [--record]      the machine's CPUs
//	gorun-info settings             the environment variables that count
//	gorun-info pmi                  which MPI programs gorun can start here
//
// The command line is read by pflag from one table (commands.go), which the help,
// the manual page and the completion are made from too. Long options may be
// written with one dash, as gorun has them. The checks are package doctor's.
//
// # Exit status
//
// 0: all is well. 1: doctor has found a problem, pmi that something is
// missing, or devices one that cannot be used. 2: a wrong command line. 130: interrupted by SIGINT or SIGTERM.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
	"github.com/gorun-mpi/gorun/internal/self"
	"github.com/gorun-mpi/gorun/internal/version"
)

const (
	statusMissing = 1 // also when what was asked for could not be written
	statusUsage   = 2
	// That of a program that SIGINT has ended.
	statusInterrupted = 130
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == doctor.ReachWord {
		os.Exit(doctor.Reach(os.Args[2:], os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	status := run(ctx, os.Args[1:], os.Environ(), stdio{os.Stdout, os.Stderr})
	stop()
	os.Exit(status)
}

type stdio struct{ out, err io.Writer }

func run(ctx context.Context, args, environ []string, std stdio) int {
	r, err := parse(args)
	if err != nil {
		fmt.Fprintf(std.err, "gorun-info: %v\nsee gorun-info --help\n", err)
		return statusUsage
	}
	out := output.New(std.out)
	r.environ, r.stdio = environ, stdio{out, std.err}
	status := 0
	switch {
	case r.help:
		fmt.Fprint(out, help())
	case r.version:
		fmt.Fprintln(out, version.Line("gorun-info"))
	case r.man:
		fmt.Fprint(out, manual())
	case r.completion != "":
		fmt.Fprint(out, completion(r.completion))
	default:
		status = r.command.run(ctx, r)
	}
	if ctx.Err() != nil && (r.command == nil || r.command.name != "top") { // which nothing else ends
		// What it has started is gone, and what it has not seen to its end it
		// does not tell.
		fmt.Fprintln(std.err, "gorun-info: interrupted")
		return statusInterrupted
	}
	if out.Failed("gorun-info", std.err) {
		return statusMissing
	}
	return status
}

// view is this machine as the checks see it.
func (r *request) view() *doctor.View {
	v := doctor.Here()
	v.Environ, v.Ranks, v.Ports, v.Beside, v.Version = r.environ, r.np, r.ports, beside(), doctor.Spoken(version.Line("gorun"))
	v.PMIx = func(ctx context.Context) doctor.PMIxSupport {
		p := lookForPMI(ctx, v.Beside).PMIx
		_, err := os.Stat(p.Helper)
		return doctor.PMIxSupport{Helper: p.Helper, Exists: err == nil, Cgo: p.Cgo, Library: p.Library, Version: p.Version, Problem: p.Problem}
	}
	return v
}

// showPMI is gorun-info pmi.
func showPMI(ctx context.Context, r *request) int {
	report := lookForPMI(ctx, beside())
	tries, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	for _, m := range r.view().TryMPIs(tries) {
		switch why := m.MPI + " " + m.Version + " does not start: " + m.Problem; {
		case m.Problem == "":
		case m.Protocol == "PMI-1":
			report.PMI1 = protocol{Why: why}
		case m.Protocol == "PMIx" && report.PMIx.OK:
			report.PMIx.OK, report.PMIx.Problem = false, why
		}
	}
	if !r.json {
		report.table(r.out)
	} else if status := r.encode(report); status != 0 {
		return status
	}
	if !report.PMIx.OK || !report.PMI1.OK {
		return statusMissing
	}
	return 0
}

// beside is the directory of this program, where gorun and its helper are.
func beside() string {
	path, err := self.Path()
	if err != nil {
		return "."
	}
	return filepath.Dir(path)
}
