package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// How long ranks have, at the timeout, to be looked at, and to write their stacks; and when nothing moves, which
// nobody is in a hurry to hear: hosts that get no CPU may answer late.
const (
	lookLimit   = settle
	tracesLimit = 2 * time.Second
	hangLimit   = 5 * time.Second
)

// survey asks the hosts what their ranks are doing: at the timeout, and when nothing
// moves. Guarded by the controller's mu.
type survey struct {
	job    *Job
	limit  time.Duration // the job's timeout, of which earlier attempts have taken their part
	clock  *clock
	worlds *worlds
	end    *ending
	watch  *watcher

	states  []RankState // at the timeout
	told    bool        // that nothing moves
	hunting bool        // the ranks are looked at for that
	hang    []RankState // what they are doing then
	left    int         // hosts that have not said so
	late    *time.Timer // calls tellHang though some are left

	lookups func() []RankState // ranks that wait for names
}

// timeout ends a job that takes too long.
func (v *survey) timeout() {
	cause := overtime(v.limit)
	for _, s := range v.lookups() {
		cause.Message += "; " + s.String()
	}
	if v.end.told || !v.job.ReportState && !v.job.StackTraces {
		v.end.giveUp(2 * v.job.grace())
		v.end.fail(cause)
		return
	}
	// The ranks live on until they were looked at.
	limit := lookLimit
	v.hunting = false
	if v.job.StackTraces {
		limit = tracesLimit
	}
	v.end.giveUp(limit + 2*v.job.grace())
	v.worlds.tell(host.Command{Kind: host.Look, Last: v.job.StackTraces})
	if v.end.cause == nil { // else a rank has failed before, and the others went on
		v.end.cause = cause
	}
	v.end.suspect, v.end.held = nil, true
	v.clock.after(limit, func() {
		v.end.held = false
		v.end.fail(cause)
	})
}

// overtime is the cause that the job's timeout is.
func overtime(limit time.Duration) *Cause {
	return &Cause{Rank: -1, Status: statusTimeout, Message: fmt.Sprintf("the job took longer than its timeout of %v", limit)}
}

// looked takes what the ranks of a host are doing.
func (v *survey) looked(s *seat, states map[int][]string) {
	list := &v.states
	if v.hunting {
		list = &v.hang
	}
	for rank, lines := range states {
		if s.has(rank) {
			*list = append(*list, RankState{Group: s.group.id, Rank: rank, Host: s.host(), Lines: lines})
		}
	}
	if v.hunting {
		if v.left--; v.left == 0 {
			v.tellHang()
		}
	}
}

// stalled tells what the ranks are doing when nothing moves on any host, once until
// something moves again.
func (v *survey) stalled() {
	runs := false // a rank
	for s := range v.worlds.seats() {
		if s.done || s.lingers {
			continue
		}
		if runs = true; !s.stalled {
			v.told = false
			return
		}
	}
	if !runs || v.told || v.hunting || v.end.told || v.end.held {
		return
	}
	v.told, v.hunting, v.hang, v.left = true, true, nil, 0
	for s := range v.worlds.seats() {
		if !s.done {
			v.left++
		}
	}
	v.worlds.tell(host.Command{Kind: host.Look})
	v.late = v.clock.after(hangLimit, v.tellHang)
}

// tellHang tells what the ranks are doing, as far as their hosts have said so.
func (v *survey) tellHang() {
	if !v.hunting {
		return
	}
	v.hunting = false
	v.late.Stop()
	v.hang = append(v.lookups(), v.hang...)
	sortStates(v.hang)
	text := fmt.Sprintf("nothing has moved for %v; the job goes on (--timeout ends one)", v.job.HangTimeout)
	for _, s := range v.hang {
		for _, line := range s.Lines {
			text += "\n" + s.who() + ": " + line
		}
	}
	v.watch.putWarning(text)
}

func sortStates(states []RankState) {
	slices.SortStableFunc(states, func(a, b RankState) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Rank, b.Rank))
	})
}
