package main

import (
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/launcher"
)

// What a remote shell has written stands in the line about the host, and not a second time below it.
func TestReportSaysNothingTwice(t *testing.T) {
	const line = "ssh: Could not resolve hostname nowhere: Name or service not known"
	for _, c := range []struct {
		name string
		tail []string
		want string
	}{
		{"the reason alone", []string{line, ""}, "gorun: host nowhere: no agent was started: " + line + "; try ssh nowhere\n"},
		{"and more", []string{"Welcome", line}, "gorun: host nowhere: no agent was started: " + line + "; try ssh nowhere\n" +
			"gorun: its agent's last lines on standard error:\ngorun: | Welcome\n"},
	} {
		var b strings.Builder
		report(launcher.Result{Cause: &launcher.Cause{Rank: -1, Host: "nowhere", Message: "no agent was started: " + line + "; try ssh nowhere", Stderr: c.tail}}, false, &b)
		if got := b.String(); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}
