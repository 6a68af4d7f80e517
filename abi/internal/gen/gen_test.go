package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestMPICH: the values of mpich.txt are those of MPICH's mpi.h, as far as the one that is here knows them.
func TestMPICH(t *testing.T) {
	mpicc := testenv.Need(t, "mpicc.mpich")
	t.Chdir("../..")
	_, constants, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	mpich, err := tablesOfMPICH(constants)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "facts.c")
	compile := func(text string, args ...string) string {
		if err := os.WriteFile(file, []byte("#include <mpi.h>\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(mpicc, append(args, file)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	header := compile("", "-E", "-dD")
	text, known := "", 0
	for _, c := range mpich {
		if regexp.MustCompile(`\b` + c.name + `\b`).MatchString(header) {
			text += fmt.Sprintf("_Static_assert((long)%s == %d, \"%s\");\n", c.name, c.theirs, c.name)
			known++
		}
	}
	if compile(text, "-fsyntax-only"); known < 200 {
		t.Errorf("mpi.h knows %d of the constants, want 200", known)
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
