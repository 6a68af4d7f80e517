package main

import (
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/roff"
	"github.com/gorun-mpi/gorun/internal/version"
)

// manual is the page of man(1), in roff of the man macros, made from the table
// of options, the clashes and the variables.
func manual() string {
	var m page
	m.Title("gorun", version.Line("gorun"))
	m.Section("NAME")
	m.Text("gorun - start the ranks of a parallel program")
	m.Section("SYNOPSIS")
	m.Text("gorun [options] program [arguments] [: [options] program [arguments]]...")
	m.Section("DESCRIPTION")
	m.Text("gorun starts the ranks of a parallel program and waits for them: MPI programs and Go programs of package rank find each other; all other programs simply run.")
	m.Paragraph("It replaces mpirun and mpiexec: it takes the options of Open MPI 4 and 5, of Hydra (MPICH, Intel MPI) and of the MPI standard's mpiexec. Long options may be written with one dash.")
	m.Paragraph("Options end at the program. A bare : in its arguments starts another program of the same job, with options of its own; -- before a program ends this: later colons are then its arguments. Some options hold only for the program that follows, and say so; all others hold for the job.")
	m.Paragraph("A program without a slash in its name is looked for in PATH, then in its working directory. A script that does not begin with #! is run by the shell.")
	m.Paragraph("gorun writes the ranks' output in whole lines, gives standard input to rank 0, and passes signals on. INT and TERM end the job; a second one ends it at once.")
	m.Section("OPTIONS")
	table := everyOption()
	for _, f := range families {
		first := true
		for i := range table {
			if o := &table[i]; o.family == f.name {
				if first {
					m.Line(".SS %s", roff.Quoted(f.name))
					first = false
				}
				m.option(o)
			}
		}
	}
	m.Section("OPTIONS WITHOUT EFFECT")
	m.Text("gorun accepts these options of other launchers, which would change no result, with one note on standard error (-q suppresses it).")
	m.fates(table, noted)
	m.Section("OPTIONS NOT SUPPORTED")
	m.Text("These options would change the result, and gorun does not have them. It prints the reason and exits with status 2.")
	m.fates(table, refused)
	m.Section("CALLED BY ANOTHER NAME")
	m.Text("A link to gorun may be called mpirun, orterun, prterun, mpirun.openmpi (gorun then behaves like Open MPI) or mpiexec, mpiexec.hydra, mpiexec.mpich (like Hydra), where the two differ. Where the words of Open MPI 6 differ from those of 4.1, mpirun-6 has them. A wrapper says so by --as mpirun or GORUN_AS=mpirun:")
	for _, c := range clashes() {
		m.Line(".TP")
		m.Line(".B %s", roff.Escaped(c.what))
		m.Line("gorun: %s;", roff.Escaped(c.gorun))
		m.Line(".br")
		m.Line("mpirun: %s;", roff.Escaped(c.mpirun))
		m.Line(".br")
		m.Line("mpiexec: %s.", roff.Escaped(c.hydras))
	}
	m.Section("FILES OF HOSTS")
	m.Text("A hostfile has one host per line: a name, an address or a range of names, then slots=N, max_slots=N, user=NAME, or a number of slots after a colon. The slots of a host that is named more than once add up; ^NAME leaves a host out; comments begin with # or //.")
	m.Example("node01 slots=8 max_slots=16", "node[02-09]:8", "[fe80::1]:4")
	m.Section("FILES OF PROGRAMS")
	m.Text("--app and -configfile read one program per line, with its options before it. Words may be quoted; comments begin with #; a line that ends in a backslash continues in the next one.")
	m.Example("-n 1 ./master", "-n 3 -wdir /scratch ./worker 'an argument'")
	m.Section("ENVIRONMENT")
	for _, v := range variables() {
		if v.help == "" {
			continue
		}
		m.Line(".TP")
		m.Line(".B %s", roff.Escaped(v.name))
		m.Line("%s", roff.Escaped(v.help))
	}
	m.Section("EXIT STATUS")
	m.Text("gorun exits with the status of the first rank that failed, 128+N when signal N ended it; with 124 after --timeout, 125 when gorun itself failed, 126 for a program that cannot be run, 127 for a program that is not found, and 2 for a wrong command line.")
	m.Section("EXAMPLES")
	m.Example("gorun -np 4 ./a2a -m 32", "gorun --launcher fork -H a:2,b:2 ./a2a -m 32",
		"gorun -np 2 -x OMP_NUM_THREADS=4 --timeout 1m30s -- ./solver --flag-of-its-own", "gorun -np 1 ./master : -np 3 -wdir /scratch ./worker")
	return m.String()
}

// page is a manual page that has options in it.
type page struct{ roff.Page }

// option is an option's entry: all its names, the value, what it does.
func (m *page) option(o *option) {
	m.Line(".TP")
	forms := spellings(o)
	text := `\fB` + roff.Escaped(strings.Join(forms, ", ")) + `\fR`
	if o.value != "" {
		text += ` \fI` + roff.Escaped(o.value) + `\fR`
	}
	m.Line("%s", text)
	help := roff.Sentence(o.help)
	if o.local {
		help += " Only for the program that follows."
	}
	if o.under != 0 && o.under&own == 0 {
		help += " Only under the name mpiexec."
	}
	m.Line("%s", roff.Escaped(help))
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
		m.Line(".TP")
		m.Line(".B %s", roff.Escaped(strings.Join(forms[reason], ", ")))
		m.Line("%s", roff.Escaped(roff.Sentence(reason)))
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
