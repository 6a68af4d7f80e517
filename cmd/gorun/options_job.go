package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// jobSettings is what they say.
type jobSettings struct {
	exported []string // settings of -x, NAME=VALUE
	np       int      // 0: not given
}

// jobOptions are the options that say what the ranks are: how many, their environment,
// their directory.
func jobOptions() []option {
	return []option{
		{names: []string{"np", "n"}, short: "n", arity: 1, family: "Job", value: "N",
			help: "ranks to start (default: 1, with -H one for each slot)", set: setNP},
		{names: []string{"x"}, short: "x", arity: 1, family: "Job", value: "NAME[=VALUE]",
			help: "set NAME for the ranks; without VALUE to what it is here", set: setExport},
		{names: []string{"genv", "env"}, arity: 2, family: "Job", value: "NAME VALUE",
			help: "the same in two arguments, as MPICH has it", set: setExport},
		{names: []string{"wdir", "wd"}, arity: 1, family: "Job", value: "DIR",
			help: "run the ranks in DIR", set: setDir},
	}
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
