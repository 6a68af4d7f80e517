package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
)

// reader takes a command line apart, program by program. A pre-pass over the
// options of a program decides what only the grammar of mpirun and mpiexec knows:
// which argument is an option, under which of its names, how many values it
// takes, and where the program begins. It turns them into pflag's long form,
//
//	-np 4      a long name after one dash     ->  --np=4
//	-n4, -vv   short options                  ->  --np=4, --verbose --verbose
//	-genv A B  two values                     ->  --genv=A=B
//	program    ends the options; a bare ":" in its arguments starts another
//	           program with options of its own, unless "--" stood before it
//
// which a pflag.FlagSet made from the table reads, in order: each row is a
// pflag.Value, which takes the value or says what is wrong with it. What stands
// before an option that cannot be read is judged first.
//
// A single dash means the long name when all that follows it (up to "=") is
// one, else a group of short options: -np is --np, -n4 is -n 4, -vv is -v -v.
type reader struct {
	s     *settings
	table []option
	given map[string]bool // the options that were set, by first name
	skip  map[string]bool // those that something before them has set for good
	file  bool            // a file is being read, not the command line
	ate   [2]string       // the option that ends the command line, and its value
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
	p := prepared{spelled: make(map[string][]string)}
	var unread error
	for n < len(args) && unread == nil {
		arg := args[n]
		if guarded = arg == "--"; guarded {
			n++
			break
		}
		if !strings.HasPrefix(arg, "-") {
			unread = pastedDash(arg)
			break
		}
		var took int
		took, unread = p.option(args[n:], r.table)
		if r.ate = [2]string{}; took > 1 {
			r.ate = [2]string{arg, args[n+took-1]}
		}
		n += took
	}
	// In -np prog -m 3 it is the missing number that is wrong, not the program's -m.
	if err := r.readFlags(&p); err != nil {
		return n, false, err
	}
	return n, guarded, unread
}

// pastedDash is the error about an option whose dash a text program has made another character; nil: it is a program.
func pastedDash(arg string) error {
	for _, dash := range [...]string{"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212"} {
		if rest, ok := strings.CutPrefix(arg, dash); ok {
			plain := "-"
			if name, _, _ := strings.Cut(rest, "="); len(name) > 2 {
				plain = "--"
			}
			return fmt.Errorf("%s: begins with %U, a dash of printed text, expected '-'; try %s%s", arg, []rune(dash)[0], plain, strings.TrimLeft(rest, dash+"-"))
		}
	}
	return nil
}

// readFlags lets pflag read the prepared options.
func (r *reader) readFlags(p *prepared) error {
	if len(p.flags) == 0 {
		return nil
	}
	flags := pflag.NewFlagSet("gorun", pflag.ContinueOnError)
	flags.Usage = func() {}
	for i := range r.table {
		o := &r.table[i]
		f := flags.VarPF(&value{r, o, p.spelled[o.names[0]]}, o.names[0], "", o.help)
		if o.arity == 0 {
			f.NoOptDefVal = none
		}
	}
	err := flags.Parse(p.flags)
	// Its own words about whose value it was are not for the user, who knows
	// other names.
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
	reader  *reader
	option  *option
	spelled []string // spellings of the occurrences still to come
}

var _ pflag.Value = (*value)(nil)

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
	return v.reader.set(v.option, spelling, text)
}

// prepared is the options of a program in pflag's form.
type prepared struct {
	flags   []string            // --name=value
	spelled map[string][]string // how they were written, by first name, in order
}

// add adds an option with its value.
func (p *prepared) add(o *option, spelling, value string) {
	p.spelled[o.names[0]] = append(p.spelled[o.names[0]], spelling)
	p.flags = append(p.flags, "--"+o.names[0]+value)
}

