package launcher

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/hub"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
	"github.com/gorun-mpi/gorun/launcher/profile"
)

// Exit statuses that are no rank's.
const (
	statusFailed  = 1
	statusTimeout = 124
	statusSignal  = 128 // + its number
)

// controller runs one start of a job. Hosts, timers and signals bring their news
// on goroutines of their own. The controller takes one at a time, under mu, and
// hands it to the part that it concerns. No goroutine owns a part: every method
// of one is called with mu held, unless it says otherwise. A part calls only those
// that stand before it.
type controller struct {
	job   *Job
	mu    sync.Mutex
	clock clock    // what is due later
	watch *watcher // Job.Watch and Job.Warn; nil: nobody watches. Has its own lock.
	stats *stats   // figures; nil: nobody counts. Has its own lock.

	worlds   worlds    // the groups of ranks, and the room that they leave
	end      ending    // the cause of the job's failure, and how its ranks end
	warnings warnings  // what the user is told once
	survey   survey    // what the ranks do, at the timeout or when nothing moves
	mix      mixWatch  // ranks of two MPIs that wait for each other
	outlet   *outlet   // output, which goes past mu
	input    input     // of the job, where the launcher reads it
	spawns   spawns    // groups that running ranks ask for
	requests requests  // all else that ranks ask for, and PMIx
	agents   agentPool // that run already

	profile   []profile.Rank  // the calls of ranks that have ended
	lingering int             // hosts that have told host.Lingers
	reach     func() *routing // to the hosts; found when it is first asked for
	detours   bool            // the user knows that connections are carried
}

func newController(job *Job, p *placer, placed *place.Result, agents agentPool, w func() *routing, at attempt) (*controller, error) {
	var random [8]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return nil, os.NewSyscallError("getrandom", err)
	}
	c := &controller{job: job, watch: at.watch, agents: agents, reach: w}
	if at.handle != nil {
		c.stats = &at.handle.stats
	}
	g := newGroup(0, job.Apps, placed.Shares)
	c.clock.mu = &c.mu
	c.worlds = worlds{job: job, cpus: p.cpus, policy: p.policy, placed: placed, name: hex.EncodeToString(random[:]), attempt: at.number, groups: []*group{g}}
	c.end = ending{job: job, clock: &c.clock, worlds: &c.worlds, abandon: make(chan struct{})}
	c.warnings = warnings{watch: c.watch, said: make(map[warning]bool)}
	c.survey = survey{job: job, limit: at.limit, clock: &c.clock, worlds: &c.worlds, end: &c.end, watch: c.watch, lookups: c.requests.lookups}
	c.mix = mixWatch{clock: &c.clock, end: &c.end}
	c.outlet = newOutlet(job, at.number > 0, c.outputFailed)
	c.input = input{mu: &c.mu, job: job, first: g}
	c.spawns = spawns{mu: &c.mu, worlds: &c.worlds, end: &c.end, watch: c.watch, start: c.startSpawned}
	c.requests = requests{job: job, clock: &c.clock, worlds: &c.worlds, end: &c.end, spawns: &c.spawns, stats: c.stats, watch: c.watch, hub: hub.New()}
	if job.StdinRank < StdinAll || job.StdinRank >= g.size() {
		return nil, bad("StdinRank", strconv.Itoa(job.StdinRank), "want the number of a rank, 0 to %d, or all of them", g.size()-1)
	}
	if err := c.outlet.open(g); err != nil {
		c.outlet.close()
		return nil, err
	}
	c.outlet.frame(stdio.XMLBegin)
	return c, nil
}

