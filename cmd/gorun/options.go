package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/gorun-mpi/gorun/launcher"
)

// action is what a command line asks for.
type action int

const (
	runProgram action = iota
	showHelp
	showVersion
	showManual
	showCompletion
)

// request is a command line that was understood.
type request struct {
	action   action
	name     string // what gorun was called as
	shell    string // whose completion is asked for
	topic    string // of the help; "": the overview
	job      launcher.Job
	verbose  int  // 1: say what happens, 2 and more: in detail
	quiet    bool // no notes, no warnings
	warnings []string
	notes    []note
	written  []writtenOption // that were set, in order
	discover string          // the program of --discover-hosts
	metrics  string          // where they are to be had; "": nowhere
	profile  profiling
	ends     ends
	show     show
	looks    looks
	noStdin  bool
}

// note is what is told of options that were accepted and do nothing.
type note struct {
	reason  string
	options []string // as written
}

// ends is what is told of how the ranks ended, beside their first failure.
type ends struct {
	everyStatus bool        // say all exit statuses
	or          bool        // exit as Hydra does, with the bitwise OR of all
	pidFile     string      // for --report-pid: "-", "+" or a file
	signals     []os.Signal // to pass on, beside the usual ones
}

// settings collects what the options say while they are read. What only one
// family needs stands in that family's file.
type settings struct {
	request
	under    family // the kind of launcher gorun was called as
	environ  []string
	readFile func(name string) ([]byte, error)
	cpus     func() int
	spelling string // of the option that is being set
	program  *program
	programs []*program // those that were read before it
	jobSettings
	elasticSettings
	where hostSettings
	place placeSettings
	outputSettings
}

// fate is what becomes of an option.
type fate int

const (
	done    fate = iota // it does what it says
	noted               // accepted, does nothing, and one note says why
	refused             // an error that says why
)

// option is a line of the table: everything there is to know of one option.
type option struct {
	names    []string // as the help shows them, the first in messages too; each may be written with one dash or two
	more     []string // other names, which only the manual shows
	short    string   // one letter, "" for none
	arity    int      // values on the command line: 0, 1 or 2; two are joined by "="
	optional bool     // of arity 0: takes the next argument as its value, unless that begins with a dash
	number   bool     // with optional: only a number is taken
	pair     bool     // of arity 2: NAME=VALUE in one argument will do
	local    bool     // says something of the next program only, not of the job
	family   string   // heading in the help, "" hides the option
	fills    string   // fields of launcher.Job, as its errors name them
	value    string   // what the values are called
	help     string   // one line
	words    []string // values there are, for completion
	under    family   // kinds of launcher that have it in this sense; 0: all
	fate     fate
	reason   string // of fate: why; follows "has no effect: " or "not supported: "
	set      func(s *settings, value string) error
}

// The families, in the order of the help, each with what it is about. Each has a
// file of rows.
var families = []struct{ name, about string }{
	{"Job", "how many ranks, of which programs"},
	{"Environment", "variables of the ranks, and those that gorun reads"},
	{"Hosts", "the hosts to run on"},
	{"Placement", "where each rank runs, and on which CPUs"},
	{"Devices", "RDMA devices of the ranks"},
	{"Output", "the ranks' output and input, and gorun's own messages"},
	{"Failures", "timeouts, signals, failed ranks, restarts"},
	{"Open MPI", "parameters of Open MPI"},
	{"Help", "version, manual, completion"},
}

// everyOption is the table, the senses that options have under other names
// included. It is a function so that nothing can change it.
func everyOption() []option {
	return slices.Concat(jobOptions(), environmentOptions(), hostOptions(), placeOptions(), deviceOptions(), outputOptions(),
		endOptions(), mcaOptions(), helpOptions(), openMPIOptions(), runtimeOptions(), hydraOptions(), palsOptions(), pmiOptions())
}

// optionsUnder is the table as gorun has it when called as a kind of launcher.
func optionsUnder(f family) []option {
	return slices.DeleteFunc(everyOption(), func(o option) bool { return o.under != 0 && o.under&f == 0 })
}

// options is the table under gorun's own name.
func options() []option { return optionsUnder(own) }

// unfit says what was found in an option's value and what was expected; the
// caller puts the option's name before it.
func unfit(found, expected string) error { return fmt.Errorf("found %q, expected %s", found, expected) }

// setSwitch reads an option that is on or off: --name, --name=false.
func setSwitch(set func(*settings, bool)) func(*settings, string) error {
	return func(s *settings, value string) error {
		on, err := strconv.ParseBool(cmp.Or(value, "true"))
		if err != nil {
			return unfit(value, "no value, or =true or =false")
		}
		set(s, on)
		return nil
	}
}

// setText reads an option whose value is kept as it is: one of the words, or any where there
// are none, and nothing only where nothing is expected.
func setText(field func(*settings) *string, expected string, words ...string) func(*settings, string) error {
	return func(s *settings, value string) error {
		if words != nil && !slices.Contains(words, value) || value == "" && expected != "" {
			return unfit(value, expected)
		}
		*field(s) = value
		return nil
	}
}

// note notes that the option being set does nothing.
func (s *settings) note(reason string) {
	for i := range s.notes {
		if n := &s.notes[i]; n.reason == reason {
			if !slices.Contains(n.options, s.spelling) {
				n.options = append(n.options, s.spelling)
			}
			return
		}
	}
	s.notes = append(s.notes, note{reason, []string{s.spelling}})
}

// allNames are the names of an option, the letter included.
func (o *option) allNames() []string {
	names := slices.Concat(o.names, o.more)
	if o.short != "" && !slices.Contains(names, o.short) {
		names = append(names, o.short)
	}
	return names
}
