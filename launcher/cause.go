package launcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/endsignal"
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

// leaveTimes is how often the grace the ranks have that go on when one has left with status 0 and without
// MPI_Finalize, and since one has ended last: whether they wait for it, or have work to do, cannot be seen of an MPI that polls.
const leaveTimes = 5

// sameFailure is how long after a failure that does not end the job the report of
// another may come that explains it.
const sameFailure = 3 * time.Second

// openMPILost is MPI_ERR_UNKNOWN of Open MPI, with which 6.0 aborts when a connection to another host has ended ("An error
// occurred in Socket closed"). A process that ends closes its own before its host knows of its end. Its exit may be known before its abort.
const openMPILost = 14

// evidence is how much a failure says about what was first.
type evidence uint8

const (
	hearsay evidence = iota // a fence failed, because of a rank of another host, or Open MPI has lost a connection to one
	ownWord                 // a rank exited or aborted, as one that has lost a peer does
	byShell                 // the status of a shell whose program was killed by a signal, or SIGABRT
	death                   // a signal that nobody here sent, or the loss of a host's agent or PMIx helper
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

// ending decides what the cause of a job's failure is, and ends its ranks. Guarded
// by the controller's mu.
type ending struct {
	job    *Job
	clock  *clock
	worlds *worlds

	cause   *Cause
	causeAt time.Time     // when it became that
	suspect *Cause        // becomes the cause unless a better one comes
	start   *JobError     // why the ranks could not be started
	leaver  *Cause        // a rank that has left the others with status 0, before MPI_Finalize; nil: none has
	leavers int           // of them
	cut     string        // what of a rank still held output, after a rank had failed, and was killed; "": nothing
	away    *time.Timer   // ends the job when others go on
	told    bool          // the sites are ending their ranks
	held    bool          // they are not to begin yet: the ranks are looked at
	wished  time.Time     // when the user's first signal came; zero: none has
	deaf    []func()      // end sites that do not answer
	abandon chan struct{} // closed when output need not be waited for
	hurry   sync.Once
	hasten  func() // ends a look-up that the start waits for
}

// failed notes that a rank or a host has failed, which ends the job unless that
// is to go on.
func (e *ending) failed(cause *Cause) {
	if !e.job.Continuous || e.told {
		e.fail(cause)
		return
	}
	e.job.Log.Info("a failure, and the job goes on", "cause", cause.String())
	e.consider(cause)
}

// fail takes cause into account and ends the job.
//
// A suspect that is no hearsay explains another rank's exit, as does a rank that has left.
func (e *ending) fail(cause *Cause) {
	if s := e.suspect; s != nil && s.evidence() > hearsay && cause.Rank >= 0 && !cause.same(s) && cause.evidence() < death {
		cause = s
	}
	if l := e.leaver; l != nil && cause.Rank >= 0 && cause.evidence() < death {
		cause = l
	}
	e.consider(cause)
	if e.told || e.held {
		return
	}
	e.job.Log.Info("the job fails", "cause", e.cause.String())
	e.tell(host.Command{Kind: host.End, Signal: syscall.SIGTERM, Heed: e.cause.evidence() < outside})
}

// consider makes cause the job's if there is none yet, or if it explains that.
func (e *ending) consider(cause *Cause) {
	if was := e.cause; was != nil {
		if !cause.explains(was) || !e.told && time.Since(e.causeAt) > sameFailure {
			return // the second: the job has gone on since, so these are two failures
		}
		e.job.Log.Info("an earlier failure", "cause", cause.String())
	}
	e.cause, e.causeAt = cause, time.Now()
}

// explains tells whether another rank's failure, which was known before this one,
// came of it. The user and the timeout end ranks too, but those had ended by then.
func (c *Cause) explains(was *Cause) bool {
	return !c.same(was) && c.evidence() > was.evidence() && c.evidence() < outside
}

// suspectLater makes cause the job's if no better one comes for a while.
func (e *ending) suspectLater(cause *Cause, wait time.Duration) {
	if e.told {
		return
	}
	needless := cause.needless
	if e.suspect == nil || e.suspect.evidence() < cause.evidence() {
		e.suspect = cause
	}
	e.suspect.needless = e.suspect.needless && needless
	e.clock.after(wait, func() {
		if e.suspect != nil {
			e.fail(e.suspect)
		}
	})
}

// left judges a rank that has ended with status 0 and without MPI_Finalize. MPI asks for that, but a job whose ranks all
// end so has done its work. It has not if others wait for this one.
func (e *ending) left(cause *Cause) {
	if s := e.suspect; s != nil && s.needless && s.same(cause) {
		e.suspect = nil // its process has ended well
	}
	if e.leavers++; e.leaver != nil || e.told {
		if e.leaver == nil && e.cause != nil && e.cause.evidence() == hearsay {
			e.consider(cause)
		}
		return
	}
	if e.leaver = cause; !e.job.Continuous {
		e.away = e.clock.after(leaveTimes*e.job.grace(), e.goOn)
	}
}

// goOn ends a job in which ranks go on though one has left.
func (e *ending) goOn() {
	if n := e.worlds.running(); n > 0 && !e.told {
		e.leaver.Message += fmt.Sprintf(", and %d other%s still ran %v later (--grace TIME: a fifth of that)", n, map[bool]string{true: "s"}[n > 1], leaveTimes*e.job.grace())
		e.fail(e.leaver)
	}
}

// note is what the user is told of ranks that have left, when the job has ended well all the same.
func (e *ending) note() string {
	others := ""
	if e.leavers > 1 {
		others = fmt.Sprintf(", and so did %d more", e.leavers-1)
	}
	return strings.TrimPrefix(e.leaver.String(), "gorun: ") + ", which MPI asks for" + others + "; all ranks have ended with status 0, and none has waited for it, so the job has too"
}

// aborted judges a rank's call of MPI_Abort.
func (e *ending) aborted(s *seat, ev host.Event) {
	status := ev.Status & 0xff // 0 too: so do Open MPI's mpirun and MPICH's mpiexec, and a Fortran STOP of OpenCoarrays relies on it
	cause := s.cause(ev)
	cause.Status, cause.Aborted = status, true
	cause.elsewhere = s.lostConnection(ev.Rank, status)
	if ev.Status != status && cause.Message == "" {
		cause.Message = fmt.Sprintf("it gave %d", ev.Status)
	}
	e.fail(cause)
}

// violated judges a rank that has broken the rules of PMI.
func (e *ending) violated(s *seat, ev host.Event) {
	cause := s.cause(ev)
	cause.Status, cause.elsewhere = statusFailed, ev.Elsewhere
	switch {
	case !ev.Stuck && e.leaver != nil && s.group.left(ev.Rank):
		// Nobody waits for it.
	case !ev.Stuck && e.job.Continuous:
		e.failed(cause) // it left, and nobody needs it
	case ev.Late && ev.Stuck:
		e.suspectLater(cause, settle)
	case ev.Late:
		// Its connection has ended, and nobody waits for it: how its process ends says more. A shell may go on behind the program.
		cause.needless = true
		e.suspectLater(cause, leaveTimes*e.job.grace())
	default:
		e.fail(cause)
	}
}

// explain adds what a rank wrote last to the cause.
func (e *ending) explain(s *seat, ev host.Event) {
	for _, cause := range [...]*Cause{e.cause, e.suspect} {
		if cause != nil && cause.Group == s.group.id && s.has(cause.Rank) {
			cause.Stderr, cause.Reason = ev.Tails[cause.Rank], ev.Reasons[cause.Rank]
			return
		}
	}
}

// cancelled ends a job whose context has ended.
func (e *ending) cancelled(ctx context.Context) {
	e.giveUp(2 * e.job.grace())
	e.fail(&Cause{Rank: -1, Status: statusFailed, Message: context.Cause(ctx).Error()})
}

// interrupt ends the job with the user's signal; a second one kills at once (package endsignal).
func (e *ending) interrupt(sig syscall.Signal, now time.Time) {
	if !e.wished.IsZero() {
		if endsignal.Second(sig, now.Sub(e.wished)) {
			e.tell(host.Command{Kind: host.Kill})
			e.giveUp(settle)
		}
		return
	}
	e.wished = now
	e.giveUp(2 * e.job.grace())
	if e.told {
		e.worlds.tell(host.Command{Kind: host.Pass, Signal: sig})
		return
	}
	e.cause = &Cause{Rank: -1, Status: statusSignal + int(sig), Signal: sig}
	e.suspect = nil
	e.tell(host.Command{Kind: host.End, Signal: sig})
}

// tell has all sites end their ranks: cmd is End or Kill.
func (e *ending) tell(cmd host.Command) {
	if !e.told {
		e.told = true
		e.hasten()
		for _, deaf := range e.deaf {
			e.clock.after(2*e.job.grace(), deaf)
		}
	}
	e.worlds.tell(cmd)
}

// giveUp bounds how long output is waited for that nobody reads.
func (e *ending) giveUp(d time.Duration) {
	e.clock.after(d, func() {
		e.hurry.Do(func() {
			close(e.abandon)
			e.worlds.tell(host.Command{Kind: host.Discard})
		})
	})
}

func (job *Job) grace() time.Duration {
	if job.Grace > 0 {
		return job.Grace
	}
	return DefaultGrace
}
