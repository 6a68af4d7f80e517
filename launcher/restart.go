package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restartPauseMax is the longest that a restart waits.
const restartPauseMax = time.Minute

// attempt is one start of a job.
type attempt struct {
	number int           // from 1; 0 where there will be no other
	limit  time.Duration // Job.Timeout as it was asked for
	handle *Handle       // looks on; nil: nobody does
	watch  *watcher      // for all of them
}

// runAgain runs a job until it ends well, or its restarts are used up. Starts that hosts have come or gone for,
// with Job.Elastic, do not use up any.
func runAgain(ctx context.Context, job Job, at attempt) (Result, error) {
	end := time.Now().Add(job.Timeout)
	pause := cmp.Or(job.Restarts.Pause, DefaultRestartPause)
	rewind := rewinder(job.Stdin)
	_, file := job.Stdin.(*os.File)
	hosts := newRoster(&job)
	failures := 0
	for {
		at.number++
		if cause := hosts.gather(ctx, at.watch, end); cause != nil {
			r := Result{ExitStatus: cause.Status, Cause: cause, Restarts: at.number - 1}
			return r, nil
		}
		r, moved, err := hosts.run(ctx, at)
		r.Restarts = at.number - 1
		if err != nil && hosts.bringBack(err) {
			at.number--
			continue
		}
		if err != nil || !moved && !restartable(r.Cause) {
			return r, err
		}
		aside := !moved && r.Cause.Rank < 0 && hosts.failed(r.Cause.Host)
		wait := cmp.Or(job.Restarts.Pause, DefaultRestartPause)
		if !moved && !(aside && job.Elastic != nil) {
			if failures == job.Restarts.Max {
				return r, nil
			}
			failures++
			wait = pause
			pause = min(2*pause, restartPauseMax)
		}
		if job.Restarts.Before != nil {
			job.Restarts.Before(at.number, wait, r)
		}
		if aside {
			at.watch.putWarning(fmt.Sprintf("host %s is set aside; what is left: %v", r.Cause.Host, hosts))
		}
		if _, cause := awaitFor(ctx, &job, time.After(wait), end); cause != nil {
			r.Cause, r.ExitStatus = cause, cause.Status
			return r, nil
		}
		if err := rewind(); err != nil {
			return r, fmt.Errorf("read standard input again for a restart: %w", err)
		}
		if !file {
			job.Stdin = nil // the last start may still be reading it
		}
		if job.Timeout > 0 {
			job.Timeout = max(1, time.Until(end))
		}
	}
}

// restartable tells whether another start may go better: a rank or a host has
// failed. The timeout, a signal and output that nobody takes are there to stay, and an abort with 0 is what the program wants.
func restartable(c *Cause) bool { return c != nil && c.Status != 0 && (c.Rank >= 0 || c.Host != "") }

// awaitFor waits for what comes before the next start. The cause that it returns is what ended the job before that.
func awaitFor[T any](ctx context.Context, job *Job, ready <-chan T, end time.Time) (got T, cause *Cause) {
	var late <-chan time.Time
	if job.Timeout > 0 {
		late = time.After(time.Until(end))
	}
	signals := job.Signals
	for {
		select {
		case got = <-ready:
			return got, nil
		case <-late:
			return got, &Cause{Rank: -1, Status: statusTimeout, Message: "the job reached its timeout while it waited for a restart"}
		case <-ctx.Done():
			return got, &Cause{Rank: -1, Status: statusFailed, Message: context.Cause(ctx).Error()}
		case s, ok := <-signals:
			if !ok {
				signals = nil
			}
			switch sig, _ := s.(syscall.Signal); sig {
			case unix.SIGINT, unix.SIGTERM:
				return got, &Cause{Rank: -1, Status: statusSignal + int(sig), Signal: sig}
			case unix.SIGTSTP:
				if job.Suspend != nil {
					job.Suspend()
				}
			}
		}
	}
}

// rewinder has a regular file read again from where it stands now; of anything
// else nothing can be read twice.
func rewinder(r io.Reader) func() error {
	nothing := func() error { return nil }
	f, ok := r.(*os.File)
	if !ok || f == nil {
		return nothing
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nothing
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nothing
	}
	return func() error {
		_, err := f.Seek(at, io.SeekStart)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		return err
	}
}
