package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

// settings collects what the options say while they are read.
type settings struct {
	request
	environ  []string // gorun's own, in which -x NAME looks
	exported []string // settings of -x, NAME=VALUE
	np       int      // 0: not given
}

// option is a line of the table: everything there is to know of one option.
type option struct {
	names  []string // long, the first is the one shown; each may be written with one dash or two
	short  string   // one letter, "" for none
	arity  int      // values on the command line: 0, 1 or 2; two are joined by "="
	family string   // heading in the help, "" hides the option
	value  string   // what the values are called
	help   string
	set    func(s *settings, value string) error
}

// The families, in the order of the help.
var families = []string{"Job", "Hosts", "Devices", "Output", "Help"}

// options is the table. It is a function so that nothing can change it.
func options() []option {
	return []option{
		{names: []string{"np", "n"}, short: "n", arity: 1, family: "Job", value: "N",
			help: "ranks to start (default: 1, with -H one for each slot)", set: setNP},
		{names: []string{"x"}, short: "x", arity: 1, family: "Job", value: "NAME[=VALUE]",
			help: "set NAME for the ranks; without VALUE to what it is here", set: setExport},
		{names: []string{"genv", "env"}, arity: 2, family: "Job", value: "NAME VALUE",
			help: "the same in two arguments, as MPICH has it", set: setExport},
		{names: []string{"wdir", "wd"}, arity: 1, family: "Job", value: "DIR",
			help: "run the ranks in DIR", set: setDir},
		{names: []string{"timeout"}, arity: 1, family: "Job", value: "TIME",
			help: "end a job that takes longer, with status 124: 90 (seconds), 1m30s", set: setTimeout},

		{names: []string{"host", "hosts"}, short: "H", arity: 1, family: "Hosts", value: "NAME[:SLOTS],...",
			help: "hosts to run on and how many ranks each takes (default: 1)", set: setHosts},
		{names: []string{"launcher"}, arity: 1, family: "Hosts", value: "fork",
			help: "how to reach the hosts; fork: an agent process for each, on this machine", set: setLauncher},

		{names: []string{"emulate"}, arity: 1, family: "Devices", value: "NAME,...",
			help: "name the software RDMA devices that the ranks find (default: soft0)", set: setEmulate},

		{names: []string{"tag-output"}, family: "Output",
			help: "put [1,RANK]<stdout>: before each line, stderr alike", set: setSwitch(func(s *settings, on bool) { s.job.TagOutput = on })},
		{names: []string{"verbose"}, short: "v", family: "Output",
			help: "say on standard error what happens, and which algorithms were chosen; -vv more", set: setVerbose},

		{names: []string{"version"}, short: "V", family: "Help",
			help: "print the version and exit", set: setAction(showVersion)},
		{names: []string{"help"}, short: "h", family: "Help",
			help: "print this text and exit", set: setAction(showHelp)},
	}
}

// unfit says what was found in an option's value and what was expected; the
// caller puts the option's name before it.
func unfit(found, expected string) error {
	return fmt.Errorf("found %q, expected %s", found, expected)
}

func setNP(s *settings, value string) error {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 1 {
		return unfit(value, "a number of ranks, 1 or more; try -np 4")
	}
	s.np = int(n)
	return nil
}

// setExport takes NAME=VALUE, or NAME for the value it has here. A NAME that is
// not set here is a warning, as in mpirun, because scripts pass on by name what
// may be there or not.
func setExport(s *settings, value string) error {
	name, _, given := strings.Cut(value, "=")
	if name == "" {
		return unfit(value, "NAME or NAME=VALUE; try -x OMP_NUM_THREADS=2")
	}
	if given {
		s.exported = append(s.exported, value)
		return nil
	}
	// The last of equal names wins, as for a process's own environment.
	for _, e := range slices.Backward(s.environ) {
		if strings.HasPrefix(e, name+"=") {
			s.exported = append(s.exported, e)
			return nil
		}
	}
	s.warnings = append(s.warnings, fmt.Sprintf("-x %s: not set in gorun's environment, so it is not passed on; to set it write -x %s=VALUE", name, name))
	return nil
}

func setDir(s *settings, value string) error {
	if value == "" {
		return unfit(value, "a directory")
	}
	s.job.Dir = value
	return nil
}

func setTimeout(s *settings, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		// A bare number counts seconds.
		d, err = time.ParseDuration(value + "s")
	}
	if err != nil || d <= 0 {
		return unfit(value, "a time above 0 in seconds or with units; try --timeout 90 or --timeout 1m30s")
	}
	s.job.Timeout = d
	return nil
}

func setHosts(s *settings, value string) error {
	hosts, err := parseHosts(value)
	if err != nil {
		return err
	}
	s.job.Hosts = append(s.job.Hosts, hosts...)
	return nil
}

func setLauncher(s *settings, value string) error {
	if value != "fork" {
		return unfit(value, "fork, the only way there is yet to reach hosts; try --launcher fork -H a:2,b:2")
	}
	s.job.Launcher = value
	return nil
}

func setEmulate(s *settings, value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if !deviceName(name) {
			return unfit(value, "device names of letters, digits, '_', '-' and '.', separated by commas; try --emulate mlx5_0,mlx5_1")
		}
		if slices.Contains(s.job.Emulate, name) {
			return fmt.Errorf("found %q twice, expected different names", name)
		}
		s.job.Emulate = append(s.job.Emulate, name)
	}
	return nil
}

// deviceName tells whether a device can bear the name: it travels in a
// comma-separated variable and stands in messages.
func deviceName(name string) bool {
	return name != "" && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) < 0
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

func setVerbose(s *settings, value string) error {
	if value != "" {
		return unfit(value, "no value; try -vv for more detail")
	}
	s.verbose++
	return nil
}

// setAction notes what is asked for instead of a run; the first one stays.
func setAction(a action) func(*settings, string) error {
	return setSwitch(func(s *settings, on bool) {
		if on && s.action == runProgram {
			s.action = a
		}
	})
}
