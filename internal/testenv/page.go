package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Page compares a generated part of a page with want. The part lies between
// "<!-- NAME: COMMAND -->" and "<!-- end of NAME -->", where COMMAND writes it anew.
// With update, Page writes want there instead.
func Page(t testing.TB, file, name, want string, update bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, begin, end := string(data), "<!-- "+name+": ", "<!-- end of "+name+" -->\n"
	at := strings.Index(text, begin)
	if at < 0 {
		t.Fatalf("%s has no mark %q", file, begin)
	}
	command, rest, ok := strings.Cut(text[at+len(begin):], " -->\n")
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no mark %q behind %q", file, end, begin)
	}
	if got == want {
		return
	}
	if !update {
		t.Errorf("%s: %s is out of date; %s writes it anew\n%s", file, name, command, firstDifference(got, want))
		return
	}
	if err := os.WriteFile(file, []byte(text[:at]+begin+command+" -->\n"+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// File compares a generated file with want. With update, File writes want there instead, as command does.
func File(t testing.TB, file, want, command string, update bool) {
	t.Helper()
	if update {
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(want), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v); %s writes it anew\n%s", file, err, command, firstDifference(string(got), want))
	}
}

// firstDifference is the first line in which two texts differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			return "it ends where there should be: " + w[i]
		case i >= len(w):
			return "it should end before: " + g[i]
		case g[i] != w[i]:
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return ""
}
