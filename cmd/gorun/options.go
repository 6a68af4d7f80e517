package main

import (
	"cmp"
	"fmt"
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
)

// request is a command line that was understood.
type request struct {
	action   action
	job      launcher.Job
	verbose  int // 1: say what happens, 2 and more: in detail
	warnings []string
}

// settings collects what the options say while they are read. What only one
// family needs stands in that family's file.
type settings struct {
	request
	environ []string // gorun's own, in which -x NAME looks
	jobSettings
}

// option is a line of the table: everything there is to know of one option.
type option struct {
	names  []string // long, the first is the one shown; each may be written with one dash or two
	short  string   // one letter, "" for none
	arity  int      // values on the command line: 0, 1 or 2; two are joined by "="
	family string   // heading in the help, "" hides the option
	value  string   // what the values are called
	help   string   // one line
	set    func(s *settings, value string) error
}

// The families, in the order of the help. Each has a file of rows.
var families = []string{"Job", "Hosts", "Place", "Devices", "Output", "End", "Help"}

// options is the table. It is a function so that nothing can change it.
func options() []option {
	return slices.Concat(jobOptions(), hostOptions(), placeOptions(), deviceOptions(), outputOptions(),
		endOptions(), helpOptions(), compatOptions())
}

// unfit says what was found in an option's value and what was expected; the
// caller puts the option's name before it.
func unfit(found, expected string) error {
	return fmt.Errorf("found %q, expected %s", found, expected)
}

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
