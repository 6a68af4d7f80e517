package doca

import (
	"cmp"
	"fmt"
	"strings"
)

// Usage is the text of --help.
func (p *Parser) Usage() string {
	var b strings.Builder
	words := ""
	if p.words != "" {
		words = " " + p.words
	}
	fmt.Fprintf(&b, "Usage: %s [General Flags] [Program Flags]%s\n", p.program, words)
	if p.summary != "" {
		fmt.Fprintf(&b, "\n%s\n", p.summary)
	}
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
