//go:build linux

package dropin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The C programs of testdata hold the shim to what libibverbs does with objects that are destroyed twice, in use or foreign, and the
// loader to what it promises of signals and forks. They use abi.h, as the shim does, and print what differs.
func TestProgramsOfC(t *testing.T) {
	dir := build(t)
	for _, name := range []string{"misuse", "process"} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), name)
			cc := exec.Command(testenv.Need(t, "gcc"), "-Wall", "-Wextra", "-pthread", "-o", out, filepath.Join("testdata", name+".c"), filepath.Join(dir, "verbs", "libibverbs.so.1"))
			if said, err := cc.CombinedOutput(); err != nil {
				t.Fatalf("gcc: %v\n%s", err, said)
			}
			cmd := exec.Command(filepath.Join(dir, "gorun-verbs"), "--fabric", fabric(t), out)
			cmd.Env = append(os.Environ(), "GODEBUG=")
			if said, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(said)) != "all is well" {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// The library exports what its table says, and two functions of the C library.
func TestExports(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	out, err := exec.Command(testenv.Need(t, "nm"), "-D", "--defined-only", filepath.Join(build(t), "verbs", "libibverbs.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"sigaction": true, "signal": true}
	for _, s := range symbols(t) {
		want[s.name+"@@"+s.node] = true
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		name := f[len(f)-1]
		if !want[name] && f[len(f)-2] != "A" {
			t.Errorf("exports %s, which the table does not have", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("does not export %s", name)
	}
}
