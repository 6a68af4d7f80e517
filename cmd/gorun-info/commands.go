package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// request is a command line that was understood.
type request struct {
	command    *command
	hosts      []hostfile.Host
	programs   []string
	np         int
	portList   string
	ports      ports.Range // of portList
	json       bool
	record     bool
	emulate    string
	reps       bool
	pid        int // of gorun; 0: of the only one
	verbose    bool
	help       bool
	version    bool
	man        bool
	completion string
	environ    []string
	stdio
}

// command is what gorun-info is asked for.
type command struct {
	name  string // "" when none is named
	args  string // what may follow
	help  string
	flags []string // that mean something to it, beside those of all
	run   func(ctx context.Context, r *request) int
}

func commands() []command {
	return []command{
		{"", "", "print an overview: versions, MPIs, the machine, settings", []string{"json"}, showOverview},
		{"doctor", "[HOST...|PROGRAM]", "check this machine, other hosts by ssh and each pair of them, or a program: print what fixes each problem",
			[]string{"json", "np", "tcp-ports", "verbose"}, showDoctor},
		{"devices", "", "list the RDMA devices with ports, limits and features, and say why others are missing", []string{"json", "emulate", "representors"}, showDevices},
		{"top", "[PID]", "show what the ranks of a running job of yours do, and what they use: anew each second on a terminal, until it ends", []string{"json"}, showTop},
		{"topo", "", "draw the CPUs of this machine as a tree", []string{"json", "record"}, showTopology},
		{"settings", "", "list gorun's environment variables with their defaults", []string{"json"}, showSettings},
		{"mpi", "", "list the MPI libraries of this machine, and try whether two ranks of each start", []string{"json"}, showMPIs},
		{"pmi", "", "say which MPI programs gorun can start here", []string{"json"}, showPMI},
	}
}

// flag is an option.
type flag struct {
	long, short, value, help string
	words                    []string // values there are
	set                      func(f *pflag.FlagSet, r *request, o *flag)
}

func flags() []flag {
	onOff := func(dst func(*request) *bool) func(*pflag.FlagSet, *request, *flag) {
		return func(f *pflag.FlagSet, r *request, o *flag) { f.BoolVarP(dst(r), o.long, o.short, false, o.help) }
	}
	return []flag{
		{"np", "n", "N", "doctor: check for a job of N ranks (default: the number of CPUs)", nil,
			func(f *pflag.FlagSet, r *request, o *flag) {
				f.IntVarP(&r.np, o.long, o.short, max(1, topo.CPUs()), o.help)
			}},
		{"tcp-ports", "", "FIRST-LAST", "doctor: ports at which hosts call each other, as gorun --tcp-ports (default: GORUN_TCP_PORTS, else any)", nil,
			func(f *pflag.FlagSet, r *request, o *flag) { f.StringVar(&r.portList, o.long, "", o.help) }},
		{"json", "", "", "print JSON, for programs", nil, onOff(func(r *request) *bool { return &r.json })},
		{"emulate", "", "NAME,...", "devices: names of the software devices, as in gorun --emulate (default: GORUN_EMULATE, else soft0)", nil,
			func(f *pflag.FlagSet, r *request, o *flag) { f.StringVar(&r.emulate, o.long, "", o.help) }},
		{"representors", "", "", "devices: list the representors of the host's functions instead, as on a DPU", nil, onOff(func(r *request) *bool { return &r.reps })},
		{"record", "", "", "topo: print the kernel's files that the tree is made from, for a bug report", nil, onOff(func(r *request) *bool { return &r.record })},
		{"verbose", "v", "", "doctor: also show the checks that are ok, and why each matters", nil, onOff(func(r *request) *bool { return &r.verbose })},
		{"version", "V", "", "print the version and exit", nil, onOff(func(r *request) *bool { return &r.version })},
		{"help", "h", "", "print this text and exit", nil, onOff(func(r *request) *bool { return &r.help })},
		{"man", "", "", "print the manual page and exit: gorun-info --man | man -l -", nil, onOff(func(r *request) *bool { return &r.man })},
		{"completion", "", "SHELL", "print the completion script for bash, zsh or fish", []string{"bash", "zsh", "fish"},
			func(f *pflag.FlagSet, r *request, o *flag) { f.StringVar(&r.completion, o.long, "", o.help) }},
	}
}

