// Gorun-verbs runs a program that uses libibverbs on software devices: no hardware, kernel module or root.
//
//	gorun-verbs ibv_rc_pingpong &
//	gorun-verbs ibv_rc_pingpong localhost
//
// It puts the directory of a libibverbs.so.1 of its own (rdma/dropin) in front of LD_LIBRARY_PATH, preloads what shows
// /dev/infiniband/uverbsN, and becomes the program. Programs of one user on one machine reach each other, and with --key those on
// several hosts. docs/verbs.md has the limits.
//
// # Exit status
//
// The program's. 2: a wrong command line, or no library. 126: the program cannot use the library, or not run. 127: there is none.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/self"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rdma/comch"
	"github.com/gorun-mpi/gorun/rdma/dropin"
)

const (
	statusUsage    = 2
	statusCannot   = 126
	statusNotFound = 127
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, unix.Exec)) }

// request is a command line that was understood.
type request struct {
	devices, fabric, adverse, completion string
	key, iface, ports                    string
	check, abort, version, help, man     bool
	command                              []string
}

// option is a row of the table that the help, the manual page and the completion are made from.
type option struct {
	long, short, value, help string
	text                     func(*request) *string // or
	on                       func(*request) *bool
}

func options() []option {
	return []option{
		{"device", "d", "NAME,...", "names of the software devices, as mlx5_0 (default: GORUN_VERBS_DEVICES, else soft0)", func(r *request) *string { return &r.devices }, nil},
		{"fabric", "f", "NAME", "only programs with the same NAME reach each other (default: GORUN_VERBS_FABRIC, else none)", func(r *request) *string { return &r.fabric }, nil},
		{"key", "k", "FILE", "reach programs on other hosts that have the same key, encrypted: 16 bytes or more that only you can read (default: GORUN_VERBS_KEY)", func(r *request) *string { return &r.key }, nil},
		{"interface", "i", "NAME|CIDR", "network interface that other hosts connect to: eth1 or 10.9.0.0/16 (default: GORUN_VERBS_INTERFACE, else the first)", func(r *request) *string { return &r.iface }, nil},
		{"tcp-ports", "", "FIRST-LAST", "listen for other hosts only at these TCP ports (default: GORUN_VERBS_TCP_PORTS, else any)", func(r *request) *string { return &r.ports }, nil},
		{"adverse", "a", dropin.TroubleForm, "trouble on purpose: delays, queue pairs in any order, receives that seem missing, lost datagrams; limits: small ones; link: the port goes down and up; errors: requests without an answer", func(r *request) *string { return &r.adverse }, nil},
		{"check", "c", "", "say what the program does that this device lets pass and cards punish", nil, func(r *request) *bool { return &r.check }},
		{"check-abort", "", "", "as --check, and abort at the first such thing", nil, func(r *request) *bool { return &r.abort }},
		{"version", "V", "", "print the version and exit", nil, func(r *request) *bool { return &r.version }},
		{"help", "h", "", "print this text and exit", nil, func(r *request) *bool { return &r.help }},
		{"man", "", "", "print the manual page and exit: gorun-verbs --man | man -l -", nil, func(r *request) *bool { return &r.man }},
		{"completion", "", "SHELL", "print the completion script for bash, zsh or fish", func(r *request) *string { return &r.completion }, nil},
	}
}

