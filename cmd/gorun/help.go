package main

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
)

const helpHead = `Usage: gorun [options] program [arguments] [: [options] program [arguments]]...

Starts the ranks of a parallel program and waits for them. Programs written
for MPI (MPICH, Open MPI, mpi4py) and in Go (package rank) find each other.
Long options may be written with one dash, as for mpirun: -np 4, -wdir /tmp.
Options marked * apply to the program that follows, all others to the whole job.
`

const helpStatus = `Exit status: that of the first rank that failed, 128+N when signal N ended it;
124 after --timeout, 125 when gorun itself failed, 126 for a program that cannot
be run, 127 for one that is not found, 2 for a wrong command line.
`

const helpExamples = `
Examples:
  gorun -np 4 ./a2a -m 32
  gorun -np 4 --emulate mlx5_0,mlx5_1 ./a2a -m 4096 -d mlx5_0,mlx5_1
  gorun --launcher fork -H a:2,b:2 ./a2a -m 32
  gorun -np 2 -x OMP_NUM_THREADS=4 --timeout 1m30s -- ./solver --flag-of-its-own
  gorun -np 1 ./master : -np 3 -wdir /scratch ./worker

gorun writes the ranks' output in whole lines, gives standard input to rank 0,
and passes signals on. INT and TERM end the job; a second one ends it at once.
`

const helpManual = `
gorun --man | man -l - is the manual: other names of the options, options of mpirun
and mpiexec that have no effect here, and what changes when gorun has their names.
`

// common are the options that --help alone shows.
var common = []string{"np", "x", "wdir", "host", "hostfile", "map-by", "bind-to", "tag-output", "progress", "verbose", "timeout", "version"}

// topic is what --help TOPIC explains.
type topic struct {
	name, about string
	text        func() string
}

// topics are the families of options, and what else there is to explain.
func topics() []topic {
	var list []topic
	for _, f := range families {
		text := func() string { return headed(f.name) }
		if f.name == "Environment" {
			text = func() string { return headed(f.name) + variablesHelp() }
		}
		list = append(list, topic{topicName(f.name), f.about, text})
	}
	return append(list,
		topic{"exit-status", "what gorun's exit status means", func() string { return "\n" + helpStatus }},
		topic{"all", "all of these", func() string {
			text := helpHead[strings.Index(helpHead, "\n\n")+1:]
			for _, f := range families {
				text += headed(f.name)
			}
			return text + "\n" + helpStatus + helpExamples + helpManual
		}})
}

// topicName is the topic of a family of options.
func topicName(family string) string { return strings.ReplaceAll(strings.ToLower(family), " ", "-") }

func topicNames() []string {
	var names []string
	for _, t := range topics() {
		names = append(names, t.name)
	}
	return names
}

// setHelp takes a topic, the name of an option, or nothing.
func setHelp(s *settings, value string) error {
	if value == "false" {
		return nil
	}
	if value != "" && value != "true" {
		if _, ok := helpOn(value); !ok {
			expected := "one of the topics " + strings.Join(topicNames(), ", ") + ", or an option"
			if near := nearest.Name(value, append(topicNames(), namesOf(options())...)); near != "" {
				expected += "; did you mean " + near + "?"
			}
			return unfit(value, expected)
		}
		s.topic = value
	}
	return setAction(showHelp)(s, "")
}

// helpOn is the text on a topic or an option.
func helpOn(name string) (string, bool) {
	for _, t := range topics() {
		if strings.EqualFold(t.name, name) {
			return strings.TrimPrefix(t.text(), "\n"), true
		}
	}
	if o := shortOption(options(), strings.TrimLeft(name, "-")); name != "" && o != nil && o.family != "" {
		return row(o), true
	}
	return "", false
}

// help is the text of --help, made from the table: of a topic, or of the options
// that most jobs need and of what else there is.
func help(name string) string {
	if text, ok := helpOn(name); ok {
		return text
	}
	var b strings.Builder
	b.WriteString(helpHead + "\nCommon options:\n")
	for _, name := range common {
		b.WriteString(row(longOption(options(), name)))
	}
	b.WriteString("\ngorun --help TOPIC explains more, gorun --help OPTION one option. Topics:\n")
	for _, t := range topics() {
		fmt.Fprintf(&b, "   %-12s  %s\n", t.name, t.about)
	}
	return b.String() + helpExamples + helpManual
}

// headed are the options of a family in the table's order, below its name.
func headed(family string) string {
	text := "\n" + family + ":\n"
	table := options()
	for i := range table {
		if table[i].family == family {
			text += row(&table[i])
		}
	}
	return text
}

// row is the line of an option: "-n, -np N    start N ranks".
func row(o *option) string {
	const width = 30 // of the left column; what is longer has a line of its own
	left, mark := helpLeft(o), " "
	if o.local {
		mark = "*"
	}
	if len(left) > width {
		left += fmt.Sprintf("\n   %*s", width, "")
	}
	return fmt.Sprintf(" %s %-*s  %s\n", mark, width, left, wrapped(o.help, width+5))
}

// wrapped breaks a help text into lines that stand behind so many blanks.
func wrapped(text string, blanks int) string {
	var b strings.Builder
	column := blanks
	for i, word := range strings.Fields(text) {
		if column += 1 + len(word); column > 120 {
			fmt.Fprintf(&b, "\n%*s", blanks, "")
			column = blanks + len(word)
		} else if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// variablesHelp lists the variables that gorun reads.
func variablesHelp() string {
	text := "\nVariables that gorun reads (an option on the command line wins):\n"
	for _, v := range variables() {
		if v.help != "" {
			text += "   " + strings.ReplaceAll(v.name, ", ", "\n   ") + fmt.Sprintf("\n%35s%s\n", "", wrapped(v.help, 35))
		}
	}
	return text + "\ngorun-info settings lists those named GORUN_, with their values.\n"
}

// helpLeft is the left column of the help: "-H, --host NAME[:SLOTS],...".
func helpLeft(o *option) string {
	var forms []string
	if o.short != "" {
		forms = append(forms, "-"+o.short)
	}
	for _, n := range o.names {
		if n != o.short {
			forms = append(forms, shown(o, n))
		}
	}
	left := strings.Join(forms, ", ")
	if o.value != "" {
		left += " " + o.value
	}
	return left
}
