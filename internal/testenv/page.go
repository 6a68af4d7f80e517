package testenv

import (
	"os"
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
