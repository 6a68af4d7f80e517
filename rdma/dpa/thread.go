package dpa

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// A deviceThread is a goroutine on an OS thread of its own, with a seat in a group.
type deviceThread struct {
	group  *ThreadGroup
	rank   int // in the group
	number int // of the Context's threads
	waiter *waiter

	os        atomic.Int64  // the OS thread, 0 before it runs
	goroutine atomic.Uint64 // its id, as stacks have it
	// left is the last launch that has ended for this seat. The thread and giveUp both
	// go from the one before by compare-and-swap, so that one of them counts.
	left     atomic.Uint64
	gone     chan struct{} // closed: the goroutine has ended
	replaced chan struct{} // closed: it was given up, and another has the seat

	api Thread
}

// newThread makes the thread for a seat, which has the launches up to seq behind it.
func newThread(g *ThreadGroup, rank, number int, seq uint64) *deviceThread {
	d := &deviceThread{group: g, rank: rank, number: number, gone: make(chan struct{}), replaced: make(chan struct{})}
	d.left.Store(seq)
	c := g.ctx
	d.waiter = newWaiter(c, c.cpus != nil, c.cfg.Place+number)
	d.api.d = d
	return d
}

// start starts the thread.
func (d *deviceThread) start() { arch.GoThread(d.run) }

// name names the thread to people.
func (d *deviceThread) name() string {
	name := fmt.Sprintf("%s device thread %d", d.group.ctx.name, d.number)
	if os := d.os.Load(); os != 0 {
		name += fmt.Sprintf(" (OS thread %d)", os)
	}
	return name
}

// run is the thread.
func (d *deviceThread) run() {
	var serving *launch
	last := d.left.Load()
	defer func() {
		if serving != nil { // the kernel has left by runtime.Goexit
			d.goexit(serving, last+1)
		}
		close(d.gone)
	}()
	d.os.Store(int64(arch.Thread()))
	d.goroutine.Store(goroutineID())
	debug.SetPanicOnFault(true) // a kernel on memory that is gone is a panic
	g := d.group
	if cpus := g.ctx.cpus; cpus != nil {
		arch.Pin(cpus[d.number])
	}
	for ; ; last++ {
		if d.waiter.waitGroup(g, last); g.published.Load() == last {
			return // the group has ended
		}
		l := g.current.Load()
		d.api.launch = l
		serving = l
		failed := d.serve(l)
		serving = nil
		if !g.leave(d, l, last+1, failed) {
			return // given up long ago
		}
	}
}

// goexit has another thread take the seat of one that ends in a launch.
func (d *deviceThread) goexit(l *launch, seq uint64) {
	g := d.group
	g.mu.Lock()
	if d.left.Load() != seq { // not given up
		g.replace(d, seq)
	}
	g.mu.Unlock()
	g.leave(d, l, seq, &KernelError{Err: ErrGoexit})
}

// serve is the thread's part in a launch.
func (d *deviceThread) serve(l *launch) *KernelError {
	if l.Wait != nil {
		if err := d.waiter.waitGt(context.Background(), l.Wait, l.Threshold, l); err != nil {
			return &KernelError{Err: fmt.Errorf("wait event: %w", err)}
		}
	}
	if err := l.reason(); err != nil {
		return &KernelError{Err: err}
	}
	d.group.begin(l)
	for {
		if l.On != nil {
			if err := l.On.await(l); err != nil {
				return &KernelError{Err: err}
			}
		}
		failed := d.call(l.Kernel)
		switch {
		case failed != nil && errors.Is(failed.Err, ErrFinish):
			return nil
		case failed != nil || l.On == nil:
			return failed
		}
	}
}

// call calls the kernel, whose panic is a failure.
func (d *deviceThread) call(kernel Kernel) (failed *KernelError) {
	defer func() {
		if p := recover(); p != nil {
			err, _ := p.(error)
			failed = &KernelError{Panic: p, Err: err, Stack: string(debug.Stack())}
		}
	}()
	if err := kernel(&d.api); err != nil {
		return &KernelError{Err: err}
	}
	return nil
}

// A Thread is a device thread in a kernel. It is valid until the kernel returns.
type Thread struct {
	d      *deviceThread
	launch *launch
}

// Rank is the thread's number in its group, from 0 (doca_dpa_dev_thread_rank).
func (t *Thread) Rank() int { return t.d.rank }

// NumThreads is how many threads run the kernel (doca_dpa_dev_num_threads).
func (t *Thread) NumThreads() int { return len(t.d.group.threads) }

// Name names the thread, as errors do.
func (t *Thread) Name() string { return t.d.name() }

// OSThread is the number of the OS thread.
func (t *Thread) OSThread() int { return int(t.d.os.Load()) }

// Err is why the launch is over before the kernel has returned; nil: go on. A kernel that
// computes for long without a call that waits asks here.
func (t *Thread) Err() error { return t.launch.reason() }

// Get reads an event (doca_dpa_dev_sync_event_get). The publisher or the subscriber is the device.
func (t *Thread) Get(e *SyncEvent) (uint64, error) { return e.get(Device) }

// Set sets an event (doca_dpa_dev_sync_event_update_set). The publisher is the device.
func (t *Thread) Set(e *SyncEvent, value uint64) error { return e.update(Device, value, false) }

// Add adds to an event atomically (doca_dpa_dev_sync_event_update_add). The publisher is the device.
func (t *Thread) Add(e *SyncEvent, value uint64) error { return e.update(Device, value, true) }

// WaitGt waits until an event is greater than above (doca_dpa_dev_sync_event_wait_gt). The subscriber is the
// device. An error is the event's own, or why the launch is over.
func (t *Thread) WaitGt(e *SyncEvent, above uint64) error {
	if e.subscriber != Device {
		return e.misuse("wait_gt", Device)
	}
	return t.d.waiter.waitGt(context.Background(), e, above, t.launch)
}

// plural counts things: "1 thread", "2 threads".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// goroutineID is the calling goroutine's number in stacks, 0 when it is not found.
func goroutineID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}

// stacksMost bounds the stacks that are taken of a process.
const stacksMost = 4 << 20

// allStacks are the stacks of all goroutines, as far as they fit. It stops all of them meanwhile.
func allStacks() []byte {
	for size := 64 << 10; ; size *= 4 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= stacksMost {
			return buf[:n]
		}
	}
}

// stackOf is one goroutine's part of all stacks.
func stackOf(all []byte, id uint64) string {
	at := bytes.Index(all, fmt.Appendf(nil, "goroutine %d [", id))
	if at < 0 {
		return "(no stack)"
	}
	part, _, _ := bytes.Cut(all[at:], []byte("\n\n"))
	return string(part)
}
