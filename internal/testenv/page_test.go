package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestPageIsComparedAndWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const before, after = "one\n<!-- table: make table -->\n", "<!-- end of table -->\ntwo\n"
	if err := os.WriteFile(file, []byte(before+"old\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		update     bool
		failure    string
	}{
		{"table", "old\n", false, ""},
		{"table", "new\n", false, "table is out of date; make table writes it anew\ngot  old\nwant new"},
		{"table", "old\nmore\n", false, "want more"},
		{"table", "new\n", true, ""},
		{"table", "new\n", false, ""},
		{"list", "new\n", false, `has no mark "<!-- list: "`},
	} {
		var r recorder
		var ended sync.WaitGroup
		ended.Go(func() { Page(&r, file, c.name, c.want, c.update) })
		ended.Wait()
		if c.failure == "" && r.failed != "" || !strings.Contains(r.failed, c.failure) {
			t.Errorf("%s, want %q, update %t: got %q, want %q", c.name, c.want, c.update, r.failed, c.failure)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(text), before+"new\n"+after; got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}

func TestFileIsComparedAndWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "plot.svg")
	for _, c := range []struct {
		want    string
		update  bool
		failure string
	}{
		{"old\n", false, "no such file or directory); make plot writes it anew"},
		{"old\n", true, ""},
		{"old\n", false, ""},
		{"new\n", false, "plot.svg is out of date (<nil>); make plot writes it anew\ngot  old\nwant new"},
	} {
		var r recorder
		var ended sync.WaitGroup
		ended.Go(func() { File(&r, file, c.want, "make plot", c.update) })
		ended.Wait()
		if c.failure == "" && r.failed != "" || !strings.Contains(r.failed, c.failure) {
			t.Errorf("want %q, update %t: got %q, want %q", c.want, c.update, r.failed, c.failure)
		}
	}
}
