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

// requests are what ranks ask for that their host cannot give: names, groups, and by
// PMIx the table of the job's processes, signals, and words with other hosts.
// Guarded by the controller's mu.
type requests struct {
	job    *Job
	clock  *clock
	worlds *worlds
	end    *ending
	spawns *spawns
	stats  *stats
	watch  *watcher
	hub    *hub.Hub // of the PMIx servers, and of names that ranks publish
}

// ask serves a rank.
func (q *requests) ask(s *seat, rank int, a *host.Ask) {
	switch {
	case a == nil || !s.has(rank):
		q.end.fail(&Cause{Rank: -1, Host: s.host(), Status: statusFailed, Message: fmt.Sprintf("its agent sent a request of rank %d without its kind", rank)})
	case a.Name != nil:
		answer, letters := q.hub.Name(*a.Name)
		q.post(letters)
		s.answer(rank, host.Reply{Tag: a.Tag, Name: &answer})
	case a.Spawn != nil:
		q.spawns.spawn(s, rank, a)
	}
}

// space is the namespace of a group's ranks; nil where nobody serves it. The hub
// knows seats by number, over all groups.
func (q *requests) space(g *group) *link.Space {
	if q.job.Hosting.PMIx == "" {
		return nil
	}
	n := g.size()
	s := &link.Space{Name: spaceOf(q.worlds.nameOf(g)), NodeOf: make([]uint32, n), AppOf: make([]uint32, n), Universe: max(n, q.worlds.universeTold())}
	for _, share := range g.shares {
		s.Nodes = append(s.Nodes, share.Host)
	}
	g.joins = newJoins(n)
	if g.elder == nil {
		for _, other := range q.worlds.groups[:g.id] {
			g.hubSeat += len(other.shares)
		}
	}
	seats := make([]int, n)
	for rank, at := range g.hostOf {
		s.NodeOf[rank], s.AppOf[rank] = uint32(at), uint32(g.appOf[rank])
		seats[rank] = g.hubSeat + at
	}
	q.hub.Add(*s, seats)
	return s
}

// lookups tells of the ranks that wait for names that nobody has published, as one does that connects to a port of another job.
func (q *requests) lookups() (list []RankState) {
	for _, w := range q.hub.Waits() {
		for _, g := range q.worlds.groups {
			rank := int(w.Rank)
			if spaceOf(q.worlds.nameOf(g)) != w.Space || rank >= g.size() || g.gone[rank] || len(w.Missing) == 0 {
				continue
			}
			list = append(list, RankState{Group: g.id, Rank: rank, Host: g.shares[g.hostOf[rank]].Host, Lines: []string{fmt.Sprintf(
				"waits for the service %s, which no rank of this job has published; %s", strings.Join(w.Missing, ", "), twoJobs)}})
		}
	}
	return list
}

// twoJobs is the next step of a rank that has looked for one of another job.
const twoJobs = "ranks of two jobs do not meet: start both programs by one gorun, as in gorun -np 1 ./server : -np 1 ./client"

// spaceOf is the name of a group's namespace: the name of its PMI-1 space.
func spaceOf(name string) string { return "gorun_" + name }

