package launcher

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// Output is the format and the destination of the ranks' output. The zero
// value passes whole lines to Job.Stdout and Job.Stderr without change.
type Output struct {
	// Form is the format. JSON and XML of both streams go to Stdout.
	Form Form
	// Prefix precedes each line of the plain form. In it %r is the rank, %R the rank
	// padded to the width of the largest, %g the group (0; other groups were spawned),
	// %G the group from 1 on, %h the host, %p its number, %s stdout or stderr, %t the
	// seconds since the start, %T the time of day, %c the date, and %% a percent sign.
	Prefix string
	// Color colours the prefix of each rank, or its lines if there is no
	// prefix, on Stdout and Stderr but not in files.
	Color bool
	// Merge sends each rank's standard error to its standard output.
	Merge bool
	// Ranks are the ranks whose output is shown; nil: all. Files get the output of all ranks.
	Ranks []int
	// Stdout and Stderr are names of files for the ranks' output, with the letters
	// of Prefix; here %t is 0, and %T and %c are the time of the start. Missing
	// directories are created. Ranks with the same name share a file. "": no file.
	Stdout, Stderr string
	// NoCopy sends output that goes to a file to that file only, not to Job.Stdout or Job.Stderr.
	NoCopy bool
	// Terminal gives each rank a terminal as its standard output, so that programs write each
	// line when they print it: "always", or "auto" if the machine has one left. "": a pipe.
	// Screen returns its size, and is called again after a WINCH in Job.Signals; nil: unknown.
	Terminal string
	Screen   func() (rows, cols int)
	// Prompt is the time without output after which an unfinished line is passed on. 0: never. PromptAlone has it wait
	// as long as another rank of its host is within a line, or writes.
	Prompt      time.Duration
	PromptAlone bool
	// Raw passes on what ranks write as it comes, so that lines of several ranks may cut each other.
	Raw bool
}

// Prefixes of other launchers.
const (
	TagPrefix  = "[%G,%r]<%s>:" // Open MPI's
	RankPrefix = "[%r] "        // Hydra's
)

// Form is an output format.
type Form uint8

// Output formats.
const (
	Plain Form = iota // the bytes that ranks write
	// JSON is one object per line with time, rank, group (if not 0), host, stream and text. Text
	// that is not UTF-8 is in base64 instead. partial is set if the line did not end with a newline.
	JSON
	XML // the format of Open MPI
)

// checkOutput validates a job's Output.
func checkOutput(o *Output) *JobError {
	switch {
	case o.Form > XML:
		return bad("Output.Form", fmt.Sprint(o.Form), "want Plain, JSON or XML")
	case o.Terminal != "" && o.Terminal != "auto" && o.Terminal != "always":
		return bad("Output.Terminal", o.Terminal, `want "auto", "always" or ""`)
	case o.Prompt < 0:
		return bad("Output.Prompt", o.Prompt.String(), "want 0 for never, or a time")
	}
	return nil
}

// outlet is where ranks' output goes. Hosts bring it on goroutines of their own, and a
// sink writes it on its own: none of them waits for the controller's mu. A group's
// routes are made before its ranks are.
type outlet struct {
	job   *Job
	start time.Time
	more  bool // files are gone on with, as those of an earlier attempt
	fail  func(name string, err error)

	out, err *stdio.Sink // for Job.Stdout and Job.Stderr; they may be the same
	lines    *stdio.Sink // for Job.Lines; nil: nobody wants them
	long     longLines

	mu    sync.Mutex
	files map[string]*stdio.Sink // by name
	last  stdio.Tail             // of what went to err
}

func newOutlet(job *Job, more bool, fail func(name string, err error)) *outlet {
	o := &outlet{job: job, start: time.Now(), more: more, fail: fail, files: make(map[string]*stdio.Sink)}
	o.out = stdio.NewSink(job.Stdout, o.view(job.Output.Color), func(err error) { fail("standard output", err) })
	o.err = o.out
	if job.Output.Form == Plain && !stdio.SameFile(job.Stdout, job.Stderr) {
		o.err = stdio.NewSink(job.Stderr, o.view(job.Output.Color), func(err error) { fail("standard error", err) })
	}
	if job.Lines != nil {
		o.lines = stdio.NewTaker(func(p stdio.Piece) { eachLine(p, job.Lines) })
	}
	return o
}

func (o *outlet) style() stdio.Style {
	return stdio.Style{Form: stdio.Form(o.job.Output.Form), Prefix: o.job.Output.Prefix}
}

func (o *outlet) view(color bool) stdio.View {
	s := o.style()
	s.Color = color
	return stdio.NewView(s, o.start)
}

// flush waits until what the ranks wrote is out, or need not be waited for.
func (o *outlet) flush(abandon <-chan struct{}) {
	o.frame(stdio.XMLEnd)
	sinks := []*stdio.Sink{o.out, o.err}
	if o.lines != nil {
		sinks = append(sinks, o.lines)
	}
	o.mu.Lock()
	sinks = slices.AppendSeq(sinks, maps.Values(o.files))
	o.mu.Unlock()
	for _, sink := range sinks {
		select {
		case <-sink.Idle():
		case <-abandon:
			return
		}
	}
	o.close()
}

