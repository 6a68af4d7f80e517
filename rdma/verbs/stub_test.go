//go:build !cgo

package verbs_test

import (
	"errors"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

func TestWithoutCgo(t *testing.T) {
	devices, err := verbs.New(verbs.Config{}).Devices()
	if !errors.Is(err, verbs.ErrNoCgo) || !errors.Is(err, rdma.ErrNotSupported) || devices != nil {
		t.Errorf("got %v, %v, want an error wrapping %q and %q", devices, err, verbs.ErrNoCgo, rdma.ErrNotSupported)
	}
}
