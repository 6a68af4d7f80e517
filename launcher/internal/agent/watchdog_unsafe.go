package agent

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Watchdog is a timer of the kernel that sends this process a signal unless it is set anew. A process that is stopped can do nothing
// about itself, and would stay on its host when the job is over. A nil one does nothing.
//
//   - SIGCONT is for an agent: once it goes on it finds out whether gorun has given it up. One that only has no CPU comes to no harm.
//   - SIGKILL is for a relay, for whose silence nobody gives it up: agents speak to gorun without it.
type Watchdog struct {
	timer   int32
	mu      sync.Mutex
	limit   time.Duration // 0: it is off; with mu
	changed chan struct{}
	once    sync.Once
	stop    chan struct{}
	running sync.WaitGroup
}

// WatchdogLimit is its limit until an agent has its work.
const WatchdogLimit = 5 * time.Second

// StartWatchdog starts one; nil where the kernel has none.
func StartWatchdog(limit time.Duration, send unix.Signal) *Watchdog {
	// struct sigevent, of 64 bytes: the value, the signal, how it is told (0, SIGEV_SIGNAL).
	event := [8]uint64{1: uint64(send)}
	w := &Watchdog{limit: limit, changed: make(chan struct{}, 1), stop: make(chan struct{})}
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&w.timer))); errno != 0 {
		return nil
	}
	w.set()
	w.running.Go(w.run)
	return w
}

// Set changes the limit; 0: it is off.
func (w *Watchdog) Set(limit time.Duration) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.limit = limit
	w.mu.Unlock()
	w.set()
	select {
	case w.changed <- struct{}{}:
	default: // run has yet to look
	}
}

// Close ends it.
func (w *Watchdog) Close() {
	if w == nil {
		return
	}
	w.once.Do(func() {
		close(w.stop)
		w.running.Wait()
		_, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(w.timer), 0, 0)
	})
}

func (w *Watchdog) run() {
	for {
		var next <-chan time.Time
		if limit := w.set(); limit > 0 {
			next = time.After(limit / 8)
		}
		select {
		case <-next:
		case <-w.changed:
		case <-w.stop:
			return
		}
	}
}

// set has the kernel begin to count anew; 0: it counts no more.
func (w *Watchdog) set() (limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	spec := [2]unix.Timespec{1: unix.NsecToTimespec(int64(w.limit))} // once
	_, _, _ = unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(w.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return w.limit
}
