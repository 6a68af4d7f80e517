package dpa

import (
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
)

// A Kernel is a function that device threads run. Each thread of the group calls it once, at the same time. An
// error fails the launch.
type Kernel func(t *Thread) error

// A Launch is a kernel to be run by a group.
type Launch struct {
	Kernel Kernel
	// Name stands for the kernel in errors; "" is the function's name.
	Name string
	// Wait, if not nil, is the event that must be greater than Threshold before the kernel
	// begins. Its subscriber is the device.
	Wait      *SyncEvent
	Threshold uint64
	// Complete, if not nil, is the event that is set to Value, or with Add raised by it,
	// when all threads have returned without an error; a launch that fails makes it fail.
	// Its publisher is the device. Without it only Context.LastError tells of a failure.
	Complete *SyncEvent
	Value    uint64
	Add      bool
	// Deadline is how long the kernel may run; 0 is Config.MaxRunTime, or no limit with On.
	Deadline time.Duration
	// On has a group of one thread run the kernel again and again: each time when the
	// completion context has completions, until it returns ErrFinish or another error.
	On *CompletionContext
}

// A launch is a Launch in a group. The group's mu guards all but over and left.
type launch struct {
	Launch
	seq    uint64                // of the group's launches
	over   atomic.Pointer[error] // why waits end; nil: they do not
	left   atomic.Int32          // threads that have not returned
	begun  atomic.Bool
	timer  *time.Timer // deadline
	grace  *time.Timer
	failed *KernelError
	rpc    *rpc // nil: it is none
}

// An rpc is where a synchronous launch leaves its end.
type rpc struct {
	done chan struct{} // closed when the launch is over
	err  error         // then
}

// reason is why the launch's waits end.
func (l *launch) reason() error {
	if l == nil {
		return nil
	}
	if err := l.over.Load(); err != nil {
		return *err
	}
	return nil
}

// name is the kernel's.
func (l *launch) name() string {
	if l.Name != "" {
		return l.Name
	}
	if f := runtime.FuncForPC(reflect.ValueOf(l.Kernel).Pointer()); f != nil {
		return f.Name()
	}
	return "?"
}

// validate checks a launch for a group.
func (l *Launch) validate(g *ThreadGroup) error {
	switch {
	case l.Kernel == nil:
		return bad("launch", "no kernel")
	case l.Wait != nil && l.Wait.ctx != g.ctx || l.Complete != nil && l.Complete.ctx != g.ctx || l.On != nil && l.On.ctx != g.ctx:
		return bad("launch", "an event or a completion context of another Context")
	case l.Wait != nil && l.Wait.subscriber != Device:
		return l.Wait.misuse("wait event", Device)
	case l.Complete != nil && l.Complete.publisher != Device:
		return l.Complete.misuse("completion event", Device)
	case l.Deadline < 0:
		return bad("launch", "a deadline of %v, expected 0 or more", l.Deadline)
	case l.On != nil && len(g.threads) != 1:
		return bad("launch", "a completion context wakes one thread, the group has %d", len(g.threads))
	}
	return nil
}
