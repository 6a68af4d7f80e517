package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// refusedVariable makes a test's process one in which the kernel refuses splice.
const refusedVariable = "GORUN_PMIX_TEST_REFUSED"

func init() {
	if os.Getenv(refusedVariable) == "" {
		return
	}
	if err := testenv.Refuse(unix.EPERM, testenv.Call{Number: unix.SYS_SPLICE}); err != nil {
		panic(err)
	}
	if _, err := unix.Splice(-1, nil, -1, nil, 1, 0); err != unix.EPERM {
		panic(fmt.Sprintf("splice under a filter: %v, want EPERM", err))
	}
}

func TestRelayWithoutSplice(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(testenv.Deadline(t, 20*time.Second), exe, "-test.run=^TestRelay$", "-test.v")
	c.Env = append(os.Environ(), refusedVariable+"=1")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRelay") {
		t.Fatalf("where splice is refused: %v\n%s", err, out)
	}
}