// frame writes what stands before, or after, all elements of XML.
func (o *outlet) frame(text string) {
	if o.job.Output.Form != XML {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.files) == 0 || !o.job.Output.NoCopy {
		o.out.Put(stdio.Piece{Data: []byte(text)}, func() {})
	}
	for _, s := range o.files {
		s.Put(stdio.Piece{Data: []byte(text)}, func() {})
	}
}

// route is where a stream of a rank goes.
type route struct {
	from  *stdio.Origin
	sinks []*stdio.Sink
}

// open makes the routes of a group's ranks, by rank and stream, and their files.
func (o *outlet) open(g *group) *JobError {
	want := &o.job.Output
	o.mu.Lock()
	defer o.mu.Unlock()
	for rank := range g.size() {
		at := g.hostOf[rank]
		for stream, pattern := range []string{host.Stdout: want.Stdout, host.Stderr: want.Stderr} {
			r := route{from: &stdio.Origin{Group: g.id, Rank: rank, NP: g.size(), Host: g.shares[at].Host, Index: at, Stream: stream}}
			if stream == 0 {
				g.routes = append(g.routes, r)
				continue
			}
			if pattern != "" && !(stream == host.Stderr && want.Merge) {
				s, err := o.file(string(stdio.Expand(nil, pattern, r.from, o.start, o.start)))
				if err != nil {
					return badFile(err)
				}
				r.sinks = append(r.sinks, s)
			}
			if (pattern == "" || !want.NoCopy) && (want.Ranks == nil || slices.Contains(want.Ranks, rank)) {
				r.sinks = append(r.sinks, [...]*stdio.Sink{host.Stdout: o.out, host.Stderr: o.err}[stream])
			}
			if o.lines != nil {
				r.sinks = append(r.sinks, o.lines)
			}
			g.routes = append(g.routes, r)
		}
	}
	return nil
}

// badFile is an output file that cannot be made.
func badFile(err error) *JobError {
	name := ""
	if p, ok := errors.AsType[*os.PathError](err); ok {
		name, err = p.Path, fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	return &JobError{Field: "Output.Stdout", Value: name, ExitStatus: statusFailed, Err: err}
}

// routeOf is the route of a stream; nil for one that no host has.
func (g *group) routeOf(rank, stream int) *route {
	if rank < 0 || rank >= g.size() || stream != host.Stdout && stream != host.Stderr {
		return nil
	}
	return &g.routes[rank*3+stream]
}

// file is the sink of a file, which is made. The caller holds mu.
func (o *outlet) file(name string) (*stdio.Sink, error) {
	name = filepath.Clean(name)
	if s := o.files[name]; s != nil {
		return s, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	how := os.O_TRUNC
	if o.more {
		how = os.O_APPEND
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|how, 0o666)
	if err != nil {
		return nil, err
	}
	s := stdio.NewSink(f, o.view(false), func(err error) { o.fail("output file "+name, err) })
	o.files[name] = s
	return s, nil
}

// close closes the files.
func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.files {
		s.Close()
	}
}

// take writes what a host has read from its ranks.
func (o *outlet) take(s *seat, e host.Event) {
	n := len(e.Data)
	written := func() {}
	if e.Long {
		written = o.long.came(s, e)
	}
	credit := func() {
		if e.Free != nil {
			e.Free()
		}
		written()
		s.written(e.Stream, int64(n))
	}
	r := s.group.routeOf(e.Rank, e.Stream)
	if r == nil || len(r.sinks) == 0 {
		credit()
		return
	}
	if slices.Contains(r.sinks, o.err) {
		o.mu.Lock()
		o.last.Add(e.Data)
		o.mu.Unlock()
	}
	p := stdio.Piece{From: r.from, Data: e.Data, Last: e.Last}
	if e.Time != 0 {
		p.At = time.Unix(0, e.Time)
	}
	done := credit
	if len(r.sinks) > 1 {
		left := new(atomic.Int32)
		left.Store(int32(len(r.sinks)))
		done = func() {
			if left.Add(-1) == 0 {
				credit()
			}
		}
	}
	for _, sink := range r.sinks {
		sink.Put(p, done)
	}
}

// shows tells whether a cause's lines of standard error went to Job.Stderr and are easy
// to find there: last of all, in a file, or as a crash report whose reason is repeated.
// r is the route of its standard error; nil: it is of no rank.
func (o *outlet) shows(cause *Cause, r *route) bool {
	if o.ends(cause.Stderr) {
		return true
	}
	return r != nil && slices.Contains(r.sinks, o.err) && (cause.Reason != "" || isFile(o.job.Stderr))
}

// ends tells whether standard error ends with these lines, tags before them or not.
func (o *outlet) ends(lines []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.last.Lines()
	return len(all) >= len(lines) && slices.EqualFunc(all[len(all)-len(lines):], lines, strings.HasSuffix)
}

func isFile(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// terminal is what hosts are told of ranks' terminals.
func (o *Output) terminal() (t host.TerminalSpec) {
	switch o.Terminal {
	case "":
		return t
	case "always":
		t.PTY = host.NeedPTY
	default:
		t.PTY = host.TryPTY
	}
	if o.Screen != nil {
		t.Rows, t.Cols = o.Screen()
	}
	return t
}
