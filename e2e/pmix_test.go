package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestWithoutPMIx builds gorun as where there is no C compiler, and as where it has no
// headers of the C library: everything builds, gorun-info says what is missing, a
// program of Open MPI ends the job at once with the same words (as worlds of one rank
// it would do the whole work N times), and all else runs.
func TestWithoutPMIx(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	compiler := testenv.Need(t, "mpicc.openmpi")
	testenv.Need(t, "gcc")
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command(compiler, "-O1", "-o", hello, filepath.Join("..", "testdata", "mpi", "hello.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const want = "no PMIx server: this program was built without cgo; build gorun-pmix where there is a C compiler (on Debian and Ubuntu: apt-get install gcc libc6-dev), with make install, or CGO_ENABLED=1 go install ./cmd/gorun-pmix"
	for name, c := range map[string]struct {
		env  []string
		says string // build-pmix
	}{
		"no compiler":  {[]string{"CC=/no/such/gcc"}, "no C compiler (/no/such/gcc)"},
		"no C library": {[]string{"CC=" + withoutHeader(t, "stdlib.h")}, "no headers of the C library"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run := func(env []string, name string, args ...string) (string, error) {
				cmd := exec.Command(name, args...)
				cmd.Dir, cmd.Env = "..", append(os.Environ(), env...)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := run([]string{"CGO_ENABLED=0"}, "go", "build", "-o", dir, "./cmd/gorun", "./cmd/gorun-info"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := run(c.env, "scripts/build-pmix", dir); err != nil || !strings.Contains(out, c.says) {
				t.Fatalf("build-pmix: %v, got %q, want %q", err, out, c.says)
			}
			if out, err := run(nil, filepath.Join(dir, "gorun-info"), "pmi"); err == nil || !strings.Contains(out, want) {
				t.Errorf("gorun-info pmi: %v, got %q, want %q", err, out, want)
			}
			if out, err := run(nil, filepath.Join(dir, "gorun"), "-np", "2", hello); err == nil || !strings.Contains(out, want) || strings.Contains(out, "of 1") {
				t.Errorf("Open MPI: %v, got %q, want %q", err, out, want)
			}
			if out, err := run(nil, filepath.Join(dir, "gorun"), "-np", "2", "echo", "here"); err != nil || out != "here\nhere\n" {
				t.Errorf("echo: %v, got %q", err, out)
			}
		})
	}
}
