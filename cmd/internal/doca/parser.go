package doca

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
)

// Parse returns these when the user asked for a text instead of a run.
var (
	ErrHelp    = errors.New("doca: help asked for")
	ErrVersion = errors.New("doca: version asked for")
	ErrManual  = errors.New("doca: manual page asked for")
)

// An Error says which flag is wrong, and why.
type Error struct {
	// Flag is named as the user gave it: "-m", "--seed", or "msgsize" from
	// a parameter file. It is empty when no single flag is to blame.
	Flag string
	// Reason says what was found, what was expected and what to try.
	Reason string
}

func (e *Error) Error() string {
	if e.Flag == "" {
		return e.Reason
	}
	return e.Flag + ": " + e.Reason
}

// A Parser reads one program's command line.
type Parser struct {
	program, summary, version string
	entries                   []*entry
	level, sdkLevel           logline.Level // of the program, of the runtime below it
	file                      string
	help, wantVersion         bool
	wantManual                bool
	notes                     []string
	results                   results
	words                     string // that may follow the flags, "" for none
	take                      func(words []string) error
}

// New makes a parser that knows the general flags. summary is one sentence for
// the usage, version the line that --version prints.
func New(program, summary, version string) *Parser {
	p := &Parser{program: program, summary: summary, version: version,
		level: logline.Info, sdkLevel: logline.Info}
	p.add(toggle, setBool(&p.help), Flag{Long: "help", Short: 'h', Help: "print this text and exit"})
	p.add(toggle, setBool(&p.wantVersion), Flag{Long: "version", Short: 'v', Help: "print the version and exit"})
	p.add(integer, p.setLevel(&p.level, "log-level"), Flag{Long: "log-level", Short: 'l', Value: "N", Check: checkLevel(&p.level),
		Help: "log level of the program: " + logline.Names() + " (default 50)"})
	p.add(integer, p.setLevel(&p.sdkLevel, "sdk-log-level"), Flag{Long: "sdk-log-level", Value: "N", Check: checkLevel(&p.sdkLevel),
		Help: "log level of the runtime, with the same numbers (default 50)"})
	p.add(text, setString(&p.file), Flag{Long: "json", Short: 'j', Value: "PATH", Help: "read flags from a JSON file; flags on the command line win"})
	for _, e := range p.entries {
		e.general = true
	}
	p.find("help").ask, p.find("version").ask = ErrHelp, ErrVersion
	p.find("json").parameters = true
	return p
}

// Rename gives a general flag another name, for a program that needs the name
// for a flag of its own. It comes before the program's flags.
func (p *Parser) Rename(long, to string, short byte) {
	e := p.find(long)
	e.Long, e.Short = to, short
}

func checkLevel(l *logline.Level) func() error {
	return func() error {
		if !l.Valid() {
			return fmt.Errorf("found %d, expected one of %s", *l, logline.Names())
		}
		return nil
	}
}

// setLevel takes the numbers of DOCA's old releases too.
func (p *Parser) setLevel(l *logline.Level, long string) func(string) error {
	set := setInt(l)
	return func(raw string) error {
		err := set(raw)
		if old := *l; err == nil && old >= 0 && old <= 4 {
			*l = logline.Critical + 10*old
			p.Note("%s %d is an old log level, taken as %d; today's are %s", p.Name(long), old, *l, logline.Names())
		}
		return err
	}
}

// Words declares what may follow the flags, by name for the usage. take gets them where there are any, once the
// flags are set and checked.
func (p *Parser) Words(names string, take func(words []string) error) { p.words, p.take = names, take }

// Note keeps a line about the command line for the program's log, which [Parser.Report] writes.
func (p *Parser) Note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// Int declares a flag with a whole number, whose default is what *dst holds.
func (p *Parser) Int(dst *int, f Flag) { p.add(integer, setInt(dst), f) }

// Int64 declares a flag with a whole number of 64 bits.
func (p *Parser) Int64(dst *int64, f Flag) { p.add(integer, setInt(dst), f) }

// String declares a flag with any text.
func (p *Parser) String(dst *string, f Flag) { p.add(text, setString(dst), f) }

// Bool declares a switch.
func (p *Parser) Bool(dst *bool, f Flag) { p.add(toggle, setBool(dst), f) }

// add panics when a name is taken: that is a mistake of the program.
func (p *Parser) add(k kind, set func(string) error, f Flag) {
	for _, e := range p.entries {
		if e.Long == f.Long || f.Short != 0 && e.Short == f.Short {
			panic(fmt.Sprintf("doca: flag -%c/--%s is declared twice", f.Short, f.Long))
		}
	}
	p.entries = append(p.entries, &entry{Flag: f, kind: k, set: set})
}

