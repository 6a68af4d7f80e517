package launcher

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func init() { roles["alone"] = roleAlone }

// roleAlone runs a job that adopts where the kernel refuses that.
func roleAlone([]string) int {
	if err := testenv.RefuseSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 94
	}
	r, err := Run(context.Background(), Job{Argv: sh("echo ran"), NP: 2, Adopt: true, Stdout: os.Stdout, Stderr: os.Stderr,
		Warn: func(text string) { fmt.Fprintln(os.Stderr, text) }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return r.ExitStatus
}

// A job runs where a filter refuses PR_SET_CHILD_SUBREAPER, and says so.
func TestJobRunsWithoutSubreaper(t *testing.T) {
	testenv.NoLeaks(t)
	argv := roleArgv(t, "alone")
	cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), argv[0], argv[1:]...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || out.String() != "ran\nran\n" {
		t.Errorf("%v, output %q", err, &out)
	}
	if !strings.Contains(errs.String(), "adopt orphans: prctl: operation not permitted: daemons that ranks leave behind") {
		t.Errorf("standard error is %q, want a note of prctl", &errs)
	}
}
