package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/roff"
)

// help is the text of --help, made from the tables.
func help() string {
	var b strings.Builder
	b.WriteString("Usage: gorun-info [command] [options]\n\nReports what this machine offers to gorun's jobs and which problems they would meet.\n\nCommands:\n")
	row := func(left, text string) {
		if len(left) > 20 {
			left += fmt.Sprintf("\n  %20s", "")
		}
		fmt.Fprintf(&b, "  %-20s  %s\n", left, text)
	}
	for _, c := range commands() {
		name := cmp.Or(c.name, "(none)")
		row(strings.TrimSpace(name+" "+c.args), c.help)
	}
	b.WriteString("\nOptions:\n")
	for _, o := range flags() {
		row(left(&o), o.help)
	}
	b.WriteString(`
Exit status: 0 when all is well, 1 when doctor finds a problem (or pmi that
something is missing, or devices one that cannot be used), 2 for a wrong
command line, 130 when it is interrupted.

Examples:
  gorun-info doctor -np 64
  gorun-info doctor node[01-04] user@node05
  gorun-info doctor --tcp-ports 40000-40100 node01 node02
  gorun-info doctor --json | grep '"state":"problem"'
  gorun-info devices --json | jq '.devices[] | select(.provider == "verbs") | .name'
  gorun-info topo --record >machine.txt
`)
	return b.String()
}

func left(o *flag) string { return roff.Option(o.long, o.short, o.value) }
