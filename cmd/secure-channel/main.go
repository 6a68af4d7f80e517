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
	"sync"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

func main() { doca.Main(run) }

// run is the command: everything but the process.
func run(ctx context.Context, args, environ []string, std doca.Stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		return doca.BadEnvironment(err, std)
	}
	launched := env.PMI != nil && env.PMI.Size > 1
	parser, p := newParser(launched)
	p.name = envvar.Get(environ, "GORUN_CHANNEL")
	err = parser.Parse(args)
	if err == nil {
		err = p.settle(parser)
	}
	if err == nil {
		err = p.findDevices(parser, env.Emulate)
	}
	if err == nil {
		err = parser.CreateResults()
	}
	// Under a launcher each rank says it: their command lines may differ, and the first
	// that ends may end the others.
	if status := parser.Report(err, std); err != nil {
		return status
	}
	a := &app{params: p, env: &env, Run: parser.Start(std)}
	return a.End(ctx, a.run(ctx))
}

// An app is one run.
type app struct {
	*params
	*doca.Run
	env *rank.Environment

	mu      sync.Mutex // guards Out and the next line
	results []*result
}

// run makes the channels and uses them. Its error is context.Canceled after a signal, unless --forever.
func (a *app) run(ctx context.Context) (err error) {
	m, err := a.meet(ctx)
	if err != nil {
		if a.forever && errors.Is(err, context.Canceled) {
			return nil // that is how it ends
		}
		return err
	}
	a.Log.Infof("%d messages of %d bytes to send", a.count, a.size)
	if m.listener == nil {
		err = a.serve(ctx, m.conn)
	} else {
		err = a.serveAll(ctx, m)
	}
	err = errors.Join(err, m.close())
	if a.forever && errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, a.WriteResults(struct {
		Role     string    `json:"role"`
		Device   string    `json:"device"`
		Channels []*result `json:"channels"`
	}{a.role, a.device, a.results}))
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
		return nil, fmt.Errorf("host %d of %d has not come within %v (--connect-timeout): start it%s with %s", n+1, m.clients, a.timeout(), a.asWhom(), a.hostCommand(m))
	case err != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%s: %w", saidNoListen, err)
	}
	return conn, err
}

var errLate = errors.New("no peer came in time")
