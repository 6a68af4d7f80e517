package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/version"
)

// manual is the page of man(1), in roff of the man macros, made from the table
// of options, the clashes and the variables.
func manual() string {
	var m page
	m.line(`.TH GORUN 1 "" "%s" "gorun"`, quoted(version.Line("gorun")))
	m.section("NAME")
	m.text("gorun - start the ranks of a parallel program")
	m.section("SYNOPSIS")
	m.text("gorun [options] program [arguments] [: [options] program [arguments]]...")
	m.section("DESCRIPTION")
	m.text("gorun starts the ranks of a parallel program and waits for them: programs of MPI and Go programs of package rank find each other, all others just run.")
	m.paragraph("It replaces mpirun and mpiexec: it takes the options of Open MPI 4 and 5, of Hydra (MPICH, Intel MPI) and of the MPI standard's mpiexec. Long options may be written with one dash.")
	m.paragraph("Options end at the program. A bare : in its arguments starts another program of the same job, with options of its own; -- before a program takes that meaning away. Options that are said to be of the program hold for the one that follows, all others for the job.")
	m.paragraph("Output comes in whole lines; standard input goes to rank 0. Signals are passed on; INT and TERM end the job, a second one at once.")
	m.section("OPTIONS")
	table := everyOption()
	for _, family := range families {
		first := true
		for i := range table {
			if o := &table[i]; o.family == family {
				if first {
					m.line(".SS %s", quoted(family))
					first = false
				}
				m.option(o)
			}
		}
	}
	m.section("OPTIONS WITHOUT EFFECT")
	m.text("Options of other launchers that change no result here are accepted, with one note on standard error (-q: without).")
	m.fates(table, noted)
	m.section("OPTIONS NOT SUPPORTED")
	m.text("Options that would change the result, and that gorun has nothing for, end it with status 2 and the reason.")
	m.fates(table, refused)
	m.section("CALLED BY ANOTHER NAME")
	m.text("A link to gorun may be called mpirun, orterun, prterun, mpirun.openmpi (it then does as Open MPI) or mpiexec, mpiexec.hydra, mpiexec.mpich (as Hydra), where the two do not agree:")
	for _, c := range clashes() {
		m.line(".TP")
		m.line(".B %s", escaped(c.what))
		m.line("gorun: %s;", escaped(c.gorun))
		m.line(".br")
		m.line("mpirun: %s;", escaped(c.mpirun))
		m.line(".br")
		m.line("mpiexec: %s.", escaped(c.hydras))
	}
	m.section("FILES OF HOSTS")
	m.text("One host a line: a name, an address or a range of names, and behind it slots=N, max_slots=N, user=NAME, or a number of slots after a colon. What is said of a host more than once adds up; ^NAME leaves a host out; comments begin with # or //.")
	m.example("node01 slots=8 max_slots=16", "node[02-09]:8", "[fe80::1]:4")
	m.section("FILES OF PROGRAMS")
	m.text("--app and -configfile read a program a line, with its options before it. Words may be quoted; comments begin with #; a line that ends in a backslash goes on in the next.")
	m.example("-n 1 ./master", "-n 3 -wdir /scratch ./worker 'an argument'")
	m.section("ENVIRONMENT")
	for _, v := range variables() {
		if v.help == "" {
			continue
		}
		m.line(".TP")
		m.line(".B %s", escaped(v.name))
		m.line("%s", escaped(v.help))
	}
	m.section("EXIT STATUS")
	m.text("That of the first rank that failed, 128+N when signal N ended it; 124 after --timeout, 125 when gorun itself failed, 126 for a program that cannot be run, 127 for one that is not found, 2 for a wrong command line.")
	m.section("EXAMPLES")
	m.example("gorun -np 4 ./a2a -m 32", "gorun --launcher fork -H a:2,b:2 ./a2a -m 32",
		"gorun -np 2 -x OMP_NUM_THREADS=4 --timeout 1m30s -- ./solver --flag-of-its-own", "gorun -np 1 ./master : -np 3 -wdir /scratch ./worker")
	return m.b.String()
}

// page is roff under way.
type page struct{ b strings.Builder }

func (m *page) line(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

func (m *page) section(title string) { m.line(".SH %s", quoted(title)) }

func (m *page) text(text string) { m.line("%s", escaped(text)) }

func (m *page) paragraph(text string) {
	m.line(".PP")
	m.text(text)
}

func (m *page) example(lines ...string) {
	m.line(".PP")
	m.line(".nf")
	for _, line := range lines {
		m.line(".RS")
		m.line("%s", escaped(line))
		m.line(".RE")
	}
	m.line(".fi")
}

// option is an option's entry: all its names, the value, what it does.
func (m *page) option(o *option) {
	m.line(".TP")
	forms := spellings(o)
	text := `\fB` + escaped(strings.Join(forms, ", ")) + `\fR`
	if o.value != "" {
		text += ` \fI` + escaped(o.value) + `\fR`
	}
	m.line("%s", text)
	help := sentence(o.help)
	if o.local {
		help += " Of the program that follows."
	}
	if o.under != 0 && o.under&own == 0 {
		help += " When called mpiexec."
	}
	m.line("%s", escaped(help))
}

// fates lists the options of a fate by their reason.
func (m *page) fates(table []option, f fate) {
	var reasons []string
	forms := make(map[string][]string)
	for i := range table {
		o := &table[i]
		if o.fate != f {
			continue
		}
		if forms[o.reason] == nil {
			reasons = append(reasons, o.reason)
		}
		for _, form := range spellings(o) {
			if o.arity > 0 {
				form += " " + o.value
			}
			if o.under == hydra {
				form += " (as mpiexec)"
			}
			forms[o.reason] = append(forms[o.reason], form)
		}
	}
	for _, reason := range reasons {
		m.line(".TP")
		m.line(".B %s", escaped(strings.Join(forms[reason], ", ")))
		m.line("%s", escaped(sentence(reason)))
	}
}

// spellings are the ways to write an option, the short one first.
func spellings(o *option) []string {
	var forms []string
	if o.short != "" {
		forms = append(forms, "-"+o.short)
	}
	for _, name := range slices.Concat(o.names, o.more) {
		if name != o.short {
			forms = append(forms, shown(o, name))
		}
	}
	return forms
}

// sentence makes a help text one.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// escaped makes text harmless to roff: no line of it is a request, no character
// an escape, and a minus is what one types.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// quoted is text as one argument of a request.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"`
}
