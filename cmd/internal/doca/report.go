package doca

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
)

// DOCA's own words: the runtime's of a flag, and the program's of its command line.
const (
	saidParam = "Encountered an error [Invalid input] while handling param"
	saidParse = "Failed to parse application input"
)

// Report prints what there is to print about the error that Parse, or a later
// check of the program, gave: for ErrHelp the usage, for ErrVersion the
// version and for ErrManual the manual page, on standard output; else, on standard error, the reason as a line of the program, the
// flag as a line of the runtime, one more of the program, and the usage. Where there is no error, it logs the notes.
// All lines follow the log levels. It returns the exit status.
func (p *Parser) Report(err error, std Stdio) int {
	log := logline.New(std.Err, p.level)
	switch {
	case err == nil:
		for _, note := range p.notes {
			say(log, logrus.InfoLevel, note)
		}
		return 0
	case asked(err):
		text := p.version + "\n"
		switch {
		case errors.Is(err, ErrHelp):
			text = p.Usage()
		case errors.Is(err, ErrManual):
			text = p.manual()
		}
		to := output.New(std.Out)
		_, _ = io.WriteString(to, text)
		if to.Failed(p.program, std.Err) {
			return StatusFailed
		}
		return 0
	}
	say(log, logrus.ErrorLevel, err.Error())
	text := "invalid command line"
	if e, ok := errors.AsType[*Error](err); ok && e.Flag != "" {
		text = fmt.Sprintf("%s %s: %s: flag %s", saidParam, e.Flag, text, e.Flag)
	}
	logline.New(std.Err, p.sdkLevel).Error(text)
	say(log, logrus.ErrorLevel, saidParse)
	fmt.Fprintf(std.Err, "\n%s", p.Usage())
	return StatusUsage
}

// asked tells whether the user asked for a text instead of a run.
func asked(err error) bool {
	return errors.Is(err, ErrHelp) || errors.Is(err, ErrVersion) || errors.Is(err, ErrManual)
}

// say writes a line as if from the code that called this package.
func say(log *logrus.Logger, level logrus.Level, text string) {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	caller, _ := runtime.CallersFrames(pcs[:]).Next()
	entry := logrus.NewEntry(log)
	entry.Caller = &caller
	entry.Log(level, text)
}
