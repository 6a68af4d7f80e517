package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// environmentOptions are the options that say what is in the ranks' environment.
func environmentOptions() []option {
	return []option{
		{names: []string{"x"}, fills: "Env", short: "x", arity: 1, local: true, family: "Environment", value: "NAME[=VALUE]",
			help: "set NAME for the ranks; without VALUE to gorun's own value; NAME* does so for all names with that beginning", set: setExport},
		{names: []string{"env"}, more: []string{"set-env"}, arity: 2, pair: true, local: true, family: "Environment", value: "NAME VALUE",
			help: "set NAME to VALUE for the ranks, in two arguments as MPICH does", set: setEnv(false)},
		{names: []string{"genv"}, arity: 2, pair: true, family: "Environment", value: "NAME VALUE",
			help: "set NAME to VALUE for all programs of the job", set: setEnv(true)},
		{names: []string{"envlist"}, arity: 1, local: true, family: "Environment", value: "NAME,...",
			help: "pass on only these variables", set: setInherit(false, inheritListed)},
		{names: []string{"genvlist"}, arity: 1, family: "Environment", value: "NAME,...",
			help: "the same for all programs", set: setInherit(true, inheritListed)},
		{names: []string{"envnone"}, local: true, family: "Environment",
			help: "pass on no variables; ranks get only those that options set", set: setInherit(false, inheritNone)},
		{names: []string{"genvnone"}, family: "Environment",
			help: "the same for all programs", set: setInherit(true, inheritNone)},
		{names: []string{"envall"}, local: true, family: "Environment",
			help: "pass on all variables (the default)", set: setInherit(false, inheritAll)},
		{names: []string{"genvall"}, family: "Environment",
			help: "the same for all programs", set: setInherit(true, inheritAll)},
		{names: []string{"unset-env"}, arity: 1, local: true, family: "Environment", value: "NAME",
			help: "remove NAME from the ranks' environment", set: setUnset},
		{names: []string{"prepend-env"}, arity: 2, pair: true, local: true, family: "Environment", value: "NAME[SEPARATOR] VALUE",
			help: "put VALUE before the present value of NAME, with SEPARATOR (default: ':') between them", set: setExtend(prepended)},
		{names: []string{"append-env"}, arity: 2, pair: true, local: true, family: "Environment", value: "NAME[SEPARATOR] VALUE",
			help: "put VALUE after the present value of NAME", set: setExtend(appended)},
	}
}

// operation is what an edit does to an environment.
type operation int

const (
	assigned operation = iota
	removed
	prepended
	appended
)

// edit is a change of an environment.
type edit struct {
	op          operation
	name, value string
	separator   string // of prepended and appended
}

// inherited says which of gorun's variables a program gets.
type inherit struct {
	which which
	names []string // of inheritListed
}

type which int

const (
	inheritDefault which = iota // as the job, and the job: all
	inheritAll
	inheritNone
	inheritListed
)

// setExport takes NAME=VALUE, or NAME for the value it has here. A NAME that is
// not set here is a warning, as in mpirun, because scripts pass on by name what
// may be there or not.
func setExport(s *settings, value string) error { return s.export(value, &s.program.env) }

func (s *settings) export(value string, edits *[]edit) error {
	name, text, given := strings.Cut(value, "=")
	prefix, all := strings.CutSuffix(name, "*")
	if name == "" || prefix == "" || given && all {
		return unfit(value, "NAME, NAME=VALUE or PREFIX*; try -x OMP_NUM_THREADS=2")
	}
	if given {
		*edits = append(*edits, edit{name: name, value: text})
		return nil
	}
	if all {
		n := len(*edits)
		for _, entry := range s.environ {
			if name, text, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, prefix) {
				*edits = append(*edits, edit{name: name, value: text})
			}
		}
		if len(*edits) == n {
			s.warn("-x %s: no variable of gorun's environment begins with %s, so none is passed on", value, prefix)
		}
		return nil
	}
	if text, ok := envvar.Lookup(s.environ, name); ok {
		*edits = append(*edits, edit{name: name, value: text})
		return nil
	}
	s.warn("-x %s: not set in gorun's environment, so it is not passed on; to set it write -x %s=VALUE", name, name)
	return nil
}

func (s *settings) warn(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// edits are the changes that are being collected: the job's or the program's.
func (s *settings) edits(job bool) *[]edit {
	if job {
		return &s.jobEnv
	}
	return &s.program.env
}

func setEnv(job bool) func(*settings, string) error {
	return func(s *settings, value string) error {
		name, text, ok := strings.Cut(value, "=")
		if name == "" || !ok {
			return unfit(value, "NAME VALUE, or NAME=VALUE; try -env OMP_NUM_THREADS 2")
		}
		edits := s.edits(job)
		*edits = append(*edits, edit{name: name, value: text})
		return nil
	}
}

func setUnset(s *settings, value string) error {
	if value == "" || strings.Contains(value, "=") {
		return unfit(value, "the name of a variable")
	}
	s.program.env = append(s.program.env, edit{op: removed, name: value})
	return nil
}

func setExtend(op operation) func(*settings, string) error {
	return func(s *settings, value string) error {
		name, text, ok := strings.Cut(value, "=")
		separator := ":"
		if before, inside, bracket := strings.Cut(name, "["); bracket {
			name, separator = before, strings.TrimSuffix(inside, "]")
		}
		if name == "" || !ok || separator == "" {
			return unfit(value, "NAME VALUE or NAME[SEPARATOR] VALUE; try --prepend-env PATH /opt/bin")
		}
		s.program.env = append(s.program.env, edit{op: op, name: name, value: text, separator: separator})
		return nil
	}
}

func setInherit(job bool, w which) func(*settings, string) error {
	return func(s *settings, value string) error {
		i := inherit{which: w}
		if w == inheritListed {
			for name := range strings.SplitSeq(value, ",") {
				if name == "" || strings.Contains(name, "=") {
					return unfit(value, "names of variables, separated by commas; try -envlist HOME,PATH")
				}
				i.names = append(i.names, name)
			}
		} else if value != "" {
			return unfit(value, "no value")
		}
		if job {
			s.jobInherit = i
		} else {
			s.program.inherit = i
		}
		return nil
	}
}

// environment is what a program's ranks get before gorun adds its own: what is
// passed on, what the job sets, what the program sets.
func (s *settings) environment(p *program) []string {
	i := p.inherit
	if i.which == inheritDefault {
		i = s.jobInherit
	}
	env := []string{} // nil would stand for all
	switch i.which {
	case inheritNone:
	case inheritListed:
		for _, name := range i.names {
			if value, ok := envvar.Lookup(s.environ, name); ok {
				env = append(env, name+"="+value)
			}
		}
	default:
		env = slices.Clip(s.environ)
		if env == nil {
			env = []string{}
		}
	}
	for _, e := range slices.Concat(s.jobEnv, p.env) {
		env = e.apply(env)
	}
	return env
}

// apply makes the change. It may write behind env, not into it.
func (e edit) apply(env []string) []string {
	now, set := "", false
	if e.op != assigned {
		now, set = envvar.Lookup(env, e.name)
	}
	switch {
	case e.op == removed:
		return slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, e.name+"=") })
	case set && e.op == prepended:
		return append(env, e.name+"="+e.value+e.separator+now)
	case set && e.op == appended:
		return append(env, e.name+"="+now+e.separator+e.value)
	}
	return append(env, e.name+"="+e.value)
}
