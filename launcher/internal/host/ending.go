package host

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/topo"
)

// ending is how far the host has gone in ending its ranks.
type ending struct {
	*base
	output *output
	temp   tempFiles
	stage
}

// stage is how far that is.
type stage struct {
	heeds bool      // what ranks that have ended by themselves have left behind is left alone: see linger
	dead  bool      // the ranks were killed
	next  time.Time // when the next signal is due; zero: none
	kill  time.Time // when that is KILL

	// wished, since then: the ranks are to be ended with signal, when none of them is on its
	// way out, or after a while.
	wished bool
	since  time.Time
	signal syscall.Signal
}

// A failure that follows from another may be reported first, by another host. So a
// host that is told to end its ranks lets those end first that are doing so by
// themselves, for so long, or for busyLimit where they have yet to get a CPU, and looks
// whether they have so often. It usually finds none.
const (
	heedLimit = 100 * time.Millisecond
	busyLimit = 500 * time.Millisecond
	heedEvery = time.Millisecond
)

// endRanks ends the ranks with a signal, after those that are on their way out if
// they are to be heeded. While ranks are being started none is waited for.
func (e *ending) endRanks(sig syscall.Signal, heed bool) {
	if !heed || !e.complete || e.toEnd || e.leaving() == stays {
		e.begin(sig, heed)
		return
	}
	if !e.wished {
		e.wished, e.signal, e.since = true, sig, time.Now()
	}
}

// heedOnTime begins the ending that was put off.
func (e *ending) heedOnTime(now time.Time) {
	if !e.wished {
		return
	}
	if limits := [...]time.Duration{mayLeave: heedLimit, leaves: busyLimit}; now.Sub(e.since) >= limits[e.leaving()] {
		e.begin(e.signal, true)
	}
}

// A way is how far a process is on its way out.
type way int

const (
	stays    way = iota
	mayLeave     // a process below it has ended, and it sleeps all the same; or it runs, after one that it has waited for
	leaves       // it ends, or runs while a process below it has ended
)

// leaving is how far that rank is which is furthest.
func (e *ending) leaving() (found way) {
	for _, r := range e.up() {
		if !r.gone {
			found = max(found, wayOf(r.pid, looksDepth))
		}
	}
	return found
}

// wayOf is that of a process, whose program may be a process below it, as a shell's is. Connections of a
// process are closed before it is seen to have ended. Between the moment in which a shell has waited for its
// program and its own end nothing is seen but that it runs.
func wayOf(pid, depth int) (found way) {
	if exits(pid) {
		return leaves
	}
	if depth == 1 {
		return stays
	}
	children := childrenOf(pid)
	for _, child := range children {
		below := wayOf(child, depth-1)
		if p, ok := proc.Of(child); ok && p.Ended() && !runs(pid) {
			below = mayLeave
		}
		found = max(found, below)
	}
	if p, ok := proc.Of(pid); len(children) == 0 && ok && p.Parted && runs(pid) {
		found = mayLeave
	}
	return found
}

// runs tells whether a process has a CPU, or waits for one. It may do so as one that is about to sleep: while it
// waits for a child in wait4, which has gone from the list of its children before the call is over.
func runs(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	p, ok := proc.Read(dir + "/stat")
	if !ok || p.State != 'S' {
		return ok && p.State == 'R'
	}
	where, _ := os.ReadFile(dir + "/wchan")
	return string(where) == "0"
}

// exits tells whether all threads of a process have ended or cannot but end: nothing
// that is done to it now is why.
func exits(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	if !exiting(dir) {
		return false
	}
	tasks, _ := os.ReadDir(dir + "/task")
	return !slices.ContainsFunc(tasks, func(t os.DirEntry) bool { return !exiting(dir + "/task/" + t.Name()) })
}

// exiting tells it of the thread with a directory in /proc. One that has yet to see
// that its process ends has SIGKILL pending for itself, whatever the signal was.
func exiting(dir string) bool {
	p, ok := proc.Read(dir + "/stat")
	if !ok || p.Exiting() {
		return true // it may have been waited for
	}
	text, _ := os.ReadFile(dir + "/status")
	return killPending(string(text))
}

// killPending reads of a thread's status whether SIGKILL is pending for it. For its
// process (ShdPnd) it never is: the kernel gives it to each thread.
func killPending(status string) bool { return hasSignal(status, "SigPnd", syscall.SIGKILL) }

// hasSignal reads whether a set of signals of /proc/PID/status has one.
func hasSignal(status, set string, sig syscall.Signal) bool {
	_, text, _ := strings.Cut(status, "\n"+set+":\t")
	text, _, _ = strings.Cut(text, "\n")
	bits, _ := strconv.ParseUint(text, 16, 64)
	return bits&(1<<(sig-1)) != 0
}

// begin tells the ranks to end: with sig now, with TERM after half of the
// grace if that was another signal, with KILL after all of it. What ranks have started gets the same, but where a failure is heeded, since
// the last words of a rank that has failed may still be on their way through it.
func (e *ending) begin(sig syscall.Signal, heed bool) {
	if e.toEnd {
		return
	}
	e.noteLeaving()
	now := time.Now()
	e.toEnd, e.stage = true, stage{heeds: heed, next: now.Add(e.spec.Grace), kill: now.Add(e.spec.Grace)}
	if sig != syscall.SIGTERM {
		e.next = now.Add(e.spec.Grace / 2)
	}
	e.log("ranks are told to end with %v", sig)
	e.lookBeforeSignal()
	e.signalEnding(sig)
	e.signalEnding(syscall.SIGCONT) // one that is stopped could not act on it
	e.leaveRest()
}

