package rank

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
)

// Main is the main function of a rank: it joins the job, calls f with the world's
// communicator, and leaves the job. When f returns an error or panics it prints
// that, with the rank, to standard error and aborts the whole job with exit
// status 1; otherwise Main returns.
func Main(f func(ctx context.Context, c *Comm) error) {
	ctx := context.Background()
	w, err := Init(ctx, Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := guarded(ctx, w, f); err != nil {
		fmt.Fprintln(os.Stderr, err)
		w.Abort(1, err.Error())
	}
	if err := w.Finalize(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// guarded calls f and turns a panic into an error; errors name the rank.
func guarded(ctx context.Context, w *World, f func(context.Context, *Comm) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if a, ok := p.(abortPanic); ok {
				err = a.err
				return
			}
			err = fmt.Errorf("rank %d (host %s): panic: %v\n%s", w.rank, w.Host(), p, debug.Stack())
		}
	}()
	if err := f(ctx, w.comm); err != nil {
		return named(w, err)
	}
	return nil
}

// named is an error with the rank, unless it says so already.
func named(w *World, err error) error {
	if e, ok := err.(*Error); ok && e.Comm == worldName {
		return err
	}
	return fmt.Errorf("rank %d (host %s): %w", w.rank, w.Host(), err)
}
