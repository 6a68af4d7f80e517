package logline

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

func TestLine(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, Info)
	at := time.Date(2024, 2, 3, 4, 5, 6, 7_008_999, time.UTC)
	log.WithTime(at).WithFields(logrus.Fields{"rank": 3, "host": "a"}).Warn("two blocks of 4 bytes")
	want := regexp.MustCompile(`^\[04:05:06:007008\]\[\d+\]\[GORUN\]\[WRN\]\[logline_test\.go:\d+\]\[TestLine\] two blocks of 4 bytes host=a rank=3\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got line %q, want it to match %s", out.String(), want)
	}
}

func TestHandlerWritesSlogRecordsAsLines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(Handler(New(&out, Debug)))
	log.With("host", "a").WithGroup("rank").Warn("ended", "status", 3, slog.Group("told", "by", "user"))
	log.Debug("seen")
	log.Log(context.Background(), slog.LevelDebug-4, "not seen")
	want := regexp.MustCompile(`^\[[\d:]+\]\[\d+\]\[GORUN\]\[WRN\]\[logline_test\.go:\d+\]\[TestHandlerWritesSlogRecordsAsLines\] ended host=a rank\.status=3 rank\.told=\[by=user\]\n` +
		`\[[\d:]+\]\[\d+\]\[GORUN\]\[DBG\]\[logline_test\.go:\d+\]\[TestHandlerWritesSlogRecordsAsLines\] seen\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got %q, want it to match %s", out.String(), want)
	}
}

func TestLevels(t *testing.T) {
	all := []struct {
		level logrus.Level
		tag   string
	}{
		{logrus.FatalLevel, "CRT"}, {logrus.ErrorLevel, "ERR"}, {logrus.WarnLevel, "WRN"},
		{logrus.InfoLevel, "INF"}, {logrus.DebugLevel, "DBG"}, {logrus.TraceLevel, "TRC"},
	}
	for _, c := range []struct {
		name  string
		level Level
		want  string // tags let through
	}{
		{"disable", Disable, ""},
		{"critical", Critical, "CRT"},
		{"error", Error, "CRT ERR"},
		{"warning", Warning, "CRT ERR WRN"},
		{"info", Info, "CRT ERR WRN INF"},
		{"debug", Debug, "CRT ERR WRN INF DBG"},
		{"trace", Trace, "CRT ERR WRN INF DBG TRC"},
		{"between two", 55, "CRT ERR WRN INF"},
	} {
		var out bytes.Buffer
		log := New(&out, c.level)
		for _, l := range all {
			log.Log(l.level, "x") // Log, unlike Fatal, does not exit
		}
		var got []string
		for _, m := range regexp.MustCompile(`\[GORUN\]\[(\w+)\]`).FindAllStringSubmatch(out.String(), -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: level %d lets %q through, want %q", c.name, c.level, got, c.want)
		}
	}
}

func TestValidAndNames(t *testing.T) {
	for level := Level(-10); level <= 100; level++ {
		want := level >= 10 && level <= 70 && level%10 == 0
		if got := level.Valid(); got != want {
			t.Errorf("Level(%d).Valid() = %v, want %v", level, got, want)
		}
	}
	if got, want := Names(), "10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE"; got != want {
		t.Errorf("Names() = %q, want %q", got, want)
	}
}

func TestNoCaller(t *testing.T) {
	line, err := Formatter{}.Format(&logrus.Entry{Message: "hello", Level: logrus.PanicLevel})
	if err != nil || !strings.Contains(string(line), "[CRT][?:0][?] hello") {
		t.Errorf("Format without a caller = %q, %v; want question marks and CRT", line, err)
	}
}
