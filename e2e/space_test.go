package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Whatever the limit of address space, a job of Go ranks runs, or is refused by lines that name the limit and what is
// needed; with a larger one it is not refused again. Built with cgo or without is all the same.
func TestAddressSpace(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	testenv.Need(t, "cc")
	limits := []int{500_000, 900_000, 1_100_000, 1_200_000, 1_350_000, 1_400_000, 1_450_000, 1_500_000, 1_600_000, 1_800_000, 2_000_000, 2_400_000, 3_000_000}
	dir := t.TempDir()
	build := func(cgo string, args ...string) {
		cmd := exec.Command("go", append([]string{"build", "-buildvcs=false"}, args...)...)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	gorun := filepath.Join(dir, "gorun") // as make build makes it
	build("0", "-ldflags", "-E github.com/gorun-mpi/gorun/internal/prelude.enter", "-o", gorun, "./cmd/gorun")
	for _, cgo := range []string{"0", "1"} {
		program := filepath.Join(dir, "samplesort"+cgo)
		build(cgo, "-o", program, "./examples/samplesort")
		for _, np := range []int{2, 4, 8} {
			t.Run(fmt.Sprintf("cgo %s, %d ranks", cgo, np), func(t *testing.T) {
				ran := false
				for _, limit := range limits {
					ctx, cancel := context.WithTimeout(testenv.Deadline(t, time.Minute), testenv.Limit(time.Minute))
					text, err := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("ulimit -v %d; exec %s -np %d %s", limit, gorun, np, program)).CombinedOutput()
					cancel()
					if err == nil {
						ran = true
						continue
					}
					first, _, _ := strings.Cut(string(text), "\n")
					if ran || limit >= 1_500_000 || !strings.Contains(first, "ulimit -v allows") || !strings.Contains(first, "raise it to 1") {
						t.Errorf("ulimit -v %d (a smaller one ran: %v): %v, %.500s", limit, ran, err, text)
					}
				}
			})
		}
	}
}
