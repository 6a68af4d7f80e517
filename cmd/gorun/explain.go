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

// writtenOption is an option as it stood on the command line, or what stands for
// it in the environment.
type writtenOption struct {
	fills string // as the option's
	text  string
}

// wrote notes an option that was set. One of a single program is told by its value, as there may be several.
func (s *settings) wrote(o *option, spelling, value string) {
	text := spelling
	switch {
	case o.fills == "" || o.local:
		return
	case value == "":
	case strings.HasPrefix(spelling, "-"):
		text += " " + value
	default:
		text += "=" + value
	}
	s.written = append(s.written, writtenOption{o.fills, text})
}

// said is a field with the options that have filled it; "" if the command line
// has no word for it.
func said(field, value string, written []writtenOption) string {
	fills := func(fields string) bool { return slices.Contains(strings.Fields(fields), field) }
	var texts []string
	for _, w := range written {
		if fills(w.fills) {
			texts = append(texts, w.text)
		}
	}
	if texts != nil && field == "Hosts" { // it is about one of those in the file
		return strings.Join(texts, " ") + ": " + value
	} else if texts != nil {
		return strings.Join(texts, " ")
	}
	all := everyOption()
	at := slices.IndexFunc(all, func(o option) bool { return fills(o.fills) })
	if at < 0 {
		return ""
	}
	name := all[at].names[0]
	if name != "np" { // which is what most write
		name = cmp.Or(all[at].short, name)
	}
	return strings.TrimSpace(shown(&all[at], name) + " " + value)
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
	case bad.Field == "Output.Stdout":
		name = "the file of the ranks' output " + bad.Value
		status = statusUsage
	case name != "":
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
