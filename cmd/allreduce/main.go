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
	"io"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/rank"
)

func main() { doca.Main(run) }

// run is the command: everything but the process.
func run(ctx context.Context, args, environ []string, std doca.Stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		return doca.BadEnvironment(err, std)
	}
	ranks := 0
	if env.PMI != nil {
		ranks = env.PMI.Size
	}
	parser, p := newParser(ranks)
	err = parser.Parse(args)
	if err == nil {
		err = p.settle(parser, env.Secure)
	}
	if err == nil {
		err = parser.CreateResults()
	}
	if ucx := envvar.Get(environ, "UCX_NET_DEVICES"); ucx != "" {
		parser.Note("UCX_NET_DEVICES=%s has no effect: members of several hosts speak TCP, over the interfaces that lead to their addresses", ucx)
	}
	// Under a launcher each rank says it: their command lines may differ.
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
}

// run makes the member and does its part. Its error is context.Canceled after a signal.
func (a *app) run(ctx context.Context) (err error) {
	if a.role == roleDaemon && a.clients == 0 && !a.launched {
		a.Log.Info("no clients: a daemon serves as many as -c says, and -c is 0")
		return nil
	}
	s, err := a.meet(ctx)
	if err != nil {
		return err
	}
	r, err := a.work(s)
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	r.write(a.Out)
	return a.WriteResults(r)
}

// work is this member's part in the group.
func (a *app) work(s *group.Session) (interface{ write(io.Writer) }, error) {
	if a.role == roleDaemon {
		return a.serve(s)
	}
	return a.measure(s)
}
