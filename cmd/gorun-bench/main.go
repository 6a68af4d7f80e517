// Command gorun-bench measures gorun, and the MPIs of the machine beside it.
//
//	gorun-bench --quick
//	gorun-bench -b allreduce,alltoall -n 2,4 -m 8:1M --compare mpich,openmpi --html page.html
//
// # Who measures
//
// The command is the driver and its own rank: it starts jobs of itself through
// package launcher, which run the hidden word --worker with a plan, and jobs of
// testdata/mpi/bench.c, which it carries with it and builds with the mpicc that
// it finds. Both workers have the same loops and give the same answers.
//
// With --program it runs no benchmark of its own, but a program of MPI's standard ABI with each MPI of --mpi.
//
// With -d the ranks use these devices, as -d of a2a does; libibverbs is there when
// the command was built with cgo.
//
// # What is measured
//
// A round runs all systems in turn, so that what drifts drifts for all; rounds
// follow each other. A figure is the median of the rounds' medians, and a ratio
// the median of the rounds' quotients of gorun's time by the better MPI's, each
// MPI with the best of its settings.
//
// Every point is verified before and after it is timed: all bytes of the
// result, on all ranks. It is timed for a span, not for a number of calls,
// since an MPI on more ranks than CPUs may take ten thousand times longer.
//
// As in the OSU micro-benchmarks a collective is timed by each rank call by
// call, behind an untimed barrier, and the ranks' times are averaged;
// --back-to-back leaves the barrier out. Latency is half a round trip; bw and
// mr are windows of 64 messages and an answer. Calls of less than a
// microsecond are timed several at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/internal/endsignal"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/version"
)

// stdio is what the command writes.
type stdio struct {
	out, err io.Writer
	terminal bool       // err is one
	width    func() int // of the terminal; may be nil
}

// Exit statuses beyond doca's; 128+N after signal N.
const (
	statusFailed  = 1 // something failed, or a result was wrong
	statusMissing = 2 // an MPI to compare with is not there
)

// lateness is how long a job may take beyond what was planned for it.
const lateness = 20 * time.Second

// workerWord makes the command a rank.
const workerWord = "--worker"

func main() {
	std := stdio{os.Stdout, os.Stderr, isTerminal(os.Stderr.Fd()), func() int { return terminalWidth(os.Stderr.Fd()) }}
	if len(os.Args) == 3 && os.Args[1] == workerWord {
		os.Exit(runWorker(context.Background(), os.Args[2], os.Environ(), std))
	}
	if len(os.Args) > 2 && os.Args[1] == guardWord {
		os.Exit(runGuard(os.Args[2], os.Args[3:], os.Stdin))
	}
	os.Exit(run(endsignal.Context(), os.Args[1:], std))
}

// ended tells which signal ended a session, if one did.
func ended(err error) (syscall.Signal, bool) {
	s, ok := errors.AsType[endsignal.Received](err)
	return syscall.Signal(s), ok
}

// run is the command: everything but the process.
func run(ctx context.Context, args []string, std stdio) int {
	parser, p := newParser()
	for i, a := range args {
		if a == "-np" { // as users of mpirun write it
			args[i] = "--np"
		}
	}
	err := parser.Parse(args)
	if err == nil {
		err = p.settle()
	}
	if err == nil {
		err = p.checkSpare(topo.CPUs())
	}
	var files *outputs
	if err == nil {
		files, err = openOutputs(parser, p)
	}
	switch {
	case errors.Is(err, doca.ErrHelp), errors.Is(err, doca.ErrVersion), errors.Is(err, doca.ErrManual):
		return parser.Report(err, doca.Stdio{Out: std.out, Err: std.err})
	case err != nil:
		_, _ = io.WriteString(std.err, quoted(err.Error()+whereToLook(err)))
		return doca.StatusUsage
	}
	defer files.close()
	log := parser.Start(doca.Stdio{Out: std.out, Err: std.err}).Log
	log.SetFormatter(plainErrors{})
	h := &header{Header: true, Time: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Commit: version.Commit(),
		Command: strings.Join(append([]string{"gorun-bench"}, args...), " "), Method: p.method(),
		Versions: map[string]string{"gorun": version.Number, "go": runtime.Version()}}
	var rows []row
	status := 0
	switch {
	case p.from != "":
		h, rows, err = readFile(p.from)
	default:
		var s *session
		if s, err = newSession(p, h, log, std); err != nil {
			break
		}
		defer s.close()
		if len(p.program) > 0 {
			err = programCommand(ctx, s, std.out)
			if sig, ok := ended(err); ok {
				return 128 + int(sig)
			}
		} else if p.tune != "" {
			status, err = tuneCommand(ctx, s, std.out, files.tune)
		} else {
			rows, status, err = measure(ctx, s, h)
		}
	}
	if err != nil {
		log.Error(err)
		if _, missing := errors.AsType[*missingError](err); missing {
			return statusMissing
		}
		return statusFailed
	}
	if p.tune != "" || len(p.program) > 0 {
		return status
	}
	if err := files.write(std.out, h, rows, p); err != nil {
		log.Error(err)
		return statusFailed
	}
	return status
}

