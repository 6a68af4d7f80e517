package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// parse reads a command line, without the command's name. Its error is for the
// user: it names the option as written, what was found and what was expected.
func parse(args, environ []string) (request, error) {
	table := options()
	p, unread := prepass(args, table)
	s := &settings{environ: environ}
	// What stands before an unreadable option is judged first: in -np prog -m 3
	// it is the missing number that is wrong, not the program's -m.
	if err := readFlags(s, p, table); err != nil {
		return request{}, err
	}
	if unread != nil {
		return request{}, unread
	}
	if s.action != runProgram {
		return s.request, nil
	}
	if len(p.program) == 0 || p.program[0] == "" {
		return request{}, errors.New("no program: expected one after the options; try gorun -np 4 hostname, or gorun --help")
	}
	if !p.guarded && slices.Contains(p.program, ":") {
		return request{}, fmt.Errorf("found ':' in the arguments of %s: several programs in one job are not supported yet; "+
			"where ':' is meant for the program, put -- before it: gorun ... -- %s", p.program[0], strings.Join(p.program, " "))
	}
	return s.finish(p.program)
}

// readFlags lets pflag read the prepared options and sets them in order.
func readFlags(s *settings, p prepared, table []option) error {
	flags := pflag.NewFlagSet("gorun", pflag.ContinueOnError)
	flags.Usage = func() {}
	flags.SetInterspersed(false)
	for i := range table {
		o := &table[i]
		v := &value{settings: s, option: o, spelled: p.spelled[o.names[0]]}
		f := flags.VarPF(v, o.names[0], o.short, o.help)
		if o.arity == 0 {
			f.NoOptDefVal = none
		}
	}
	err := flags.Parse(p.flags)
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	return err
}

// none is what pflag hands a switch that was given no value. An argument can
// not hold the byte.
const none = "\x00"

// value is the pflag.Value of one option.
type value struct {
	settings *settings
	option   *option
	spelled  []string // spellings of the occurrences still to come
}

func (v *value) String() string { return "" }
func (v *value) Type() string   { return v.option.value }

func (v *value) Set(text string) error {
	spelling := "--" + v.option.names[0]
	if len(v.spelled) > 0 {
		spelling, v.spelled = v.spelled[0], v.spelled[1:]
	}
	if text == none {
		text = ""
	} else if v.option.arity == 0 && text == "" {
		return &refusal{spelling, unfit("", "a value after the '=', or no '='")}
	}
	if err := v.option.set(v.settings, text); err != nil {
		return &refusal{spelling, err}
	}
	return nil
}

// refusal is an option whose value does not do.
type refusal struct {
	spelling string
	err      error
}

func (r *refusal) Error() string { return r.spelling + ": " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// finish makes the job, once all options are known.
func (s *settings) finish(program []string) (request, error) {
	job := &s.job
	job.Argv = program
	job.Env = slices.Concat(s.environ, s.exported)
	job.NP = s.np
	if job.NP == 0 {
		for _, h := range job.Hosts {
			job.NP += h.Slots
		}
		job.NP = max(job.NP, 1)
	}
	if job.Launcher != "" && len(job.Hosts) == 0 {
		return request{}, fmt.Errorf("--launcher %s: found no hosts, expected -H beside it; try -H a:2,b:2", job.Launcher)
	}
	return s.request, nil
}
