package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestAttack is a short run of `make attack`.
func TestAttack(t *testing.T) {
	testenv.Part(t, testenv.Faults)
	attack, err := exec.LookPath("attack")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(5*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, attack, "-bin", filepath.Dir(attack), "-seed", "1", "-kills", "10", "-causes", "10", "-floods", "4")
	cmd.Dir = ".." // where testdata/mpi is
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
