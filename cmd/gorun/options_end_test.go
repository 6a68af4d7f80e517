package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestGrace(t *testing.T) {
	for value, want := range map[string]time.Duration{"3": 3 * time.Second, "1m": time.Minute, "0": 1, "0s": 1, "0ms": 1, "-1": 0, "x": 0, "": 0} {
		for _, spelling := range [][]string{{"--grace", value}, {"--mca", "odls_base_sigkill_timeout", value}} {
			got, err := parse(line(nil, append(spelling, "prog")...))
			if got.job.Grace != want || (err == nil) != (want > 0) {
				t.Errorf("%q: got %v, %v; want %v", spelling, got.job.Grace, err, want)
			}
		}
	}
}

func TestForwardSignals(t *testing.T) {
	for value, want := range map[string]string{
		"ALRM,SIGXCPU":  "[alarm clock CPU time limit exceeded]",
		"sigalrm,14,34": "[alarm clock signal 34]",
	} {
		got, err := parse(line(nil, "--forward-signals", value, "prog"))
		if err != nil || fmt.Sprint(got.ends.signals) != want {
			t.Errorf("%s: got %v, %v; want %s", value, got.ends.signals, err, want)
		}
	}
	for _, value := range []string{"", "NOSUCH", "KILL", "SIGSTOP", "0", "65", "ALRM,", "CHLD", "-1", "SIGSIGALRM"} {
		got, err := parse(line(nil, "--forward-signals", value, "prog"))
		if err == nil || !strings.HasPrefix(err.Error(), "--forward-signals: found ") {
			t.Errorf("%q: got %v, %v; want an error", value, got.ends.signals, err)
		}
	}
}
