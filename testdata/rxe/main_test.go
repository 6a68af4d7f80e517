package rxe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/rxevm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// built is where the programs for the guest are.
var built string

// programs are those of built that the guest has.
var programs = []string{"gorun", "a2a", "unruly"}

// shared is the guest of all tests that need no machine of their own, and
// noGuest why there is none: one boot that fails is enough.
var (
	shared  *rxevm.VM
	noGuest error
)

func TestMain(m *testing.M) {
	rxevm.Init()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gorun-rxe-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	for cgo, list := range map[string][]string{"0": {"./cmd/gorun", "./cmd/gorun-agent", "./internal/rxevm/rxe", "./testdata/rxe/unruly"}, "1": {"./cmd/a2a"}} {
		if out, err := goTool(cgo, append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir}, list...)...); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
	}
	defer func() {
		if shared != nil {
			shared.Close()
		}
	}()
	return m.Run()
}

// goTool runs the go command in the module's root.
func goTool(cgo string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return out, err
}

// guest is the shared machine, started by the first who needs it, and again
// when a test has broken it.
func guest(t *testing.T) *rxevm.VM {
	t.Helper()
	if shared == nil || shared.Err() != nil {
		shared = boot(t)
		for _, program := range programs {
			if err := shared.Put(filepath.Join(built, program), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	return shared
}

// boot starts a machine.
func boot(t *testing.T) *rxevm.VM {
	t.Helper()
	if noGuest != nil {
		t.Fatal("no guest, for the reason that the first test gave")
	}
	vm, err := rxevm.Boot(context.Background(), rxevm.Config{Progress: func(s string) { t.Log(s) }})
	if errors.Is(err, rxevm.ErrMissing) {
		testenv.Unsupported(t, err.Error())
	}
	if err != nil {
		noGuest = err
		t.Fatal(err)
	}
	return vm
}

// inGuest runs a command of the guest for a minute at most, and ends the test if it fails.
func inGuest(t *testing.T, args ...string) string {
	t.Helper()
	out, err := guest(t).Output(testenv.Deadline(t, time.Minute), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
