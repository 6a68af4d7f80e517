package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(apartVariable) != "" { // what is built is there
		os.Exit(m.Run())
	}
	os.Exit(buildAndRun(m))
}

// buildAndRun builds the commands and the programs of scripts, and puts them first in the PATH.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gorun-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./cmd/gorun", "./cmd/gorun-agent", "./cmd/gorun-pmix", "./cmd/gorun-offload", "./cmd/gorun-info", "./cmd/a2a", "./cmd/pingpong", "./cmd/secure-channel", "./cmd/allreduce", "./cmd/gorun-bench", "./cmd/gorun-bench-init", "./e2e/attack", "./examples/survive", "./testdata/window", "./testdata/scrape")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", build.Args, err, out)
		return 1
	}
	// a2a with TLS, as make build makes it.
	secure := exec.Command("go", "build", "-tags", "secure", "-o", filepath.Join(dir, "a2a-secure"), "./cmd/a2a")
	secure.Dir, secure.Env = "..", build.Env
	if out, err := secure.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", secure.Args, err, out)
		return 1
	}
	// The helper for Open MPI, as make build makes it.
	helper := exec.Command("scripts/build-pmix", dir)
	helper.Dir = ".."
	if out, err := helper.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", helper.Args, err, out)
		return 1
	}
	if err := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
