package launcher

import (
	"cmp"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// A login that stands still may do so for long: where a network loses packets, TCP waits twice as long after each
// repetition that is lost as well. Another login does not wait for that. So a host from which nothing has come for secondAfter
// is logged in to once more, and the agent that answers first is taken.
//
//	first waits --secondAfter--> both wait --one answers--> it is the host's, the other one is killed
//	                              |      | the second ends
//	               the first ends |      v
//	                              v     the first waits, as if it had been alone
//	                     the second is the host's if its agent has greeted, else both end: ssh has found out
const (
	secondAfter = 10 * time.Second
	secondsMost = 4 // such logins in a group: many hosts that are late are short of something else
)

// logins are the agents of a host that have been started besides the one in remotes.links. Guarded by the controller's mu.
type logins struct {
	begin func(l *agent.Link) // gives an agent the host's work
	spare *agent.Link         // nil: none
	over  bool                // spare has ended, or was killed
}

// again logs in once more where nothing comes.
func (r *remotes) again() {
	after := cmp.Or(r.c.job.run.secondAfter, secondAfter)
	next := after
	for i, l := range r.links {
		if r.missing == 0 || r.c.end.told || r.g.off {
			return
		}
		login := &r.logins[i]
		if r.addresses[i] != "" || login.spare != nil || !l.Remote() || l.Reached() {
			continue
		}
		if left := after - l.Waits(); left > 0 {
			next = min(next, left)
			continue
		}
		r.passRelay(l, l.Waits())
		if ready := r.c.job.run.secondReady; r.seconds == secondsMost || ready != nil && !ready() {
			continue
		}
		second, err := r.c.job.startDirect(r.g.shares[i].Host)
		if err != nil {
			continue // the first may still come
		}
		r.c.job.Log.Info("nothing has come of the host, which is logged in to once more", "host", r.g.shares[i].Host, "after", rounded(l.Waits()))
		login.spare = second
		r.seconds++
		login.begin(second)
	}
	r.c.clock.after(next, r.again)
}

// waits is for how long a host's agents have not come on.
func (r *remotes) waits(at int) time.Duration {
	waits := r.links[at].Waits()
	if login := r.logins[at]; login.spare != nil && !login.over {
		waits = min(waits, login.spare.Waits())
	}
	return waits
}

// killAt ends the agents of a host.
func (r *remotes) killAt(at int) {
	r.links[at].Abandon()
	if spare := r.logins[at].spare; spare != nil {
		spare.Abandon()
	}
}

// take makes l the agent of its host, whatever the other one does. The caller holds the lock.
func (r *remotes) take(at int, l *agent.Link) {
	login := &r.logins[at]
	if login.spare == nil || login.over {
		return
	}
	if l == login.spare {
		login.spare, r.links[at] = r.links[at], l
		r.g.seats[at].site = l
		if r.c.end.told {
			l.Kill() // it has not heard of that
		}
	}
	login.over = true
	login.spare.Kill()
}

// isOther tells whether what an agent says means nothing, since another one is its host's, or may still be. ended: it has
// ended. Whatever else it says makes it its host's: before its address that is why it has none.
func (r *remotes) isOther(at int, l *agent.Link, ended bool) bool {
	elsewhere := ended && r.c.job.isElsewhere(l)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	login := &r.logins[at]
	if login.spare == nil || login.over {
		return l == login.spare
	}
	if !ended || l != login.spare && !login.spare.Reached() && !elsewhere {
		r.take(at, l)
		return false
	}
	other := login.spare
	if l == other {
		other = r.links[at]
	}
	r.take(at, other)
	return true
}