// fromPMIx takes what a seat's PMIx server asks for.
func (q *requests) fromPMIx(s *seat, data []byte) {
	q.job.Log.Log(context.Background(), slog.LevelDebug-4, "from a PMIx server", "group", s.group.id, "host", s.host(), "bytes", len(data))
	before := q.hub.Fences()
	letters, due, err := q.hub.Take(s.group.hubSeat+s.at, data)
	if q.hub.Fences() > before {
		q.stats.met(s.group.id == 0)
	}
	if err != nil {
		q.end.fail(&Cause{Rank: -1, Host: s.host(), Status: statusFailed, Message: fmt.Sprintf("its PMIx server: %v", err)})
		return
	}
	q.post(letters)
	if due == nil {
		return
	}
	var answer link.Message
	switch due.Op {
	case link.Spawn:
		q.ask(q.seatOf(due.Proc, s), int(due.Proc.Rank), &host.Ask{Tag: due.ID, Spawn: &host.Spawn{Apps: due.Apps}})
		return
	case link.Lookup:
		at := q.seatOf(due.Proc, s)
		rank := RankState{Group: at.group.id, Rank: int(due.Proc.Rank), Host: at.host(), Lines: []string{fmt.Sprintf(
			"connects to a port of another job, %s; %s", strings.TrimSuffix(strings.Join(due.Keys, ", "), ":accept"), twoJobs)}}
		q.watch.putWarning(rank.String())
		answer.Code = link.NotFound
	case link.Table:
		answer.Jobs = q.table()
	case link.Control:
		if !q.control(due) {
			answer.Code = link.NotFound
		}
	}
	l, err := due.Answer(answer)
	if err != nil { // a job of more ranks than a frame has room for
		l, err = due.Answer(link.Message{Code: link.Refused, Text: err.Error()})
	}
	if err == nil {
		q.post([]hub.Letter{l})
	}
}

// seatOf is where a process runs that the PMIx server of a seat knows; that seat if there is none.
func (q *requests) seatOf(p link.Proc, server *seat) *seat {
	for s := range q.worlds.seats() {
		if spaceOf(q.worlds.nameOf(s.group)) == p.Space && s.has(int(p.Rank)) {
			return s
		}
	}
	return server
}

// gone is told that nothing more comes from a seat.
func (q *requests) gone(s *seat) {
	if q.job.Hosting.PMIx != "" && s.group.elder == nil {
		q.post(q.hub.Gone(s.group.hubSeat + s.at))
	}
}

// post sends the hub's letters.
func (q *requests) post(letters []hub.Letter) {
	for _, l := range letters {
		for to := range q.worlds.seats() {
			if to.group.hubSeat+to.at == l.To {
				to.Send(host.Command{Kind: host.FromHub, Data: l.Data})
				break // others have the same server
			}
		}
	}
}

// table is what processes can ask of each other.
func (q *requests) table() []link.Job {
	var jobs []link.Job
	for _, g := range q.worlds.groups {
		if g.joins.of == nil {
			continue
		}
		job := link.Job{Name: spaceOf(q.worlds.nameOf(g)), Command: strings.Join(g.apps[0].Argv, " "), Procs: make([]link.Process, g.size())}
		for rank, end := range g.ranks {
			job.Procs[rank] = link.Process{
				Host: g.shares[g.hostOf[rank]].Host, Program: g.apps[g.appOf[rank]].Argv[0], PID: end.PID,
				Joined: g.joins.of[rank] > g.joins.left[rank], Gone: g.gone[rank], Status: end.Status, Signal: int(end.Signal),
			}
		}
		jobs = append(jobs, job)
	}
	return jobs
}

// control sends a signal to ranks that a rank has named, or to none if one of them
// is not there. What becomes of the job when they end is as if anybody else had sent
// it.
func (q *requests) control(due *hub.Due) (there bool) {
	at := map[*seat][]int{}
	for _, p := range due.Procs {
		i := slices.IndexFunc(q.worlds.groups, func(g *group) bool { return spaceOf(q.worlds.nameOf(g)) == p.Space })
		if i < 0 || p.Rank != hub.Wildcard && int64(p.Rank) >= int64(q.worlds.groups[i].size()) {
			return false
		}
		for _, s := range q.worlds.groups[i].seats {
			for rank := range q.worlds.groups[i].ranks {
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
	q.job.Log.Info("a rank sends a signal", "by", due.Proc.Rank, "of", due.Proc.Space, "signal", unix.SignalName(syscall.Signal(due.Status)))
	send(syscall.Signal(due.Status))
	if due.Wait {
		q.clock.after(q.job.grace(), func() { send(syscall.SIGKILL) })
	}
	return true
}
