package launcher

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/hub"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// Exit statuses that are no rank's.
const (
	statusFailed  = 1
	statusTimeout = 124
	statusSignal  = 128 // + its number
)

// How long ranks have, at the timeout, to be looked at, and to write their stacks.
const (
	lookLimit   = settle
	tracesLimit = 2 * time.Second
)

// controller decides about a job: what its cause of failure is, and when it
// ends. It is told by its sites, and by timers and signals, on their
// goroutines.
type controller struct {
	job    *Job
	cpus   func() int // of this machine
	policy place.Policy
	placed *place.Result
	stats  *stats // nil: nobody counts
	name   string // the job's, random
	outlet *outlet
	long   longLines
	watch  *watcher

	mu        sync.Mutex
	groups    []*group // by id
	crew      crew     // agents that run already
	cause     *Cause
	causeAt   time.Time // when it became that
	suspect   *Cause    // becomes the cause unless a better one comes
	start     *JobError
	told      bool // the sites are ending their ranks
	interrupt int  // how often
	source    *stdio.Source
	last      tail          // of what went to the second sink
	looking   bool          // the timeout has come, and the ranks are looked at
	states    []RankState   // at the timeout
	hung      bool          // nothing moves, which is told
	hunting   bool          // the ranks are looked at for that
	hang      []RankState   // what they are doing then
	limit     time.Duration // the job's timeout, of which earlier attempts have taken their part
	attempt   int           // as in host.Spec
	credited  int64         // bytes of input that all who read have had
	timers    []*time.Timer
	over      bool     // Run is about to return
	deaf      []func() // end sites that do not answer

	warned  map[about]bool // of ranks that are worlds of their own, or not let in
	hub     *hub.Hub       // of the PMIx servers, and of names that ranks publish
	spawned sync.WaitGroup // what runs spawned groups
	abandon chan struct{}  // closed when output need not be waited for
	hurry   sync.Once
}

func newController(job *Job, w *wish, placed *place.Result, crew crew, at attempt) (*controller, error) {
	var random [8]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return nil, os.NewSyscallError("getrandom", err)
	}
	c := &controller{
		job:     job,
		cpus:    w.cpus,
		policy:  w.policy,
		placed:  placed,
		name:    hex.EncodeToString(random[:]),
		groups:  []*group{newGroup(0, job.Apps, placed.Shares)},
		crew:    crew,
		abandon: make(chan struct{}),
		hub:     hub.New(),
		warned:  make(map[about]bool),
	}
	c.attempt, c.limit, c.watch = at.number, at.limit, at.watch
	c.outlet = newOutlet(job, at.number > 0, c.outputFailed)
	g := c.groups[0]
	if job.StdinRank < StdinAll || job.StdinRank >= g.size() {
		return nil, bad("StdinRank", strconv.Itoa(job.StdinRank), "want the number of a rank, 0 to %d, or all of them", g.size()-1)
	}
	if err := c.openOutput(g); err != nil {
		c.outlet.close()
		return nil, err
	}
	c.outlet.frame(stdio.XMLBegin)
	return c, nil
}

