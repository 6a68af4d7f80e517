// Command pingpong is a tutorial of RDMA verbs and a measurement of them: two
// ends connect queue pairs on whatever device there is, write and read each
// other's memory, and time it.
//
//	pingpong &                       the server
//	pingpong --connect 127.0.0.1     the client
//	gorun -np 2 pingpong             both, where they share memory
//
// Without --op it is the tutorial: the client writes a line into the server's
// memory, the server reads one out of the client's. With --op write, read, send
// or atomic it measures that operation, and prints what perftest prints.
//
// # Who does what
//
// The ends speak over a control connection (control.go: TCP, or the PMI of the
// launcher), first about what is to be done, which must be the same for both,
// then about where their queue pairs and memory are. An end (end.go) owns the
// verbs objects of one side, for any transport. The traffic of the queue
// pairs is in tutorial.go, latency.go and bandwidth.go; ibv.go speaks the protocol of
// rdma-core's ibv_rc_pingpong instead.
//
// # Blocking
//
// Every wait for the peer ends when nothing has come for --timeout: a watchdog
// (clock.go), which is the only goroutine, then ends the run's context. The ends
// meet before the first transfer and before they close their objects, so no end
// touches memory that is not ready or not there any more.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/internal/argp"
	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
	"github.com/gorun-mpi/gorun/rank"
)

// stdio is what the command writes.
type stdio struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Environ(), stdio{os.Stdout, os.Stderr})
	stop()
	os.Exit(status)
}

// statusFailed is the exit status when the transfers failed.
const statusFailed = 1

// run is the command: everything but the process.
func run(ctx context.Context, args, environ []string, std stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		logline.New(std.err, logline.Info).Errorf("the launcher's environment: %v", err)
		return statusFailed
	}
	launched := env.PMI != nil && env.PMI.Size != 1
	parser, p := newParser(launched)
	general, err := parser.Parse(args)
	if err == nil {
		if reason := p.settle(); reason != nil {
			err = &argp.Error{Reason: reason.Error()}
		}
	}
	if err != nil {
		if launched && env.PMI.Rank > 0 { // rank 0 says it
			std = stdio{io.Discard, io.Discard}
		}
		return parser.Report(err, general, std.out, std.err)
	}
	out := output.New(std.out)
	log := logline.New(std.err, general.LogLevel)
	if err := pingpong(ctx, &env, p, out, log); err != nil {
		log.Error(err)
		return statusFailed
	}
	if out.Failed("pingpong", std.err) {
		return statusFailed
	}
	return 0
}

// pingpong connects, transfers and reports.
func pingpong(ctx context.Context, env *rank.Environment, p *params, out io.Writer, log *logrus.Logger) (err error) {
	if err := checkDevice(env, p.deviceName); err != nil {
		return err
	}
	if p.peer == peerIBV {
		return ibvPingPong(ctx, env, p, out, log)
	}
	ctl, err := meet(ctx, env, p, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctl.Close()) }()
	secret, err := agree(ctx, ctl, p)
	if err != nil {
		return err
	}
	e, err := newEnd(env, p, ctl.server(), secret)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.introduce(ctx, ctl); err != nil {
		return err
	}
	log.Infof("%s", e)
	r := &report{Op: p.op, Device: e.device, Provider: e.provider, Transport: p.transport.String(), Bytes: p.size}
	if err := transfer(ctx, e, ctl, p, r); err != nil {
		return err
	}
	// Nobody takes its memory away before both are through with it.
	if err := ctl.barrier(ctx); err != nil {
		return fmt.Errorf("the transfers are done, but the peer has not said so: %w", err)
	}
	return r.write(out, p, ctl.server())
}

// transfer does what --op asks for.
func transfer(ctx context.Context, e *end, ctl control, p *params, r *report) error {
	w := newClock(ctx, p.timeout())
	defer w.stop()
	if p.op == opTutorial {
		return tutorial(w, e, ctl, r)
	}
	if err := latency(w, e, ctl, p, r); err != nil {
		return err
	}
	return bandwidth(w, e, ctl, p, r)
}
