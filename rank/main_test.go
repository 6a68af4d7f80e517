package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["signal"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			fmt.Println("ready")
			switch os.Getenv("RANK_TEST_HANDLES") {
			case "calls": // the end of the context ends a call
				for {
					if err := rank.Barrier(ctx, c); err != nil {
						return err
					}
				}
			case "ends well":
				<-ctx.Done()
				fmt.Println("saved after", context.Cause(ctx))
				return nil
			case "fails":
				<-ctx.Done()
				return errors.New("the disk is full")
			case "late":
				<-ctx.Done()
				fmt.Println("asked")
			case "saves":
				again := make(chan os.Signal, 2)
				signal.Notify(again, unix.SIGTERM)
				<-ctx.Done()
				fmt.Println("asked")
				<-again
				time.Sleep(50 * time.Millisecond) // in which it would end that takes it for a second wish
				fmt.Println("saved")
				return nil
			}
			for start := time.Now(); time.Since(start) < time.Hour; { // computes, and looks at nothing
			}
			return nil
		})
	}
}

func TestMainEndsContextAtSignals(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		handles string
		signal  unix.Signal
		status  int // of the process; 0: the signal has ended it
		out     string
		errs    string
	}{
		{"calls", unix.SIGTERM, -1, "", ""},
		{"calls", unix.SIGINT, -1, "", ""},
		{"nothing", unix.SIGTERM, -1, "", ""},
		{"ends well", unix.SIGTERM, 0, "saved after terminated signal received", ""},
		{"fails", unix.SIGINT, 1, "", "the disk is full"},
	} {
		t.Run(tt.handles+" "+unix.SignalName(tt.signal), func(t *testing.T) {
			j := &job{program: "signal", hosts: []int{2}, env: []string{"RANK_TEST_HANDLES=" + tt.handles}}
			j.start(t)
			for r := range 2 {
				j.until(t, r, "ready")
			}
			for r := range 2 {
				if err := j.ranks[r].Process.Signal(tt.signal); err != nil {
					t.Fatal(err)
				}
			}
			for r := range 2 {
				status := j.wait(t, r)
				ws := j.ranks[r].ProcessState.Sys().(syscall.WaitStatus)
				if tt.status < 0 && (!ws.Signaled() || ws.Signal() != tt.signal) || tt.status >= 0 && status != tt.status {
					t.Errorf("rank %d: %v", r, j.ranks[r].ProcessState)
				}
				if out := j.out[r].String(); !strings.Contains(out, tt.out) {
					t.Errorf("rank %d: output %q, want %q in it", r, out, tt.out)
				}
				if errs := j.errs[r].String(); tt.errs == "" && errs != "" || !strings.Contains(errs, tt.errs) {
					t.Errorf("rank %d: standard error %q, want %q", r, errs, tt.errs)
				}
			}
		})
	}
	t.Run("second signal", func(t *testing.T) {
		j := &job{program: "signal", hosts: []int{1}, env: []string{"RANK_TEST_HANDLES=late"}}
		j.start(t)
		j.until(t, 0, "ready")
		if err := j.ranks[0].Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		j.until(t, 0, "asked")
		over := make(chan struct{})
		var impatient sync.WaitGroup
		impatient.Go(func() {
			for {
				select {
				case <-time.After(10 * time.Millisecond):
					_ = j.ranks[0].Process.Signal(unix.SIGINT)
				case <-over:
					return
				}
			}
		})
		j.wait(t, 0)
		close(over)
		impatient.Wait()
		if ws := j.ranks[0].ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != unix.SIGINT {
			t.Errorf("%v, want the end by INT", j.ranks[0].ProcessState)
		}
	})
	t.Run("the same signal from two", func(t *testing.T) {
		j := &job{program: "signal", hosts: []int{1}, env: []string{"RANK_TEST_HANDLES=saves"}}
		j.start(t)
		j.until(t, 0, "ready")
		for _, before := range []string{"ready", "asked"} {
			j.until(t, 0, before)
			if err := j.ranks[0].Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		if status := j.wait(t, 0); status != 0 || !strings.Contains(j.out[0].String(), "saved") {
			t.Errorf("%v, it wrote %q", j.ranks[0].ProcessState, j.out[0].String())
		}
	})
}

// A panic's stack stands on standard error once, and only its first line is in the abort.
func TestMainPrintsStackOnce(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "panic", hosts: []int{2}}
	j.start(t)
	j.wait(t, 1)
	j.wait(t, 0)
	errs := j.errs[1].String()
	for _, text := range []string{"panic: oh no\n", "goroutine 1 [running]:\n", "rank.guarded("} {
		if strings.Count(errs, text) != 1 {
			t.Errorf("standard error has %q %d times, want once\n%s", text, strings.Count(errs, text), errs)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if want := "rank 1 aborts with 1: panic: oh no"; len(j.events) == 0 || j.events[0] != want {
		t.Errorf("the launcher saw %q, want %q", j.events, want)
	}
}

func TestMainContinuousDoesNotAbort(t *testing.T) {
	testenv.NoLeaks(t)
	for _, program := range []string{"error", "panic"} {
		j := &job{program: program, hosts: []int{2}, env: []string{"GORUN_CONTINUOUS=1"}}
		j.start(t)
		if status := j.wait(t, 1); status != 1 {
			t.Errorf("%s: exit status %d, want 1", program, status)
		}
		j.wait(t, 0)
		j.mu.Lock()
		for _, e := range j.events {
			if strings.Contains(e, "aborts") {
				t.Errorf("%s: the launcher saw %q", program, e)
			}
		}
		j.mu.Unlock()
	}
}
