package rma

import (
	"context"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// Post, Start, Complete and Wait count epochs, in words that one member writes and
// one reads:
//
//	target                             origin
//	Post: posted[target] of origins++
//	                                   Start: waits for posted of all targets
//	                                   accesses
//	Wait: waits for completed          Complete: flush, completed[origin] of targets++

// signal sets a word at a member and wakes it.
func (w *Window) signal(member, word int, v uint64) error {
	l := &w.remotes[member]
	if l.words == nil {
		return w.set(l, word, v)
	}
	// After all stores of the epoch; Notify has the barrier for a rank that sleeps.
	arch.StoreRelease64(&l.words[word], v)
	l.peer.Notify()
	return nil
}

// Post opens an exposure epoch for the origins (MPI_Win_post). The list belongs
// to the window until the epoch ends. An origin that cannot be reached does not
// keep the others waiting.
func (w *Window) Post(origins []int) (err error) {
	w.exposed = origins
	for _, o := range origins {
		l := &w.remotes[o]
		l.posted++
		if failed := w.signal(o, w.at.posted()+w.g.Rank, l.posted); failed != nil && err == nil {
			err = &MemberError{o, failed}
		}
	}
	return err
}

// Start opens an access epoch to the targets, when they have posted
// (MPI_Win_start). The list belongs to the window until the epoch ends.
func (w *Window) Start(ctx context.Context, targets []int) error {
	w.started = targets
	if err := w.until(ctx, forPosted, 0); err != nil {
		w.started = nil
		return err
	}
	for _, t := range targets {
		w.remotes[t].postedSeen++
	}
	return nil
}

// Complete ends the access epoch (MPI_Win_complete).
// When ctx ends before all accesses are complete, it stays open.
func (w *Window) Complete(ctx context.Context) (err error) {
	for _, t := range w.started {
		if failed := w.Flush(ctx, t); failed != nil && err == nil {
			if failed == ctx.Err() {
				return failed
			}
			err = &MemberError{t, failed}
		}
	}
	for _, t := range w.started {
		l := &w.remotes[t]
		l.completed++
		if failed := w.signal(t, w.at.completed()+w.g.Rank, l.completed); failed != nil && err == nil {
			err = &MemberError{t, failed}
		}
	}
	w.started = nil
	return err
}

// Wait ends the exposure epoch, when all origins have completed (MPI_Win_wait).
func (w *Window) Wait(ctx context.Context) error {
	if err := w.until(ctx, forCompleted, 0); err != nil {
		return err
	}
	w.endExposure()
	return nil
}

// Test is Wait if it need not wait (MPI_Win_test).
func (w *Window) Test() (done bool, err error) {
	if done, err = w.met(w.exposed, w.at.completed(), true); done {
		w.endExposure()
	}
	return done, err
}

func (w *Window) endExposure() {
	for _, o := range w.exposed {
		w.remotes[o].completedSeen++
	}
	w.exposed = nil
}

// met tells whether all members have counted their word one further than was
// seen. The error names one that has not and is dead.
func (w *Window) met(members []int, words int, looking bool) (ok bool, err error) {
	missing := false
	for _, m := range members {
		l := &w.remotes[m]
		seen := l.postedSeen
		if words == w.at.completed() {
			seen = l.completedSeen
		}
		// Acquire: what the member stored before is visible.
		if atomic.LoadUint64(&w.words[words+m]) > seen {
			continue
		}
		if !looking {
			return false, nil
		}
		if m != w.g.Rank {
			if err := w.e.cfg.Dead(l.world); err != nil {
				return false, &MemberError{m, err}
			}
		}
		missing = true // look after the others too
	}
	return !missing, nil
}
