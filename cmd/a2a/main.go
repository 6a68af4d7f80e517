// Command a2a is the DOCA all-to-all on RDMA queue pairs of whatever device
// there is: block k of rank i lands in block i of rank k.
//
//	gorun -np 4 a2a -m 32
//
// With --op it runs a broadcast, an all-reduce or a reduce-scatter of the same matrices instead (operation.go).
//
// It prints what the original prints, the send and the receive matrix, then how
// long setting up, the first call and calls in steady state took, how many
// calls were verified, and what the device counted.
//
// # Who does what
//
// Every rank reads the command line, because the device must be known before
// the ranks are connected; but only rank 0 speaks: what it made of the command
// line, good or bad, is broadcast and holds for all. So a wrong command line is
// one message, and no rank leaves before rank 0 has said it.
//
// # Calls
//
// The contents of a block are a function of the seed, the call, both ranks and
// the place in the block, so every rank knows what must arrive without being
// told (pattern.go). Calls go in batches, each call with buffers of its own:
// all buffers of a batch are filled, the ranks meet, the calls follow each other
// back to back, then all that arrived is verified. So every call is verified
// with contents of its own, and no timing holds the verification of another
// call (exchange.go).
//
// An engine runs the calls (engine.go): inline, the rank's own collective; thread, the same by its progress thread;
// dpa, the kernel of the original on device threads (kernel.go), or a device thread that steps the rank's own
// collective where the original has no kernel (step.go); or daemon, the daemon of gorun --offload. Nothing
// falls back from one to the other, and the output says which it was.
//
// Buffers are registered memory, made once. The command starts no goroutine but the threads of its engine.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/self"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

func main() {
	started := time.Now()
	os.Exit(run(context.Background(), started, os.Args[1:], os.Environ(), doca.Stdio{Out: os.Stdout, Err: os.Stderr}))
}

// run is the command: everything but the process.
func run(ctx context.Context, started time.Time, args, environ []string, std doca.Stdio) int {
	env, err := rank.FromEnviron(environ)
	if err != nil {
		return doca.BadEnvironment(err, std)
	}
	if env.Secure && handshake == nil { // before it says anything
		return doca.BadEnvironment(fmt.Errorf("GORUN_SECURE=1 (gorun --secure): the program with TLS, which make build makes (with --preload-binary, name a2a-secure itself): %w", become("-secure")), std)
	}
	own, ranks := 0, 1
	if env.PMI != nil {
		own, ranks = env.PMI.Rank, env.PMI.Size
	}
	parser, p := newParser(ranks)
	err = parser.Parse(args)
	if errors.Is(err, doca.ErrHelp) || errors.Is(err, doca.ErrVersion) {
		if own > 0 { // the same on every rank: no need to meet
			return 0
		}
		return parser.Report(err, std)
	}
	// The direct exchange is what this program shows, at every size.
	direct := coll.DefaultTable()
	if err := direct.Always(coll.AllToAll, coll.Direct); err != nil {
		panic(err) // the table has the algorithm
	}
	cfg := rank.Config{Environment: &env, Tuning: direct, Secure: handshake, Providers: []rdma.Provider{verbs.New(verbs.Config{})}}
	p.configure(&cfg)
	if err == nil {
		err = prepare(parser, p, &cfg, own, ranks)
	}
	status := 0
	if own == 0 {
		status = parser.Report(err, std)
	}
	r := parser.Start(std)
	cfg.Log = func(line string) { r.SDK.Debug(line) }
	world, err := rank.Init(ctx, cfg)
	if err != nil {
		return r.End(ctx, err)
	}
	e := &exchange{ctx: ctx, world: world, comm: world.Comm(), log: r.Log, out: r.Out, started: started}
	status, err = work(e, p, status, r)
	if err != nil {
		failed := r.End(ctx, err) // before what ends the process
		world.Abort(failed, err.Error())
		return failed
	}
	if failed := r.End(ctx, world.Finalize(ctx)); failed != 0 {
		return failed
	}
	return status
}

