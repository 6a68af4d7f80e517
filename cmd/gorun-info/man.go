package main

import (
	"cmp"
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
	m.Text("gorun-info - report what this machine offers to gorun's jobs and which problems they would meet")
	m.Section("SYNOPSIS")
	for i, c := range commands() {
		if i > 0 {
			m.Line(".br")
		}
		m.Text(strings.Join(strings.Fields("gorun-info "+c.name+" [options] "+c.args), " "))
	}
	m.Section("COMMANDS")
	for _, c := range commands() {
		name := cmp.Or(c.name, "none")
		m.Entry(strings.TrimSpace(name+" "+c.args), roff.Sentence(c.help))
	}
	m.Section("OPTIONS")
	for _, o := range flags() {
		m.Entry(left(&o), roff.Sentence(o.help))
	}
	m.Section("WHAT DOCTOR LOOKS AT")
	m.Text("Each finding is ok, a note (it works and could be better) or a problem (something fails). It says what was found, why that matters, and which command fixes it. All checks run at once; none takes longer than ten seconds or leaves anything behind. --json prints one JSON object per line: name, state, found, why, fix.")
	for _, c := range doctor.Checks() {
		m.Entry(c.Name, roff.Sentence(c.Why))
	}
	m.Paragraph("For each host on the command line, doctor checks its address, whether ssh connects within five seconds without a question, its gorun-agent, and its clock. Hosts are written as for gorun --host.")
	m.Section("ENVIRONMENT")
	m.Text("gorun-info reads PATH and TMPDIR. gorun has these variables:")
	for _, s := range settings() {
		text := s.Help + "; set by " + s.SetBy
		if s.Default != "" {
			text += "; default: " + s.Default
		}
		m.Entry(s.Name, roff.Sentence(text))
	}
	m.Section("EXIT STATUS")
	m.Text("0: no problem. 1: doctor found a problem, pmi found something missing, or devices found one that cannot be used. 2: wrong command line. 130: interrupted.")
	m.Section("EXAMPLES")
	m.Example("gorun-info doctor -np 64", "gorun-info doctor node[01-04] user@node05", "gorun-info topo --record >machine.txt")
	m.Section("SEE ALSO")
	m.Text("gorun(1)")
	return m.String()
}