// event takes what happened on a host.
func (c *controller) event(s *seat, e host.Event) {
	switch e.Kind {
	case host.Output:
		c.said(s, &e)
		c.stats.move(e.Stream, len(e.Data))
		c.output(s, e)
		return
	case host.Long:
		c.long.ask(s, e)
		return
	case host.Sampled:
		c.uses(s, e.Samples)
		return
	case host.StdinTaken:
		c.stats.move(0, max(0, e.N))
		c.stdinTaken(s, e.N)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name, g := s.host(), s.group
	switch e.Kind {
	case host.Started, host.Ended, host.Aborted, host.Joined, host.Left:
		if !s.has(e.Rank) {
			c.fail(&Cause{Rank: -1, Host: name, Status: statusFailed, Message: fmt.Sprintf("its agent tells of rank %d, which is not there", e.Rank)})
			return
		}
	}
	if g.off && (e.Kind == host.Aborted || e.Kind == host.Violated || e.Kind == host.Failed) {
		return
	}
	switch e.Kind {
	case host.Started:
		g.ranks[e.Rank] = RankEnd{Group: g.id, Rank: e.Rank, Host: name, PID: e.PID}
		g.up++
		if g.id == 0 && g.up == g.size() {
			c.stats.launched()
		}
		c.isUp(g)
		c.watch.put(Change{Kind: RankStarted, Group: g.id, Rank: e.Rank, Host: name, PID: e.PID})
		c.job.Log.Debug("rank started", "group", g.id, "rank", e.Rank, "host", name, "pid", e.PID)
	case host.Ended:
		c.ended(s, e)
	case host.Aborted:
		status := e.Status & 0xff
		if status == 0 {
			status = statusFailed // an abort is never a success
		}
		cause := c.rankCause(s, e)
		cause.Status, cause.Aborted = status, true
		if e.Status != status && cause.Message == "" {
			cause.Message = fmt.Sprintf("it gave %d", e.Status)
		}
		c.fail(cause)
	case host.Violated:
		cause := c.rankCause(s, e)
		cause.Status, cause.elsewhere = statusFailed, e.Elsewhere
		switch {
		case !e.Stuck && c.job.Continuous:
			c.failed(cause) // it left, and nobody needs it
		case e.Late:
			c.suspectLocked(cause)
		default:
			c.fail(cause)
		}
	case host.StartFailed:
		if g.id > 0 {
			c.isNot(g, e.Value+": "+e.Text)
			return
		}
		if c.start == nil {
			c.start = &JobError{Field: e.Field, Value: e.Value, ExitStatus: e.Status, Err: errors.New(e.Text)}
		}
		c.tell(host.Command{Kind: host.Kill})
	case host.Alone, host.Refused:
		c.alienated(s, e)
	case host.Torn:
		c.warnOnce(about{kind: e.Kind}, c.rankCause(s, e))
	case host.ToHub:
		c.toHub(s, e.Data)
	case host.Joined:
		c.connected(g, e.Rank)
	case host.Left:
		c.finalized(g, e.Rank)
	case host.Passed:
		c.passed(s)
	case host.Fenced:
		if s.at == 0 { // all hosts of the group tell
			c.stats.met(g.id == 0)
		}
	case host.Asked:
		c.ask(s, e.Rank, e.Ask)
	case host.Still:
		s.still = e.N > 0
		c.hangs()
	case host.Done:
		s.done = true
		c.passed(s)
		c.long.forget(s)
	case host.Waiting:
		c.waiting(s, e.Ranks)
	case host.States:
		c.looked(s, e.Tails)
	case host.Failed:
		if c.isNot(g, "host "+name+": "+e.Text) {
			return
		}
		c.fail(&Cause{Rank: -1, Host: name, Status: statusFailed, Message: e.Text})
	case host.Tails:
		for _, cause := range [...]*Cause{c.cause, c.suspect} {
			if cause != nil && cause.Group == g.id && s.has(cause.Rank) {
				cause.Stderr, cause.Reason = e.Tails[cause.Rank], e.Reasons[cause.Rank]
				break
			}
		}
	}
}

// passed notes that a host's ranks were sent TSTP, or that none are left there.
func (c *controller) passed(s *seat) {
	if !s.passing {
		return
	}
	s.passing = false
	for s := range c.seats() {
		if s.passing {
			return
		}
	}
	c.job.Suspend()
}

// seats are those of all groups.
func (c *controller) seats() iter.Seq[*seat] {
	return func(yield func(*seat) bool) {
		for _, g := range c.groups {
			for _, s := range g.seats {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// rankCause is a cause that an event names a rank for.
func (c *controller) rankCause(s *seat, e host.Event) *Cause {
	g := s.group
	cause := &Cause{Group: g.id, Rank: e.Rank, Host: s.host(), Message: e.Text}
	if e.Rank < 0 || e.Rank >= g.size() {
		return cause
	}
	cause.Program = g.apps[g.appOf[e.Rank]].Argv[0]
	if r := g.ranks[e.Rank]; r.PID > 0 {
		cause.PID, cause.Host = r.PID, r.Host
	}
	return cause
}

// ended judges the end of a rank.
func (c *controller) ended(s *seat, e host.Event) {
	g := s.group
	g.gone[e.Rank] = true
	g.ranks[e.Rank] = RankEnd{Group: g.id, Rank: e.Rank, Host: s.host(), PID: e.PID, Status: e.Status, Signal: e.Signal, Told: e.Told}
	c.watch.put(Change{Kind: RankEnded, Group: g.id, Rank: e.Rank, Host: s.host(), PID: e.PID, End: g.ranks[e.Rank]})
	c.job.Log.Debug("rank ended", "group", g.id, "rank", e.Rank, "host", s.host(), "status", e.Status, "told", e.Told)
	if e.Told || g.off {
		return
	}
	cause := c.rankCause(s, e)
	cause.Status, cause.Signal, cause.Core, cause.CoreFile = e.Status, e.Signal, e.Core, e.CoreFile
	switch {
	case e.Status != 0:
		switch {
		case e.OOM == 1:
			cause.Message = "out of memory: the kernel's OOM killer has ended a process of its control group since the job began"
		case e.OOM > 1:
			cause.Message = fmt.Sprintf("out of memory: the kernel's OOM killer has ended %d processes of its control group since the job began", e.OOM)
		}
	case e.Joined && !e.Finalized:
		cause.Status = statusFailed
		cause.Message = "exited with status 0 after MPI_Init without MPI_Finalize"
	default:
		c.missing(g, e.Rank)
		return
	}
	c.failed(cause)
	if e.Spins && c.job.Continuous && !c.told && g.size() > 1 {
		note := c.rankCause(s, e)
		note.Status = statusFailed
		note.Message = "failed between MPI_Init and MPI_Finalize, and the job goes on; ranks of MPICH that need it, in MPI_Finalize at the latest, wait for it for ever: --timeout TIME ends the job then"
		c.warnOnce(about{kind: e.Kind}, note)
	}
	c.missing(g, e.Rank) // where the job goes on
}

// tell gives all sites a command.
func (c *controller) tell(cmd host.Command) {
	if (cmd.Kind == host.End || cmd.Kind == host.Kill) && !c.told {
		c.told = true
		for _, deaf := range c.deaf {
			c.after(2*c.grace(), deaf)
		}
	}
	for s := range c.seats() {
		s.Send(cmd)
	}
}

// after calls f, with the lock held, unless the job is over before.
func (c *controller) after(d time.Duration, f func()) {
	c.timers = append(c.timers, time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.over {
			f()
		}
	}))
}

// timeout ends a job that takes too long.
func (c *controller) timeout() {
	cause := &Cause{Rank: -1, Status: statusTimeout, Message: fmt.Sprintf("the job took longer than its timeout of %v", c.limit)}
	if c.told || !c.job.ReportState && !c.job.StackTraces {
		c.giveUp(2 * c.grace())
		c.fail(cause)
		return
	}
	// The ranks live on until they were looked at.
	limit := lookLimit
	c.hunting = false
	if c.job.StackTraces {
		limit = tracesLimit
	}
	c.giveUp(limit + 2*c.grace())
	for s := range c.seats() {
		s.Send(host.Command{Kind: host.Look, Last: c.job.StackTraces})
	}
	if c.cause == nil { // else a rank has failed before, and the others went on
		c.cause = cause
	}
	c.suspect, c.looking = nil, true
	c.after(limit, func() {
		c.looking = false
		c.fail(cause)
	})
}

// looked takes what the ranks of a host are doing.
func (c *controller) looked(s *seat, states map[int][]string) {
	for rank, lines := range states {
		if !s.has(rank) {
			continue
		}
		state := RankState{Group: s.group.id, Rank: rank, Host: s.host(), Lines: lines}
		if c.hunting {
			c.hang = append(c.hang, state)
		} else {
			c.states = append(c.states, state)
		}
	}
}

// hangs tells what the ranks are doing when nothing moves on any host, once until something
// moves again.
func (c *controller) hangs() {
	for s := range c.seats() {
		if !s.done && !s.still {
			c.hung = false
			return
		}
	}
	if c.hung || c.told || c.looking || c.hunting {
		return
	}
	c.hung, c.hunting, c.hang = true, true, nil
	for s := range c.seats() {
		s.Send(host.Command{Kind: host.Look})
	}
	c.after(lookLimit, func() {
		c.hunting = false
		sortStates(c.hang)
		text := fmt.Sprintf("nothing has moved for %v; the job goes on (--timeout ends one)", c.job.HangTimeout)
		for _, s := range c.hang {
			for _, line := range s.Lines {
				text += "\n" + s.who() + ": " + line
			}
		}
		c.warn(text)
	})
}

func sortStates(states []RankState) {
	slices.SortFunc(states, func(a, b RankState) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Rank, b.Rank))
	})
}

