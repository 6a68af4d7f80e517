package rank

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// Main is the main function of a rank. It joins the job, calls f with the communicator of the
// world, and leaves the job. When f returns an error or panics, Main prints that with the rank
// to standard error and aborts the job with exit status 1. Under gorun --continuous it ends
// only its own process, with status 1. Otherwise Main returns. f may call Finalize itself.
//
// SIGINT and SIGTERM cancel f's context. When f then returns because of it, the signal ends the process.
// The process also ends at a SIGINT that comes 200 ms after the first signal or later, and when f has not looked at
// its context within half a second. Other further signals are taken for the same event: a service manager's stop comes
// from it, and from the launcher that it stops too.
func Main(f func(ctx context.Context, c *Comm) error) {
	w, err := Init(context.Background(), Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, signals := watchSignals()
	failed := func(err error) {
		if followed(err) {
			signals.dieSoon()
		}
		w.failed(err)
	}
	if err := guarded(ctx, w, f, failed); err != nil {
		failed(err)
	}
	if err := w.Finalize(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, ErrFinalized) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	signals.stop()
}

// followed tells whether an error follows from the end of a context or a process, here or
// in another rank. The launcher may be about to tell this one to end as well.
func followed(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, ErrRevoked) || errors.Is(err, ErrPeerDied)
}

// failed ends the process because of an error, and the job with it unless that is to
// go on. All of the error goes to standard error, its first line to the launcher.
func (w *World) failed(err error) {
	fmt.Fprintln(os.Stderr, err)
	if p, ok := errors.AsType[*PanicError](err); ok {
		fmt.Fprintf(os.Stderr, "\n%s", p.Stack)
	}
	if w.continuous {
		os.Exit(1)
	}
	w.Abort(1, w.inAbort(err))
}

// inAbort is an error as the message of an abort: the first line, without the rank,
// which the launcher knows.
func (w *World) inAbort(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(text, w.title())
}

// title is what errors of this rank begin with.
func (w *World) title() string { return title(w.rank, w.Host()) }

// guarded calls f and turns a panic into an error; errors name the rank. Where f
// ends its goroutine nothing is returned to: exit gets the error then, or the
// other ranks would wait for ever.
func guarded(ctx context.Context, w *World, f func(context.Context, *Comm) error, exit func(error)) (err error) {
	returned := false
	defer func() {
		p := recover()
		switch a, aborted := p.(abortPanic); {
		case aborted:
			err = a.err
		case p != nil:
			err = &PanicError{Rank: w.rank, Value: p, Stack: panicStack(debug.Stack()), title: w.title()}
		case !returned:
			exit(&entitled{w.title(), errGoexit})
		}
	}()
	err = f(ctx, w.comm)
	returned = true
	if err != nil {
		return &entitled{w.title(), err}
	}
	return nil
}

// panicStack is a stack, as debug.Stack gives it to a deferred function, from what has
// panicked on.
func panicStack(stack []byte) []byte {
	head, frames, found := bytes.Cut(stack, []byte("\n"))
	_, frames, below := bytes.Cut(frames, []byte("\npanic("))
	_, frames, more := bytes.Cut(frames, []byte("\n")) // a frame has two lines
	_, frames, last := bytes.Cut(frames, []byte("\n"))
	if !found || !below || !more || !last {
		return stack
	}
	return append(append(head[:len(head):len(head)], '\n'), frames...)
}

var errGoexit = errors.New("its function ended the goroutine instead of returning (runtime.Goexit, as testing.T's FailNow does)")