// option takes the option at the head of args, with its values, and returns
// how many arguments they are.
func (p *prepared) option(args []string, table []option) (int, error) {
	body, double := strings.CutPrefix(args[0], "--")
	if !double {
		body = body[1:]
	}
	name, value, attached := strings.Cut(body, "=")
	if full := shortened(table, name); len(full) == 1 && (double || shortOption(table, name[:1]) == nil) {
		args = slices.Concat([]string{strings.Replace(args[0], name, full[0], 1)}, args[1:])
		name = full[0]
	}
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
	if attached {
		p.add(o, spelling, "="+value)
		return 1, nil
	}
	if o.optional && len(args) > 1 && o.takes(args[1]) {
		p.add(o, spelling, "="+args[1])
		return 2, nil
	}
	if o.arity == 0 {
		p.add(o, spelling, "")
		return 1, nil
	}
	values := args[1:]
	if o.pair && len(values) > 0 && strings.Contains(values[0], "=") {
		p.add(o, spelling, "="+values[0])
		return 2, nil
	}
	if len(values) < o.arity {
		return 0, lacking(spelling, o, len(values))
	}
	p.add(o, spelling, "="+strings.Join(values[:o.arity], "="))
	return 1 + o.arity, nil
}

// takes tells whether the argument behind an option of optional is its value.
func (o *option) takes(arg string) bool {
	if o.number {
		_, err := strconv.Atoi(arg)
		return err == nil
	}
	return !strings.HasPrefix(arg, "-")
}

// shorts takes a group of short options, -v, -vv, -n4, -n 4, -n=4, and returns
// how many arguments it is with its value.
func (p *prepared) shorts(args []string, body string, table []option) (int, error) {
	for i := range len(body) {
		letter := body[i : i+1]
		o := shortOption(table, letter)
		if o == nil {
			return 0, unknown(args[0], body, table)
		}
		if o.fate != done && len(body) > 3 && nearest.Name(body, namesOf(table)) != "" {
			return 0, unknown(args[0], body, table) // -genvv is not -g
		}
		spelling := "-" + letter
		value, assigned := strings.CutPrefix(body[i+1:], "=")
		switch {
		case !assigned && o.value == "N" && len(value) > 1 && !strings.ContainsAny(value[:1], "0123456789+-"):
			// -nolocla and -np2 are no numbers of ranks but words that were mistyped.
			return 0, unknown(args[0], body, table)
		case assigned || o.arity > 0 && value != "":
			p.add(o, spelling, "="+value)
			return 1, nil
		case o.optional && value == "":
			return p.long(o, append([]string{spelling}, args[1:]...), "", false)
		case o.arity == 0:
			p.add(o, spelling, "")
		case len(args) < 2:
			return 0, lacking(spelling, o, 0)
		default:
			p.add(o, spelling, "="+args[1])
			return 2, nil
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
		return &refusal{spelling, fmt.Errorf("not supported: %s", o.reason)}
	default:
		if err := o.set(r.s, value); err != nil {
			return &refusal{spelling, err}
		}
		r.s.wrote(o, spelling, value)
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

// shortened are the long names that a name which is none begins, of three letters or more: one if it is clear what is
// meant, as with Open MPI 5's and 6's launcher. Of names of which one begins all others it is that one.
func shortened(table []option, name string) []string {
	if len(name) < 3 || longOption(table, name) != nil || foreignHint(name) != "" {
		return nil
	}
	var found []string
	for i := range table {
		for _, n := range slices.Concat(table[i].names, table[i].more) {
			if strings.HasPrefix(n, name) {
				found = append(found, n)
			}
		}
	}
	slices.Sort(found)
	if len(found) > 1 && !slices.ContainsFunc(found, func(n string) bool {
		return !strings.HasPrefix(n, found[0]) || longOption(table, n) != longOption(table, found[0])
	}) {
		return found[:1]
	}
	return found
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
	spelling, _, _ := strings.Cut(arg, "=")
	if hint := foreignHint(name); hint != "" {
		return fmt.Errorf("%s: unknown option, %s", spelling, hint)
	}
	if several := shortened(table, name); len(several) > 1 {
		return fmt.Errorf("%s: unknown option; it may be short for --%s; gorun --help lists them all", spelling, strings.Join(several, ", --"))
	}
	if n := nearest.Name(name, namesOf(table)); n != "" && len(name) > 1 {
		return fmt.Errorf("%s: unknown option; did you mean %s?", spelling, shown(longOption(table, n), n))
	}
	return fmt.Errorf("%s: unknown option; gorun --help lists those there are, and options of the program go after it", spelling)
}

// namesOf are the long names of what gorun does.
func namesOf(table []option) []string {
	var names []string
	for i := range table {
		if table[i].fate == done {
			names = append(names, table[i].names...)
			names = append(names, table[i].more...)
		}
	}
	return names
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
