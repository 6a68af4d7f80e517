package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestWithoutVerbs builds the programs that can use libibverbs as where there is no
// C compiler, no header of the C library, and none of libibverbs: all are there, work
// on the software device, and say what is missing.
func TestWithoutVerbs(t *testing.T) {
	testenv.Need(t, "gcc")
	bin := t.TempDir()
	// A compiler that misses a header.
	without := func(name, header string) string {
		path := filepath.Join(bin, name)
		script := "#!/bin/sh\ntext=$(cat)\ncase $text in *'<" + header + ">'*) exit 1;; esac\n"
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return "CC=" + path
	}
	for _, c := range []struct{ name, env, says, reason, fix string }{
		{"no compiler", "CC=/no/such/gcc", "no C compiler (/no/such/gcc)", "built without cgo", "apt-get install gcc libibverbs-dev && make build"},
		{"no C library", without("nolibc", "stdlib.h"), "no headers of the C library", "built without cgo", "apt-get install gcc libibverbs-dev && make build"},
		{"no headers", without("noverbs", "infiniband/verbs.h"), "no headers of libibverbs", "built without cgo", "apt-get install gcc libibverbs-dev && make build"},
		{"headers gone since", "CGO_CFLAGS=-DGORUN_WITHOUT_VERBS", "", "built without the headers of libibverbs", "apt-get install libibverbs-dev && make build"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := func(env, name string, args ...string) string {
				t.Helper()
				cmd := exec.Command(name, args...)
				cmd.Dir, cmd.Env = "..", append(os.Environ(), env)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
				}
				return string(out)
			}
			out := run(c.env, "scripts/build-verbs", dir)
			if !strings.Contains(out, c.says) {
				t.Errorf("build-verbs: got %q, want %q", out, c.says)
			}
			if c.says == "" && out != "" {
				testenv.Unsupported(t, "needs libibverbs-dev (make test installs it when it may): "+out)
			}
			out = run("", filepath.Join(dir, "gorun-info"), "devices")
			if !strings.Contains(out, "soft0") || !strings.Contains(out, "verbs: this program was "+c.reason) || !strings.Contains(out, "fix: "+c.fix+"\n") {
				t.Errorf("no %q and %q in\n%s", c.reason, c.fix, out)
			}
			if out := run("", "gorun", "-np", "2", filepath.Join(dir, "a2a"), "-m", "32"); !strings.Contains(out, "on every rank") {
				t.Error(out)
			}
		})
	}
}