// signalEnding signals the groups of the ranks that are to end.
func (e *ending) signalEnding(sig syscall.Signal) {
	for i, r := range e.up() {
		if !r.gone || !e.heeds {
			e.signalGroup(i, sig)
		}
	}
}

// leaveRest leaves the rest to the grace, when no rank is left to be ended and what they have left behind is heeded.
func (e *ending) leaveRest() {
	if e.running == 0 && e.complete && e.heeds {
		e.next = time.Time{}
		e.output.settle()
	}
}

// onTime sends the next signal when it is due.
func (e *ending) onTime(now time.Time) {
	switch {
	case e.next.IsZero() || now.Before(e.next):
	case now.Before(e.kill):
		e.next = e.kill
		e.signalEnding(syscall.SIGTERM)
	case e.running == 0:
		e.next = time.Time{}
		e.output.cutOutput()
	default:
		e.log("ranks are killed")
		e.next = time.Time{}
		e.lookBeforeSignal()
		e.signalEnding(syscall.SIGKILL)
		e.dead = !e.heeds
	}
}

// killNow kills the ranks and what they have started, and cuts the output.
func (e *ending) killNow() {
	if !e.toEnd {
		e.noteLeaving()
	}
	e.toEnd, e.stage = true, stage{dead: true}
	e.log("ranks are killed")
	e.lookBeforeSignal()
	e.killGroups()
	if e.running == 0 {
		e.output.cut()
	}
}

// noteLeaving notes which ranks end by themselves: it comes before the first signal
// to them.
func (e *ending) noteLeaving() {
	for _, r := range e.up() {
		r.leaves = !r.gone && exits(r.pid)
	}
}

// processEnded notes the end of a rank.
func (h *Host) processEnded(local int) {
	r := &h.ranks[local]
	if r.gone {
		return
	}
	how, err := ended(r.pid)
	text := ""
	switch {
	case errors.Is(err, unix.ECHILD):
		how.status, text = 1, "another part of this process has waited for it, so its exit status is not known"
	case err != nil:
		how.status, text = 1, err.Error()
	case !how.over:
		return
	}
	// What it said last, as an abort, was before its end.
	if h.server.port.door != nil && h.server.dials(local) && !r.heard {
		if !r.hearing {
			r.hearing = true
			h.unwatch(&r.pidfd)
			h.server.port.door.After(func() { h.mail.post(letter{local: local, heard: true}) })
		}
		return
	}
	if corrected, why := r.crashed(how); why != "" {
		how, text = corrected, why
	}
	h.running--
	h.unwatch(&r.pidfd)
	h.server.hearAll()
	for h.server.receive(local) {
	}
	if how.status == 0 {
		h.server.part(local)
	}
	r.joined, r.finalized = h.server.met(local)
	if r.gone, r.how = true, how; h.spec.Profile > 0 {
		r.goneAt = int64(sharedClock())
	}
	h.unwatch(&r.socket)
	h.server.unhold(r)
	if h.toEnd {
		h.segment.MarkDead(local)
	} else {
		h.segment.SetDead(local)
	}

	number := h.rankOf(local)
	e := Event{Kind: Ended, Rank: number, PID: r.pid, Status: how.status, Signal: how.signal, Text: text, Told: (h.toEnd || h.watcher.quitting) && !r.leaves}
	e.Joined, e.Finalized = h.server.met(local)
	if e.Finalized && !h.server.dials(local) && how.status == 128+int(unix.SIGPIPE) {
		e.Text = "ended with status 141 after MPI_Finalize; if it ran a second MPI program there, that one finds its launcher with --pmi-port"
		if h.spec.Hosting.PMIFD {
			e.Text = strings.Replace(e.Text, "with --pmi-port", "without --pmi-fd", 1)
		}
	}
	e.Spins = r.world == 0 && e.Joined && !e.Finalized && !h.server.engine(local).Shown(number)
	h.pmix.addTo(&e, r)
	if how.signal == syscall.SIGKILL && !e.Told {
		e.OOM = max(0, topo.OOMKills()-h.oom)
	}
	if how.core {
		e.Core, e.CoreFile = true, coreFile(r.pid, how.signal, h.appOf(local))
	}
	if !e.Told && (how.status != 0 || e.Joined && !e.Finalized) {
		r.bad = true
	}
	if e.Status == 0 {
		h.watcher.endedSingleton(local)
	}
	h.emit(e)
	h.server.leaveWorlds(local)
	if h.running == 0 && h.complete {
		h.allEnded()
	}
}

// mourn marks ranks of other hosts as dead where those of this one look. Of its own a host knows itself.
func (h *Host) mourn(ranks []int) {
	h.segment.SetDeadElsewhere(slices.DeleteFunc(ranks, func(rank int) bool { return h.spec.local(rank) >= 0 }))
}

// lastWords are the last lines that a rank has written to standard error; where it has
// crashed, the reason in a line and the lines of the report that say where.
func (r *rank) lastWords() (reason string, lines []string) {
	tail := r.pipes[Stderr].tail
	reason, lines, ends := tail.Crash()
	// A report may be of something that the program has gone on after. Python ends with
	// status 1, Go with 2 or by SIGABRT.
	crashed := r.how.status == 1 || r.how.status == 2 || r.how.signal == syscall.SIGABRT
	if ends && crashed || r.aborted && reason != "" {
		return reason, lines
	}
	return "", tail.Lines()
}

// allEnded is called once, when the last rank has ended and no more will start.
func (h *Host) allEnded() {
	h.server.closeWorlds()
	h.output.linger.since = time.Now()
	if h.ending.dead {
		h.output.cut()
	}
	h.ending.leaveRest()
}
