//go:build cgo

package verbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// libraries are those built of the sources in testdata, once for all tests.
var libraries struct {
	sync.Mutex
	dir   string
	built map[string]string
}

func TestMain(m *testing.M) {
	status := m.Run()
	if libraries.dir != "" {
		_ = os.RemoveAll(libraries.dir)
	}
	os.Exit(status)
}

// buildLibrary makes a library of a source in testdata.
func buildLibrary(t testing.TB, source string, flags ...string) string {
	t.Helper()
	libraries.Lock()
	defer libraries.Unlock()
	name := "lib" + strings.TrimSuffix(source, ".c") + strings.ReplaceAll(strings.Join(flags, ""), "/", "_") + ".so"
	if so, ok := libraries.built[name]; ok {
		return so
	}
	if libraries.dir == "" {
		dir, err := os.MkdirTemp("", "verbs-test-")
		if err != nil {
			t.Fatal(err)
		}
		libraries.dir, libraries.built = dir, map[string]string{}
	}
	so := filepath.Join(libraries.dir, name)
	args := append([]string{"-O2", "-Wall", "-fPIC", "-shared", "-o", so, filepath.Join("testdata", source)}, flags...)
	cc := exec.Command(testenv.Need(t, "gcc"), args...)
	if out, err := cc.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "infiniband/verbs.h") || strings.Contains(string(out), "infiniband/mlx5dv.h") {
			testenv.Unsupported(t, "needs the headers of libibverbs (libibverbs-dev)")
		}
		t.Fatalf("build the library: %v\n%s", err, out)
	}
	libraries.built[name] = so
	return so
}
