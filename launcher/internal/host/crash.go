package host

import (
	"bytes"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// Open MPI and UCX catch the signals of a crash and write where it was. They allocate
// memory for that, so where the crash held the allocator's lock the handler waits for
// ever, and all other ranks for it. A rank that has begun such a report, and of which
// nothing moves any more, is ended as if the signal had done it.
//
// How often a process that reports a crash is looked at, and for how long nothing may
// move. A process that is stopped or traced is somebody's to look at, and left alone.
const (
	crashLook  = time.Second
	crashQuiet = 5 * time.Second
)

// report is the begin of a crash's report, by Open MPI or UCX, with the process; signal
// is where they name the signal.
var (
	report       = regexp.MustCompile(`\[[^]\s:]+:(\d+)(?::\d+:\d+)?\] +(?:\*\*\* Process received signal|Caught signal \d+ \()`)
	reportSignal = regexp.MustCompile(`(?:Caught signal |\] Signal: [^\n]*\()(\d+)`)
	reportWord   = []byte(" signal ")
)

// crash is what is known of a rank that has begun a report.
type crash struct {
	pid    int // of the rank's group; 0: there is no report
	signal syscall.Signal
	cpu    time.Duration // that the process had used at the last look
	quiet  time.Time     // since when nothing has moved
	killed bool          // by us
}

// heardCrash looks for a report in what a rank of a program of Open MPI has written;
// data begins where a line does.
func (w *watcher) heardCrash(local int, data []byte) {
	if w.pmix.server == nil || w.pmix.server.Idle() || w.freezes(local) {
		return
	}
	r := &w.ranks[local]
	now := time.Now()
	if r.crash.pid == 0 {
		if !bytes.Contains(data, reportWord) {
			return
		}
		found := report.FindSubmatch(data)
		if found == nil {
			return
		}
		pid, err := strconv.Atoi(string(found[1]))
		if err != nil {
			return
		}
		if p, ok := proc.Of(pid); !ok || p.Group != r.pid {
			return // it has ended, as it should, or has another number here
		}
		r.crash.pid = pid
		if w.crashLook.IsZero() {
			w.crashLook = now.Add(crashLook)
		}
	}
	r.crash.quiet = now
	if found := reportSignal.FindSubmatch(data); found != nil && r.crash.signal == 0 {
		if n, err := strconv.Atoi(string(found[1])); err == nil {
			r.crash.signal = syscall.Signal(n)
		}
	}
}

// freezes tells that the user wants such a process to stay.
func (w *watcher) freezes(local int) bool {
	for _, entry := range w.appOf(local).Env {
		if bytes.HasPrefix([]byte(entry), []byte("UCX_HANDLE_ERRORS=")) {
			return bytes.Contains([]byte(entry), []byte("freeze")) || bytes.Contains([]byte(entry), []byte("debug"))
		}
	}
	return false
}

// crashesOnTime looks at the ranks that have begun a report.
func (w *watcher) crashesOnTime(now time.Time) {
	if w.crashLook.IsZero() || now.Before(w.crashLook) {
		return
	}
	w.crashLook = time.Time{}
	for _, r := range w.up() {
		c := &r.crash
		if c.pid == 0 || c.killed || r.gone {
			continue
		}
		p, ok := proc.Of(c.pid)
		if !ok || p.Group != r.pid || p.State == 'Z' {
			*c = crash{}
			continue
		}
		// The clock's own tick is no work.
		if p.CPU > c.cpu+proc.Tick || p.State == 'T' || p.State == 't' {
			c.quiet = now
		}
		c.cpu = p.CPU
		if now.Sub(c.quiet) >= crashQuiet {
			c.killed = true
			_ = unix.Kill(-r.pid, unix.SIGKILL)
			continue
		}
		w.crashLook = now.Add(crashLook)
	}
}

// crashed corrects how a rank has ended that was ended for its handler.
func (r *rank) crashed(how end) (end, string) {
	if !r.crash.killed || how.signal != syscall.SIGKILL {
		return how, ""
	}
	if how.signal = r.crash.signal; how.signal == 0 {
		how.signal = syscall.SIGSEGV
	}
	how.status = 128 + int(how.signal)
	return how, "its own handler of the signal did not come to an end, and gorun ended it"
}