// cancel ends a job whose context has ended.
func (c *controller) cancel(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.giveUp(2 * c.grace())
	c.fail(&Cause{Rank: -1, Status: statusFailed, Message: context.Cause(ctx).Error()})
}

// signal passes a signal on.
func (c *controller) signal(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.job.Log.Info("signal", "signal", unix.SignalName(sig))
	switch sig {
	case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE:
		// Of this process's own life.
	case unix.SIGWINCH:
		if o := &c.job.Output; o.Terminal != "" && o.Screen != nil {
			if rows, cols := o.Screen(); rows > 0 && cols > 0 {
				c.tell(host.Command{Kind: host.Resize, Rows: rows, Cols: cols})
			}
		}
	case unix.SIGINT, unix.SIGTERM:
		if c.interrupt++; c.interrupt > 1 {
			c.tell(host.Command{Kind: host.Kill})
			c.giveUp(settle)
			return
		}
		c.giveUp(2 * c.grace())
		if c.told {
			c.tell(host.Command{Kind: host.Pass, Signal: sig})
			return
		}
		c.cause = &Cause{Rank: -1, Status: statusSignal + int(sig), Signal: sig}
		c.suspect = nil
		c.tell(host.Command{Kind: host.End, Signal: sig})
	case unix.SIGTSTP:
		if c.job.Suspend != nil {
			for s := range c.seats() {
				s.passing = !s.done
			}
		}
		c.tell(host.Command{Kind: host.Pass, Signal: sig})
	default:
		c.tell(host.Command{Kind: host.Pass, Signal: sig})
	}
}

