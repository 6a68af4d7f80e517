package launcher

import (
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// One failure has others follow: a rank dies, and ranks that talk with it see a
// broken connection and exit or abort. On several hosts the news of these travel
// on different ways, so the order in which they come says little. What decides is,
// in this order:
//
//  1. Whether a failure came before this job told its ranks to end. The rank's host
//     knows: it looks at its ranks before it sends them the first signal, and says
//     of one that was on its way out that it was not told (host.Event.Told).
//  2. The weight of the evidence: see [evidence].
//  3. Which failure was reported first.
//
// Nothing waits for the decision: ranks are told to end at the first failure. The
// cause may change while they end, until all hosts are done, and is shown then.
// Only where the job goes on after a failure (sameFailure), or a rank waits for one
// that has left (settle), is there a time.

// settle is how long a failure that may be another one's consequence waits for
// that other one to be known.
const settle = 300 * time.Millisecond

// sameFailure is how long after a failure that does not end the job the report of
// another may come that explains it.
const sameFailure = 3 * time.Second

// evidence is how much a failure says about what was first.
type evidence uint8

const (
	hearsay evidence = iota // a fence failed, because of a rank of another host
	ownWord                 // a rank exited or aborted, as one that has lost a peer does
	byShell                 // the status of a shell whose program was killed by a signal, or SIGABRT
	death                   // a signal that nobody here sent, or the loss of a host's agent
	outside                 // the user, the timeout, gorun itself: no rank's failure explains it
)

// evidence weighs a cause. SIGPIPE comes of a peer's end, and SIGABRT may: a
// library calls abort when it has lost a connection.
func (c *Cause) evidence() evidence {
	switch {
	case c.lost:
		return death
	case c.elsewhere:
		return hearsay
	case c.Rank < 0 && c.Host == "":
		return outside
	case c.Rank < 0 || c.Aborted || c.Signal == syscall.SIGPIPE:
		return ownWord
	case c.Signal == syscall.SIGABRT:
		return byShell
	case c.Signal != 0:
		return death
	}
	switch c.Status {
	case statusSignal + int(syscall.SIGPIPE):
		return ownWord
	case statusSignal + int(syscall.SIGKILL), statusSignal + int(syscall.SIGSEGV), statusSignal + int(syscall.SIGABRT),
		statusSignal + int(syscall.SIGBUS), statusSignal + int(syscall.SIGFPE), statusSignal + int(syscall.SIGILL),
		statusSignal + int(syscall.SIGTERM), statusSignal + int(syscall.SIGINT), statusSignal + int(syscall.SIGXCPU):
		return byShell
	}
	return ownWord
}

// failed notes that a rank or a host has failed, which ends the job unless that
// is to go on.
func (c *controller) failed(cause *Cause) {
	if !c.job.Continuous || c.told {
		c.fail(cause)
		return
	}
	c.job.Log.Info("a failure, and the job goes on", "cause", cause.String())
	c.consider(cause)
}

// fail takes cause into account and ends the job.
//
// A suspect that is no hearsay explains another rank's exit.
func (c *controller) fail(cause *Cause) {
	if s := c.suspect; s != nil && s.evidence() > hearsay && cause.Rank >= 0 && !cause.same(s) && cause.evidence() < death {
		cause = s
	}
	c.consider(cause)
	if c.told || c.looking {
		return
	}
	c.job.Log.Info("the job fails", "cause", c.cause.String())
	c.tell(host.Command{Kind: host.End, Signal: syscall.SIGTERM, Heed: c.cause.evidence() < outside})
}

// consider makes cause the job's if there is none yet, or if it explains that.
func (c *controller) consider(cause *Cause) {
	if was := c.cause; was != nil {
		if !cause.explains(was) || !c.told && time.Since(c.causeAt) > sameFailure {
			return // the second: the job has gone on since, so these are two failures
		}
		c.job.Log.Info("an earlier failure", "cause", cause.String())
	}
	c.cause, c.causeAt = cause, time.Now()
}

// explains tells whether another rank's failure, which was known before this one,
// came of it. The user and the timeout end ranks too, but those had ended by then.
func (c *Cause) explains(was *Cause) bool {
	return !c.same(was) && c.evidence() > was.evidence() && c.evidence() < outside
}

// suspectLocked makes cause the job's if no better one comes soon.
func (c *controller) suspectLocked(cause *Cause) {
	switch {
	case c.told || c.suspect != nil && c.suspect.evidence() >= cause.evidence():
		return
	case c.suspect != nil:
		c.suspect = cause // the time of the first goes on
		return
	}
	c.suspect = cause
	c.after(settle, func() {
		if c.suspect != nil {
			c.fail(c.suspect)
		}
	})
}
