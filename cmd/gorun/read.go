package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
)

// reader takes a command line apart and sets what it says, in order, so that the
// first of several errors is the one that is told.
//
//	-np 4      a long name after one dash     is --np 4
//	-n4, -vv   short options                  are -n 4, -v -v
//	-genv A B  two values                     are joined: A=B
//	program    ends the options; a bare ":" in its arguments starts another
//	           program with options of its own, unless "--" stood before it
//
// A single dash means the long name when all that follows it (up to "=") is
// one, else a group of short options: -np is --np, -n4 is -n 4, -vv is -v -v.
type reader struct {
	s     *settings
	table []option
	given map[string]bool // the options that were set, by first name
	skip  map[string]bool // those that something before them has set for good
	file  bool            // a file is being read, not the command line
}

// command reads programs, each with the options before it. It leaves no program
// half read: what follows starts a new one.
func (r *reader) command(args []string) error {
	for {
		n, guarded, err := r.options(args)
		if err != nil {
			return err
		}
		argv, rest, more := args[n:], []string(nil), false
		if colon := slices.Index(argv, ":"); colon >= 0 && !guarded {
			argv, rest, more = argv[:colon], argv[colon+1:], true
		}
		if file := r.s.appFile; file != "" {
			r.s.appFile = ""
			if err := r.readApps(file, argv); err != nil {
				return err
			}
		} else if err := r.finishProgram(argv, more); err != nil {
			return err
		}
		if !more {
			return nil
		}
		args = rest
	}
}

// finishProgram takes a program and its arguments, or none at the end of a
// command line that has asked for nothing of it.
func (r *reader) finishProgram(argv []string, more bool) error {
	p := r.s.program
	switch {
	case len(argv) > 0 && argv[0] != "":
		p.argv = argv
		r.s.programs = append(r.s.programs, p)
		r.s.program = new(program)
		return nil
	case r.s.action != runProgram:
		return nil
	case more:
		return errors.New("found no program before ':', expected one: gorun -n 1 ./a : -n 3 ./b")
	case r.file && p.said != "":
		return fmt.Errorf("found %s but no program, expected the program after its options", p.said)
	case !r.file && len(r.s.programs) > 0:
		return errors.New("found no program after the last ':', expected one: gorun -n 1 ./a : -n 3 ./b")
	}
	return nil
}

// options reads options up to the program, and returns where it is.
func (r *reader) options(args []string) (n int, guarded bool, err error) {
	for n < len(args) {
		arg := args[n]
		if arg == "--" {
			return n + 1, true, nil
		}
		if !strings.HasPrefix(arg, "-") {
			break
		}
		took, err := r.option(args[n:])
		if err != nil {
			return n, false, err
		}
		n += took
	}
	return n, false, nil
}

// option takes the option at the head of args, with its values, and returns
// how many arguments they are.
func (r *reader) option(args []string) (int, error) {
	body, double := strings.CutPrefix(args[0], "--")
	if !double {
		body = body[1:]
	}
	name, value, attached := strings.Cut(body, "=")
	if o := longOption(r.table, name); o != nil && (double || len(name) > 1) {
		return r.long(o, args, value, attached)
	}
	if double || body == "" {
		return 0, unknown(args[0], name, r.table)
	}
	return r.shorts(args, body)
}

// long takes an option by its long name.
func (r *reader) long(o *option, args []string, value string, attached bool) (int, error) {
	spelling, _, _ := strings.Cut(args[0], "=")
	if attached && value == "" && o.arity == 0 {
		return 0, &refusal{spelling, unfit("", "a value after the '=', or no '='")}
	}
	if attached || o.arity == 0 {
		return 1, r.set(o, spelling, value)
	}
	values := args[1:]
	if o.pair && len(values) > 0 && strings.Contains(values[0], "=") {
		return 2, r.set(o, spelling, values[0])
	}
	if len(values) < o.arity {
		return 0, lacking(spelling, o, len(values))
	}
	return 1 + o.arity, r.set(o, spelling, strings.Join(values[:o.arity], "="))
}

// shorts takes a group of short options, -v, -vv, -n4, -n 4, -n=4, and returns
// how many arguments it is with its value.
func (r *reader) shorts(args []string, body string) (int, error) {
	for i := range len(body) {
		letter := body[i : i+1]
		o := shortOption(r.table, letter)
		if o == nil {
			return 0, unknown(args[0], body, r.table)
		}
		spelling := "-" + letter
		value, assigned := strings.CutPrefix(body[i+1:], "=")
		switch {
		case assigned || o.arity > 0 && value != "":
			err := r.set(o, spelling, value)
			if err != nil && !assigned && len(body) >= 4 && o.local && o.value == "N" {
				// -nolocla is no number of ranks but a word that was mistyped.
				return 0, unknown(args[0], body, r.table)
			}
			return 1, err
		case o.arity == 0:
			if err := r.set(o, spelling, ""); err != nil {
				return 0, err
			}
		case len(args) < 2:
			return 0, lacking(spelling, o, 0)
		default:
			return 2, r.set(o, spelling, args[1])
		}
	}
	return 1, nil
}

// set sets an option.
func (r *reader) set(o *option, spelling, value string) error {
	name := o.names[0]
	if r.skip[name] && !o.local {
		return nil
	}
	r.given[name] = true
	r.s.spelling = spelling
	if o.local {
		r.s.program.said = spelling
	}
	switch o.fate {
	case noted:
		r.s.note(o.reason)
	case refused:
		return fmt.Errorf("%s: not supported: %s", spelling, o.reason)
	default:
		if err := o.set(r.s, value); err != nil {
			return &refusal{spelling, err}
		}
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

func longOption(table []option, name string) *option {
	for i := range table {
		if slices.Contains(table[i].names, name) || slices.Contains(table[i].more, name) {
			return &table[i]
		}
	}
	return nil
}

// shortOption is the option of a letter. A long name of one letter is one too.
func shortOption(table []option, letter string) *option {
	for i := range table {
		if table[i].short == letter {
			return &table[i]
		}
	}
	return longOption(table, letter)
}

// lacking is the error for an option at the end of the command line.
func lacking(spelling string, o *option, found int) error {
	if o.arity == 2 {
		return fmt.Errorf("%s: found %d of its two values, expected %s", spelling, found, o.value)
	}
	return fmt.Errorf("%s: found no value, expected %s", spelling, o.value)
}

// unknown is the error for an option that is in no table, with the name that
// was probably meant.
func unknown(arg, name string, table []option) error {
	var names []string
	for i := range table {
		if table[i].fate == done {
			names = append(names, table[i].names...)
			names = append(names, table[i].more...)
		}
	}
	spelling, _, _ := strings.Cut(arg, "=")
	if n := nearest.Name(name, names); n != "" && len(name) > 1 {
		return fmt.Errorf("%s: unknown option; did you mean %s?", spelling, shown(longOption(table, n), n))
	}
	return fmt.Errorf("%s: unknown option; gorun --help lists those there are, and options of the program go after it", spelling)
}

// shown is an option as users write it, by one of its names.
func shown(o *option, name string) string {
	switch {
	case len(name) == 1, name == "np":
		return "-" + name
	case o.short != "" && len(o.names[0]) == 1:
		return "-" + o.short
	}
	return "--" + name
}
