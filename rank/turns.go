package rank

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// turns are those of the program's calls where several goroutines make them
// (Config.Concurrent). One call is inside at a time, as without; the others wait for mu.
// Each blocking wait leaves between its polls, so that another call gets in, and its
// polls move everything on that is under way, whoever has started it:
//
//	goroutine A   Recv ... poll |         | poll: it is there
//	goroutine B                 | Send    |
//
// What a call keeps while it waits is its own: its condition, and the operands of a
// collective. What it keeps in the World is used between two of its waits only.
//
// As long as there is one call, as in a program that only may have several goroutines, its waits leave nothing.
type turns struct {
	*Turn      // above World.inside, which excludes the progress thread
	held  bool // the program's, which has locked it when it calls
	world *World
}

// A Turn is the lock of a program whose goroutines share more than their rank: Config.Turn.
type Turn struct {
	mu    sync.Mutex
	calls atomic.Int32 // that are inside, wait, or want to get in

	ringing sync.Mutex
	bells   []ringer // of the worlds that are open, whose lone calls sleep in their turn
}

// A ringer is a Sleeper that any thread of the process may wake.
type ringer interface{ Ring() }

// Lock begins the caller's turn.
func (t *Turn) Lock() {
	t.calls.Add(1)
	if t.mu.TryLock() {
		return
	}
	t.ringing.Lock()
	for _, b := range t.bells {
		b.Ring()
	}
	t.ringing.Unlock()
	t.mu.Lock()
}

// Unlock ends it.
func (t *Turn) Unlock() {
	t.calls.Add(-1)
	t.mu.Unlock()
}

// newTurns are the turns of w, and how long a call that is alone sleeps at most, 0: as any other.
func newTurns(w *World, of *Turn) (t *turns, most time.Duration) {
	t = &turns{Turn: of, held: of != nil, world: w}
	if of == nil {
		t.Turn = new(Turn)
	}
	bell, ok := w.watch.sleeper.(ringer)
	if !ok {
		return t, time.Millisecond
	}
	t.ringing.Lock()
	defer t.ringing.Unlock()
	t.bells = append(t.bells, bell)
	return t, 0
}

// close ends the ringing: the world's bell goes with its device.
func (t *turns) close() {
	t.ringing.Lock()
	defer t.ringing.Unlock()
	t.bells = slices.DeleteFunc(t.bells, func(b ringer) bool { return any(b) == any(t.world.watch.sleeper) })
}

// begin is that of a call.
func (t *turns) begin() {
	if !t.held {
		t.Lock()
	}
}

// end is that of a call.
func (t *turns) end() {
	if !t.held {
		t.Unlock()
	}
}

// Leave lets other calls in. The caller's own goes on.
func (t *turns) Leave() {
	t.calls.Add(1)
	if t.world.leave(); t.held {
		t.Unlock()
	}
}

// pass lets one of the other calls have a turn, if there may be any.
func (t *turns) pass() {
	if t == nil {
		return
	}
	t.Leave()
	runtime.Gosched()
	t.Enter(false)
}

// Alone tells whether there is no other call.
func (t *turns) Alone() bool { return t.calls.Load() == 1 }

// Enter goes on with a call that has left.
func (t *turns) Enter(slept bool) {
	w := t.world
	t.mu.Lock()
	if !atomic.CompareAndSwapUint32(&w.inside.by, busyNot, busyCall) {
		w.beside.takeOver() // from the progress thread
	}
	if w.beside != nil {
		w.beside.called = true
	}
	if slept {
		w.watch.sleeps++ // long enough to look after the peers
	}
}