// prepare checks what the parser cannot: the devices and, on rank 0, the file
// for the results, which it opens. cfg gets the devices when all is well; else
// the ranks meet without, to hear of it.
func prepare(parser *doca.Parser, p *params, cfg *rank.Config, own, ranks int) error {
	p.settle(ranks, cpusEach(cfg.Environment))
	switch here := cfg.Environment.LocalSize; {
	case p.engine != engineDaemon:
	case ranks == 1:
		return parser.Wrong("engine", "found daemon and one rank, expected two ranks or more")
	case cfg.Environment.Gorun && here != ranks:
		return parser.Wrong("engine", "found daemon and ranks on several hosts, %d of %d on this one, expected all on one host, whose memory its daemon reaches", here, ranks)
	}
	wanted := *cfg
	wanted.Devices = p.devices()
	if err := rank.FindDevices(wanted); err != nil {
		why := ""
		if !cfg.Environment.Secure { // else only the software devices do
			why = withVerbs()
		}
		return parser.Wrong("devices", "%v%s", err, why)
	}
	if own == 0 {
		if err := parser.CreateResults(); err != nil {
			return err
		}
	}
	*cfg = wanted
	return nil
}

// cpusEach is how many CPUs there are for each rank of this host.
func cpusEach(env *rank.Environment) int {
	return cmp.Or(env.CPUs, runtime.NumCPU()) / max(1, env.LocalSize)
}

// withVerbs replaces a process that was built without cgo by the same command built with it,
// which finds the devices of libibverbs too. It returns where that cannot be, and says why.
// Without cgo a rank takes 0.8 ms less CPU time until main, and most need no such device.
func withVerbs() string {
	if _, err := verbs.New(verbs.Config{}).Devices(); !errors.Is(err, verbs.ErrNoCgo) {
		return ""
	}
	return fmt.Sprintf("; the program for the others, which make build makes: %v", become("-verbs"))
}

// handshake is rank.Config's Secure. It is there in a2a-secure alone, which is this command with TLS and
// stands beside it: with TLS a rank takes 0.6 ms more CPU time until main.
var handshake soft.Handshake

// become replaces the process by the command beside it whose name ends so. It returns why it cannot.
func become(suffix string) error {
	path, err := self.Path()
	if err != nil {
		return err
	}
	path += suffix
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, os.Args, os.Environ())}
}

// work is what the ranks do together. status is rank 0's judgement of the
// command line, and the result is what all ranks exit with.
func work(e *exchange, p *params, status int, r *doca.Run) (int, error) {
	status, err := bcastParams(e.ctx, e.comm, status, p)
	if err != nil || status != 0 {
		return status, err
	}
	e.params = *p
	if e.comm.Rank() == 0 {
		r.Log.Debugf("Number of processes = %d", e.comm.Size()) // the original's words
	}
	report, err := e.run()
	if err != nil || report == nil {
		return 0, err
	}
	if _, err := io.WriteString(e.out, report.text()); err != nil {
		return 0, err
	}
	return 0, r.WriteResults(report.results())
}

// bcastParams makes rank 0's parameters, or its refusal of the command line as an
// exit status, those of all ranks.
func bcastParams(ctx context.Context, c *rank.Comm, status int, p *params) (int, error) {
	words := append([]int64{int64(status)}, p.words()...)
	if err := rank.Bcast(ctx, c, words, 0); err != nil {
		return 0, err
	}
	if words[0] != 0 {
		return int(words[0]), nil
	}
	texts := make([]byte, p.textLen(words[1:]))
	if c.Rank() == 0 {
		copy(texts, p.texts())
	}
	if err := rank.Bcast(ctx, c, texts, 0); err != nil {
		return 0, err
	}
	mine := p.deviceList
	p.adopt(words[1:], string(texts))
	if p.deviceList != mine {
		return 0, fmt.Errorf("rank %d was given the devices %q and rank 0 %q; expected the same command line on all ranks", c.Rank(), mine, p.deviceList)
	}
	return 0, nil
}