// whereToLook ends the message of a wrong command line that does not say itself what
// to try.
func whereToLook(err error) string {
	if strings.Contains(err.Error(), "see ") || strings.Contains(err.Error(), "; try ") {
		return ""
	}
	return "; see gorun-bench --help"
}

// plainErrors has errors and warnings look as gorun's do: a line, and behind it
// what another program has said, marked. What -v tells keeps the form of gorun -v.
type plainErrors struct{ logline.Formatter }

// Format implements logrus.Formatter.
func (p plainErrors) Format(e *logrus.Entry) ([]byte, error) {
	switch e.Level {
	case logrus.ErrorLevel:
		return []byte(quoted(e.Message)), nil
	case logrus.WarnLevel:
		return []byte(quoted("warning: " + e.Message)), nil
	}
	return p.Formatter.Format(e)
}

// quoted is a message of the command, whose further lines are another program's.
func quoted(text string) string {
	return "gorun-bench: " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\ngorun-bench: | ") + "\n"
}

// method says in a sentence how collectives were timed.
func (p *params) method() string {
	if p.backToBack {
		return "Calls follow each other; the figure is the mean of the ranks' times for a call."
	}
	return "As in the OSU micro-benchmarks, an untimed barrier precedes each call; the figure is the mean of the ranks' times."
}

func readFile(name string) (*header, []row, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	h, rows, err := readJSON(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return h, rows, nil
}

// newSession makes a session with directories of its own, which close removes.
func newSession(p *params, h *header, log *logrus.Logger, std stdio) (*session, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	scratch, err := newScratch(self)
	if err != nil {
		return nil, err
	}
	line := &progress{terminal: std.terminal, width: std.width, under: std.err}
	if !p.quiet {
		line.w = std.err
		log.SetOutput(line)
	}
	s := &session{params: p, log: log, errs: log.Out, scratch: scratch, cpus: topo.CPUs(), self: self, versions: h.Versions, progress: line, lateness: lateness}
	if p.quick {
		s.lateness = quickLateness
	}
	return s, nil
}

func (s *session) close() {
	if err := s.scratch.close(); err != nil {
		s.log.Warnf("clean up: %v", err)
	}
}

// measure builds the MPIs and runs the session. What was measured when it ended
// early is good.
func measure(ctx context.Context, s *session, h *header) ([]row, int, error) {
	p, log := s.params, s.log
	for _, name := range p.compare {
		peer, err := buildPeer(ctx, name, s.scratch)
		_, missing := errors.AsType[*missingError](err)
		switch {
		case ctx.Err() != nil: // s.run tells it
		case missing && p.compareList == "": // --quick takes what is there
			log.Warn(err)
		case err != nil:
			return nil, 0, err
		default:
			s.peers = append(s.peers, peer)
		}
	}
	if slices.ContainsFunc(p.points, needsLimit) {
		var err error
		if s.limit, err = buildLimit(ctx, s.scratch); err != nil && ctx.Err() == nil {
			log.Warn(err)
		}
	}
	s.prepare()
	if len(s.jobs) == 0 {
		return nil, 0, fmt.Errorf("nothing of %s can be measured on %s ranks in these sizes", p.benchmarkList, p.countList)
	}
	if h.LoadBefore = loadAverage(); h.busyBefore() && !p.quiet {
		log.Warnf("the machine is busy: load %.1f on %d cores; the figures will say little", h.LoadBefore, h.Machine.Cores)
	}
	err := s.run(ctx)
	s.progress.clear()
	rows := s.results.rows(p.points)
	h.Complete, h.LoadAfter, h.Rounds, h.Planned = err == nil, loadAverage(), s.rounds, p.runs
	status := 0
	if s.results.bad() {
		log.Error("not all results are right, or some could not be measured: " + strings.Join(s.results.faults(), "; "))
		status = statusFailed
	}
	if sig, ok := ended(err); ok {
		log.Warnf("%v: what was measured is kept", err)
		status, err = 128+int(sig), nil
	}
	return rows, status, err
}
