package main

import (
	"fmt"
	"strings"
	"testing"
)

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
