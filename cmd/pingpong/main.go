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

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
)

func main() { doca.Main(run) }

// run is the command: everything but the process.
func run(ctx context.Context, args, environ []string, std doca.Stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		return doca.BadEnvironment(err, std)
	}
	launched := env.PMI != nil && env.PMI.Size != 1
	parser, p := newParser(launched)
	err = parser.Parse(args)
	if err == nil && env.PMI != nil && !launched && p.listen == "" && p.connect == "" && p.peer == "" {
		err = errors.New("started as 1 rank; a ping-pong has two ends: gorun -np 2 pingpong, or --listen or --connect where the other end is started by itself")
	}
	if err == nil {
		err = p.settle()
	}
	if err == nil && env.Secure && !launched {
		err = p.refuse(parser)
	}
	if err == nil && (launched || p.connect != "") { // the server writes no results
		err = parser.CreateResults()
	}
	say := std
	if launched && env.PMI.Rank > 0 { // rank 0 says it
		say = doca.Stdio{Out: io.Discard, Err: io.Discard}
	}
	if status := parser.Report(err, say); err != nil {
		return status
	}
	r := parser.Start(std)
	return r.End(ctx, pingpong(ctx, &env, p, r))
}

// pingpong connects, transfers and reports.
func pingpong(ctx context.Context, env *rank.Environment, p *params, r *doca.Run) (err error) {
	if err := checkDevice(env, p.deviceName); err != nil {
		return err
	}
	if p.peer == peerIBV {
		return ibvPingPong(ctx, env, p, r.Out, r.Log)
	}
	ctl, err := meet(ctx, env, p, r.Log)
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
	r.Log.Infof("%s", e)
	found := &report{Op: p.op, Device: e.device, Provider: e.provider, Transport: p.transport.String()}
	if err := transfer(ctx, e, ctl, p, found); err != nil {
		return err
	}
	// Nobody takes its memory away before both are through with it.
	if err := ctl.barrier(ctx); err != nil {
		return fmt.Errorf("the transfers are done, but the peer has not said so: %w", err)
	}
	found.write(r.Out, p, ctl.server())
	if ctl.server() {
		return nil
	}
	return r.WriteResults(found)
}

// transfer does what --op asks for.
func transfer(ctx context.Context, e *end, ctl control, p *params, r *report) error {
	w := newClock(ctx, p.timeout())
	defer w.stop()
	if p.op == opTutorial {
		r.Bytes = p.size
		return tutorial(w, e, ctl, r)
	}
	if !p.all {
		var err error
		r.figures, err = measure(w, e, ctl, p)
		return err
	}
	for e.size = 2; e.size <= p.size; e.size *= 2 {
		if p.transport == rdma.UD && e.size > e.mtu.Bytes() {
			break
		}
		row, err := measure(w, e, ctl, p)
		if err != nil {
			return fmt.Errorf("%d bytes: %w", e.size, err)
		}
		r.Sizes = append(r.Sizes, row)
	}
	return nil
}

// measure takes the figures of the present size.
func measure(w *clock, e *end, ctl control, p *params) (figures, error) {
	f := figures{Bytes: e.size}
	if err := latency(w, e, ctl, p, &f); err != nil {
		return f, err
	}
	return f, bandwidth(w, e, ctl, p, &f)
}
