package main

import (
	"cmp"
	stdflag "flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

var update = stdflag.Bool("update", false, "write the table of docs/environment.md anew")

// TestEnvironmentPage holds the table in docs/environment.md to the one in the code.
func TestEnvironmentPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("| variable | set by | default | meaning |\n|---|---|---|---|\n")
	for _, s := range settings() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, s.SetBy, cmp.Or(s.Default, "-"), s.Help)
	}
	testenv.Page(t, filepath.Join("..", "..", "docs", "environment.md"), "settings", b.String(), *update)
}

// The table of settings has the variables that stand in the code, and no others.
func TestSettingsAreThoseOfTheCode(t *testing.T) {
	name := regexp.MustCompile(`GORUN_[A-Z0-9_]+`)
	inCode := map[string]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "gorun-info" || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "e2e" || strings.HasPrefix(d.Name(), ".") && p != root) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				for _, v := range name.FindAllString(lit.Value, -1) {
					inCode[v] = p
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(inCode) < 10 {
		t.Fatalf("found only %v: the walk misses the module", inCode)
	}
	var table []string
	for _, s := range settings() {
		if s.Help == "" || s.SetBy == "" || s.SetBy == byUser && s.Default == "" {
			t.Errorf("%+v lacks its help, who sets it, or its default", s)
		}
		if slices.Contains(table, s.Name) {
			t.Errorf("%s is there twice", s.Name)
		}
		table = append(table, s.Name)
	}
	for v, p := range inCode {
		// What ends in _ is the beginning of a name.
		if !slices.ContainsFunc(table, func(s string) bool { return s == v || strings.HasSuffix(v, "_") && strings.HasPrefix(s, v) }) {
			t.Errorf("%s has %s, which the table of settings does not: add it, with its default and its meaning", p, v)
		}
	}
	for _, s := range table {
		found := false
		for v := range inCode {
			found = found || v == s || strings.HasSuffix(v, "_") && strings.HasPrefix(s, v)
		}
		if !found {
			t.Errorf("the table has %s, which is nowhere in the code", s)
		}
	}
}

func TestSettingsShowTheEnvironment(t *testing.T) {
	var b strings.Builder
	writeSettings(&b, currentSettings([]string{"GORUN_TUNING=/t.json", "GORUN_TUNINGS=x"}))
	if !strings.Contains(b.String(), "here: /t.json\n") || strings.Count(b.String(), "here:") != 1 || strings.Count(b.String(), "Set by") != 3 {
		t.Errorf("got\n%s", b.String())
	}
}
