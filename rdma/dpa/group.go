package dpa

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A ThreadGroup is some device threads of a Context that run kernels together, one launch after the other.
//
// The life of a launch: Launch queues it. When the one before is over, publish makes it the group's
// current one and wakes the threads, of which each waits for the wait event, calls the kernel
// and leaves. The last to leave finishes the launch: it tells the completion event and
// publishes the next launch. stop ends a launch early: waits of its threads end, and after the grace
// giveUp leaves in place of those that have not returned. A thread leaves a launch once, by
// itself or given up, whichever comes first (deviceThread.left).
type ThreadGroup struct {
	ctx       *Context
	bell      bell          // rung at each change of published and ended
	published atomic.Uint64 // how many launches were; the last of them is current
	ended     atomic.Bool
	current   atomic.Pointer[launch] // nil: none

	mu      sync.Mutex // guards what follows, and launches
	threads []*deviceThread
	queue   []*launch // behind the current one
	spare   *launch   // to be used again, so that steady state allocates nothing
	stuck   []string  // threads that were given up
}

// NumThreads is the number of threads of the group.
func (g *ThreadGroup) NumThreads() int { return len(g.threads) }

// Launch queues a kernel for all threads of the group, and returns at once. An error means that nothing was queued.
func (g *ThreadGroup) Launch(l Launch) error { return g.add(l, nil) }

func (g *ThreadGroup) add(what Launch, call *rpc) error {
	if err := what.validate(g); err != nil {
		return err
	}
	if what.Deadline == 0 && what.On == nil {
		what.Deadline = g.ctx.cfg.MaxRunTime
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended.Load() {
		return &rdma.OpError{Op: "dpa launch", Err: ErrClosed}
	}
	l := g.spare
	if l == nil {
		l = &launch{}
	}
	g.spare = nil
	l.Launch, l.rpc = what, call
	if g.current.Load() != nil {
		g.queue = append(g.queue, l)
	} else {
		g.publish(l)
	}
	return nil
}

// publish makes a launch the current one. Called with mu held.
func (g *ThreadGroup) publish(l *launch) {
	l.seq = g.published.Load() + 1
	l.left.Store(int32(len(g.threads)))
	g.current.Store(l)
	g.published.Store(l.seq)
	g.bell.ring()
}

// RPC runs f on the first thread of the group and returns its result (doca_dpa_rpc). It waits for the launches before it.
// When ctx ends, f's waits end, and RPC returns when f has, or its thread was given up. An error is a [*KernelError].
func (g *ThreadGroup) RPC(ctx context.Context, f func(t *Thread) (uint64, error)) (uint64, error) {
	var value atomic.Uint64
	call := &rpc{done: make(chan struct{})}
	err := g.add(Launch{Name: "RPC", Kernel: func(t *Thread) error {
		if t.Rank() != 0 {
			return nil
		}
		v, err := f(t)
		value.Store(v)
		return err
	}}, call)
	if err != nil {
		return 0, err
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		g.cancel(call, context.Cause(ctx))
		<-call.done
	}
	if call.err != nil {
		return 0, call.err
	}
	return value.Load(), nil
}

// cancel ends an RPC, wherever it is.
func (g *ThreadGroup) cancel(call *rpc, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.current.Load(); l != nil && l.rpc == call {
		g.stop(l, g.threads[0], &KernelError{Err: why})
		return
	}
	for i, l := range g.queue {
		if l.rpc == call {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			g.fail(l, &KernelError{Kernel: l.name(), Thread: g.threads[0].name(), Err: why})
			return
		}
	}
}

// begin is called by each thread whose wait for the launch's event is over.
func (g *ThreadGroup) begin(l *launch) {
	g.ctx.counts.runs.Add(1)
	if l.Deadline == 0 || !l.begun.CompareAndSwap(false, true) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if seq := l.seq; l.failed == nil {
		l.timer = time.AfterFunc(l.Deadline, func() { g.expire(l, seq) })
	}
}

// expire is a launch's deadline.
func (g *ThreadGroup) expire(l *launch, seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current.Load() != l || l.seq != seq || l.failed != nil {
		return
	}
	if d := g.firstIn(l); d != nil {
		g.stop(l, d, &KernelError{Err: ErrDeadline, Stack: g.stacks(l)})
	}
}

// leave is a thread's end of the launch seq, by itself; false: it was given up.
func (g *ThreadGroup) leave(d *deviceThread, l *launch, seq uint64, failed *KernelError) bool {
	if !d.left.CompareAndSwap(seq-1, seq) {
		return false
	}
	if failed != nil {
		g.mu.Lock()
		g.stop(l, d, failed)
		g.mu.Unlock()
	}
	if l.left.Add(-1) == 0 {
		g.mu.Lock()
		g.finish(l)
		g.mu.Unlock()
	}
	return true
}

// stop fails a launch: the waits of its kernels end, and those that do not return within the grace
// are given up. Only the first failure counts. Called with mu held, for the current launch.
func (g *ThreadGroup) stop(l *launch, d *deviceThread, failed *KernelError) {
	if l.failed != nil {
		return
	}
	failed.Kernel, failed.Rank, failed.Thread = l.name(), d.rank, d.name()
	l.failed = failed
	why := failed.Err
	if why == nil {
		why = failed // a panic
	}
	l.over.Store(&why)
	seq := l.seq
	l.grace = time.AfterFunc(g.ctx.cfg.Grace, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.current.Load() == l && l.seq == seq {
			g.giveUp(l)
		}
	})
}

