package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The assembly is what its generator writes. A test, and no step of make lint, so
// that whoever touches either learns it from go test; the files are copied by the
// test itself, so that the cache of test results knows them.
func TestGenerated(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	tool := testenv.Need(t, "go")
	root := t.TempDir()
	dir := filepath.Join(root, "_generate")
	if err := os.CopyFS(dir, os.DirFS("_generate")); err != nil {
		t.Fatal(err)
	}
	goes := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		return cmd.CombinedOutput()
	}
	if out, err := goes("mod", "download"); err != nil {
		testenv.Unsupported(t, "needs the modules of the generator, in the module cache or from a proxy: "+string(out))
	}
	if out, err := goes("run", ".", "-out", "../avx2_amd64.s", "-stubs", "../avx2_amd64.go", "-pkg", "kernel"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"avx2_amd64.s", "avx2_amd64.go"} {
		want, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what _generate writes: run go generate here", name)
		}
	}
}
