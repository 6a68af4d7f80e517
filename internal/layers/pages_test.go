package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// link is a link of Markdown to a file.
var link = regexp.MustCompile(`\]\(([^)#:, ]+)(?:#[^)]*)?\)`)

func TestLinksLeadToFiles(t *testing.T) {
	links := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := os.ReadFile(p)
		for _, m := range link.FindAllSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), string(m[1]))); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", p, err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 50 {
		t.Errorf("found only %d links", links)
	}
}

// The files that CONTRIBUTING.md sends its readers to are there.
func TestContributingNamesFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z]+/[a-z0-9_/.-]+)`").FindAllSubmatch(text, -1)
	if len(named) < 15 {
		t.Errorf("found only %d files", len(named))
	}
	for _, m := range named {
		if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
			t.Errorf("CONTRIBUTING.md names a file that is not there: %v", err)
		}
	}
}

// Pages of decisions have the same headings, and stand in the list of them.
func TestDecisionsHaveContextAndChoice(t *testing.T) {
	dir := filepath.Join(root, "docs", "decisions")
	list, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		name := filepath.Base(p)
		if name == "README.md" {
			continue
		}
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		if entry := "- [" + title + "](" + name + ")\n"; !strings.Contains(string(list), entry) {
			t.Errorf("%s: the list in README.md has no line %q", p, entry)
		}
		var headings []string
		for line := range strings.Lines(string(text)) {
			if heading, ok := strings.CutPrefix(line, "## "); ok && heading != "Tried and measured\n" {
				headings = append(headings, strings.TrimSpace(heading))
			}
		}
		if want := []string{"Context", "Choice"}; !slices.Equal(headings, want) {
			t.Errorf("%s: the headings are %q, want %q, and \"Tried and measured\" between them where there is something", p, headings, want)
		}
	}
}
