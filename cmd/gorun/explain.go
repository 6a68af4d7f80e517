package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/launcher"
)

// jobField is a field of launcher.Job in the words of the command line.
type jobField struct {
	name    string   // what it is called when no option of those was written
	options []string // that fill it, by their first names
}

// jobFields are those that the launcher may find fault with.
func jobFields() map[string]jobField {
	return map[string]jobField{
		"NP":              {"-np", nil},
		"Env":             {"-x", nil},
		"MPI":             {"--mpi", nil},
		"Dir":             {"--wdir", nil},
		"Agents.Launcher": {"--launcher", nil},
		"Agents.Shell":    {"--rsh", nil},
		"Network.Ports":   {"--tcp-ports", nil},
		"Agents.Stage":    {"--stage", nil},
		"Emulate":         {"--emulate", nil},
		"Timeout":         {"--timeout", nil},
		"AsyncProgress":   {"--async-progress", nil},
		"Offload":         {"--offload", nil},
		"HangTimeout":     {"--hang-timeout", nil},
		"Agents.Timeout":  {"--agent-timeout", nil},
		"Restarts.Max":    {"--max-restarts", nil},
		"Elastic":         {"--elastic", nil},
		"Restarts.Pause":  {"--restart-delay", nil},
		"Grace":           {"--grace", nil},
		"StdinRank":       {"--stdin", nil},

		"Hosts":            {"-H", []string{"hostfile", "default-hostfile", "machine"}},
		"Placing.Map":      {"--map-by", []string{"map-by", "npernode", "npersocket", "ppr", "pernode", "bynode", "cpus-per-rank", "use-hwthread-cpus", "nolocal", "depth"}},
		"Placing.Rank":     {"--rank-by", []string{"rank-by"}},
		"Placing.Bind":     {"--bind-to", []string{"bind-to", "bind-to-core", "cpu-bind"}},
		"Placing.RankFile": {"--rankfile", []string{"rankfile", "map-by"}},
		"Placing.PerHost":  {"-ppn", []string{"ppn", "rr"}},
		"Placing.CPUs":     {"--cpu-set", []string{"cpu-set"}},

		"Elastic.Discover": {"--discover-hosts", nil},
		"Elastic.Timeout":  {"--elastic-timeout", nil},

		"Output.Stdout":   {"the file of the ranks' output", nil},
		"Output.Terminal": {"--pty", nil},
	}
}

// writtenOption is an option as it stood on the command line, or what stands for
// it in the environment.
type writtenOption struct {
	name string // the option's first
	text string
}

// wrote notes an option that was set.
func (s *settings) wrote(o *option, spelling, value string) {
	text := spelling
	switch {
	case value == "":
	case strings.HasPrefix(spelling, "-"):
		text += " " + value
	default:
		text += "=" + value
	}
	s.written = append(s.written, writtenOption{o.names[0], text})
}

// said is a field with the options that have filled it; "" if the command line
// has no word for it.
func said(field, value string, written []writtenOption) string {
	f := jobFields()[field]
	var texts []string
	for _, w := range written {
		if slices.Contains(f.options, w.name) {
			texts = append(texts, w.text)
		}
	}
	switch {
	case texts == nil:
		return strings.TrimSpace(f.name + " " + value)
	case field == "Hosts": // it is about one of those in the file
		return strings.Join(texts, " ") + ": " + value
	}
	return strings.Join(texts, " ")
}

// explain says why a job could not be run, in the words of the command line.
func explain(err error, job launcher.Job, written []writtenOption, errOut io.Writer) int {
	bad, ok := errors.AsType[*launcher.JobError](err)
	if !ok {
		fmt.Fprintf(errOut, "gorun: %v\n", err)
		return statusFailed
	}
	name, status := said(bad.Field, bad.Value, written), bad.ExitStatus
	switch {
	case bad.Field == "Argv":
		name = bad.Value
	case bad.Field == "Agents.Command":
		name = "agent " + bad.Value
	case bad.Field == "Agents.Shell" && status != 0: // it could not be run
	case jobFields()[bad.Field].name != "":
		status = statusUsage
	default:
		name = bad.Field + " " + bad.Value
	}
	fmt.Fprintf(errOut, "gorun: %s: %v%s\n", name, bad.Err, hint(bad, job))
	status = cmp.Or(status, statusFailed)
	return status
}

// hint is what to try next, with a semicolon before it, where the launcher
// cannot know it because it knows no command line.
func hint(bad *launcher.JobError, job launcher.Job) string {
	switch {
	case bad.Field == "Dir":
		return "; expected a directory that exists"
	case bad.Field == "Hosts" && job.Agents.Launcher == "" && !job.Placing.NoOversubscribe && !slices.ContainsFunc(job.Hosts, func(h launcher.Host) bool { return h.Max > 0 }):
		return "; try --launcher fork, or no -H"
	case bad.Field == "Argv" && bad.ExitStatus == 127:
		if info, err := os.Stat(filepath.Join(job.Dir, bad.Value)); err == nil && info.Mode().IsRegular() && !strings.Contains(bad.Value, "/") {
			return "; ./" + bad.Value + " is there, but not executable; try chmod +x " + bad.Value
		}
		return cmp.Or(slip(bad.Value), meant(bad.Value, job))
	}
	return ""
}

// shellWords are commands of the shell alone.
var shellWords = []string{"cd", "export", "source", ".", "set", "unset", "alias", "exec", "eval", "ulimit", "umask", "module", "if", "for", "while"}

// slip is what to try where something that is no name of a program stands in its place; "": it may be one.
func slip(name string) string {
	first, rest, blank := strings.Cut(name, " ")
	variable, _, sets := strings.Cut(first, "=")
	switch {
	case sets && isVariable(variable):
		return "; it sets a variable; try -x " + first + " before the program"
	case slices.Contains(shellWords, first):
		return "; it is a command of the shell; try sh -c '" + name + " ...'"
	case blank && strings.TrimSpace(rest) != "":
		return "; it is one word with a blank in it; try " + name + " without the quotes"
	}
	return ""
}

// isVariable tells whether a shell would set a variable of that name.
func isVariable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) && !unicode.IsDigit(rune(name[0]))
}

// meant names the program that a mistyped one was probably meant to be, of those
// where it was looked for.
func meant(name string, job launcher.Job) string {
	app := launcher.App{Argv: job.Argv, Env: job.Env, Dir: job.Dir, Path: job.Path}
	for _, a := range job.Apps {
		if a.Argv[0] == name {
			app = a
		}
	}
	dirs, base, before := filepath.SplitList(app.Path), name, ""
	switch at := strings.LastIndexByte(name, '/'); {
	case at >= 0:
		base, before = name[at+1:], name[:at+1]
		dirs = []string{before}
	case app.Path == "":
		path := envvar.Get(app.Env, "PATH")
		dirs = append(filepath.SplitList(path), ".")
	}
	var names []string
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(app.Dir, dir)
		}
		entries, _ := os.ReadDir(dir) // one that is not there has none
		for _, e := range entries {
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}
	if near := nearest.Name(base, names); near != "" && near != base {
		return "; did you mean " + before + near + "?"
	}
	return ""
}
