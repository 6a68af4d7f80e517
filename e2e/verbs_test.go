package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// withoutHeader is a compiler that misses a header.
func withoutHeader(t *testing.T, header string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gcc")
	script := "#!/bin/sh\ntext=$(cat)\ncase $text in *'<" + header + ">'*) exit 1;; esac\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWithoutVerbs builds the programs that can use libibverbs as where there is no
// C compiler, and as where it has no headers of the C library: all are there, work on
// the software device, and say what is missing.
func TestWithoutVerbs(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	testenv.Need(t, "gcc")
	const reason, fix = "built without cgo", "apt-get install gcc libc6-dev && make build"
	for _, c := range []struct{ name, cc, says string }{
		{"no compiler", "/no/such/gcc", "no C compiler (/no/such/gcc)"},
		{"no C library", withoutHeader(t, "stdlib.h"), "no headers of the C library"},
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
			out := run("CC="+c.cc, "scripts/build-verbs", dir)
			if !strings.Contains(out, c.says) {
				t.Errorf("build-verbs: got %q, want %q", out, c.says)
			}
			out = run("", filepath.Join(dir, "gorun-info"), "devices")
			if !strings.Contains(out, "soft0") || !strings.Contains(out, "verbs: this program was "+reason) || !strings.Contains(out, "fix: "+fix+"\n") {
				t.Errorf("no %q and %q in\n%s", reason, fix, out)
			}
			if out := run("", "gorun", "-np", "2", filepath.Join(dir, "a2a"), "-m", "32"); !strings.Contains(out, "on every rank") {
				t.Error(out)
			}
			// The program with cgo takes the place of a2a for a device that a2a does not have.
			other := filepath.Join(dir, "a2a-verbs")
			if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was built: %v", other, err)
			}
			if err := os.WriteFile(other, []byte("#!/bin/sh\necho in its place: $*\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if out := run("", "gorun", "-np", "1", filepath.Join(dir, "a2a"), "-d", "mlx5_0", "-m", "32"); out != "in its place: -d mlx5_0 -m 32\n" {
				t.Errorf("got %q", out)
			}
		})
	}
}
