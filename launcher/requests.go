package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/hub"
)

// openMPI is what the controller knows of a group's ranks that use the PMIx
// servers.
type openMPI struct {
	base   int   // the hub's number of its first seat
	joined []int // by rank: how often it has connected
	left   []int // and finalized
	came   int   // ranks that have connected
	most   int   // of joined
	who    int   // that rank
	ended  int   // of the ranks that have ended the one that connected least often; -1: none
}

// space is the namespace of a group's ranks; nil where nobody serves it. The hub
// knows seats by number, over all groups.
func (c *controller) space(g *group) *link.Space {
	if c.job.PMIx == "" {
		return nil
	}
	n := g.size()
	s := &link.Space{Name: spaceOf(c.nameOf(g)), NodeOf: make([]uint32, n), AppOf: make([]uint32, n), Universe: c.universe()}
	for _, share := range g.shares {
		s.Nodes = append(s.Nodes, share.Host)
	}
	g.mpi = openMPI{joined: make([]int, n), left: make([]int, n), ended: -1}
	for _, other := range c.groups[:g.id] {
		g.mpi.base += len(other.shares)
	}
	seats := make([]int, n)
	for rank, at := range g.hostOf {
		s.NodeOf[rank], s.AppOf[rank] = uint32(at), uint32(g.appOf[rank])
		seats[rank] = g.mpi.base + at
	}
	c.hub.Add(*s, seats)
	return s
}

// spaceOf is the name of a group's namespace: the name of its PMI-1 space.
func spaceOf(name string) string { return "gorun_" + name }

// toHub takes what a seat's PMIx server asks for.
func (c *controller) toHub(s *seat, data []byte) {
	c.job.Log.Log(context.Background(), slog.LevelDebug-4, "from a PMIx server", "group", s.group.id, "host", s.host(), "bytes", len(data))
	before := c.hub.Fences()
	letters, due, err := c.hub.Take(s.group.mpi.base+s.at, data)
	if c.hub.Fences() > before {
		c.stats.met(s.group.id == 0)
	}
	if err != nil {
		c.fail(&Cause{Rank: -1, Host: s.host(), Status: statusFailed, Message: fmt.Sprintf("its PMIx server: %v", err)})
		return
	}
	c.post(letters)
	if due == nil {
		return
	}
	var answer link.Message
	switch due.Op {
	case link.Spawn:
		ask := &host.Ask{Tag: due.ID, Spawn: &host.Spawn{}}
		for _, a := range due.Apps {
			ask.Spawn.Apps = append(ask.Spawn.Apps, host.SpawnApp{Argv: a.Argv, N: a.NP, Env: a.Env, Info: a.Info})
		}
		c.ask(s, int(due.Proc.Rank), ask)
		return
	case link.Table:
		answer.Jobs = c.table()
	case link.Control:
		if !c.control(due) {
			answer.Code = link.NotFound
		}
	}
	l, err := due.Answer(answer)
	if err != nil { // a job of more ranks than a frame has room for
		l, err = due.Answer(link.Message{Code: link.Refused, Text: err.Error()})
	}
	if err == nil {
		c.post([]hub.Letter{l})
	}
}

// post sends the hub's letters.
func (c *controller) post(letters []hub.Letter) {
	for _, l := range letters {
		for to := range c.seats() {
			if to.group.mpi.base+to.at == l.To {
				to.Send(host.Command{Kind: host.FromHub, Data: l.Data})
			}
		}
	}
}

// table is what processes can ask of each other.
func (c *controller) table() []link.Job {
	var jobs []link.Job
	for _, g := range c.groups {
		if g.mpi.joined == nil {
			continue
		}
		job := link.Job{Name: spaceOf(c.nameOf(g)), Command: strings.Join(g.apps[0].Argv, " "), Procs: make([]link.Process, g.size())}
		for rank, end := range g.ranks {
			job.Procs[rank] = link.Process{
				Host: g.shares[g.hostOf[rank]].Host, Program: g.apps[g.appOf[rank]].Argv[0], PID: end.PID,
				Joined: g.mpi.joined[rank] > g.mpi.left[rank], Gone: g.gone[rank], Status: end.Status, Signal: int(end.Signal),
			}
		}
		jobs = append(jobs, job)
	}
	return jobs
}

