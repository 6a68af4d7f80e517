package rank

import (
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
	mu    sync.Mutex // above World.busy, which excludes the progress thread
	world *World
	calls atomic.Int32 // that are inside, wait, or want to get in
}

// loneSleep is how long a call that is alone sleeps at most, for another one does not wake it.
const loneSleep = time.Millisecond

// begin is that of a call.
func (t *turns) begin() {
	t.calls.Add(1)
	t.mu.Lock()
}

// end is that of a call.
func (t *turns) end() {
	t.calls.Add(-1)
	t.mu.Unlock()
}

// Leave lets other calls in. The caller's own goes on.
func (t *turns) Leave() {
	t.calls.Add(1)
	t.world.leave()
}

// Alone tells whether there is no other call.
func (t *turns) Alone() bool { return t.calls.Load() == 1 }

// Enter goes on with a call that has left.
func (t *turns) Enter(slept bool) {
	w := t.world
	t.mu.Lock()
	if !atomic.CompareAndSwapUint32(&w.busy, busyNot, busyCall) {
		w.takeOver() // from the progress thread
	}
	if w.beside != nil {
		w.beside.called = true
	}
	if slept {
		w.watch.sleeps++ // long enough to look after the peers
	}
}

// beginMaking begins a call that makes a communicator, and endMaking ends it. One does at a
// time: the ranks agree in it on a number that no other communicator has.
func (w *World) beginMaking() error {
	if w.making {
		return ErrConcurrent
	}
	w.making = true
	return nil
}

func (w *World) endMaking() { w.making = false }
