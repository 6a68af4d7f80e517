package launcher

import (
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// site is a host's ranks as the controller sees them: in this process or behind
// an agent's stream. Send does not block.
type site interface{ Send(host.Command) }

// group is a world of ranks: the job as it was started is group 0, and each
// spawn of a running rank makes another. Its hosts run independently of those
// of other groups, with engines, a segment and a guardian of their own, and a PMIx server where they have agents; what
// joins the groups is the controller: a failure in one ends all, and the job is
// over when all are. What may change is guarded by the controller's mu.
type group struct {
	id     int
	apps   []App
	shares []place.Share
	preset map[string]string // of its key-value space
	hostOf []int             // by rank: index in shares
	appOf  []int             // by rank: index in apps
	routes []route           // of output, by rank and stream

	elder   *host.Host // whose PMIx server serves its ranks too; nil: its hosts have their own
	spawner string     // the job whose rank has spawned it; "": none has

	seats     []*seat   // by share, once they are started
	hubSeat   int       // the hub's number of the first
	ranks     []RankEnd // by rank; PID 0: not started
	gone      []bool    // by rank: it has ended
	mourned   []bool    // by rank: the other hosts were told that it is dead
	up        int       // ranks that were started
	asked     *asked    // the call that waits for it to run; nil: none, any more
	joins     joins
	mix       mixture
	libraries []library
	off       bool // it could not be started, and how its ranks end is no matter
}

// seat is a group's part on one host.
type seat struct {
	site
	group *group
	at    int             // index in the group's shares
	owed  [3]atomic.Int64 // bytes written of each stream, to be credited

	// Guarded by the controller's mu.
	done    bool   // its last event was read, or never will be
	stalled bool   // nothing moves on it
	lingers bool   // its ranks have all ended, and what they have started still has their output
	unused  bool   // its daemon was given nothing
	passing bool   // it has yet to pass TSTP on
	address string // at which the other hosts reach it; "": not known
	input   int64  // bytes of the job's input that its ranks have had
	unread  bool   // its ranks read no more of it
}

// newGroup makes a group of programs whose ranks are placed. It panics when
// apps and shares are not of the same number of ranks.
func newGroup(id int, apps []App, shares []place.Share) *group {
	g := &group{id: id, apps: apps, shares: shares}
	for i, a := range apps {
		for range a.NP {
			g.appOf = append(g.appOf, i)
		}
	}
	n := len(g.appOf)
	g.hostOf, g.ranks, g.gone, g.mourned = make([]int, n), make([]RankEnd, n), make([]bool, n), make([]bool, n)
	for at, share := range shares {
		for _, rank := range share.Ranks {
			g.hostOf[rank] = at
		}
	}
	return g
}

// size is the number of its ranks.
func (g *group) size() int { return len(g.ranks) }

// host is the name of a seat's host.
func (s *seat) host() string { return s.group.shares[s.at].Host }

// has tells whether a rank of the group runs there.
func (s *seat) has(rank int) bool {
	return rank >= 0 && rank < len(s.group.hostOf) && s.group.hostOf[rank] == s.at
}

// written gives the seat credit for more output, in batches: each one wakes it.
func (s *seat) written(stream int, n int64) {
	if stream != host.Stdout && stream != host.Stderr {
		return
	}
	owed := &s.owed[stream]
	if owed.Add(n) >= host.Window/4 {
		s.Send(host.Command{Kind: host.Credit, Stream: stream, N: int(owed.Swap(0))})
	}
}

// answer is for a rank that asked for something.
func (s *seat) answer(rank int, r host.Reply) {
	s.Send(host.Command{Kind: host.Answer, Rank: rank, Reply: &r})
}

// cause is a cause that an event names a rank for.
func (s *seat) cause(e host.Event) *Cause {
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

// failure is the cause that a rank's end is; nil: it has ended well.
func (s *seat) failure(e host.Event) *Cause {
	cause := s.cause(e)
	cause.Status, cause.Signal, cause.Core, cause.CoreFile = e.Status, e.Signal, e.Core, e.CoreFile
	cause.elsewhere = s.lostConnection(e.Rank, e.Status)
	switch {
	case e.Status == 0 && e.Joined && !e.Finalized:
		cause.Status = statusFailed
		cause.Message = "exited with status 0 after MPI_Init without MPI_Finalize"
	case e.Status == 0:
		return nil
	case e.OOM == 1:
		cause.Message = "out of memory: the kernel's OOM killer has ended a process of its control group since the job began"
	case e.OOM > 1:
		cause.Message = fmt.Sprintf("out of memory: the kernel's OOM killer has ended %d processes of its control group since the job began", e.OOM)
	}
	return cause
}

// lostConnection tells whether a status, of an exit or MPI_Abort, is that of an Open MPI that has lost a connection: openMPILost.
func (s *seat) lostConnection(rank, status int) bool {
	return status == openMPILost && s.group.joins.joined(rank)
}

// left tells whether a rank has ended with status 0.
func (g *group) left(rank int) bool {
	return rank >= 0 && rank < g.size() && g.gone[rank] && g.ranks[rank].Status == 0
}

// worlds are the groups of a job, and the hosts that have room for them. Guarded by
// the controller's mu; the fields but groups never change.
type worlds struct {
	job     *Job
	cpus    func() int // of this machine
	policy  place.Policy
	placed  *place.Result
	name    string   // the job's, random
	attempt int      // as in host.Spec
	groups  []*group // by id
}

// seats are those of all groups.
func (w *worlds) seats() iter.Seq[*seat] {
	return func(yield func(*seat) bool) {
		for _, g := range w.groups {
			for _, s := range g.seats {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// running is how many ranks have started, or are to start, and have not ended.
func (w *worlds) running() (n int) {
	for _, g := range w.groups {
		for _, gone := range g.gone {
			if !gone && !g.off {
				n++
			}
		}
	}
	return n
}

// tell gives all sites a command.
func (w *worlds) tell(cmd host.Command) {
	for s := range w.seats() {
		s.Send(cmd)
	}
}

// nameOf is the random name of a group.
func (w *worlds) nameOf(g *group) string {
	if g.id == 0 {
		return w.name
	}
	return w.name + "_" + strconv.Itoa(g.id)
}

// routeOf is the route of a stream; nil for one that no host has.
func (w *worlds) routeOf(group, rank, stream int) *route {
	if group >= len(w.groups) {
		return nil
	}
	return w.groups[group].routeOf(rank, stream)
}

// universe is how many ranks the job has room for.
func (w *worlds) universe() int {
	room := 0
	for _, h := range w.job.Hosts {
		room += max(1, h.Slots)
	}
	return max(cmp.Or(room, w.cpus()), w.groups[0].size())
}

// universeTold is what programs are told of that; 0: nothing.
func (w *worlds) universeTold() int {
	switch n := w.job.Universe; n {
	case 0:
		return w.universe()
	case UniverseCPUs:
		return w.cpus()
	default:
		return max(0, n)
	}
}
