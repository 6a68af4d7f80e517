package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// jobSettings is what they say of the whole job. What they say of one program is
// in program.
type jobSettings struct {
	appFile    string // of --app, until it is read
	jobEnv     []edit
	jobInherit inherit
	parameters []parameter // of a launcher, until they are followed
}

// program is what a command line says of one program.
type program struct {
	argv    []string
	np      int // 0: not given
	soft    []triplet
	dir     string
	path    string
	env     []edit
	inherit inherit
	said    string          // one of the options that said this; "" for none
	hosts   []hostfile.Host // of -H, where it counts for this program
	only    []string        // the job's hosts that it is kept to; nil: all
}

// jobOptions are the options that say what the ranks are: how many, which
// program, in which directory.
func jobOptions() []option {
	return []option{
		{names: []string{"np", "n"}, fills: "NP", short: "n", more: []string{"c"}, arity: 1, local: true, family: "Job", value: "N",
			help: "start N ranks (default: one for each slot of the hosts; 1 without hosts)", set: setNP},
		{names: []string{"soft"}, arity: 1, local: true, family: "Job", value: "FIRST:LAST:STEP,...",
			help: "numbers of ranks to choose from: gorun starts the largest one up to -np", set: setSoft},
		{names: []string{"wdir", "wd"}, fills: "Dir", more: []string{"cwd"}, arity: 1, local: true, family: "Job", value: "DIR",
			help: "run the ranks in DIR", set: setText(func(s *settings) *string { return &s.program.dir }, "a directory")},
		{names: []string{"path"}, arity: 1, local: true, family: "Job", value: "DIR:...",
			help: "search these directories for the program, instead of PATH", set: setText(func(s *settings) *string { return &s.program.path }, "directories, separated by colons")},
		{names: []string{"app"}, more: []string{"configfile"}, arity: 1, family: "Job", value: "FILE",
			help: "read programs from FILE, one per line: [options] program [arguments]", set: setAppFile},
		{names: []string{"arch"}, arity: 1, local: true, family: "Job", value: "NAME",
			help: "fail unless this machine has that architecture or system: x86_64, amd64, linux", set: setArch},
		{names: []string{"initial-errhandler"}, arity: 1, family: "Job", value: "NAME",
			words: []string{"mpi_errors_are_fatal", "mpi_errors_abort", "mpi_errors_return"},
			help:  "initial error handler of MPI: mpi_errors_are_fatal, _abort, _return (only Open MPI reads it)", set: setErrhandler},
		{names: []string{"async-progress"}, fills: "Hosting.AsyncProgress", arity: 1, family: "Job", value: "off|on|auto", words: []string{"off", "on", "auto"},
			help: "give each rank that is a Go program a thread that moves started operations while it computes; auto: where each has a second CPU (default auto)", set: setAsyncProgress},
		{names: []string{"offload"}, fills: "Hosting.Offload", arity: 0, optional: true, number: true, family: "Job", value: "[THREADS]",
			help: "start a daemon of THREADS threads (default 1) on each host, which moves started collectives of registered memory while Go ranks compute", set: setOffload},
		{names: []string{"memory-alloc-kinds"}, arity: 1, family: "Job", value: "KIND,...",
			help: "kinds of memory that the program requests from MPI (only Open MPI reads it)", set: setMCAVariable("mpi_memory_alloc_kinds")},
	}
}

func setAsyncProgress(s *settings, value string) error {
	switch value {
	case "off", "on", "auto":
		s.job.Hosting.AsyncProgress = value
		return nil
	}
	return unfit(value, "off, on or auto")
}

func setOffload(s *settings, value string) error {
	n := 1
	if value != "" {
		var err error
		if n, err = strconv.Atoi(value); err != nil || n < 1 {
			return unfit(value, "a number of threads, 1 or more")
		}
	}
	s.job.Hosting.Offload = n
	return nil
}

func setNP(s *settings, value string) error {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 1 {
		return unfit(value, "a number of ranks, 1 or more; try -np 4")
	}
	s.program.np = int(n)
	return nil
}

// triplet stands for first, first+step ... up to last, as MPI's mpiexec has it.
type triplet struct{ first, last, step int }

// most is the largest number of a triplet that is not above limit; 0 for none.
func (t triplet) most(limit int) int {
	low, high, step := t.first, t.last, t.step
	if step < 0 { // the same numbers, the other way round
		low, high, step = t.first+(t.last-t.first)/step*step, t.first, -step
	}
	high = min(high, limit)
	if high < low || high < 1 {
		return 0
	}
	return low + (high-low)/step*step
}

func setSoft(s *settings, value string) error {
	expected := "numbers, ranges FIRST:LAST or FIRST:LAST:STEP, separated by commas; try -soft 2:16:2"
	var soft []triplet
	for part := range strings.SplitSeq(value, ",") {
		var numbers []int
		for text := range strings.SplitSeq(part, ":") {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return unfit(value, expected)
			}
			numbers = append(numbers, int(n))
		}
		t := triplet{numbers[0], numbers[0], 1}
		switch len(numbers) {
		case 1:
		case 3:
			t.step = numbers[2]
			fallthrough
		case 2:
			t.last = numbers[1]
		default:
			return unfit(value, expected)
		}
		if t.step == 0 || t.first < 0 || t.last < 0 {
			return unfit(value, expected)
		}
		soft = append(soft, t)
	}
	s.program.soft = soft
	return nil
}

// ranks is how many ranks a program gets.
func (s *settings) ranks(p *program) (int, error) {
	np := p.np
	if np == 0 && p.soft == nil && s.counted() {
		return 0, nil // the launcher finds out
	}
	if np == 0 {
		np = s.defaultRanks()
	}
	if p.soft == nil {
		return np, nil
	}
	if np == 0 {
		return 0, errors.New("-soft: found no -np beside it, expected the number of ranks that it is at most; try -np 8 -soft 2:8:2")
	}
	best := 0
	for _, t := range p.soft {
		best = max(best, t.most(np))
	}
	if best == 0 {
		return 0, fmt.Errorf("-soft: found no number from 1 to %d in it, expected one that -np allows", np)
	}
	return best, nil
}

func setAppFile(s *settings, value string) error {
	if value == "" {
		return unfit(value, "a file")
	}
	if s.appFile != "" {
		return fmt.Errorf("found %q after %q, expected one file", value, s.appFile)
	}
	s.appFile = value
	return nil
}

// setArch holds a program to the machine it is for. All hosts that can be
// reached are of this machine's kind.
func setArch(_ *settings, value string) error {
	names := []string{runtime.GOARCH, runtime.GOOS}
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		names = append(names, unix.ByteSliceToString(uname.Machine[:]))
	}
	for _, name := range names {
		if strings.EqualFold(value, name) || strings.HasPrefix(strings.ToLower(value), name+"-") {
			return nil
		}
	}
	return unfit(value, "what this machine is: "+strings.Join(slices.Compact(names), ", "))
}

func setErrhandler(s *settings, value string) error {
	name := strings.ToLower(value)
	switch name {
	case "mpi_errors_are_fatal", "mpi_errors_abort", "mpi_errors_return":
		return setMCAVariable("mpi_initial_errhandler")(s, name)
	}
	return unfit(value, "mpi_errors_are_fatal, mpi_errors_abort or mpi_errors_return")
}
