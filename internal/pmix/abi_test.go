//go:build cgo

package pmix

import (
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv/abicheck"
)

func TestSourcesNeedNoHeadersOfPMIx(t *testing.T) {
	abicheck.Standalone(t, `(^|/)pmix`, "shim.c")
}

// TestDeclarations holds abi.h to the headers of PMIx that are installed, and to those
// of other versions in the directories that GORUN_TEST_PMIX_HEADERS names.
func TestDeclarations(t *testing.T) {
	for _, dir := range abicheck.Installed(t, "pmix_server.h", "GORUN_TEST_PMIX_HEADERS", "libpmix-dev", "/usr/include", "/usr/lib/*/pmix2/include") {
		t.Run(dir, func(t *testing.T) {
			abicheck.Run(t, abicheck.Header{Own: "abi.h", Sources: []string{"shim.c"}, Flags: []string{"-I" + dir}, Begins: []string{"pmix_server_module_t"}})
		})
	}
}