// event takes what happened on a host, without mu.
func (c *controller) event(s *seat, e host.Event) {
	switch e.Kind {
	case host.Output:
		c.watch.said(s, &e)
		c.stats.move(e.Stream, len(e.Data))
		c.outlet.take(s, e)
		return
	case host.Long:
		c.outlet.long.ask(s, e)
		return
	case host.Sampled:
		c.watch.uses(s, e.Samples)
		return
	case host.StdinTaken:
		c.stats.move(0, max(0, e.N))
		c.input.taken(s, e.N)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := s.group
	switch e.Kind {
	case host.Started, host.Ended, host.Aborted, host.Joined, host.Left:
		if !s.has(e.Rank) {
			c.end.fail(&Cause{Rank: -1, Host: s.host(), Status: statusFailed, Message: fmt.Sprintf("its agent reported rank %d, which does not exist", e.Rank)})
			return
		}
	}
	if g.off && (e.Kind == host.Aborted || e.Kind == host.Violated || e.Kind == host.Failed) {
		return
	}
	switch e.Kind {
	case host.Started:
		c.started(s, e)
	case host.Ended:
		c.ended(s, e)
	case host.Aborted:
		c.end.aborted(s, e)
	case host.Violated:
		c.end.violated(s, e)
	case host.StartFailed:
		err := errors.New(e.Text)
		if _, here := s.site.(*host.Host); !here { // a file may be on some hosts only
			err = fmt.Errorf("host %s: %w", s.host(), err)
		}
		if g.id > 0 {
			c.spawns.isNot(g, e.Value+": "+err.Error())
			return
		}
		if c.end.start == nil {
			c.end.start = &JobError{Field: e.Field, Value: e.Value, ExitStatus: e.Status, Err: err}
		}
		c.end.tell(host.Command{Kind: host.Kill})
	case host.Failed:
		if !c.spawns.isNot(g, "host "+s.host()+": "+e.Text) {
			c.end.fail(&Cause{Rank: -1, Host: s.host(), Status: statusFailed, Message: e.Text, lost: true})
		}
	case host.Tails:
		c.end.explain(s, e)
	case host.Singleton, host.Refused:
		// The others of the program will be so too, so one is told. What is of no rank
		// may be of any user of this machine.
		cause := s.cause(e)
		waited := e.Stuck && (g.joins.came > 0 || len(g.libraries) > 0)
		if cause.Status = statusFailed; c.job.StrictPMI && e.Rank >= 0 || waited {
			c.end.fail(cause)
		} else if !e.Stuck {
			c.warnings.once(warning{e.Kind, e.Rank < 0}, cause)
		}
	case host.Lingers:
		s.lingers = true
		c.lingering++
		c.settle()
	case host.Cut:
		if cause := s.cause(e); c.end.cause == nil || c.end.cause.Rank < 0 {
			c.warnings.once(warning{kind: e.Kind}, cause)
		} else if c.end.cut == "" { // the failure is told first
			c.end.cut = cause.text()
		}
	case host.Loaded:
		c.loaded(s, e)
	case host.Torn, host.Unassisted, host.Unshared, host.Apart, host.Doubled, host.Unrecorded:
		c.warnings.once(warning{kind: e.Kind}, s.cause(e))
	case host.Unused:
		if s.unused = true; c.allUnused() {
			c.warnings.once(warning{kind: e.Kind}, &Cause{Rank: -1, Message: e.Text})
		}
	case host.ToHub:
		c.requests.fromPMIx(s, e.Data)
	case host.Asked:
		c.requests.ask(s, e.Rank, e.Ask)
	case host.Joined:
		c.joined(g, e.Rank)
	case host.Left:
		g.joins.finalized(e.Rank)
	case host.Waiting:
		c.mix.answered(s, e.Ranks)
	case host.Fenced:
		c.stats.met(g.id == 0)
	case host.Passed:
		c.passed(s)
	case host.Stalled:
		s.stalled = e.N > 0
		c.survey.stalled()
	case host.States:
		c.survey.looked(s, e)
	case host.Recorded:
		c.recorded(s, e)
	case host.Done:
		c.done(s)
	}
}

// recorded keeps the calls of a rank.
func (c *controller) recorded(s *seat, e host.Event) {
	r, err := profile.Unpack(e.Data)
	if err != nil || !c.job.Profile || !s.has(e.Rank) {
		c.job.Log.Debug("a record of calls makes no sense", "host", s.host(), "rank", e.Rank, "error", err)
		return
	}
	r.Rank, r.Group, r.Host, r.Size = e.Rank, s.group.id, s.host(), s.group.size()
	c.profile = append(c.profile, *r)
}

// allUnused tells whether no host's daemon was given anything.
func (c *controller) allUnused() bool {
	for s := range c.worlds.seats() {
		if !s.unused {
			return false
		}
	}
	return true
}

func (c *controller) started(s *seat, e host.Event) {
	g := s.group
	g.ranks[e.Rank] = RankEnd{Group: g.id, Rank: e.Rank, Host: s.host(), PID: e.PID}
	g.up++
	if g.id == 0 && g.up == g.size() {
		c.stats.launched()
	}
	c.spawns.isUp(g)
	c.watch.put(Change{Kind: RankStarted, Group: g.id, Rank: e.Rank, Host: s.host(), PID: e.PID})
	c.job.Log.Debug("rank started", "group", g.id, "rank", e.Rank, "host", s.host(), "pid", e.PID)
}

// ended judges the end of a rank.
func (c *controller) ended(s *seat, e host.Event) {
	g := s.group
	c.noteEnd(s, e)
	if e.Told || g.off {
		return
	}
	if cause := s.failure(e); cause != nil {
		if e.Status == 0 {
			c.end.left(cause)
		} else {
			c.end.failed(cause)
		}
		c.mourn(s, e.Rank)
		if e.Spins && c.job.Continuous && !c.end.told && g.size() > 1 {
			note := s.cause(e)
			note.Status = statusFailed
			note.Message = "failed between MPI_Init and MPI_Finalize, and the job goes on; ranks of MPICH that need it, in MPI_Finalize at the latest, wait for it for ever: --timeout TIME ends the job then"
			c.warnings.once(warning{kind: e.Kind}, note)
		}
	}
	g.joins.ended(e.Rank) // it will be in no more programs, and the job may go on
	c.suspectAbsentee(g)
}

// noteEnd keeps how a rank ended.
func (c *controller) noteEnd(s *seat, e host.Event) {
	g := s.group
	g.gone[e.Rank] = true
	if c.end.away != nil {
		c.end.away.Reset(leaveTimes * c.job.grace())
	}
	g.ranks[e.Rank] = RankEnd{Group: g.id, Rank: e.Rank, Host: s.host(), PID: e.PID, Status: e.Status, Signal: e.Signal, Told: e.Told}
	c.watch.put(Change{Kind: RankEnded, Group: g.id, Rank: e.Rank, Host: s.host(), PID: e.PID, End: g.ranks[e.Rank]})
	c.job.Log.Debug("rank ended", "group", g.id, "rank", e.Rank, "host", s.host(), "status", e.Status, "told", e.Told)
}

// lost notes that a host's agent is lost, and its ranks with it.
func (c *controller) lost(s *seat, cause *Cause) {
	g := s.group
	c.end.failed(cause)
	for _, rank := range g.shares[s.at].Ranks {
		if g.gone[rank] {
			continue
		}
		if pid := g.ranks[rank].PID; pid > 0 {
			c.noteEnd(s, host.Event{Rank: rank, PID: pid, Status: statusSignal + int(unix.SIGKILL), Signal: unix.SIGKILL, Told: true})
		}
		g.joins.ended(rank)
	}
	c.suspectAbsentee(g)
}

// mourn has the other hosts of a group mark ranks of a host as dead, where the job goes on without them: only the
// connections would show it there, after many seconds. Ranks that ended well have taken leave of the others.
func (c *controller) mourn(s *seat, ranks ...int) {
	if !c.job.Continuous || c.end.told {
		return
	}
	g := s.group
	ranks = slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool { return g.mourned[rank] })
	if len(ranks) == 0 {
		return
	}
	for _, rank := range ranks {
		g.mourned[rank] = true
	}
	for _, other := range g.seats {
		if other != s && !other.done {
			other.Send(host.Command{Kind: host.Mourn, Ranks: ranks})
		}
	}
}

