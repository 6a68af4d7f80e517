package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/cmd/internal/roff"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The manual is clean roff: groff has nothing to warn of.
func TestManualRenders(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	cmd := exec.CommandContext(t.Context(), testenv.Need(t, "groff"), "-man", "-ww", "-Tutf8", "-rLL=100n", "-P-cbou")
	cmd.Stdin = strings.NewReader(manual())
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil || errOut.Len() > 0 {
		t.Fatalf("groff -man -ww: %v\n%s", err, errOut.String())
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"GORUN(1)", "NAME gorun - start the ranks of a parallel program", "-n, -np, -c N Start N ranks",
		"--wdir, --wd, --cwd DIR Run the ranks in DIR. Only for the program that follows.",
		"CALLED BY ANOTHER NAME", "exit status gorun: that of the first rank", "node[02-09]:8", "MPIEXEC_TIMEOUT",
		"^NAME leaves a host out", "-n 3 -wdir /scratch ./worker 'an argument'",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the manual as a reader sees it has no %q", want)
		}
	}
}

func TestManualNamesEverything(t *testing.T) {
	text := strings.ReplaceAll(manual(), `\-`, "-")
	for _, o := range everyOption() {
		for _, form := range spellings(&o) {
			if !strings.Contains(text, form) {
				t.Errorf("no %s in the manual", form)
			}
		}
		if o.fate != done && !strings.Contains(text, strings.ReplaceAll(strings.ReplaceAll(roff.Escaped(roff.Sentence(o.reason)), `\-`, "-"), `\&`, "")) {
			t.Errorf("no reason of --%s in the manual", o.names[0])
		}
	}
	for line := range strings.Lines(text) {
		// A line that begins with a quote or a period would be a request.
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".TH ") && !strings.HasPrefix(line, ".SH ") &&
			!strings.HasPrefix(line, ".SS ") && !strings.HasPrefix(line, ".TP") && !strings.HasPrefix(line, ".B ") && !strings.HasPrefix(line, ".PP") &&
			!strings.HasPrefix(line, ".br") && !strings.HasPrefix(line, ".nf") && !strings.HasPrefix(line, ".fi") && !strings.HasPrefix(line, ".RS") && !strings.HasPrefix(line, ".RE") {
			t.Errorf("the line %q is no request of the manual's", line)
		}
	}
}
