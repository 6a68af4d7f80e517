package soft

import (
	"sync"
	"sync/atomic"
	"time"
)

// A watch looks after completion and shared queues for those that wait for
// events without polling, on a goroutine that exists while there is one.
// Initiators ring the owner's alarm when they have something to tell it; in
// between the goroutine sleeps, at most watchMost at a time.
type watch struct {
	p *Provider

	mu      sync.Mutex // guards what follows
	waiters int
	running bool
	stopped bool
	ended   sync.WaitGroup
}

// enter and leave bracket a wait.
func (w *watch) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters++
	if !w.running && !w.stopped {
		w.running = true
		w.ended.Add(1)
		go w.run()
	}
}

func (w *watch) leave() {
	w.mu.Lock()
	w.waiters--
	last := w.waiters == 0
	w.mu.Unlock()
	if last {
		w.p.self.alarm.Ring()
	}
}

// Its sleeps grow from watchLeast to watchMost while nothing rings.
const (
	watchLeast = 10 * time.Millisecond
	watchMost  = 80 * time.Millisecond
)

func (w *watch) run() {
	defer w.ended.Done()
	alarm := w.p.self.alarm
	sleep := watchLeast
	for {
		// Behind it every initiator has passed a barrier: the look sees what
		// initiators completed before it, and an initiator that completes after it
		// sees that it has to ring.
		alarm.Prepare()
		w.mu.Lock()
		if w.waiters == 0 || w.stopped {
			w.running = false
			w.mu.Unlock()
			alarm.Cancel()
			return
		}
		w.mu.Unlock()
		w.p.look()
		if alarm.Sleep(int64(sleep)) {
			sleep = watchLeast
		} else {
			sleep = min(2*sleep, watchMost)
		}
	}
}

// look takes in everything that initiators have done.
func (p *Provider) look() {
	if p.called() {
		p.answerCall()
	}
	p.mu.Lock()
	completions, shared := p.head.touched.completions, p.head.touched.shared
	p.mu.Unlock()
	for i := range min(completions, uint32(len(p.cqs))) {
		if atomic.LoadUint32(&p.cqs[i].attention) == 0 {
			continue
		}
		if c := p.byCQ.get(i); c != nil {
			c.look()
		}
	}
	for i := range min(shared, uint32(len(p.shared))) {
		if h := p.byShared.get(i); h != nil && h.api != nil {
			h.api.limited()
			if h.tags != nil {
				h.tags.patrol()
			}
		}
	}
}

// again makes the goroutine look once more, with a barrier before.
func (w *watch) again() { w.p.self.alarm.Ring() }

func (w *watch) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.again()
	w.ended.Wait()
}