// mournHost is mourn for all ranks of a host that have not ended before.
func (c *controller) mournHost(s *seat) {
	ranks := slices.Clone(s.group.shares[s.at].Ranks)
	c.mourn(s, slices.DeleteFunc(ranks, func(rank int) bool { return s.group.gone[rank] })...)
}

// joined notes that a rank has connected to the PMIx server, where it waits for all
// others.
func (c *controller) joined(g *group, rank int) {
	g.joins.connected(rank)
	if g.joins.came == g.size() && g.id == 0 && len(g.shares) == 1 {
		c.stats.gathered()
	}
	c.job.Log.Debug("rank has connected to the PMIx server", "group", g.id, "rank", rank)
	c.suspectAbsentee(g)
	c.mix.begin(g)
}

// suspectAbsentee ends a job in which a rank waits for one that has ended.
func (c *controller) suspectAbsentee(g *group) {
	if cause := g.absentee(); cause != nil {
		c.end.suspectLater(cause, settle)
	}
}

// done notes that a host will tell nothing more.
func (c *controller) done(s *seat) {
	s.done = true
	c.passed(s)
	c.requests.gone(s)
	c.survey.answered(s)
	c.outlet.long.forget(s)
	c.settle()
}

// settle has what ranks have left behind end within the grace, once the ranks of all hosts have ended.
func (c *controller) settle() {
	if c.lingering == 0 {
		return
	}
	for s := range c.worlds.seats() {
		if !s.done && !s.lingers {
			return
		}
	}
	for s := range c.worlds.seats() {
		if !s.done {
			s.Send(host.Command{Kind: host.Settle})
		}
	}
}

