package main

import (
	"strings"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/cmd/internal/roff"
	"github.com/gorun-mpi/gorun/internal/version"
)

// manual is the page of man(1), made from the tables.
func manual() string {
	var m roff.Page
	m.Title("gorun-info", version.Line("gorun-info"))
	m.Section("NAME")
	m.Text("gorun-info - what this machine offers to gorun's jobs, and what stands in their way")
	m.Section("SYNOPSIS")
	for i, c := range commands() {
		if i > 0 {
			m.Line(".br")
		}
		m.Text(strings.Join(strings.Fields("gorun-info "+c.name+" [options] "+c.args), " "))
	}
	m.Section("COMMANDS")
	for _, c := range commands() {
		name := c.name
		if name == "" {
			name = "none"
		}
		m.Entry(strings.TrimSpace(name+" "+c.args), sentence(c.help))
	}
	m.Section("OPTIONS")
	for _, o := range flags() {
		m.Entry(left(&o), sentence(o.help))
	}
	m.Section("WHAT DOCTOR LOOKS AT")
	m.Text("Each finding is ok, of note (it works, and could be better), or a problem (something fails), with what was found, why it matters and the command that mends it. All checks run at once, no one for longer than ten seconds, and leave nothing behind. With --json there is an object a line: name, state, found, why, fix.")
	for _, c := range doctor.Checks() {
		m.Entry(c.Name, sentence(c.Why))
	}
	m.Paragraph("Of each host that is named: its address, whether ssh comes through without a question within five seconds, the gorun-agent there, and its clock. Hosts are named as gorun's --host has them.")
	m.Section("ENVIRONMENT")
	m.Text("gorun-info reads PATH and TMPDIR. These are gorun's own:")
	for _, s := range settings() {
		text := s.Help + "; set by " + s.SetBy
		if s.Default != "" {
			text += "; default: " + s.Default
		}
		m.Entry(s.Name, sentence(text))
	}
	m.Section("EXIT STATUS")
	m.Text("0 when all is well, 1 when doctor finds a problem, pmi that something is missing or devices one that cannot be used, 2 for a wrong command line, 130 when it is interrupted.")
	m.Section("EXAMPLES")
	m.Example("gorun-info doctor -np 64", "gorun-info doctor node[01-04] user@node05", "gorun-info topo --record >machine.txt")
	m.Section("SEE ALSO")
	m.Text("gorun(1)")
	return m.String()
}

// sentence makes a help text one.
func sentence(text string) string {
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
