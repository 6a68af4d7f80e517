// Package endsignal says what the parts of a job make of the signals that ask for its end, INT and TERM.
//
// One event often sends several. timeout(1) signals its child and then the process group, and passes on what it gets
// itself. Batch systems and service managers (scancel, systemctl stop) signal all processes of a job at once: gorun, which passes
// the signal on, and the ranks, which so have it twice; agents and helpers too. A process that takes the second signal for
// impatience kills ranks that are about to save.
package endsignal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Twice is how long after the first signal another INT may be of the same event: no one types Ctrl-C twice in less.
const Twice = 200 * time.Millisecond

// Second tells whether a signal that comes some time after the first is a second wish, of someone who waits no longer. Only
// INT is, which a person types: programs send TERM, again and again perhaps, and KILL when they wait no longer.
func Second(sig os.Signal, after time.Duration) bool { return sig == syscall.SIGINT && after >= Twice }

// Leave leaves them to gorun, for a process that lives as long as the job and ends with a stream of gorun's. Its
// children have the default action.
func Leave() { signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM) }

// A Received is the signal that ended a context.
type Received syscall.Signal

func (r Received) Error() string { return syscall.Signal(r).String() + " signal received" }

// Is has it be context.Canceled too, for those who tell an end that was asked for from a failure.
func (r Received) Is(target error) bool { return target == context.Canceled }

// Context ends at the first of them, with a Received as its cause. A second wish ends the process. It is for main functions.
func Context() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	come := make(chan os.Signal, 2)
	signal.Notify(come, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		sig := <-come
		end(Received(sig.(syscall.Signal)))
		for first := time.Now(); !Second(sig, time.Since(first)); {
			sig = <-come
		}
		Die(sig.(syscall.Signal))
	}()
	return ctx
}

// Die ends the process by a signal, as if it had not been caught.
func Die(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig)
	time.Sleep(time.Second) // it is on its way
	os.Exit(128 + int(sig))
}
