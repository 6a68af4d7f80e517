package e2e

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the generated parts of pages anew; the README gets what make demo prints here and now")

// demoCommand is what make demo runs when it has built the commands.
const demoCommand = "bin/gorun -np 4 bin/a2a -m 32"

// timesOf are the figures of a run of the demo that differ from run to run.
var timesOf = regexp.MustCompile(`\b\d+(\.\d+)? (us|ms|s)\b`)

// TestReadmeDemo holds the README's first example to a run of it, but for the times.
// With -update these are those of the run in the middle of demoRuns.
func TestReadmeDemo(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(makefile, []byte("\n\t"+demoCommand+"\n")) {
		t.Fatalf("the Makefile does not run %q: want it in demo's recipe", demoCommand)
	}
	path := filepath.Join("..", "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)(<!-- demo: go test ./e2e -run TestReadmeDemo -update -->\n```\n\\$ make demo\n)(.*?)(```\n)")
	parts := block.FindSubmatch(text)
	if parts == nil {
		t.Fatal("found no example of make demo in the README")
	}
	if *update {
		const demoRuns = 9
		var runs []string
		for range demoRuns {
			runs = append(runs, demo(t))
		}
		slices.SortFunc(runs, func(a, b string) int { return cmp.Compare(setUpTime(t, a), setUpTime(t, b)) })
		text = block.ReplaceAll(text, []byte("${1}"+runs[demoRuns/2]+"${3}"))
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := timesOf.ReplaceAllString(demo(t), "TIME"), timesOf.ReplaceAllString(string(parts[2]), "TIME"); got != want {
		t.Errorf("make demo prints, but for the times,\n%s\nthe README has\n%s", got, want)
	}
}

// demo runs the demo and gives what it prints.
func demo(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	var out, errOut bytes.Buffer
	args := strings.Fields(strings.ReplaceAll(demoCommand, "bin/", ""))
	a2a, err := exec.LookPath(args[3])
	if err != nil {
		t.Fatal(err)
	}
	args[3] = a2a
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, &errOut)
	}
	return out.String()
}

// setUpTime is the set-up of a run.
func setUpTime(t *testing.T, out string) time.Duration {
	m := regexp.MustCompile(`(?m)^set-up +(\S+) (\S+)$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("found no set-up in\n%s", out)
	}
	d, err := time.ParseDuration(m[1] + m[2])
	if err != nil {
		t.Fatal(err)
	}
	return d
}