// control sends a signal to ranks that a rank has named, or to none if one of them
// is not there. What becomes of the job when they end is as if anybody else had sent
// it.
func (c *controller) control(due *hub.Due) (there bool) {
	at := map[*seat][]int{}
	for _, p := range due.Procs {
		i := slices.IndexFunc(c.groups, func(g *group) bool { return spaceOf(c.nameOf(g)) == p.Space })
		if i < 0 || p.Rank != hub.Wildcard && int64(p.Rank) >= int64(c.groups[i].size()) {
			return false
		}
		for _, s := range c.groups[i].seats {
			for rank := range c.groups[i].ranks {
				if s.has(rank) && (p.Rank == hub.Wildcard || int64(p.Rank) == int64(rank)) {
					at[s] = append(at[s], rank)
				}
			}
		}
	}
	send := func(signal syscall.Signal) {
		for s, ranks := range at {
			s.Send(host.Command{Kind: host.Pass, Signal: signal, Ranks: ranks})
		}
	}
	c.job.Log.Info("a rank sends a signal", "by", due.Proc.Rank, "of", due.Proc.Space, "signal", unix.SignalName(syscall.Signal(due.Status)))
	send(syscall.Signal(due.Status))
	if due.Wait {
		c.after(c.grace(), func() { send(syscall.SIGKILL) })
	}
	return true
}

// connected notes that a rank has connected to the PMIx server. Whoever does waits
// there for all others: one that has ended will not come.
func (c *controller) connected(g *group, rank int) {
	m := &g.mpi
	if m.joined == nil {
		return
	}
	if m.joined[rank]++; m.joined[rank] == 1 {
		m.came++
	}
	if m.came == g.size() && g.id == 0 && len(g.shares) == 1 {
		c.stats.gathered()
	}
	c.job.Log.Debug("rank has connected to the PMIx server", "group", g.id, "rank", rank)
	if m.joined[rank] > m.most {
		m.most, m.who = m.joined[rank], rank
	}
	c.alone(g)
	c.lookForMixture(g)
}

func (c *controller) finalized(g *group, rank int) {
	if g.mpi.left != nil {
		g.mpi.left[rank]++
	}
}

// missing notes a rank that has ended, and will be in no more programs.
func (c *controller) missing(g *group, rank int) {
	m := &g.mpi
	if m.joined == nil {
		return
	}
	if m.ended < 0 || m.joined[rank] < m.joined[m.ended] {
		m.ended = rank
	}
	c.alone(g)
}

// alone ends a job in which a rank waits for one that has ended.
func (c *controller) alone(g *group) {
	m := &g.mpi
	if m.ended < 0 || m.most <= m.joined[m.ended] {
		return
	}
	cause := c.rankCause(g.seats[g.hostOf[m.ended]], host.Event{Rank: m.ended})
	cause.Status = statusFailed
	if m.joined[m.ended] == 0 {
		cause.Message = fmt.Sprintf("exited with status 0 without MPI_Init, where rank %d waits for it", m.who)
	} else {
		cause.Message = fmt.Sprintf("exited with status 0, but rank %d has begun another MPI program and waits for it in MPI_Init", m.who)
	}
	c.suspectLocked(cause)
}

// about is what the user is warned of once.
type about struct {
	kind   host.EventKind
	nobody bool // it is not of a rank
}

// alienated is told of a rank that seems to be a world of its own, or that was not
// let in. One is enough: the others of the program will be so too.
func (c *controller) alienated(s *seat, e host.Event) {
	cause := c.rankCause(s, e)
	cause.Status = statusFailed
	switch {
	case c.job.StrictPMI && e.Rank >= 0: // nobody's may be of whoever is on this machine
		c.fail(cause)
	default:
		c.warnOnce(about{e.Kind, e.Rank < 0}, cause)
	}
}

// warnOnce tells the user of the first of its kind.
func (c *controller) warnOnce(what about, cause *Cause) {
	if !c.warned[what] {
		c.warned[what] = true
		c.warn(strings.TrimPrefix(cause.String(), "gorun: "))
	}
}
