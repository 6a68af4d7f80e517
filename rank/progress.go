package rank

import (
	"context"
	"slices"
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

// traffic is what every wait of a rank moves on, beside its messages.
type traffic struct {
	active    []advancer
	advancing bool // in their Progress
}

// add adds traffic, and remove takes it out. Its owner calls them when the first operation
// starts and the last ends.
func (t *traffic) add(a advancer) { t.active = append(t.active, a) }

func (t *traffic) remove(a advancer) {
	t.active = slices.DeleteFunc(t.active, func(o advancer) bool { return o == a })
}

// advance moves it on. An advancer that asks for progress in its turn gets none.
func (t *traffic) advance() {
	if len(t.active) == 0 || t.advancing {
		return
	}
	t.advancing = true
	defer t.advanced()
	for i := 0; i < len(t.active); i++ { // one that is done may take itself out
		t.active[i].Progress()
	}
}

// step is advance on the progress thread, and tells whether anything moved on.
func (t *traffic) step() (moved bool) {
	t.advancing = true
	defer t.advanced()
	for i := 0; i < len(t.active); i++ {
		if s, ok := t.active[i].(wait.Stepper); ok {
			did, _ := s.Step()
			moved = did || moved
		} else {
			moved = t.active[i].Progress() || moved
		}
	}
	return moved
}

// advanced is the end of an advance, by a panic too: the program may go on after one.
func (t *traffic) advanced() { t.advancing = false }

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
	w.progressPeers()
	return w.traffic.step() || moved
}

// progressOthers is progress without the messages: what their engine calls while
// it waits.
func (w *World) progressOthers() {
	w.progressPeers()
	w.traffic.advance()
}

// progressPeers answers what other ranks have told, and sends what waited for a connection.
func (w *World) progressPeers() {
	if len(w.news.heard) > 0 {
		w.serve()
	}
	if w.peers.HasMail() {
		w.mesh.Settle()
	}
}

const (
	// vainLooks is how many calls that found nothing there are to one look at the clock.
	vainLooks = 8
	// lookEvery is how often a rank that only asks makes sure of its peers.
	lookEvery = 10 * time.Millisecond
)

// looks are those of calls that found nothing.
type looks struct {
	number uint
	last   time.Time // at the peers
}

// vain ends a call that has looked and found nothing. Programs make loops of such
// calls: other ranks on the CPU get their turn, and now and then the rank makes sure
// that its peers live, as one that waits does.
func (w *World) vain() {
	w.waiter.Pass()
	l := &w.looks
	if l.number++; l.number%vainLooks != 0 {
		return
	}
	now := time.Now()
	if now.Sub(l.last) < lookEvery {
		return
	}
	l.last = now
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
