//go:build cgo

package verbs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// What cannot be loaded is said with its name, and is no device rather than a crash.
func TestLibraryThatIsNotThere(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, c := range []struct{ library, want string }{
		{"/nowhere/libibverbs.so.1", "/nowhere/libibverbs.so.1"},
		{"libc.so.6", "libc.so.6 has no function ibv_get_device_list"},
	} {
		devices, err := verbs.New(verbs.Config{Library: c.library}).Devices()
		if !errors.Is(err, verbs.ErrNoLibrary) || !errors.Is(err, rdma.ErrNotSupported) || !strings.Contains(err.Error(), c.want) || devices != nil {
			t.Errorf("%s: %v, %v, want an error wrapping %q and %q with %q in it", c.library, devices, err, verbs.ErrNoLibrary, rdma.ErrNotSupported, c.want)
		}
	}
}
