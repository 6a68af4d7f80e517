package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReadme runs the commands of the README that say so, and compares what they
// print with what stands there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- run by go test ./e2e -run TestReadme -->\n```\n(.*?)```\n").FindAllSubmatch(text, -1)
	if blocks == nil {
		t.Fatal("found no block in the README that is to be run")
	}
	for _, block := range blocks {
		for example := range strings.SplitSeq(strings.TrimPrefix(string(block[1]), "$ "), "\n$ ") {
			command, want, _ := strings.Cut(example, "\n")
			t.Run(command, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), runLimit*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, "sh", "-c", command)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				cmd.Dir = t.TempDir()
				// Their status is part of what they show, in words.
				if err := cmd.Run(); err != nil && ctx.Err() != nil {
					t.Fatalf("%v: %s", ctx.Err(), &out)
				}
				if got, want := printed(out.String()), printed(want); got != want {
					t.Errorf("it prints, but for times and names,\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// printed is what a command has printed without times, numbers of processes and
// the host's name, in order of the lines: streams and ranks do not wait for each
// other.
func printed(text string) string {
	for _, c := range []struct{ pattern, instead string }{
		{`"time":"[^"]*"`, `"time":"T"`},
		{`"host":"[^"]*"`, `"host":"H"`},
		{`\(host [^,]*,`, `(host H,`},
		{`\bpid \d+`, `pid P`},
		{`\b\d+\.\d+ s\b`, `T s`},
	} {
		text = regexp.MustCompile(c.pattern).ReplaceAllString(text, c.instead)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
