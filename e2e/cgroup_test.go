package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// memoryLimit is enough for gorun and for shells, and a rank that asks for more
// without end soon has it.
const memoryLimit = 64 << 20

// TestControlGroups runs jobs in a control group of their own, $MEMORY, which limits
// their memory.
func TestControlGroups(t *testing.T) {
	dir, err := limitedGroup(t)
	if err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs control groups that it may make: %v", err))
	}
	runScripts(t, filepath.Join("scripts", "cgroups"), map[string]string{"MEMORY": dir})
}

// limitedGroup makes a control group below this process's own, of the unified
// hierarchy or of the old one, and removes it when the test ends.
func limitedGroup(t *testing.T) (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	var errs []error
	for line := range strings.Lines(string(text)) {
		parent, file := "", ""
		switch f := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(f) < 3:
		case f[1] == "memory":
			parent, file = filepath.Join("/sys/fs/cgroup/memory", f[2]), "memory.limit_in_bytes"
		case f[0] == "0":
			parent, file = filepath.Join("/sys/fs/cgroup", f[2]), "memory.max"
		}
		if parent == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
			errs = append(errs, err)
			continue
		}
		dir := filepath.Join(parent, fmt.Sprintf("gorun-e2e-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		t.Cleanup(func() { removeGroup(t, dir) })
		// A file that is not there cannot be made either: then the group has no
		// such controller.
		if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, memoryLimit), 0); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// removeGroup removes a control group once the last of its processes, which the
// scripts have seen end, has been forgotten.
func removeGroup(t *testing.T, dir string) {
	var err error
	testenv.Holds(awaitLimit, func() bool {
		err = os.Remove(dir)
		return !errors.Is(err, unix.EBUSY)
	})
	if err != nil {
		t.Error(err)
	}
}
