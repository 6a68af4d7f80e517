package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// makeIn runs make with the project's Makefile in a directory whose go, scripts and
// commands only write down that they are called, and gives what make says and the calls.
func makeIn(t *testing.T, env []string, target string) (said string, calls []string) {
	t.Helper()
	program, dir := testenv.Need(t, "make"), t.TempDir()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("Makefile", string(text), 0o600)
	const stub = "#!/bin/sh\necho \"$(basename $0) $1 $GOFLAGS\" >>calls\n"
	for _, name := range []string{"go", "scripts/test-deps", "scripts/test-part", "scripts/build-pmix", "scripts/build-verbs", "scripts/build-dropin", "scripts/build-abi", "scripts/build-profile", "bin/gorun", "bin/gorun-bench", "bin/results"} {
		write(name, stub, 0o700)
	}
	git := exec.Command(testenv.Need(t, "git"), "init", "-q")
	git.Dir = dir
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, target, "GO=./go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "MAKEFLAGS=", "MAKELEVEL=", "GOFLAGS=", "HOME="+dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, out)
	}
	text, err = os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	return string(out), strings.Split(strings.TrimSpace(string(text)), "\n")
}

// What looks for an installed library when it is built must not be built before.
func TestMakeInstallsBeforeItBuilds(t *testing.T) {
	for _, target := range []string{"test-peers", "bench", "results"} {
		t.Run(target, func(t *testing.T) {
			_, calls := makeIn(t, nil, target)
			if len(calls) < 2 || !strings.HasPrefix(calls[0], "test-deps ") {
				t.Errorf("the first call is not scripts/test-deps: %q", calls)
			}
		})
	}
}

// git says what it says to the user of another one's checkout.
// make install copies what make build has made, and the manual pages.
func TestMakeInstall(t *testing.T) {
	cmd := exec.Command(testenv.Need(t, "make"), "--no-print-directory", "-n", "install", "PREFIX=/opt/gorun", "DESTDIR=/stage")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"-E github.com/gorun-mpi/gorun/internal/prelude.enter", "scripts/build-pmix bin", "scripts/build-dropin bin/verbs", "/stage/opt/gorun/lib/gorun/verbs", "scripts/build-abi bin", "/stage/opt/gorun/lib/gorun/abi", "scripts/build-profile bin", "/stage/opt/gorun/lib/gorun/profile", "gorun --man >bin/gorun.1", "/stage/opt/gorun/bin", "bin/gorun.1 bin/gorun-info.1 bin/gorun-bench.1 bin/gorun-verbs.1 /stage/opt/gorun/share/man/man1", "--completion bash >/stage/opt/gorun/share/bash-completion/completions/"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestMakeBuildsACheckoutThatGitRefuses(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	t.Run("refused", func(t *testing.T) {
		said, calls := makeIn(t, []string{"GIT_TEST_ASSUME_DIFFERENT_OWNER=1"}, "build")
		if n := strings.Count(said, "git refuses this checkout"); n != 1 {
			t.Errorf("make says %d times that git refuses, want once:\n%s", n, said)
		}
		for _, call := range calls {
			if strings.HasPrefix(call, "go build") && !strings.HasSuffix(call, "-buildvcs=false") {
				t.Errorf("called: %q, want -buildvcs=false in GOFLAGS", call)
			}
		}
	})
	t.Run("not refused", func(t *testing.T) {
		said, calls := makeIn(t, nil, "build")
		if strings.Contains(said, "git") || strings.Contains(strings.Join(calls, "\n"), "buildvcs") {
			t.Errorf("called %q; make says\n%s", calls, said)
		}
	})
}
