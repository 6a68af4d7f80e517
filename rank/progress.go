package rank

import (
	"context"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
)

// An advancer has traffic of its own that moves on when a call asks: a team with
// started collectives, a window.
type advancer interface {
	// Progress does what can be done without waiting and tells whether that was
	// anything. It may be called while the advancer itself runs a blocking call,
	// and does nothing then.
	Progress() bool
}

// activate adds traffic that every wait of the rank moves on; deactivate takes it
// out. Their owner calls them when the first operation starts and the last ends.
func (w *World) activate(a advancer) { w.active = append(w.active, a) }

func (w *World) deactivate(a advancer) {
	for i, o := range w.active {
		if o == a {
			w.active = append(w.active[:i], w.active[i+1:]...)
			return
		}
	}
}

// progress moves on all that is under way, without waiting: messages, started
// collectives, windows.
func (w *World) progress() {
	w.messages.Progress()
	w.progressOthers()
}

// progressBeside is progress on the progress thread, and tells whether anything moved on.
// Reductions by a function of the program are left to the program's calls.
func (w *World) progressBeside() (moved bool) {
	moved = w.messages.Progress()
	if len(w.heard) > 0 {
		w.serve()
	}
	if w.peers.HasMail() {
		w.mesh.Settle()
	}
	w.advancing = true
	defer w.advanced()
	for i := 0; i < len(w.active); i++ { // one that is done may take itself out
		if s, ok := w.active[i].(wait.Stepper); ok {
			did, _ := s.Step()
			moved = did || moved
		} else {
			moved = w.active[i].Progress() || moved
		}
	}
	return moved
}

// advanced is the end of an advance, by a panic too: the program may go on after one.
func (w *World) advanced() { w.advancing = false }

// progressOthers is progress without the messages: what their engine calls while
// it waits. An advancer that asks for progress in its turn gets none.
func (w *World) progressOthers() {
	if len(w.heard) > 0 {
		w.serve()
	}
	if w.peers.HasMail() {
		w.mesh.Settle()
	}
	if len(w.active) == 0 || w.advancing {
		return
	}
	w.advancing = true
	defer w.advanced()
	for i := 0; i < len(w.active); i++ { // one that is done may take itself out
		w.active[i].Progress()
	}
}

const (
	// vainLooks is how many calls that found nothing there are to one look at the clock.
	vainLooks = 8
	// lookEvery is how often a rank that only asks makes sure of its peers.
	lookEvery = 10 * time.Millisecond
)

// vain ends a call that has looked and found nothing. Programs make loops of such
// calls: other ranks on the CPU get their turn, and now and then the rank makes sure
// that its peers live, as one that waits does.
func (w *World) vain() {
	w.waiter.Pass()
	if w.looks++; w.looks%vainLooks != 0 {
		return
	}
	now := time.Now()
	if now.Sub(w.looked) < lookEvery {
		return
	}
	w.looked = now
	for peer := range w.size {
		_ = w.messages.Check(peer) // a dead one ends what concerns it, with the reason
	}
}

// waitFor waits until c is ready and moves on all that is under way meanwhile.
func (w *World) waitFor(ctx context.Context, c wait.Condition) error {
	return w.messages.WaitFor(ctx, c)
}

// waitInside is waitFor in which no call of another goroutine comes in. What it waits for
// must not need one.
func (w *World) waitInside(ctx context.Context, c wait.Condition) error {
	before := w.waiter.KeepTurn(true)
	err := w.waitFor(ctx, c)
	w.waiter.KeepTurn(before)
	return err
}
