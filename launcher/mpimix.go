package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// Programs of MPICH and of gorun meet by PMI-1, those of Open MPI by PMIx. Where
// a job has both in one world, each waits in MPI_Init for the others, silently and
// for ever. That is so, and not a matter of time, when some rank waits in a fence
// of PMI-1 and has not connected to PMIx as often as another that is in a program
// there: neither can go on before the other. A rank that may run both, one after
// the other, waits nowhere in between.
//
// Hosts are asked which ranks wait only while ranks have connected to PMIx unevenly
// often, which jobs of one MPI outgrow in moments.
const (
	mixedFirst = 200 * time.Millisecond
	mixedEvery = time.Second
	// mixedLimit is how long it must have been so, unless the job is strict: a
	// client of PMIx that is no MPI need not wait there.
	mixedLimit = 5 * time.Second
)

// mixWatch looks out for two MPIs in one group. Guarded by the controller's mu.
type mixWatch struct {
	clock *clock
	end   *ending
}

// mixture is what it knows of a group.
type mixture struct {
	looking bool      // a look is due or under way
	asked   int       // hosts that have yet to answer
	waits   []int     // ranks, as the others have
	since   time.Time // of the first look that found it; zero: the last has not
}

// begin begins to look out unless that goes on.
func (w *mixWatch) begin(g *group) {
	if !g.mix.looking && len(g.joins.behind(g.gone)) > 0 {
		g.mix.looking = true
		w.clock.after(mixedFirst, func() { w.look(g) })
	}
}

// look asks the hosts of a group, again and again.
func (w *mixWatch) look(g *group) {
	m := &g.mix
	if m.asked > 0 { // one hangs, or has gone meanwhile
		w.judge(g)
	}
	if w.end.told || len(g.joins.behind(g.gone)) == 0 {
		*m = mixture{}
		return
	}
	m.asked, m.waits = 0, nil
	for _, s := range g.seats {
		if !s.done {
			m.asked++
			s.Send(host.Command{Kind: host.WhoWaits})
		}
	}
	w.clock.after(mixedEvery, func() { w.look(g) })
}

// answered takes a host's answer.
func (w *mixWatch) answered(s *seat, ranks []int) {
	m := &s.group.mix
	m.waits = append(m.waits, ranks...)
	if m.asked--; m.asked == 0 {
		w.judge(s.group)
	}
}

// judge ends a job of two MPIs.
func (w *mixWatch) judge(g *group) {
	m := &g.mix
	behind := g.joins.behind(g.gone)
	one := slices.DeleteFunc(m.waits, func(rank int) bool { return !slices.Contains(behind, rank) })
	now := time.Now()
	switch {
	case len(one) == 0:
		m.since = time.Time{}
		return
	case m.since.IsZero():
		m.since = now
	}
	if w.end.job.StrictPMI || now.Sub(m.since) >= mixedLimit {
		w.end.fail(&Cause{Rank: -1, Status: statusFailed, Message: g.mixed(one)})
	}
}

// mixed says which ranks wait for which.
func (g *group) mixed(one []int) string {
	var other []int
	for rank, n := range g.joins.of {
		if n > g.joins.left[rank] {
			other = append(other, rank)
		}
	}
	return fmt.Sprintf("%s and %s wait for each other: those speak PMI-1, as programs of MPICH and of gorun do, these PMIx, as programs of Open MPI do, and different MPIs cannot be one job; "+
		"build all its programs with the same MPI, or start them as jobs of their own%s%s", g.named(one), g.named(other), g.libraryOf(one), g.libraryOf(other))
}

// named are ranks and what they run: "ranks 0-3 (solver)".
func (g *group) named(ranks []int) string {
	var programs []string
	for _, rank := range ranks {
		if name := g.apps[g.appOf[rank]].Argv[0]; !slices.Contains(programs, name) {
			programs = append(programs, name)
		}
	}
	what := "rank "
	if len(ranks) > 1 {
		what = "ranks "
	}
	text := what + cpuList(ranks) + " (" + strings.Join(programs, ", ") + ")"
	if g.id > 0 {
		text += fmt.Sprintf(" of spawn %d", g.id)
	}
	return text
}
