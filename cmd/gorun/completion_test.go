package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestBashCompletes asks bash itself, in a directory with two files and a
// directory.
func TestBashCompletes(t *testing.T) {
	bash := testenv.Need(t, "bash")
	dir := t.TempDir()
	for _, name := range []string{"hosts.txt", "prog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, ".completion")
	if err := os.WriteFile(script, []byte(completion("bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words []string // after gorun, the last is being typed
		has   []string
		not   []string
		only  bool // has is all
	}{
		{words: []string{"--timeo"}, has: []string{"--timeout"}, only: true},
		{words: []string{"-n"}, has: []string{"-n", "-np"}, not: []string{"--timeout"}},
		{words: []string{"-np", "4", "--hostf"}, has: []string{"--hostfile"}, only: true},
		{words: []string{"--wdir", ""}, has: []string{"work"}, only: true},
		{words: []string{"-wd", ""}, has: []string{"work"}, only: true},
		{words: []string{"--hostfile", "h"}, has: []string{"hosts.txt"}, only: true},
		{words: []string{"--completion", ""}, has: []string{"bash", "zsh", "fish"}, only: true},
		{words: []string{"--completion", "=", "z"}, has: []string{"zsh"}, only: true},
		{words: []string{"-np", ""}, only: true},
		{words: []string{"-genv", "A", ""}, only: true},
		{words: []string{"-genv", "A", "1", "--timeo"}, has: []string{"--timeout"}, only: true},
		{words: []string{"-np", "2", "ba"}, has: []string{"bash"}, not: []string{"hosts.txt"}},
		{words: []string{"./prog", "--timeo"}, only: true},
		{words: []string{"./prog", "h"}, has: []string{"hosts.txt"}, only: true},
		{words: []string{"--", "./prog", "h"}, has: []string{"hosts.txt"}, only: true},
		{words: []string{"./prog", "x", ":", "--timeo"}, has: []string{"--timeout"}, only: true},
		{words: []string{"./prog", "x", ":", "-n", "2", "./prog", "h"}, has: []string{"hosts.txt"}, only: true},
	} {
		var quoted []string
		for _, w := range append([]string{"gorun"}, c.words...) {
			quoted = append(quoted, "'"+w+"'")
		}
		cmd := exec.CommandContext(t.Context(), bash, "--norc", "--noprofile", "-c", fmt.Sprintf(`
			compopt() { :; } # there is no readline here
			source ./.completion && complete -p gorun >/dev/null || exit 1
			COMP_WORDS=(%s); COMP_CWORD=%d
			_gorun; printf '%%s\n' "${COMPREPLY[@]}"`, strings.Join(quoted, " "), len(c.words)))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		got := strings.Fields(string(out))
		if err != nil {
			t.Fatalf("%q: %v\n%s", c.words, err, out)
		}
		for _, want := range c.has {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q is not among %q", c.words, want, got)
			}
		}
		for _, bad := range c.not {
			if slices.Contains(got, bad) {
				t.Errorf("%q: %q is among the %d completions", c.words, bad, len(got))
			}
		}
		if c.only && len(got) != len(c.has) {
			t.Errorf("%q: got %q, want only %q", c.words, got, c.has)
		}
	}
}

// Every option with a value is known to bash's function, so that the value is
// not taken for the program.
func TestCompletionKnowsEveryArity(t *testing.T) {
	text := completion("bash")
	_, one, _ := strings.Cut(text, "case $word in\n\t\t\t")
	one, two, _ := strings.Cut(one, ") left=1")
	_, two, _ = strings.Cut(two, ";;\n\t\t\t")
	two, _, _ = strings.Cut(two, ") left=2")
	lists := map[int][]string{1: strings.Split(one, "|"), 2: strings.Split(two, "|")}
	for _, o := range options() {
		for arity, list := range lists {
			for _, form := range forms(&o) {
				if has := slices.Contains(list, form); has != (o.arity == arity) {
					t.Errorf("%s takes %d values; among those of %d: %v", form, o.arity, arity, has)
				}
			}
		}
	}
}

func TestFishCompletes(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	fish := testenv.Need(t, "fish")
	dir := t.TempDir()
	for name, text := range map[string]string{"hosts.txt": "", ".completion": completion("fish")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"gorun --timeo":         "--timeout",
		"gorun -np 4 --hostfil": "--hostfile",
		"gorun --hostfile h":    "hosts.txt",
		"gorun --completion ":   "bash fish zsh",
	} {
		cmd := exec.CommandContext(t.Context(), fish, "--no-config", "-c", "source .completion; complete -C '"+line+"' | cut -f1")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		typed := line[strings.LastIndex(line, " ")+1:]
		// fish 4 adds what has the typed word in its middle.
		fits := slices.DeleteFunc(strings.Fields(string(out)), func(word string) bool { return !strings.HasPrefix(word, typed) })
		if got := strings.Join(fits, " "); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", line, got, err, want)
		}
	}
}

// zsh completes on a terminal only: that it reads the function and that all
// options are in it has to do.
func TestZshReadsItsCompletion(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	text := completion("zsh")
	for _, o := range completed() {
		for _, form := range forms(&o) {
			if !strings.Contains(text, "'*"+form+"[") {
				t.Errorf("no %s", form)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), testenv.Need(t, "zsh"), "-n") // read, do not execute
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("zsh -n: %v\n%s", err, out)
	}
}
