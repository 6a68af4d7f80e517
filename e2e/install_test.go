package e2e

import (
	"github.com/gorun-mpi/gorun/internal/testenv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoInstall installs gorun into an empty directory, with nothing else of it in
// PATH: a job on this machine runs, one on two hosts says what is missing, and runs
// when that is installed as it says.
func TestGoInstall(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	dir := t.TempDir()
	install := func(command string) {
		t.Helper()
		cmd := exec.Command("go", "install", "-buildvcs=false", "./cmd/"+command)
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	run := func(args ...string) (int, string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "gorun"), args...)
		cmd.Env = append(os.Environ(), "PATH=/usr/local/bin:/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		n, err := status(err)
		if err != nil {
			t.Fatal(err)
		}
		return n, string(out)
	}
	install("gorun")
	if status, text := run("-np", "2", "true"); status != 0 || text != "" {
		t.Errorf("on this machine: got %d, %q", status, text)
	}
	hosts := []string{"--launcher", "fork", "-H", "a:1,b:1", "-np", "2", "sh", "-c", "echo $GORUN_HOST"}
	missing, text := run(hosts...)
	const want = "try go install ./cmd/gorun-agent\n"
	if missing != 125 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "gorun: --launcher fork: found no gorun-agent") || !strings.HasSuffix(text, want) {
		t.Errorf("without an agent: got %d, %q, want 125 and a line that ends with %q", missing, text, want)
	}
	install("gorun-agent")
	if status, text := run(hosts...); status != 0 || text != "a\nb\n" && text != "b\na\n" {
		t.Errorf("on two hosts: got %d, %q", status, text)
	}
}
