package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder takes the place of a test that is expected to fail or skip.
type recorder struct {
	testing.TB
	failed, skipped string
	cleanups        []func()
}

func (r *recorder) Helper()                        {}
func (r *recorder) Failed() bool                   { return r.failed != "" }
func (r *recorder) Cleanup(f func())               { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, a ...any) { r.failed = fmt.Sprintf(format, a...) }
func (r *recorder) Fatalf(format string, a ...any) { r.Errorf(format, a...); runtime.Goexit() }
func (r *recorder) Fatal(a ...any)                 { r.failed = fmt.Sprint(a...); runtime.Goexit() }
func (r *recorder) Skip(a ...any)                  { r.skipped = fmt.Sprint(a...); runtime.Goexit() }
func (r *recorder) Skipf(format string, a ...any)  { r.Skip(fmt.Sprintf(format, a...)) }

// In CI a part of make test-all has installed what its tests need.
func TestNeedFailsInCIAndSkipsElsewhere(t *testing.T) {
	for _, c := range []struct {
		ci, parts string
		fails     bool
	}{{"true", Peers, true}, {"true", "", false}, {"", Peers, false}} {
		t.Setenv("CI", c.ci)
		t.Setenv(partsVariable, c.parts)
		var r recorder
		var ended sync.WaitGroup
		ended.Go(func() { Need(&r, "no-such-program-anywhere") })
		ended.Wait()
		got, other := r.skipped, r.failed
		if c.fails {
			got, other = other, got
		}
		if !strings.Contains(got, "no-such-program-anywhere") || other != "" {
			t.Errorf("CI=%q, %s=%q: failed %q, skipped %q", c.ci, partsVariable, c.parts, r.failed, r.skipped)
		}
	}
}

// ended runs the checks that a test's end would run.
func (r *recorder) ended() string {
	for _, f := range r.cleanups {
		f()
	}
	return r.failed
}

func TestNoLeaksSeesWhatIsLeft(t *testing.T) {
	t.Run("descriptor", func(t *testing.T) {
		r := &recorder{}
		noLeaks(r, 0)
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := r.ended(); !strings.Contains(got, os.DevNull) {
			t.Errorf("an open descriptor gave %q", got)
		}
	})
	t.Run("child", func(t *testing.T) {
		r := &recorder{}
		noLeaks(r, 0)
		cmd := exec.Command("sleep", "100")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got := r.ended()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if !strings.Contains(got, "(sleep)") {
			t.Errorf("a running child gave %q", got)
		}
	})
	t.Run("goroutine", func(t *testing.T) {
		r := &recorder{}
		noLeaks(r, 0)
		release := make(chan struct{})
		for range 10 { // those of earlier tests may end meanwhile
			go func() { <-release }()
		}
		got := r.ended()
		close(release)
		if !strings.Contains(got, "goroutines") {
			t.Errorf("blocked goroutines gave %q", got)
		}
	})
	t.Run("after a failure", func(t *testing.T) {
		r := &recorder{}
		NoLeaks(r)
		release := make(chan struct{})
		defer close(release)
		for range 10 {
			go func() { <-release }()
		}
		r.Errorf("the failure")
		if got := r.ended(); got != "the failure" {
			t.Errorf("blocked goroutines after a failure gave %q", got)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		r := &recorder{}
		NoLeaks(r)
		if got := r.ended(); got != "" {
			t.Errorf("nothing left gave %q", got)
		}
	})
}
