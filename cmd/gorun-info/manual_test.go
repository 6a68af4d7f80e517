package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/cmd/internal/roff"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The manual is clean roff, and has everything in it.
func TestManualRenders(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	cmd := exec.CommandContext(t.Context(), testenv.Need(t, "groff"), "-man", "-ww", "-Tutf8", "-rLL=200n", "-P-cbou")
	cmd.Stdin = strings.NewReader(manual())
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("groff -man -ww: %v\n%s", err, errs.String())
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	wants := []string{"GORUN-INFO(1)", "gorun-info doctor [options] [HOST...|PROGRAM]", "gorun-info topo --record >machine.txt"}
	for _, c := range commands() {
		wants = append(wants, c.name)
	}
	for _, o := range flags() {
		wants = append(wants, left(&o))
	}
	for _, s := range settings() {
		wants = append(wants, s.Name)
	}
	for _, c := range doctor.Checks() {
		wants = append(wants, c.Name+" "+roff.Sentence(c.Why)[:10])
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("the manual as a reader sees it has no %q", want)
		}
	}
}

func TestHelpNamesEverything(t *testing.T) {
	text := help()
	for _, c := range commands() {
		if !strings.Contains(text, c.help) {
			t.Errorf("no %q in the help", c.help)
		}
	}
	for _, o := range flags() {
		if !strings.Contains(text, left(&o)) || !strings.Contains(text, o.help) {
			t.Errorf("no --%s in the help", o.long)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 140 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
}

// bash takes the completion, and offers what there is.
func TestCompletion(t *testing.T) {
	bash := testenv.Need(t, "bash")
	for _, c := range []struct{ words, want string }{
		{"gorun-info do", "doctor"},
		{"gorun-info --js", "--json"},
		{"gorun-info doctor --n", "--np"},
		{"gorun-info --completion f", "fish"},
		{"gorun-info topo x", ""},
	} {
		words := strings.Fields(c.words)
		script := completion("bash") + "\nCOMP_WORDS=(" + c.words + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_gorun_info\necho \"${COMPREPLY[*]}\""
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(20*time.Second))
		out, err := exec.CommandContext(ctx, bash, "-c", script).CombinedOutput()
		cancel()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
			t.Errorf("%q: got %q, %v, want %q", words, got, err, c.want)
		}
	}
	if zsh, err := exec.LookPath("zsh"); err == nil { // as an installed file, which is read when it is first needed
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "_gorun-info"), []byte(completion("zsh")), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), zsh, "-f", "-c", "fpath=("+dir+" $fpath); autoload -Uz _gorun-info; _arguments() { print completes }; _gorun-info")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "completes\n" {
			t.Errorf("zsh, from a file: %v, %q, want that it completes", err, out)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		for _, want := range []string{"doctor", "completion", "json"} {
			if !strings.Contains(completion(shell), want) {
				t.Errorf("%s: no %s", shell, want)
			}
		}
		if path, err := exec.LookPath(shell); err == nil {
			cmd := exec.CommandContext(t.Context(), path, "-n", "/dev/stdin")
			cmd.Stdin = strings.NewReader(completion(shell))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s does not take it: %v\n%s", shell, err, out)
			}
		}
	}
}
