// Package logline writes log lines as the DOCA applications do:
//
//	[HH:MM:SS:uuuuuu][tid][GORUN][LVL][file:line][func] text
//
// with microseconds, the writing thread's number, and one of CRT ERR WRN INF
// DBG TRC. A [Level] is the number that their -l flag takes. Loggers made here
// belong to their caller; nothing in this package has state.
package logline

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// A Level says how much is logged: everything up to and including it.
type Level int

// The levels, with the numbers that users write.
const (
	Disable  Level = 10 // nothing at all
	Critical Level = 20
	Error    Level = 30
	Warning  Level = 40
	Info     Level = 50
	Debug    Level = 60
	Trace    Level = 70
)

type levelEntry struct {
	level  Level
	name   string
	tag    string // "" for Disable, at which nothing is written
	logrus logrus.Level
}

var levels = []levelEntry{
	{Disable, "DISABLE", "", logrus.PanicLevel},
	{Critical, "CRITICAL", "CRT", logrus.FatalLevel},
	{Error, "ERROR", "ERR", logrus.ErrorLevel},
	{Warning, "WARNING", "WRN", logrus.WarnLevel},
	{Info, "INFO", "INF", logrus.InfoLevel},
	{Debug, "DEBUG", "DBG", logrus.DebugLevel},
	{Trace, "TRACE", "TRC", logrus.TraceLevel},
}

// Names lists the levels for help texts and messages: "10=DISABLE, ...".
func Names() string {
	var list []string
	for _, l := range levels {
		list = append(list, fmt.Sprintf("%d=%s", l.level, l.name))
	}
	return strings.Join(list, ", ")
}

// Valid tells whether l is one of the seven levels.
func (l Level) Valid() bool {
	return slices.ContainsFunc(levels, func(e levelEntry) bool { return e.level == l })
}

// New makes a logger that writes to w what level lets through.
func New(w io.Writer, level Level) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(w)
	log.SetReportCaller(true)
	log.SetFormatter(Formatter{})
	// A number between two levels acts as the lower one.
	log.SetLevel(logrus.PanicLevel)
	for _, e := range levels {
		if e.level <= level {
			log.SetLevel(e.logrus)
		}
	}
	if level < Critical {
		log.SetOutput(io.Discard)
	}
	return log
}

// Formatter is the logrus formatter for such lines. Fields of the entry follow
// the text as key=value, sorted by key.
type Formatter struct{}

// Format implements logrus.Formatter.
func (Formatter) Format(e *logrus.Entry) ([]byte, error) {
	b := e.Buffer
	if b == nil {
		b = new(bytes.Buffer)
	}
	file, line, function := "?", 0, "?"
	if e.Caller != nil {
		file, line = filepath.Base(e.Caller.File), e.Caller.Line
		function = e.Caller.Function[strings.LastIndexByte(e.Caller.Function, '/')+1:]
		if dot := strings.IndexByte(function, '.'); dot >= 0 {
			function = function[dot+1:]
		}
	}
	t := e.Time
	fmt.Fprintf(b, "[%02d:%02d:%02d:%06d][%d][GORUN][%s][%s:%d][%s] %s",
		t.Hour(), t.Minute(), t.Second(), t.Nanosecond()/1000, unix.Gettid(), tag(e.Level), file, line, function, e.Message)
	keys := make([]string, 0, len(e.Data))
	for k := range e.Data {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(b, " %s=%v", k, e.Data[k])
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

func tag(level logrus.Level) string {
	for _, e := range levels {
		if e.logrus == level && e.tag != "" {
			return e.tag
		}
	}
	return "CRT" // a panic: the most severe there is
}
