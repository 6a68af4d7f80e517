package argp

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
)

// StatusUsage is the exit status after a wrong command line.
const StatusUsage = 1

// statusUnwritten is the exit status when what was asked for could not be written.
const statusUnwritten = 1

// Report prints what there is to print about the error that Parse, or a later
// check of the program, gave: for ErrHelp the usage and for ErrVersion the
// version, on out; else, on errOut, the reason as a line of the program, the
// flag as a line of the runtime, and the usage. Both lines follow the log
// levels in g. It returns the exit status.
func (p *Parser) Report(err error, g General, out, errOut io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrHelp), errors.Is(err, ErrVersion):
		text := p.version + "\n"
		if errors.Is(err, ErrHelp) {
			text = p.Usage()
		}
		to := output.New(out)
		_, _ = io.WriteString(to, text)
		if to.Failed(p.program, errOut) {
			return statusUnwritten
		}
		return 0
	}
	flag, reason := "", err.Error()
	if e, ok := errors.AsType[*Error](err); ok {
		flag, reason = e.Flag, e.Reason
	}
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	caller, _ := runtime.CallersFrames(pcs[:]).Next()
	say(logline.New(errOut, g.LogLevel), &caller, flag, reason)
	if flag != "" {
		logline.New(errOut, g.SDKLogLevel).Errorf("invalid command line: flag %s", flag)
	} else {
		logline.New(errOut, g.SDKLogLevel).Error("invalid command line")
	}
	fmt.Fprintf(errOut, "\n%s", p.Usage())
	return StatusUsage
}

// say writes the program's line as if from the program's code, not from here.
func say(log *logrus.Logger, caller *runtime.Frame, flag, reason string) {
	if flag != "" {
		reason = flag + ": " + reason
	}
	entry := logrus.NewEntry(log)
	entry.Caller = caller
	entry.Error(reason)
}
