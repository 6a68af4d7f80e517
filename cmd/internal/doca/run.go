package doca

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
	"github.com/gorun-mpi/gorun/internal/endsignal"
)

// Exit statuses.
const (
	StatusFailed      = 1
	StatusUsage       = 1   // a wrong command line
	StatusInterrupted = 130 // by SIGINT or SIGTERM
)

// Stdio is what a program writes.
type Stdio struct{ Out, Err io.Writer }

// Main is the process around a program: its context ends with SIGINT or SIGTERM, and
// a second Ctrl-C ends the process at once.
func Main(run func(ctx context.Context, args, environ []string, std Stdio) int) {
	os.Exit(run(endsignal.Context(), os.Args[1:], os.Environ(), Stdio{os.Stdout, os.Stderr}))
}

// BadEnvironment says that the environment is none of a launcher, before there are
// log levels, and returns the exit status.
func BadEnvironment(err error, std Stdio) int {
	say(logline.New(std.Err, logline.Info), logrus.ErrorLevel, "the launcher's environment: "+err.Error())
	return StatusFailed
}

// A Run is a program whose command line was good.
type Run struct {
	Log *logrus.Logger // the program's
	SDK *logrus.Logger // the runtime's
	Out *output.Writer // standard output

	program string
	err     io.Writer
	results results
}

// Start makes the logs, after Parse and CreateResults.
func (p *Parser) Start(std Stdio) *Run {
	return &Run{Log: logline.New(std.Err, p.level), SDK: logline.New(std.Err, p.sdkLevel), Out: output.New(std.Out), program: p.program, err: std.Err, results: p.results}
}

// End closes the file of the results, logs why the run has ended where it has not ended well, err
// being its error, and returns the exit status. Where the program's log is silent the runtime's says it. ctx is Main's.
func (r *Run) End(ctx context.Context, err error) int {
	if f := r.results.file; f != nil {
		if closed := f.Close(); err == nil && closed != nil {
			err = fmt.Errorf("--%s: cannot write the results: %w", resultsFlag, closed)
		}
	}
	switch {
	case r.Out.Failed(r.program, r.err):
		return StatusFailed
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		say(r.Log, logrus.WarnLevel, "interrupted")
		return StatusInterrupted
	}
	log := r.Log
	if !log.IsLevelEnabled(logrus.ErrorLevel) {
		log = r.SDK // a run that fails says why, unless both are silent
	}
	say(log, logrus.ErrorLevel, err.Error())
	return StatusFailed
}
