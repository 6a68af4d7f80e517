//go:build !cgo

package pmix

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Without cgo everything says so.
func TestStub(t *testing.T) {
	_, err := Probe()
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "built without cgo") || !strings.Contains(err.Error(), "apt-get install gcc libc6-dev") {
		t.Errorf("Probe: got %v", err)
	}
	if _, err := Start(t.TempDir(), "here", nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Start: got %v", err)
	}
}

// make test has no cgo: the tests of the server are then run by this one.
func TestServer(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	testenv.Need(t, "gcc")
	args := []string{"test", "-count=1"}
	if testing.Verbose() {
		args = append(args, "-v")
	}
	if testing.Short() {
		args = append(args, "-short")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("with cgo: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}