// giveUp leaves a launch in place of the threads that have not. Called with mu held.
func (g *ThreadGroup) giveUp(l *launch) {
	for _, d := range g.threads {
		if !d.left.CompareAndSwap(l.seq-1, l.seq) {
			continue
		}
		l.failed.GivenUp = append(l.failed.GivenUp, d.name())
		g.stuck = append(g.stuck, d.name())
		g.ctx.counts.givenUp.Add(1)
		g.replace(d, l.seq)
		if l.left.Add(-1) == 0 {
			g.finish(l)
		}
	}
}

// replace puts a new thread on a seat, which has the launches up to seq behind it. Called with mu held.
func (g *ThreadGroup) replace(d *deviceThread, seq uint64) {
	next := newThread(g, d.rank, d.number, seq)
	g.threads[d.rank] = next
	close(d.replaced)
	next.start()
}

// finish ends the current launch, which all threads have left, and begins the next. Called with mu held.
func (g *ThreadGroup) finish(l *launch) {
	for _, t := range [...]*time.Timer{l.timer, l.grace} {
		if t != nil {
			t.Stop()
		}
	}
	if l.failed != nil {
		g.fail(l, l.failed)
	} else {
		g.ctx.counts.launches.Add(1)
		if l.Complete != nil {
			l.Complete.store(l.Value, l.Add)
		}
		if l.rpc != nil {
			close(l.rpc.done)
		}
		*l = launch{}
		g.spare = l
	}
	g.current.Store(nil)
	if len(g.queue) > 0 {
		next := g.queue[0]
		copy(g.queue, g.queue[1:])
		g.queue = g.queue[:len(g.queue)-1]
		g.publish(next)
	}
}

// fail tells of a launch that has failed. Called with mu held.
func (g *ThreadGroup) fail(l *launch, failed *KernelError) {
	g.ctx.counts.launches.Add(1)
	g.ctx.counts.failed.Add(1)
	var err error = failed
	g.ctx.lastErr.Store(&err)
	if l.Complete != nil {
		l.Complete.fail(err)
	}
	if l.rpc != nil {
		l.rpc.err = err
		close(l.rpc.done)
	}
}

// firstIn is the first thread that has not left a launch; nil: all have.
func (g *ThreadGroup) firstIn(l *launch) *deviceThread {
	for _, d := range g.threads {
		if d.left.Load() != l.seq {
			return d
		}
	}
	return nil
}

// stacks are the stacks of the threads that have not left a launch.
func (g *ThreadGroup) stacks(l *launch) string {
	all := allStacks()
	var b strings.Builder
	for _, d := range g.threads {
		if d.left.Load() != l.seq {
			fmt.Fprintf(&b, "%s:\n%s\n", d.name(), stackOf(all, d.goroutine.Load()))
		}
	}
	return b.String()
}

// tellEnd has the group take no more launches, fails those that are queued, and tells the current one.
func (g *ThreadGroup) tellEnd() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended.CompareAndSwap(false, true) {
		return
	}
	for _, l := range g.queue {
		g.fail(l, &KernelError{Kernel: l.name(), Thread: g.threads[0].name(), Err: ErrClosed})
	}
	g.queue = nil
	if l := g.current.Load(); l != nil {
		if d := g.firstIn(l); d != nil {
			g.stop(l, d, &KernelError{Err: ErrClosed, Stack: g.stacks(l)})
		}
	}
	g.bell.ring()
}

// Close ends the group as [Context.Close] does all groups, and gives its threads back to the Context.
func (g *ThreadGroup) Close() error {
	g.tellEnd()
	g.mu.Lock()
	threads := append([]*deviceThread(nil), g.threads...)
	g.mu.Unlock()
	for i := range threads {
		g.join(i)
	}
	g.ctx.release(g)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.stuck) > 0 {
		return &StuckError{Threads: g.stuck}
	}
	return nil
}

// join waits for the end of the thread of a rank, or of the one that has taken its place.
func (g *ThreadGroup) join(rank int) {
	for {
		g.mu.Lock()
		d := g.threads[rank]
		g.mu.Unlock()
		select {
		case <-d.gone:
			return
		case <-d.replaced:
		}
	}
}
