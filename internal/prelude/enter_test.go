//go:build linux && amd64

package prelude

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// gorun builds gorun as make build does, where everybody may execute it.
func gorun(t *testing.T) string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	const entry = "-E github.com/gorun-mpi/gorun/internal/prelude.enter"
	if !strings.Contains(string(makefile), "-ldflags '"+entry+"'") {
		t.Errorf("the Makefile does not link gorun with %s", entry)
	}
	dir, err := os.MkdirTemp("", "gorun-prelude-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "gorun")
	build := exec.Command("go", "build", "-ldflags", entry, "-o", file, "github.com/gorun-mpi/gorun/cmd/gorun")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// Under limits that let no program of Go begin, gorun says in one line what it needs.
// Whatever the limit, it says that or does its work.
func TestLimitsOfGorun(t *testing.T) {
	bash, file := testenv.Need(t, "bash"), gorun(t)
	run := func(limit string, credential *syscall.Credential) (string, int) {
		cmd := exec.Command(bash, "-c", limit+"; exec \"$0\" --version", file)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: credential}
		out, _ := cmd.CombinedOutput() // its status tells
		return string(out), cmd.ProcessState.ExitCode()
	}
	for kb := 50_000; kb <= 1_500_000; kb += 25_000 {
		out, status := run(fmt.Sprintf("ulimit -v %d", kb), nil)
		refused := strings.HasPrefix(out, "gorun: ulimit -v allows too little address space") && strings.Count(out, "\n") == 1 && status == 125
		works := strings.HasPrefix(out, "gorun ") && status == 0
		if !refused && !works || works != (kb >= 1_400_000) {
			t.Errorf("ulimit -v %d: status %d, %.200q", kb, status, out)
		}
	}
	if out, status := run("ulimit -v unlimited", nil); status != 0 {
		t.Errorf("no limit: status %d, %q", status, out)
	}
	if os.Getuid() != 0 {
		testenv.Unsupported(t, "only root can be a user without processes")
	}
	nobody := &syscall.Credential{Uid: 65531, Gid: 65531}
	if out, status := run("ulimit -u 5", nobody); status != 125 || !strings.HasPrefix(out, "gorun: ulimit -u allows fewer than 12 processes") || strings.Count(out, "\n") != 1 {
		t.Errorf("ulimit -u 5: status %d, %q", status, out)
	}
	if out, status := run("ulimit -u 5", nil); status != 0 {
		t.Errorf("ulimit -u 5 as root, who has no such limit: status %d, %q", status, out)
	}
}
