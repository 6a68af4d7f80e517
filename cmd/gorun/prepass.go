package main

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
)

// prepared is a command line that pflag can read.
type prepared struct {
	flags   []string // in pflag's form: --name=value
	program []string // the program and its arguments
	// guarded: "--" stood before the program, so that nothing in its arguments
	// has a meaning.
	guarded bool
	// spelled is how the options were written, by shown name, in order.
	spelled map[string][]string
}

// prepass turns mpirun's command line into pflag's long form:
//
//	-np 4      a long name after one dash     ->  --np=4
//	-n4, -vv   short options                  ->  --np=4, --verbose --verbose
//	-genv A B  two values                     ->  --genv=A=B
//	program    where options end              ->  split off
//
// A single dash means the long name when all that follows it (up to "=") is
// one, else a group of short options: -np is --np, -n4 is -n 4, -vv is -v -v.
func prepass(args []string, table []option) (prepared, error) {
	p := prepared{spelled: make(map[string][]string)}
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			p.program, p.guarded = args[1:], true
			return p, nil
		}
		if !strings.HasPrefix(arg, "-") {
			p.program = args
			return p, nil
		}
		n, err := p.option(args, table)
		if err != nil {
			return p, err
		}
		args = args[n:]
	}
	return p, nil
}

// option takes the option at the head of args, with its values, and returns
// how many arguments they are.
func (p *prepared) option(args []string, table []option) (int, error) {
	body, double := strings.CutPrefix(args[0], "--")
	if !double {
		body = body[1:]
	}
	name, value, attached := strings.Cut(body, "=")
	if o := longOption(table, name); o != nil && (double || len(name) > 1) {
		return p.long(o, args, value, attached)
	}
	if double || body == "" {
		return 0, unknown(args[0], name, table)
	}
	return p.shorts(args, body, table)
}

// long takes an option by its long name.
func (p *prepared) long(o *option, args []string, value string, attached bool) (int, error) {
	spelling, _, _ := strings.Cut(args[0], "=")
	p.spelled[o.names[0]] = append(p.spelled[o.names[0]], spelling)
	if attached || o.arity == 0 {
		flag := "--" + o.names[0]
		if attached {
			flag += "=" + value
		}
		p.flags = append(p.flags, flag)
		return 1, nil
	}
	values := args[1:]
	if len(values) < o.arity {
		return 0, lacking(spelling, o, len(values))
	}
	p.flags = append(p.flags, "--"+o.names[0]+"="+strings.Join(values[:o.arity], "="))
	return 1 + o.arity, nil
}

// shorts takes a group of short options, -v, -vv, -n4, -n 4, -n=4, and returns
// how many arguments it is with its value.
func (p *prepared) shorts(args []string, body string, table []option) (int, error) {
	for i := range len(body) {
		o := shortOption(table, body[i:i+1])
		if o == nil {
			return 0, unknown(args[0], body, table)
		}
		p.spelled[o.names[0]] = append(p.spelled[o.names[0]], "-"+o.short)
		value, assigned := strings.CutPrefix(body[i+1:], "=")
		switch {
		case assigned || o.arity > 0 && value != "":
			p.flags = append(p.flags, "--"+o.names[0]+"="+value)
			return 1, nil
		case o.arity == 0:
			p.flags = append(p.flags, "--"+o.names[0])
		case len(args) < 2:
			return 0, lacking("-"+o.short, o, 0)
		default:
			p.flags = append(p.flags, "--"+o.names[0]+"="+args[1])
			return 2, nil
		}
	}
	return 1, nil
}

func longOption(table []option, name string) *option {
	for i := range table {
		for _, n := range table[i].names {
			if n == name {
				return &table[i]
			}
		}
	}
	return nil
}

func shortOption(table []option, letter string) *option {
	for i := range table {
		if table[i].short == letter {
			return &table[i]
		}
	}
	return nil
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
	for _, o := range table {
		if o.family != "" {
			names = append(names, o.names...)
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
