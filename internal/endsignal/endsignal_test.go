package endsignal

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestSecond(t *testing.T) {
	for _, c := range []struct {
		name  string
		sig   os.Signal
		after time.Duration
		want  bool
	}{
		{"timeout(1), to its child and the group", syscall.SIGTERM, 10 * time.Microsecond, false},
		{"the same on a busy machine", syscall.SIGTERM, 3 * time.Second, false},
		{"timeout -s INT", syscall.SIGINT, 10 * time.Microsecond, false},
		{"Ctrl-C twice, in a hurry", syscall.SIGINT, 250 * time.Millisecond, true},
		{"Ctrl-C, and again after a while", syscall.SIGINT, time.Minute, true},
	} {
		if got := Second(c.sig, c.after); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Who asks whether a context was cancelled is told so of one that a signal ended.
func TestReceivedIsCanceled(t *testing.T) {
	var err error = Received(syscall.SIGTERM)
	if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || err.Error() != "terminated signal received" {
		t.Errorf("%v", err)
	}
}