// ofAll are the options that need no command.
var ofAll = [...]string{"version", "help", "man", "completion"}

// parse reads a command line. It does nothing else.
func parse(args []string) (*request, error) {
	r := &request{}
	set := pflag.NewFlagSet("gorun-info", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	table := flags()
	for i := range table {
		table[i].set(set, r, &table[i])
	}
	if err := set.Parse(twoDashes(args, table)); err != nil {
		return nil, parseError(err, table)
	}
	if r.completion != "" && !slices.Contains([]string{"bash", "zsh", "fish"}, r.completion) {
		return nil, fmt.Errorf("--completion: found %q, expected bash, zsh or fish", r.completion)
	}
	words := set.Args()
	name := ""
	if len(words) > 0 {
		name, words = words[0], words[1:]
	}
	for _, c := range commands() {
		if c.name == name {
			r.command = &c
		}
	}
	switch {
	case r.command == nil:
		return nil, fmt.Errorf("found %q, expected %s%s", name, commandNames(), meant(name))
	case len(words) > 0 && r.command.args == "":
		return nil, fmt.Errorf("%s: found %q, expected no further arguments", name, words)
	case r.np < 1:
		return nil, fmt.Errorf("--np: found %d, expected a number of ranks, 1 or more", r.np)
	}
	var unfit error
	set.Visit(func(f *pflag.Flag) {
		if !slices.Contains(ofAll[:], f.Name) && !slices.Contains(r.command.flags, f.Name) {
			unfit = fmt.Errorf("--%s has no meaning for %s", f.Name, strings.TrimSpace("gorun-info "+name))
		}
	})
	if unfit != nil {
		return nil, unfit
	}
	var err error
	if r.ports, err = ports.Parse(r.portList); err != nil || set.Changed("tcp-ports") && r.portList == "" {
		return nil, fmt.Errorf("--tcp-ports: found %q, expected two ports, the first and the last, as 40000-40100", r.portList)
	}
	if name == "top" {
		if r.pid, err = readPID(words); err != nil {
			return nil, err
		}
		words = nil
	}
	for _, word := range words {
		if isProgram(word) {
			r.programs = append(r.programs, word)
			continue
		}
		list, err := hostfile.List(word)
		if err != nil {
			return nil, err
		}
		for _, h := range list {
			if !slices.ContainsFunc(r.hosts, func(o hostfile.Host) bool { return o.Name == h.Name && o.User == h.User }) {
				r.hosts = append(r.hosts, h)
			}
		}
	}
	return r, nil
}

// isProgram tells a program's path from a host's name.
func isProgram(word string) bool {
	info, err := os.Stat(word)
	return strings.Contains(word, "/") || err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// twoDashes writes long options with one dash as pflag wants them.
func twoDashes(args []string, table []flag) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if a == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		if slices.ContainsFunc(table, func(o flag) bool { return o.long == name }) && len(name) > 1 {
			args[i] = "-" + a
		}
	}
	return args
}

// parseError says what pflag found wrong in our words.
func parseError(err error, table []flag) error {
	if none, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := none.GetSpecifiedName()
		var names []string
		for _, o := range table {
			names = append(names, o.long)
		}
		if near := nearest.Name(name, names); near != "" {
			return fmt.Errorf("there is no option %s; did you mean --%s?", name, near)
		}
		return fmt.Errorf("there is no option %s", name)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s: expected a value after it", missing.GetFlag().Name)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s: found %q, expected %s", bad.GetFlag().Name, bad.GetValue(), map[string]string{"int": "a number", "bool": "no value"}[bad.GetFlag().Value.Type()])
	}
	return err
}

func commandNames() string {
	var names []string
	for _, c := range commands() {
		if c.name != "" {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

func meant(name string) string {
	if near := nearest.Name(name, strings.Split(commandNames(), ", ")); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// encode writes a value for programs. That it could not be written is told by run.
func (r *request) encode(value any) int {
	e := json.NewEncoder(r.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return statusMissing
	}
	return 0
}
