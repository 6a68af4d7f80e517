package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table has every program, with the lines that it and its Python version have.
func TestTableCountsLines(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) < 7 {
		t.Fatalf("programs: %v, %v", programs, err)
	}
	for _, p := range programs {
		name := filepath.Dir(p)
		n, python := lines(t, p, "//"), "-"
		if name != "rdmawalk" && name != "survive" && name != "checkpoint" { // mpi4py has no RDMA, and most MPIs neither survive nor restart
			python = fmt.Sprint(lines(t, filepath.Join(name, "testdata", name+".py"), "#"))
		}
		row := regexp.MustCompile(`(?m)^\| \[` + name + `\].*$`).FindString(string(page))
		if want := fmt.Sprintf("| %d | %s |", n, python); !strings.HasSuffix(row, want) {
			t.Errorf("README.md has %q, which should end with %q", row, want)
		}
		if text, err := os.ReadFile(p); err != nil || strings.Count(string(text), "\n") > 80 {
			t.Errorf("%s: more than 80 lines, or %v", p, err)
		}
	}
}

// lines counts the lines of a file that have code.
func lines(t *testing.T, file, comment string) (n int) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, comment) {
			n++
		}
	}
	return n
}
