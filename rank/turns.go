package rank

import (
	"sync"
	"sync/atomic"
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
type turns struct {
	mu    sync.Mutex // above World.busy, which excludes the progress thread
	world *World
}

// Leave lets other calls in.
func (t *turns) Leave() { t.world.leave() }

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
