package soft

import (
	"sync"
	"sync/atomic"
	"time"
)

// progress runs what could not be executed at the post: at every poll, and,
// when there was no poll for a tick, on a goroutine that exists only while
// there is such work.
type progress struct {
	p     *Provider
	chaos chaos

	busy   atomic.Int32 // queue pairs with a backlog, and 1 while there are TCP links
	polled atomic.Bool  // there was a poll since the last tick

	turn    sync.Mutex   // held by the goroutine that advances; taken by TryLock only
	scratch []*queuePair // list, as it was at seen
	seen    uint32
	pace    pace

	mu      sync.Mutex // guards what follows; after any queue pair's mu
	list    []*queuePair
	changes atomic.Uint32 // of list
	running bool
	stopped bool
	ticks   *time.Timer // of idle dynamic connections
	ticking atomic.Bool // it goes; set with mu held
	quit    chan struct{}
	ended   sync.WaitGroup
}

const (
	tick       = time.Millisecond
	tickMost   = 8 * time.Millisecond // when nothing moves
	tickLinger = 4                    // ticks without work before the goroutine ends
)

func (w *progress) init(p *Provider) {
	w.p = p
	w.quit = make(chan struct{})
	w.chaos.init(p.cfg)
}

// wanted tells whether poll has anything to do.
func (w *progress) wanted() bool { return w.busy.Load() != 0 || w.p.called() }

// poll is the owner's progress.
func (w *progress) poll() bool {
	if !w.wanted() {
		return false
	}
	if !w.polled.Load() {
		w.polled.Store(true)
	}
	moved, _ := w.advance(false)
	return moved
}

// advance lets every queue pair with a backlog do what it can, unless another goroutine is at it:
// turn is false then.
func (w *progress) advance(alone bool) (moved, turn bool) {
	if !w.turn.TryLock() {
		return false, false
	}
	defer w.turn.Unlock()
	if !alone && w.p.called() {
		w.p.answerCall()
	}
	if w.changes.Load() != w.seen {
		w.mu.Lock()
		clear(w.scratch)
		w.scratch, w.seen = append(w.scratch[:0], w.list...), w.changes.Load()
		w.mu.Unlock()
	}
	qs := w.scratch
	w.chaos.shuffle(qs)
	for _, q := range qs {
		if !q.mu.TryLock() {
			continue
		}
		if alone && q.sq.waiting != accepted && q.peer != nil {
			q.peer.checkDead()
		}
		if q.advance() {
			moved = true
		}
		q.mu.Unlock()
	}
	if n := w.p.tcp.Load(); n != nil {
		if alone {
			any, looked := n.look(true)
			moved = moved || any
			if looked {
				w.time(qs)
			}
		} else if w.pace.due() {
			any, looked := n.poll()
			w.pace.looked(any)
			moved = moved || any
			if looked && !any && w.pace.clock() {
				w.time(qs)
			}
		}
	}
	return moved, true
}

// A pace says which polls look at the sockets, which costs a system call: all while
// something comes, and fewer the longer nothing has.
type pace struct {
	left   uint32 // polls until the next look
	misses uint32 // looks in a row that found nothing
}

const (
	paceHot   = 64 // looks in vain before polls are passed over, twice that before two are ...
	paceMost  = 8  // polls for each look, at most
	paceClock = 16 // looks in vain for each look at the ack timers
)

func (p *pace) due() bool {
	if p.left > 0 {
		p.left--
		return false
	}
	return true
}

func (p *pace) looked(moved bool) {
	if moved {
		*p = pace{}
		return
	}
	p.misses++
	p.left = min(p.misses/paceHot, paceMost-1)
}

// clock tells whether the look that was in vain is one behind which timers are looked at.
func (p *pace) clock() bool { return p.misses%paceClock == 0 || p.left == paceMost-1 }

// time looks at the ack timers of requests over TCP.
func (w *progress) time(qs []*queuePair) {
	var now time.Time
	for _, q := range qs {
		if !q.mu.TryLock() {
			continue
		}
		if q.wire.wired {
			if now.IsZero() {
				now = time.Now()
			}
			q.wire.overdue(now)
		}
		q.mu.Unlock()
	}
}

// add lists a queue pair that has a backlog. Called with its mu held.
func (w *progress) add(q *queuePair) {
	if q.sq.listed {
		return
	}
	q.sq.listed = true
	w.busy.Add(1)
	w.mu.Lock()
	w.list = append(w.list, q)
	w.changes.Add(1)
	if !w.running && !w.stopped {
		w.running = true
		w.ended.Add(1)
		go w.run()
	}
	w.mu.Unlock()
}

// done takes it from the list. Called with its mu held.
func (w *progress) done(q *queuePair) {
	if !q.sq.listed || q.sq.pending.n > 0 {
		return
	}
	q.sq.listed = false
	w.busy.Add(-1)
	w.mu.Lock()
	for i, have := range w.list {
		if have == q {
			last := len(w.list) - 1
			w.list[i], w.list[last] = w.list[last], nil
			w.list = w.list[:last]
			w.changes.Add(1)
			break
		}
	}
	w.mu.Unlock()
}

// run is the goroutine.
func (w *progress) run() {
	defer w.ended.Done()
	every := tick
	t := time.NewTimer(every)
	defer t.Stop()
	for idle := 0; ; {
		select {
		case <-t.C:
		case <-w.quit:
			return
		}
		if w.polled.Swap(false) {
			every = tick
		} else if moved, _ := w.advance(true); moved {
			every = tick
			// The program may be asleep over what has just completed.
			w.p.self.bell.Ring()
		} else if w.p.cfg.Adversary == nil { // whose next look may do it
			every = min(2*every, tickMost)
		}
		w.mu.Lock()
		if len(w.list) > 0 {
			idle = 0
		} else if idle++; idle > tickLinger {
			w.running = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		t.Reset(every)
	}
}

// stop ends the goroutine and waits for it.
func (w *progress) stop() {
	w.mu.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.quit)
		if w.ticks != nil && w.ticks.Stop() {
			w.ended.Done()
		}
	}
	w.mu.Unlock()
	w.ended.Wait()
}
