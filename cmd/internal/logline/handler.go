package logline

import (
	"context"
	"log/slog"
	"runtime"

	"github.com/sirupsen/logrus"
)

// Handler writes the records of a slog.Logger as lines of a logger made here, for
// packages that know nothing of logrus.
func Handler(log *logrus.Logger) slog.Handler { return handler{entry: logrus.NewEntry(log)} }

type handler struct {
	entry  *logrus.Entry // with the attributes so far
	prefix string        // of the keys, of the groups that are open
}

func (h handler) Enabled(_ context.Context, l slog.Level) bool {
	return h.entry.Logger.IsLevelEnabled(logrusLevel(l))
}

func (h handler) Handle(_ context.Context, r slog.Record) error {
	e := h.entry.WithTime(r.Time) // a copy
	r.Attrs(func(a slog.Attr) bool {
		e.Data[h.prefix+a.Key] = a.Value.Resolve().Any()
		return true
	})
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	e.Caller = &frame
	e.Log(logrusLevel(r.Level), r.Message)
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.entry = h.entry.WithField(h.prefix+a.Key, a.Value.Resolve().Any())
	}
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.prefix += name + "."
	return h
}

// logrusLevel is the most severe level that l reaches.
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
