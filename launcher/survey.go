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

// survey asks the hosts what their ranks are doing: at the timeout, when nothing
// moves, and for a Look. Guarded by the controller's mu.
type survey struct {
	job    *Job
	limit  time.Duration // the job's timeout, of which earlier attempts have taken their part
	clock  *clock
	worlds *worlds
	end    *ending
	watch  *watcher

	looks []*look     // that some hosts have not answered
	last  *look       // at the timeout; nil: that has not come
	told  bool        // that nothing moves
	hang  *look       // the ranks are looked at for that
	late  *time.Timer // calls tellHang though some have not answered

	lookups func() []RankState // ranks that wait for names
}

// A look is what the ranks are doing at a time, as far as their hosts have answered.
type look struct {
	waits  map[*seat]bool // for the answer of these
	states []RankState
	then   func() // is called when all have answered; nil: nothing is
}

// look asks all hosts. traces: Go programs are made to write their stacks, which ends them.
func (v *survey) look(traces bool, then func()) *look {
	l := &look{waits: make(map[*seat]bool), then: then}
	for s := range v.worlds.seats() {
		if !s.done {
			l.waits[s] = true
		}
	}
	v.looks = append(v.looks, l)
	v.worlds.tell(host.Command{Kind: host.Look, Last: traces})
	return l
}

// Look is what a job is sent in place of a signal, by Job.Signals or [Handle.Signal]: what the ranks are doing then is sent to it, once and
// only if it has room at once. Nothing is sent before the ranks are started, nor after their end.
type Look chan<- []RankState

// Signal makes it an os.Signal.
func (Look) Signal() {}

// String makes it an os.Signal.
func (Look) String() string { return "look at the ranks" }

// visit serves one.
func (v *survey) visit(reply Look) {
	var l *look
	l = v.look(false, func() {
		states := append(v.lookups(), l.states...)
		sortStates(states)
		select {
		case reply <- states:
		default: // nobody waits for it any more
		}
	})
	v.answered(nil)
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
	v.hang = nil
	if v.job.StackTraces {
		limit = tracesLimit
	}
	v.end.giveUp(limit + 2*v.job.grace())
	v.last = v.look(v.job.StackTraces, nil)
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
func (v *survey) looked(s *seat, e host.Event) {
	var states []RankState
	for rank, lines := range e.Tails {
		if s.has(rank) {
			states = append(states, RankState{Group: s.group.id, Rank: rank, Host: s.host(), Lines: lines})
		}
	}
	for _, u := range e.Samples {
		if at := slices.IndexFunc(states, func(state RankState) bool { return state.Rank == u.Rank }); at >= 0 {
			states[at].CPU, states[at].RSS, states[at].Calls = u.CPU, u.RSS, u.Calls
		}
	}
	for _, l := range v.looks {
		if l.waits[s] {
			l.states = append(l.states, states...)
		}
	}
	v.answered(s)
}

// answered is told of a seat that has, or has ended.
func (v *survey) answered(s *seat) {
	var over []*look
	v.looks = slices.DeleteFunc(v.looks, func(l *look) bool {
		delete(l.waits, s)
		if len(l.waits) == 0 {
			over = append(over, l)
		}
		return len(l.waits) == 0
	})
	for _, l := range over {
		if l.then != nil {
			l.then()
		}
	}
}

// report is what was seen at the timeout.
func (v *survey) report() []RankState {
	if v.last == nil {
		return nil
	}
	sortStates(v.last.states)
	return v.last.states
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
	if !runs || v.told || v.hang != nil || v.end.told || v.end.held {
		return
	}
	v.told = true
	v.hang = v.look(false, v.tellHang)
	v.late = v.clock.after(hangLimit, v.tellHang)
}

// tellHang tells what the ranks are doing, as far as their hosts have said so.
func (v *survey) tellHang() {
	if v.hang == nil {
		return
	}
	v.late.Stop()
	states := append(v.lookups(), v.hang.states...)
	v.hang = nil
	sortStates(states)
	text := fmt.Sprintf("nothing has moved for %v; the job goes on (--timeout ends one)", v.job.HangTimeout)
	for _, s := range states {
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
