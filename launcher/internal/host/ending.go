package host

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// ending is how far the host has gone in ending its ranks.
type ending struct {
	begun bool
	next  time.Time // when the next signal is due; zero: none
	kill  time.Time // when that is KILL
}

// beginEnding tells the ranks to end: with sig now, with TERM after half of the
// grace if that was another signal, with KILL after all of it.
func (h *Host) beginEnding(sig syscall.Signal) {
	if h.ending.begun {
		return
	}
	now := time.Now()
	h.ending = ending{begun: true, next: now.Add(h.spec.Grace), kill: now.Add(h.spec.Grace)}
	if sig != syscall.SIGTERM {
		h.ending.next = now.Add(h.spec.Grace / 2)
	}
	h.log("ranks are told to end with %v", sig)
	h.lookBeforeSignal()
	h.signalGroups(sig)
	h.signalGroups(syscall.SIGCONT) // one that is stopped could not act on it
}

// endingOnTime sends the next signal when it is due.
func (h *Host) endingOnTime(now time.Time) {
	e := &h.ending
	switch {
	case e.next.IsZero() || now.Before(e.next):
	case now.Before(e.kill):
		e.next = e.kill
		h.signalGroups(syscall.SIGTERM)
	default:
		h.killNow()
	}
}

func (h *Host) killNow() {
	h.ending.begun = true
	h.ending.next = time.Time{}
	h.log("ranks are killed")
	h.lookBeforeSignal()
	h.killGroups()
}

// signalGroups signals the groups of all ranks, also of those that have ended:
// what they left in the background belongs to the job.
func (h *Host) signalGroups(sig syscall.Signal) {
	for _, r := range h.up() {
		// That a group holds nothing but its ended leader is no failure, and
		// neither is a member that has become another user.
		_ = unix.Kill(-r.pid, sig)
	}
}

// signalRanks signals the groups of some of the ranks.
func (h *Host) signalRanks(sig syscall.Signal, ranks []int) {
	for i, r := range h.up() {
		if slices.Contains(ranks, h.rankOf(i)) {
			_ = unix.Kill(-r.pid, sig) // as for all
		}
	}
}

func (h *Host) killGroups() { h.signalGroups(syscall.SIGKILL) }

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
		how.status, text = 1, "somebody else in this process has waited for it, so its exit status is not known"
	case err != nil:
		how.status, text = 1, err.Error()
	case !how.over:
		return
	}
	h.running--
	h.unwatch(&r.pidfd)
	// What it said last, as an abort, was before its end.
	h.hearAll()
	for h.receive(local) {
	}
	r.joined, r.finalized = h.met(local)
	r.gone = true
	h.unwatch(&r.socket)
	h.unhold(r)
	h.segment.SetDead(local)

	number := h.rankOf(local)
	e := Event{Kind: Ended, Rank: number, PID: r.pid, Status: how.status, Signal: how.signal, Text: text, Told: h.ending.begun || h.quitting}
	e.Joined, e.Finalized = h.met(local)
	if e.Finalized && !h.dials(local) && how.status == 128+int(unix.SIGPIPE) {
		e.Text = "ended with status 141 after MPI_Finalize; if it ran a second MPI program there, that one finds its launcher with --pmi-port"
		if h.spec.PMIFD {
			e.Text = strings.Replace(e.Text, "with --pmi-port", "without --pmi-fd", 1)
		}
	}
	h.addPMIx(&e, r)
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
		h.endedAlone(local)
	}
	h.emit(e)
	h.leaveWorlds(local)
	if h.running == 0 && h.complete {
		h.allEnded()
	}
}

// allEnded is called once, when the last rank has ended and no more will start:
// what they left behind is killed, and there is nothing to guard any more.
func (h *Host) allEnded() {
	h.killGroups()
	h.closeWorlds()
	if !h.abandoned && (h.pmix == nil || h.pmix.Idle()) && h.left.files == nil && h.removeEmpty() {
		h.guard.Release()
	}
	h.count()
}
