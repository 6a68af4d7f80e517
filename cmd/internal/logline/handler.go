package logline

import (
	"context"
	"log/slog"
	"maps"
	"runtime"

	"github.com/sirupsen/logrus"
)

// Handler writes the records of a slog.Logger as lines of Logger, for packages
// that know nothing of logrus. A group's name stands before the keys in it, with a dot.
type Handler struct {
	Logger *logrus.Logger

	fields logrus.Fields
	prefix string // of the groups that are open
}

var _ slog.Handler = Handler{}

// Enabled implements slog.Handler.
func (h Handler) Enabled(_ context.Context, l slog.Level) bool {
	return h.Logger.IsLevelEnabled(logrusLevel(l))
}

// Handle implements slog.Handler.
func (h Handler) Handle(_ context.Context, r slog.Record) error {
	e := logrus.NewEntry(h.Logger)
	e.Time, e.Data = r.Time, maps.Clone(h.fields)
	if r.PC != 0 {
		frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		e.Caller = &frame
	}
	if e.Data == nil {
		e.Data = logrus.Fields{}
	}
	r.Attrs(func(a slog.Attr) bool {
		put(e.Data, h.prefix, a)
		return true
	})
	e.Log(logrusLevel(r.Level), r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := logrus.Fields{}
	maps.Copy(fields, h.fields)
	for _, a := range attrs {
		put(fields, h.prefix, a)
	}
	h.fields = fields
	return h
}

// WithGroup implements slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

// put adds an attribute, and those of a group one by one.
func put(fields logrus.Fields, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		if !a.Equal(slog.Attr{}) {
			fields[prefix+a.Key] = v.Any()
		}
		return
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range v.Group() {
		put(fields, prefix, member)
	}
}

// logrusLevel is the most detailed level that l reaches.
func logrusLevel(l slog.Level) logrus.Level {
	switch {
	case l >= slog.LevelError:
		return logrus.ErrorLevel
	case l >= slog.LevelWarn:
		return logrus.WarnLevel
	case l >= slog.LevelInfo:
		return logrus.InfoLevel
	case l >= slog.LevelDebug:
		return logrus.DebugLevel
	}
	return logrus.TraceLevel
}
