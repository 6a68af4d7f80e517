package doca

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/roff"
)

// Usage is the text of --help. Its first line says whose program this is, and what for.
func (p *Parser) Usage() string {
	var b strings.Builder
	words := ""
	if p.words != "" {
		words = " " + p.words
	}
	if p.summary != "" {
		fmt.Fprintf(&b, "%s: %s\n\n", p.whose(), lower(p.summary))
	}
	fmt.Fprintf(&b, "Usage: %s [General Flags] [Program Flags]%s\n", p.program, words)
	width := 0
	for _, e := range p.entries {
		width = max(width, len(e.usageLeft()))
	}
	for _, section := range []struct {
		title   string
		general bool
	}{{"General Flags:", true}, {"Program Flags:", false}} {
		fmt.Fprintf(&b, "\n%s\n", section.title)
		for _, e := range p.entries {
			if e.general != section.general {
				continue
			}
			help := e.Help
			if e.Mandatory {
				help += " (mandatory)"
			}
			fmt.Fprintf(&b, "  %-*s  %s\n", width, e.usageLeft(), help)
		}
	}
	return b.String()
}

// whose is the program, and whose it is: others have an allreduce or a pingpong, too.
func (p *Parser) whose() string {
	if strings.HasPrefix(p.program, "gorun") {
		return p.program
	}
	return "gorun's " + p.program
}

// lower is a text that goes on in a line.
func lower(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// Manual adds --man, which prints the manual page.
func (p *Parser) Manual() {
	p.add(toggle, setBool(&p.wantManual), Flag{Long: "man", Help: "print the manual page and exit: " + p.program + " --man | man -l -"})
	p.find("man").general, p.find("man").ask = true, ErrManual
}

// manual is the page of man(1): what the usage says.
func (p *Parser) manual() string {
	var m roff.Page
	m.Title(p.program, p.version)
	m.Section("NAME")
	first, rest, _ := strings.Cut(strings.ReplaceAll(p.summary, "\n", " "), ". ")
	m.Text(p.program + " - " + lower(strings.TrimSuffix(first, ".")))
	m.Section("SYNOPSIS")
	m.Text(strings.TrimSpace(p.program + " [options] " + p.words))
	if rest != "" {
		m.Section("DESCRIPTION")
		m.Text(rest)
	}
	m.Section("OPTIONS")
	for _, general := range []bool{false, true} {
		for _, e := range p.entries {
			if e.general == general {
				m.Entry(e.usageLeft(), roff.Sentence(e.Help))
			}
		}
	}
	m.Section("SEE ALSO")
	m.Text("gorun(1)")
	return m.String()
}

// usageLeft is the left column of the usage: "-m, --msgsize <BYTES>".
func (e *entry) usageLeft() string {
	var b strings.Builder
	if e.Short != 0 {
		fmt.Fprintf(&b, "-%c, ", e.Short)
	}
	b.WriteString("--" + e.Long)
	if e.kind != toggle {
		value := cmp.Or(e.Value, "VALUE")
		b.WriteString(" <" + value + ">")
	}
	return b.String()
}
