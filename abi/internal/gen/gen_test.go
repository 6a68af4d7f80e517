package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestTables: what is committed is what the tables give.
func TestTables(t *testing.T) {
	t.Chdir("../..")
	out, page, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	out["../docs/c.md"] = page
	for name, want := range out {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != string(want) {
			t.Errorf("%s is not what the tables give: go generate ./abi", name)
		}
	}
}

// TestHeader: names, prototypes, values and the layout of a status are those of the tables, as a C compiler reads mpi.h.
func TestHeader(t *testing.T) {
	gcc := testenv.Need(t, "gcc")
	t.Chdir("../..")
	functions, constants, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "facts.c")
	if err := os.WriteFile(file, facts(functions, constants), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Iinclude", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestParse: a line that is none is an error.
func TestParse(t *testing.T) {
	for _, line := range []string{"Send", "Send go _c", "Send gone . int", "Send go x int", "Send go . int buf"} {
		if _, err := parseFunctions([]byte(line)); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}
