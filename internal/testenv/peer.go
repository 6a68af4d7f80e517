package testenv

import (
	"os/exec"
	"regexp"
	"testing"
)

var numbered = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// Version is the first number with dots that a tool says for --version, as "5.0.7". Where
// the tool is not installed the test is skipped.
func Version(t testing.TB, tool string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), Need(t, tool), "--version").CombinedOutput()
	version := numbered.FindString(string(out))
	if version == "" {
		t.Fatalf("%s --version: no number in %q, %v", tool, out, err)
	}
	return version
}

// Foreign ends a test that cannot succeed for a fault or a change in another project's
// program, whatever the machine, also where CI=true: the reason names program and version.
func Foreign(t testing.TB, reason string) {
	t.Helper()
	t.Skip("skipped: " + reason)
}
