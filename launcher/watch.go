package launcher

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// ChangeKind is the kind of a Change.
type ChangeKind uint8

// Kinds of changes.
const (
	AgentReady  ChangeKind = iota + 1 // the agent of Host has answered
	RankStarted                       // the rank runs as process PID
	RankSaid                          // Line is the last line that the rank wrote; it may be unfinished
	RankUses                          // CPU and RSS are new samples
	RankEnded                         // End says how the rank ended
)

// Change is an event of a job, for Job.Watch. Group, Rank and Host say where it happened.
type Change struct {
	Kind  ChangeKind
	Group int
	Rank  int
	Host  string
	PID   int
	Line  string
	CPU   time.Duration // CPU time of the rank's process group since its start
	RSS   int64         // resident memory of the rank's process group in bytes
	End   RankEnd
	More  bool // more events of the same moment follow
}

// watcher tells Job.Watch and Job.Warn on a goroutine of its own, so that one that
// hangs, as on a terminal that was stopped, holds up nothing. What waits to be told
// is bounded: of a rank the last line and the last sample, and all that it does but
// once, and so many warnings. A nil one tells nobody.
type watcher struct {
	tell func(Change) // nil: nobody watches
	warn func(string) // nil: nobody is warned

	mu     sync.Mutex
	queue  []news
	told   int            // news taken from the queue so far
	at     map[rumour]int // positions of those that a later one replaces, counted from the first news of all
	warns  int            // in the queue
	idle   chan struct{}  // closed when the goroutine ends; nil: there is none
	closed bool
}

// news is a Change or, if there is a text, a warning.
type news struct {
	Change
	warning string
}

// warnsMax bounds the warnings that wait: a reader that has not read the first of them
// does not miss the last.
const warnsMax = 100

// rumour is what only its latest version counts of.
type rumour struct {
	kind        ChangeKind
	group, rank int
}

// watchLimit is how long the end of a job waits for one call.
const watchLimit = 2 * time.Second

func newWatcher(job *Job) *watcher {
	if job.Watch == nil && job.Warn == nil {
		return nil
	}
	return &watcher{tell: job.Watch, warn: job.Warn, at: make(map[rumour]int)}
}

// watches tells whether somebody wants to know of changes.
func (w *watcher) watches() bool { return w != nil && w.tell != nil }

// put has a change told, after all that was put before it.
func (w *watcher) put(c Change) {
	if !w.watches() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Kind == RankSaid || c.Kind == RankUses {
		key := rumour{c.Kind, c.Group, c.Rank}
		if at, waits := w.at[key]; waits {
			w.queue[at-w.told].Change = c
			return
		}
		w.at[key] = w.told + len(w.queue)
	}
	w.add(news{Change: c})
}

// putWarning has the user warned, after all that was put before.
func (w *watcher) putWarning(text string) {
	if w == nil || w.warn == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.warns < warnsMax {
		w.warns++
		w.add(news{warning: text})
	}
}

func (w *watcher) add(n news) {
	if w.closed {
		return
	}
	w.queue = append(w.queue, n)
	if w.idle == nil {
		w.idle = make(chan struct{})
		go w.run(w.idle)
	}
}

// run tells what there is to tell.
func (w *watcher) run(idle chan struct{}) {
	defer close(idle)
	for {
		n, ok := w.next()
		switch {
		case !ok:
			return
		case n.warning != "":
			w.warn(n.warning)
		default:
			w.tell(n.Change)
		}
	}
}

func (w *watcher) next() (n news, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 || w.closed {
		w.idle = nil
		return n, false
	}
	n, w.queue = w.queue[0], w.queue[1:]
	w.told++
	if n.warning != "" {
		w.warns--
	} else {
		delete(w.at, rumour{n.Kind, n.Group, n.Rank})
	}
	return n, true
}

// close waits until all is told, unless a call takes too long. No other is begun
// after it.
func (w *watcher) close() {
	if w == nil {
		return
	}
	for told, idle := w.state(); idle != nil; {
		select {
		case <-idle:
		case <-time.After(watchLimit):
		}
		before := told
		if told, idle = w.state(); told == before {
			break // it hangs, or has told all
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *watcher) state() (told int, idle chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told, w.idle
}

// said tells of the last line of what a rank has written.
func (w *watcher) said(s *seat, e *host.Event) {
	if !w.watches() {
		return
	}
	text := bytes.TrimRight(e.Data, "\r\n")
	if at := bytes.LastIndexByte(text, '\n'); at >= 0 {
		text = text[at+1:]
	}
	if len(text) == 0 {
		return
	}
	text = text[:min(len(text), lineMost)]
	w.put(Change{Kind: RankSaid, Group: s.group.id, Rank: e.Rank, Host: s.host(), Line: strings.ToValidUTF8(string(text), "\uFFFD")})
}

// lineMost is how much of a line is told.
const lineMost = 400

// uses tells what ranks use.
func (w *watcher) uses(s *seat, samples []host.Sample) {
	for i, u := range samples {
		if s.has(u.Rank) {
			w.put(Change{Kind: RankUses, Group: s.group.id, Rank: u.Rank, Host: s.host(), CPU: u.CPU, RSS: u.RSS, More: i < len(samples)-1})
		}
	}
}

// warnings tells the user the first of each kind. Guarded by the controller's mu.
type warnings struct {
	watch *watcher
	said  map[warning]bool
}

// warning is what the user is told once.
type warning struct {
	kind   host.EventKind
	nobody bool // it is not of a rank
}

func (w *warnings) once(what warning, cause *Cause) {
	if !w.said[what] {
		w.said[what] = true
		w.watch.putWarning(cause.text())
	}
}