// Given tells, after Parse, whether the flag of that long name was set by the
// user, on the command line or in the file.
func (p *Parser) Given(long string) bool {
	e := p.find(long)
	return e != nil && e.source != notGiven
}

// Name is how messages name the flag of that long name, after Parse.
func (p *Parser) Name(long string) string { return p.find(long).name() }

// Wrong makes an [Error] about the flag of that long name, for the program's own checks after Parse.
func (p *Parser) Wrong(long, format string, args ...any) error {
	return &Error{Flag: p.Name(long), Reason: fmt.Sprintf(format, args...)}
}

func (p *Parser) find(long string) *entry {
	for _, e := range p.entries {
		if e.Long == long {
			return e
		}
	}
	return nil
}

// Parse reads the arguments, without the program's name, and the parameter
// file that they name. The error is nil, ErrHelp, ErrVersion, ErrManual or an *Error. After an error the
// log levels are those given, where they are good, else the defaults.
func (p *Parser) Parse(args []string) error {
	err := p.parse(args)
	for _, l := range []*logline.Level{&p.level, &p.sdkLevel} {
		if !l.Valid() {
			*l = logline.Info
		}
	}
	return err
}

func (p *Parser) parse(args []string) error {
	words, err := p.readArgs(args)
	if err != nil {
		p.settle("log-level")
		p.settle("sdk-log-level")
		return err
	}
	for _, e := range p.entries {
		if e.ask != nil && e.source == fromArgs && e.raw == "true" {
			return e.ask
		}
	}
	for _, e := range p.entries {
		if !e.parameters || e.source != fromArgs {
			continue
		}
		if err := p.readFile(e.raw); err != nil {
			p.settle("log-level")
			p.settle("sdk-log-level")
			return err
		}
	}
	// Types first, for all flags, so that a check may look at other flags;
	// the general flags come first in both rounds.
	var first error
	for _, e := range p.entries {
		if err := e.settle(); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return first
	}
	for _, e := range p.entries {
		if e.Mandatory && e.source == notGiven {
			return &Error{Flag: e.name(), Reason: "not given, and there is no default; expected " + kindNames[e.kind]}
		}
		if e.Check == nil || e.source == notGiven {
			continue
		}
		if err := e.Check(); err != nil {
			return &Error{Flag: e.name(), Reason: err.Error()}
		}
	}
	if len(words) == 0 {
		return nil
	}
	return p.take(words)
}

// settle sets one flag's value as far as it is known, for the log levels of a
// message about another flag.
func (p *Parser) settle(long string) { _ = p.find(long).settle() }

func (e *entry) settle() error {
	if e.source == notGiven {
		return nil
	}
	if err := e.set(e.raw); err != nil {
		return &Error{Flag: e.name(), Reason: err.Error()}
	}
	return nil
}

// readArgs notes what the command line gives, without judging the values, and returns what is no flag.
func (p *Parser) readArgs(args []string) (words []string, err error) {
	fs := pflag.NewFlagSet(p.program, pflag.ContinueOnError)
	fs.Usage = func() {}
	fs.SortFlags = false
	for _, e := range p.entries {
		short := ""
		if e.Short != 0 {
			short = string(e.Short)
		}
		flag := fs.VarPF(given{e}, e.Long, short, e.Help)
		if e.kind == toggle {
			flag.NoOptDefVal = "true"
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, p.explain(err)
	}
	if words = fs.Args(); len(words) > 0 && p.take == nil {
		return nil, &Error{Reason: fmt.Sprintf("found the argument %q, expected flags only; see %s --help", words[0], p.program)}
	}
	return words, nil
}

// given is the pflag.Value that notes a flag's text in its entry.
type given struct{ *entry }

func (g given) String() string     { return g.raw }
func (g given) Type() string       { return g.Value }
func (g given) Set(s string) error { g.raw, g.source = s, fromArgs; return nil }

// explain turns pflag's errors into ours.
func (p *Parser) explain(err error) error {
	var unknown *pflag.NotExistError
	var novalue *pflag.ValueRequiredError
	switch {
	case errors.As(err, &novalue):
		e := p.find(novalue.GetFlag().Name)
		e.source = fromArgs
		return &Error{Flag: e.name(), Reason: "found no value, expected " + kindNames[e.kind] + " (" + e.usageLeft() + ")"}
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		dashes := "--"
		if unknown.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		return &Error{Flag: dashes + name, Reason: "unknown flag; " + p.suggest(name)}
	}
	return &Error{Reason: err.Error()}
}

func (p *Parser) suggest(name string) string {
	var names []string
	for _, e := range p.entries {
		names = append(names, e.Long)
	}
	if n := nearest.Name(name, names); n != "" && len(name) > 1 {
		return "did you mean --" + n + "?"
	}
	return "see " + p.program + " --help"
}
