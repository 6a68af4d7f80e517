package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// endings are the ways in which a job ends that launchers differ in, and what
// shows each for gorun: the scripts that have a line "# Row: " and its name.
var endings = map[string][]string{
	"exit(3) without Finalize":                {"mpich/ends", "openmpi/ends"},
	"exit(0) without Finalize":                {"mpich/ends", "openmpi/ends"},
	"segfault":                                {"mpich/ends", "openmpi/ends"},
	"MPI_Abort(7)":                            {"mpich/ends", "openmpi/ends"},
	"rank killed by SIGKILL":                  {"mpich/kill", "openmpi/kill"},
	"program not found":                       {"bad-program-not-found"},
	"program not executable":                  {"bad-program-not-executable"},
	"SIGINT to the launcher":                  {"mpich/kill", "openmpi/kill"},
	"SIGTERM to the launcher":                 {"mpich/kill", "openmpi/kill"},
	"kill -9 of the launcher":                 {"mpich/kill", "openmpi/kill"},
	"-np 64 true":                             {"large/ranks-64"},
	"4 ranks, 400 lines in 5 writes each":     {"lines"},
	"8 MB of standard input to a slow reader": {"stdin"},
	"ranks exit 0, 3 and 5":                   {"ends"},
}

var (
	row = regexp.MustCompile(`(?m)^# Row: (.*)\n(.*)$`)
	ran = regexp.MustCompile(`^(exits|start|exec) `)
)

// TestEveryEndHasAScript holds the scripts to that list, and the list to them.
func TestEveryEndHasAScript(t *testing.T) {
	root := filepath.Join("..", "testdata", "scripts")
	found := map[string][]string{}
	for _, pattern := range []string{"*.txtar", "*/*.txtar"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range row.FindAllSubmatch(text, -1) {
				if !ran.Match(m[2]) {
					t.Errorf("%s: a row, and then %q, which runs nothing", rel, m[2])
				}
				name := string(m[1])
				found[name] = append(found[name], strings.TrimSuffix(rel, ".txtar"))
			}
			if n := bytes.Count(text, []byte("# Row:")); n != len(row.FindAll(text, -1)) {
				t.Errorf("%s: %d rows, of which %d are followed by a line", rel, n, len(row.FindAll(text, -1)))
			}
		}
	}
	for name, scripts := range endings {
		if got := slices.Sorted(slices.Values(found[name])); !slices.Equal(got, scripts) {
			t.Errorf("%s: shown by %q, want %q", name, got, scripts)
		}
	}
	for name := range found {
		if endings[name] == nil {
			t.Errorf("%s: shown by %q, and in no list", name, found[name])
		}
	}
}
