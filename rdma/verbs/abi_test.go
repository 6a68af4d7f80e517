//go:build cgo

package verbs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/testenv/abicheck"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

var cSources = []string{"shim.c", "mlx5.c", "tag.c"}

func TestSourcesNeedNoHeadersOfLibibverbs(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	abicheck.Standalone(t, `(^|/)(infiniband|rdma)/`, cSources...)
}

// TestDeclarations holds abi.h to the headers of libibverbs and libmlx5 that are
// installed, and to those of other versions in the directories that
// GORUN_TEST_VERBS_HEADERS names.
func TestDeclarations(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, dir := range abicheck.Installed(t, "infiniband/mlx5dv.h", "GORUN_TEST_VERBS_HEADERS", "libibverbs-dev", "/usr/include") {
		t.Run(dir, func(t *testing.T) {
			abicheck.Run(t, abicheck.Header{
				Own: "abi.h", Sources: cSources, Flags: []string{"-I" + dir},
				// The library makes these, or it is told by a mask or a size what is there of them.
				Begins: []string{"struct ibv_cq_ex", "struct ibv_qp_ex", "struct mlx5dv_qp_ex", "struct mlx5dv_context", "struct ibv_device_attr_ex", "struct ibv_port_attr"},
				Ends:   []string{"struct verbs_context"},
			})
		})
	}
}

func TestOldLibraryIsRefused(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	script := filepath.Join(t.TempDir(), "versions")
	if err := os.WriteFile(script, []byte("IBVERBS_1.0 { global: ibv_*; };\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	library := buildLibrary(t, "fake.c", "-Wl,--version-script="+script)
	devices, err := verbs.New(verbs.Config{Library: library}).Devices()
	if !errors.Is(err, verbs.ErrNoLibrary) || !strings.Contains(err.Error(), "has the interface IBVERBS_1.0, want IBVERBS_1.1") || devices != nil {
		t.Errorf("got %v, %v", devices, err)
	}
}