// outputFailed is told by a sink, without mu, that its writer has failed.
func (c *controller) outputFailed(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, unix.EPIPE) && name == "standard error":
		// Nobody wants to hear what the ranks complain about.
		c.job.Log.Info("nobody reads standard error any more")
	case errors.Is(err, unix.EPIPE) && name == "standard output":
		// As with any program in a pipeline whose reader has had enough.
		c.end.fail(&Cause{Rank: -1, Status: statusSignal + int(unix.SIGPIPE), Signal: unix.SIGPIPE, Message: "the reader of standard output has closed it"})
	default:
		c.end.fail(&Cause{Rank: -1, Status: statusFailed, Message: fmt.Sprintf("%s: %v", name, err)})
	}
}

// result is how the job ended; all sites are done.
func (c *controller) result() (Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.stop()
	cause := c.end.cause
	if c.end.start != nil && cause == nil {
		return Result{ExitStatus: c.end.start.ExitStatus}, c.end.start
	}
	r := Result{States: c.survey.report(), Unfinished: c.outlet.err.Within(), Profile: c.profile}
	profile.Sort(r.Profile)
	cause = cmp.Or(cause, c.end.suspect)
	if cause == nil && c.end.leaver != nil {
		r.Note = c.end.note()
	}
	r.Note = cmp.Or(r.Note, c.end.cut)
	if cause != nil {
		r.Cause, r.ExitStatus = cause, cause.Status
		cause.Shown = c.outlet.shows(cause, c.worlds.routeOf(cause.Group, cause.Rank, host.Stderr))
	}
	for _, g := range c.worlds.groups {
		for _, e := range g.ranks {
			if e.PID > 0 {
				r.Ranks = append(r.Ranks, e)
			}
		}
	}
	return r, nil
}

// clock calls what is due later, with the controller's mu held and not after the
// job's end. It owns the timers.
type clock struct {
	mu     *sync.Mutex // the controller's
	timers []*time.Timer
	over   bool
}

// after calls f when d has passed. The timer may be set again.
func (k *clock) after(d time.Duration, f func()) *time.Timer {
	t := time.AfterFunc(d, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.over {
			f()
		}
	})
	k.timers = append(k.timers, t)
	return t
}

// stop is called when Run is about to return.
func (k *clock) stop() {
	k.over = true
	for _, t := range k.timers {
		t.Stop()
	}
}
