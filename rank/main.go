package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

// Main is the main function of a rank: it joins the job, calls f with the world's
// communicator, and leaves the job. When f returns an error or panics it prints
// that, with the rank, to standard error and aborts the whole job with exit
// status 1; otherwise Main returns. f may have called Finalize itself.
func Main(f func(ctx context.Context, c *Comm) error) {
	ctx := context.Background()
	w, err := Init(ctx, Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	failed := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		w.Abort(1, err.Error())
	}
	if err := guarded(ctx, w, f, failed); err != nil {
		failed(err)
	}
	if err := w.Finalize(ctx); err != nil && !errors.Is(err, ErrFinalized) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

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
			err = fmt.Errorf("rank %d (host %s): panic: %v\n%s", w.rank, w.Host(), p, debug.Stack())
		case !returned:
			exit(fmt.Errorf("rank %d (host %s): %w", w.rank, w.Host(), errGoexit))
		}
	}()
	err = f(ctx, w.comm)
	returned = true
	if err != nil {
		return named(w, err)
	}
	return nil
}

var errGoexit = errors.New("its function ended the goroutine instead of returning (runtime.Goexit, as testing.T's FailNow does)")

// named is an error with the rank, unless it says so already.
func named(w *World, err error) error {
	if e, ok := err.(*Error); ok && e.Comm == worldName {
		return err
	}
	return fmt.Errorf("rank %d (host %s): %w", w.rank, w.Host(), err)
}