// giveUp bounds how long output is waited for that nobody reads.
func (c *controller) giveUp(d time.Duration) {
	c.after(d, func() {
		c.hurry.Do(func() {
			close(c.abandon)
			c.tell(host.Command{Kind: host.Discard})
		})
	})
}

func (c *controller) grace() time.Duration {
	if c.job.Grace > 0 {
		return c.job.Grace
	}
	return DefaultGrace
}

// flush waits until what the ranks wrote is out, or need not be waited for.
func (c *controller) flush() {
	c.mu.Lock()
	c.outlet.frame(stdio.XMLEnd)
	sinks := c.outlet.shown()
	c.mu.Unlock()
	for _, sink := range sinks {
		select {
		case <-sink.Idle():
		case <-c.abandon:
			return
		}
	}
	c.outlet.close()
}

// result is how the job ended; all sites are done.
func (c *controller) result() (Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, t := range c.timers {
		t.Stop()
	}
	if c.start != nil && c.cause == nil {
		return Result{ExitStatus: c.start.ExitStatus}, c.start
	}
	r := Result{}
	if c.cause == nil {
		c.cause = c.suspect
	}
	if c.cause != nil {
		r.Cause, r.ExitStatus = c.cause, c.cause.Status
		c.cause.Shown = c.isShown(c.cause)
	}
	r.States = c.states
	sortStates(r.States)
	for _, g := range c.groups {
		for _, e := range g.ranks {
			if e.PID > 0 {
				r.Ranks = append(r.Ranks, e)
			}
		}
	}
	return r, nil
}

// isShown tells whether a cause's lines of standard error went to Job.Stderr and are easy
// to find there: last of all, in a file, or as a crash report whose reason is repeated.
func (c *controller) isShown(cause *Cause) bool {
	if c.last.ends(cause.Stderr) {
		return true
	}
	if cause.Rank < 0 || cause.Group >= len(c.groups) {
		return false
	}
	r := c.groups[cause.Group].routeOf(cause.Rank, host.Stderr)
	return r != nil && slices.Contains(r.sinks, c.outlet.sinks[1]) && (cause.Reason != "" || isFile(c.job.Stderr))
}

func isFile(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}
