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

// runAgain runs a job until it ends well, or its restarts are used up.
func runAgain(ctx context.Context, job Job, at attempt) (Result, error) {
	end := time.Now().Add(job.Timeout)
	pause := cmp.Or(job.RestartPause, DefaultRestartPause)
	rewind := rewinder(job.Stdin)
	_, file := job.Stdin.(*os.File)
	for {
		at.number++
		r, err := run(ctx, job, at)
		r.Restarts = at.number - 1
		if err != nil || r.Restarts == job.MaxRestarts || !restartable(r.Cause) {
			return r, err
		}
		if job.Restarting != nil {
			job.Restarting(at.number, pause, r)
		}
		if cause := job.sleep(ctx, pause, end); cause != nil {
			r.Cause, r.ExitStatus = cause, cause.Status
			return r, nil
		}
		if err := rewind(); err != nil {
			return r, fmt.Errorf("read standard input again for a restart: %w", err)
		}
		pause = min(2*pause, restartPauseMax)
		job.Placed = nil // it goes where it went
		if !file {
			job.Stdin = nil // the last start may still be reading it
		}
		if job.Timeout > 0 {
			job.Timeout = max(1, time.Until(end))
		}
	}
}

// restartable tells whether another start may go better: a rank or a host has
// failed. The timeout, a signal and output that nobody takes are there to stay.
func restartable(c *Cause) bool { return c != nil && (c.Rank >= 0 || c.Host != "") }

// sleep is the pause before a restart. The cause that it returns is what ended it
// before its time.
func (job *Job) sleep(ctx context.Context, pause time.Duration, end time.Time) *Cause {
	wake := time.NewTimer(pause)
	defer wake.Stop()
	var late <-chan time.Time
	if job.Timeout > 0 {
		t := time.NewTimer(time.Until(end))
		defer t.Stop()
		late = t.C
	}
	signals := job.Signals
	for {
		select {
		case <-wake.C:
			return nil
		case <-late:
			return &Cause{Rank: -1, Status: statusTimeout, Message: "the job reached its timeout while it waited for a restart"}
		case <-ctx.Done():
			return &Cause{Rank: -1, Status: statusFailed, Message: context.Cause(ctx).Error()}
		case s, ok := <-signals:
			if !ok {
				signals = nil
			}
			switch sig, _ := s.(syscall.Signal); sig {
			case unix.SIGINT, unix.SIGTERM:
				return &Cause{Rank: -1, Status: statusSignal + int(sig), Signal: sig}
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
