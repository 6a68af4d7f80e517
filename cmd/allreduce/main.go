// Command allreduce is DOCA's all-reduce: processes combine their vectors, and each gets the
// result, while daemons, as on a DPU, do the work for the hosts that compute meanwhile.
//
//	allreduce -r daemon -t 34001 -c 1 -s 1000 -i 16 -b 128
//	allreduce -r client -m offloaded -a HOST:34001 -s 1000 -i 16 -b 128
//	allreduce -r client -m non-offloaded -t 36001 -a HOST:35001 -s 1000 -i 16 -b 128
//	gorun -np 4 allreduce -s 65535 -i 16 -b 128      without addresses
//
// A client prints what the original measures: the time of the network alone, of a load of
// computing that takes as long, and of both together, hence how much of the network's time
// was hidden.
//
// # Who does what
//
// params.go is the command line and address.go its addresses. meet.go makes the
// member of the group, by addresses, or with the launcher's help. measure.go is a
// client's run, load.go what it computes, and report.go prints. How members find each
// other and combine vectors is package group, below internal.
//
// # Blocking
//
// The run is one goroutine. A signal ends the context of every wait, and the group's other
// members are told.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/cmd/internal/argp"
	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
	"github.com/gorun-mpi/gorun/rank"
)

// stdio is what the command writes.
type stdio struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Environ(), stdio{os.Stdout, os.Stderr}))
}

const (
	statusFailed      = 1   // no group, or it broke
	statusInterrupted = 130 // by SIGINT or SIGTERM
)

// run is the command: everything but the process.
func run(ctx context.Context, args, environ []string, std stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		logline.New(std.err, logline.Info).Errorf("the launcher's environment: %v", err)
		return statusFailed
	}
	ranks := 0
	if env.PMI != nil {
		ranks = env.PMI.Size
	}
	parser, p := newParser(ranks)
	general, err := parser.Parse(args)
	if err == nil {
		err = p.settle(parser)
	}
	if err != nil {
		// Under a launcher each rank says it: their command lines may differ.
		return parser.Report(err, general, std.out, std.err)
	}
	out := output.New(std.out)
	a := &app{params: p, env: &env, log: logline.New(std.err, general.LogLevel), sdk: logline.New(std.err, general.SDKLogLevel), out: out}
	a.notes(parser, environ)
	err = a.run(ctx)
	switch {
	case out.Failed("allreduce", std.err):
		return statusFailed
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		a.log.Warn("interrupted")
		return statusInterrupted
	}
	a.log.Error(err)
	return statusFailed
}

// An app is one run.
type app struct {
	*params
	env *rank.Environment
	log *logrus.Logger // the program's
	sdk *logrus.Logger // the runtime's
	out io.Writer
}

// notes says what of the command line and the environment means less than one may think.
func (a *app) notes(parser *argp.Parser, environ []string) {
	for _, note := range append(parser.Notes(), a.remarks...) {
		a.log.Info(note)
	}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && name == "UCX_NET_DEVICES" && value != "" {
			a.log.Infof("UCX_NET_DEVICES=%s has no effect: members speak TCP, over the interfaces that lead to their addresses", value)
		}
	}
}

// run makes the member and does its part. Its error is context.Canceled after a signal.
func (a *app) run(ctx context.Context) (err error) {
	if a.role == roleDaemon && a.clients == 0 && !a.launched {
		a.log.Info("no clients: a daemon serves as many as -c says, and -c is 0")
		return nil
	}
	results, err := output.Create(a.output)
	if err != nil {
		return fmt.Errorf("--output-json: %w", err)
	}
	if results != nil {
		defer results.Close()
	}
	m, err := a.meet(ctx)
	if err != nil {
		return err
	}
	defer func() { err = m.close(err) }()
	if a.role == roleDaemon {
		return a.serve(ctx, m, results)
	}
	var s group.Session
	if a.mode == modeOffloaded {
		s, err = group.Connect(ctx, m.options)
	} else {
		s, err = group.Form(ctx, m.options)
	}
	if err != nil {
		return err
	}
	r, err := a.measure(s)
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	r.write(a.out)
	return save(r, results, a.output, a.out)
}
