// Package testenv says what a test may expect of the machine it runs on, and
// holds the checks that tests share: of leftovers, and of pages' generated parts.
//
// A test that needs something a machine may lack asks here: where the thing is
// missing the test is skipped with the reason. A part of `make test-all` installs what
// its tests need: there, with CI=true in the environment, a missing thing is a failure.
//
// It also says how long a test waits (Limit), and of which part it is (Part).
package testenv

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// CI tells whether a missing tool is a failure.
func CI() bool { return os.Getenv("CI") == "true" && os.Getenv(partsVariable) != "" }

// Need gives the path of an executable, or ends the test.
func Need(t testing.TB, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		Unsupported(t, "needs the program "+tool+", which is not installed")
	}
	return path
}

// Unsupported ends a test that cannot run on this machine.
func Unsupported(t testing.TB, reason string) {
	t.Helper()
	if CI() {
		t.Fatal("this machine should have it: " + reason)
	}
	t.Skip("skipped: " + reason)
}

// Deadline is a context that ends with the test, and after Limit(d) at the latest.
func Deadline(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit(d))
	t.Cleanup(cancel)
	return ctx
}

// Await asks, each millisecond, until holds says yes; after Limit(d) the test fails with what
// it waits for. It is for what sends no event: another process's state, files that
// it makes or removes, figures.
func Await(t testing.TB, d time.Duration, what string, holds func() bool) {
	t.Helper()
	if !Holds(d, holds) {
		t.Fatalf("not within %v: %s", Limit(d), what)
	}
}

// Holds is Await for code without a test: it tells whether holds said yes within Limit(d).
func Holds(d time.Duration, holds func() bool) bool {
	for end := time.Now().Add(Limit(d)); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
