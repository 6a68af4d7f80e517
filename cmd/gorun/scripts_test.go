package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// byError are options whose effect is that a job is refused: a script shows them
// with exit status 2, which for all others proves only that they are read.
var byError = map[string]string{
	"nooversubscribe": "more ranks than slots are an error, as without it they are not",
}

// unscripted are names of options that no script can show, and why.
var unscripted = map[string]string{}

// TestEveryOptionHasAScript holds the table to the scripts of testdata: there is one
// for every name of every option, on whose line, or in the next, it is looked at
// what came of it.
func TestEveryOptionHasAScript(t *testing.T) {
	seen := scriptedOptions(t)
	known := map[string]bool{}
	var missing []string
	for _, o := range everyOption() {
		for _, name := range o.allNames() {
			known[name] = true
			key := shownUse{name, o.fate, o.under}
			switch reason := unscripted[name]; {
			case !seen[key] && reason == "":
				missing = append(missing, key.String())
			case seen[key] && reason != "":
				t.Errorf("-%s is in a script: it is no exception any more (%s)", name, reason)
			}
		}
	}
	if missing != nil {
		t.Errorf("no script in testdata/scripts shows what comes of\n%s", strings.Join(missing, "\n"))
	}
	for _, list := range []map[string]string{unscripted, byError} {
		for name := range list {
			if !known[name] {
				t.Errorf("an exception for -%s, which is no option", name)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("found only %d options in the scripts", len(seen))
	}
}

// shownUse is an option by the name it was written with: a row of the table.
type shownUse struct {
	name  string
	fate  fate
	under family
}

func (u shownUse) String() string {
	text := "-" + u.name + map[fate]string{done: "", noted: " (noted)", refused: " (refused)"}[u.fate]
	switch u.under {
	case hydra:
		return text + " (as mpiexec)"
	case own | openMPI:
		return text + " (as gorun or mpirun)"
	}
	return text
}

// scriptedOptions are the options that a script uses and then looks at.
func scriptedOptions(t *testing.T) map[shownUse]bool {
	t.Helper()
	seen := map[shownUse]bool{}
	root := filepath.Join("..", "..", "testdata", "scripts")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".txtar") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		script, files := text, []byte(nil)
		if at := scriptFile.FindIndex(text); at != nil {
			script, files = text[:at[0]], text[at[0]:]
		}
		lines := slices.DeleteFunc(strings.Split(string(script), "\n"), func(line string) bool {
			return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")
		})
		for i, line := range lines {
			next := append(lines[i+1:], "")[0]
			for _, use := range usedIn(line) {
				if shows(use, line, next) {
					seen[use] = true
				}
			}
		}
		// What shell scripts do is looked at by the lines that run them.
		for line := range strings.Lines(string(files)) {
			for _, use := range usedIn(line) {
				seen[use] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

var (
	scriptFile = regexp.MustCompile(`(?m)^-- \S+ --$`)
	// What looks at a result, as the line after the one that made it.
	looksAt = regexp.MustCompile(`^(! )?(stdout|stderr|grep|cmp|exists|matrices|results|rows|gone|await|says|ends|cp|exec) `)
	// A result that the shell of the line itself looks at.
	looksItself = regexp.MustCompile(`^exec sh -c .*(cmp|test|grep) `)
)

// shows tells whether a line, with the next one, shows what comes of an option.
func shows(use shownUse, line, next string) bool {
	status := ""
	if words := strings.Fields(line); words[0] == "exits" && len(words) > 1 {
		status = words[1]
	}
	looked := looksAt.MatchString(next) || looksItself.MatchString(line)
	switch {
	case use.fate == refused || byError[use.name] != "":
		return status == "2" && looked
	case status == "2":
		// A usage error is told before anything is done, unless ranks ended so.
		return strings.Contains(line, "exit 2") && looked
	}
	return looked || status != "" && status != "0"
}

// usedIn are the options of the command lines in a line of a script, also where
// they stand in what a shell is given.
func usedIn(line string) (uses []shownUse) {
	words, err := split(line)
	if err != nil {
		words = strings.Fields(line)
	}
	for i, word := range words {
		if strings.ContainsAny(word, " \t") {
			uses = append(uses, usedIn(word)...)
			continue
		}
		name := filepath.Base(strings.TrimLeft(word, "($`\"{"))
		if slices.Contains([]string{"gorun", "mpirun", "mpiexec", "mpiexec.hydra"}, name) {
			uses = append(uses, usedBy(familyOf(name), words[i+1:])...)
		}
	}
	return uses
}

// usedBy are the options of a command line, of all its programs.
func usedBy(under family, args []string) (uses []shownUse) {
	table := optionsUnder(under)
	for {
		for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--" {
			p := prepared{spelled: make(map[string][]string)}
			n, err := p.option(args, table)
			if err != nil {
				return uses
			}
			for first, spellings := range p.spelled {
				o := longOption(table, first)
				for _, s := range spellings {
					uses = append(uses, shownUse{strings.TrimLeft(s, "-"), o.fate, o.under})
				}
			}
			args = args[n:]
		}
		colon := slices.Index(args, ":")
		if colon < 0 {
			return uses
		}
		args = args[colon+1:]
	}
}

func TestUsedIn(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"exits 0 gorun -np 2 --wdir / pwd", "[-np --wdir]"},
		{"exits 0 gorun -n 1 -x A=1 a -s : -vv -wd=/ b", "[-n -x -v -v -wd]"},
		{"exec sh -c 'cd x; ./mpiexec -np 2 -s all cat | cmp - x'", "[-np -s]"},
		{"exec sh -c '(gorun --tag-output -- a -x)'", "[--tag-output]"},
		{"stdout gorun", "[]"},
	} {
		var got []string
		for _, u := range usedIn(c.line) {
			dashes := "-"
			if len(u.name) > 1 && strings.Contains(c.line, "--"+u.name) {
				dashes = "--"
			}
			got = append(got, dashes+u.name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s", c.line, got, c.want)
		}
	}
}
