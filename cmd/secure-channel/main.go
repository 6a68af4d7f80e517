// Command secure-channel is DOCA's secure channel: a host and a DPU send each other
// messages, both at once, over one channel that nobody else can join, read or forge.
//
//	secure-channel --role dpu  -p soft0 -s 256 -n 100     on one host, in either
//	secure-channel --role host -p soft0 -s 256 -n 100     order
//	secure-channel --role dpu  -p soft0 -s 256 -n 100 --key FILE --listen 10.0.0.1:18600
//	secure-channel --role host -p soft0 -s 256 -n 100 --key FILE --connect 10.0.0.1:18600
//	gorun -np 2 secure-channel -p soft0 -s 256 -n 100     rank 0 is the DPU
//
// It prints what the original prints, then the times and totals, and ends by itself.
//
// # Who does what
//
// params.go is the command line, device.go finds the device and its representor, and
// meet.go makes the channels, by name, by address, or with the launcher's help; all
// that makes them secure is package rdma/comch. exchange.go sends and receives,
// report.go prints.
//
// # Blocking
//
// Each channel has one goroutine, which sends and receives in turns, so that neither
// direction waits for the other. A signal ends the context of every wait; what was moved
// until then is reported.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// stdio is what the command writes.
type stdio struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Environ(), stdio{os.Stdout, os.Stderr}))
}

const (
	statusFailed      = 1   // no channel, or it broke
	statusInterrupted = 130 // by SIGINT or SIGTERM, before everything was moved
)

// run is the command: everything but the process.
func run(ctx context.Context, args, environ []string, std stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		logline.New(std.err, logline.Info).Errorf("the launcher's environment: %v", err)
		return statusFailed
	}
	launched := env.PMI != nil && env.PMI.Size > 1
	parser, p := newParser(launched)
	p.name = variable(environ, "GORUN_CHANNEL")
	general, err := parser.Parse(args)
	log := logline.New(std.err, general.LogLevel)
	if err == nil {
		err = p.settle(parser)
	}
	if err == nil {
		err = p.findDevices(parser, env.Emulate, log)
	}
	if err != nil {
		// Under a launcher each rank says it: their command lines may differ, and the first
		// that ends may end the others.
		return parser.Report(err, general, std.out, std.err)
	}
	out := output.New(std.out)
	a := &app{params: p, env: &env, log: log, sdk: logline.New(std.err, general.SDKLogLevel), out: out}
	err = a.run(ctx)
	switch {
	case out.Failed("secure-channel", std.err):
		return statusFailed
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		if p.forever {
			return 0 // that is how it ends
		}
		log.Warn("interrupted")
		return statusInterrupted
	}
	log.Error(err)
	return statusFailed
}

func variable(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// An app is one run.
type app struct {
	*params
	env *rank.Environment
	log *logrus.Logger // the program's
	sdk *logrus.Logger // the runtime's

	mu      sync.Mutex // guards the next lines
	out     io.Writer
	results []*result
}

// run makes the channels and uses them. Its error is context.Canceled after a signal.
func (a *app) run(ctx context.Context) (err error) {
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
	a.log.Infof("%d messages of %d bytes to send", a.count, a.size)
	if m.listener == nil {
		err = a.serve(ctx, m.conn)
	} else {
		err = a.serveAll(ctx, m)
	}
	err = errors.Join(err, m.close())
	if a.forever && errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, a.writeResults(results))
}

// serveAll serves as many clients as there are to be, each on a goroutine of its own.
func (a *app) serveAll(ctx context.Context, m *meeting) error {
	var all sync.WaitGroup
	var mu sync.Mutex // guards errs
	var errs []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	for n := 0; a.forever || n < m.clients; n++ {
		conn, err := a.accept(ctx, m, n)
		if err != nil {
			note(err)
			break
		}
		if !a.forever && n == m.clients-1 {
			// Nobody else is let in, and the name is another one's to take.
			note(m.listener.Close())
		}
		all.Go(func() { note(a.serve(ctx, conn)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// accept waits for the next client: for the first ones not for ever.
func (a *app) accept(ctx context.Context, m *meeting, n int) (*comch.Conn, error) {
	within := ctx
	if !a.forever {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, a.timeout(), errLate)
		defer cancel()
	}
	conn, err := m.listener.Accept(within)
	switch {
	case errors.Is(err, errLate):
		return nil, fmt.Errorf("host %d of %d has not come within %v (--connect-timeout): start it with %s", n+1, m.clients, a.timeout(), a.hostCommand(m))
	case err != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%s: %w", saidNoListen, err)
	}
	return conn, err
}

var errLate = errors.New("no peer came in time")