func parse(args []string) (*request, error) {
	r := &request{}
	set := pflag.NewFlagSet("gorun-verbs", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.SetInterspersed(false)
	var names []string
	for _, o := range options() {
		names = append(names, o.long)
		if o.text != nil {
			set.StringVarP(o.text(r), o.long, o.short, "", o.help)
		} else {
			set.BoolVarP(o.on(r), o.long, o.short, false, o.help)
		}
	}
	if err := set.Parse(args); err != nil {
		if none, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if near := nearest.Name(none.GetSpecifiedName(), names); near != "" {
				return nil, fmt.Errorf("there is no option %s; did you mean --%s?", none.GetSpecifiedName(), near)
			}
			return nil, fmt.Errorf("there is no option %s: options of the program stand behind its name", none.GetSpecifiedName())
		}
		return nil, err
	}
	r.command = set.Args()
	switch asks := r.version || r.help || r.man || set.Changed("completion"); {
	case set.Changed("completion") && !slices.Contains([]string{"bash", "zsh", "fish"}, r.completion):
		return nil, fmt.Errorf("--completion: found %q, expected bash, zsh or fish", r.completion)
	case !asks && len(r.command) == 0:
		return nil, errors.New("found no program, expected one, as: gorun-verbs ibv_devinfo")
	}
	if _, err := dropin.ParseTrouble(r.adverse); err != nil || r.adverse == "" && set.Changed("adverse") {
		return nil, fmt.Errorf("--adverse: %w", cmp.Or(err, errors.New("found nothing, expected "+dropin.TroubleForm)))
	}
	if _, err := ports.Parse(r.ports); err != nil {
		return nil, fmt.Errorf("--tcp-ports: %w", err)
	}
	if r.key != "" {
		var err error
		if r.key, err = filepath.Abs(r.key); err == nil { // the program may go elsewhere
			_, err = comch.LoadKey(r.key)
		}
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
	} else if os.Getenv("GORUN_VERBS_KEY") == "" && (r.iface != "" || r.ports != "") {
		return nil, errors.New("--interface and --tcp-ports are of use with --key FILE alone: without it a program reaches this machine only")
	}
	for _, name := range strings.Split(r.devices, ",") {
		if set.Changed("device") && (name == "" || len(name) > 63 || strings.Contains(name, "/")) {
			return nil, fmt.Errorf("--device: found %q, expected names of 1 to 63 letters without a slash, separated by commas", r.devices)
		}
	}
	return r, nil
}

// run becomes the program through become, which returns only with an error.
func run(args, environ []string, out, errs io.Writer, become func(string, []string, []string) error) int {
	fail := func(status int, err error) int {
		fmt.Fprintf(errs, "gorun-verbs: %v\n", err)
		return status
	}
	r, err := parse(args)
	switch {
	case err != nil:
		fmt.Fprintf(errs, "gorun-verbs: %v\nsee gorun-verbs --help\n", err)
		return statusUsage
	case r.help:
		fmt.Fprint(out, help())
	case r.version:
		fmt.Fprintln(out, version.Line("gorun-verbs"))
	case r.man:
		fmt.Fprint(out, manual())
	case r.completion != "":
		fmt.Fprint(out, completion(r.completion))
	default:
		dir, err := libraryDir()
		if err != nil {
			return fail(statusUsage, err)
		}
		program, err := exec.LookPath(r.command[0])
		if err != nil && !errors.Is(err, exec.ErrDot) {
			if errors.Is(err, fs.ErrPermission) {
				return fail(statusCannot, err)
			}
			return fail(statusNotFound, err)
		}
		if err := fits(program, filepath.Join(dir, libraryName)); err != nil {
			return fail(statusCannot, err)
		}
		return fail(statusCannot, fmt.Errorf("%s: %w", program, become(program, r.command, r.environment(environ, dir))))
	}
	return 0
}

// environment is the program's.
func (r *request) environment(environ []string, dir string) []string {
	set := map[string]string{"LD_LIBRARY_PATH": dir}
	if !strings.ContainsAny(dir, " :") { // which separate names there
		set["LD_PRELOAD"] = filepath.Join(dir, pathsName)
		set["ASAN_OPTIONS"] = "verify_asan_link_order=0" // its library is not the first
	}
	check := ""
	switch {
	case r.abort:
		check = "abort"
	case r.check:
		check = "report"
	}
	for name, value := range map[string]string{"GORUN_VERBS_DEVICES": r.devices, "GORUN_VERBS_FABRIC": r.fabric, "GORUN_VERBS_ADVERSE": r.adverse, "GORUN_VERBS_CHECK": check,
		"GORUN_VERBS_KEY": r.key, "GORUN_VERBS_INTERFACE": r.iface, "GORUN_VERBS_TCP_PORTS": r.ports} {
		if value != "" {
			set[name] = value
		}
	}
	var list []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch ours := set[name]; {
		case ours == "" || value == "":
		case name == "LD_LIBRARY_PATH", name == "LD_PRELOAD", name == "ASAN_OPTIONS":
			set[name] = ours + ":" + value
		}
		if _, ours := set[name]; !ours {
			list = append(list, entry)
		}
	}
	for name, value := range set {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

const (
	libraryName = "libibverbs.so.1"
	pathsName   = "libgorun-verbs-paths.so"
)

// libraryDir is where make build, or make install, has put the library.
func libraryDir() (string, error) {
	dirs, err := self.Beside("verbs")
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, libraryName)); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("found no %s in %s: make build makes it where there is a C compiler; apt-get install gcc libc6-dev", libraryName, strings.Join(dirs, " or "))
}
