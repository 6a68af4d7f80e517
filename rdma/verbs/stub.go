//go:build !cgo

package verbs

import "github.com/gorun-mpi/gorun/rdma"

type (
	library struct{}
	facts   struct{}
)

// Devices fails: without cgo nothing of libibverbs can be called.
func (*Provider) Devices() ([]rdma.Device, error) {
	return nil, &rdma.OpError{Op: "get_device_list", Detail: "this binary was built without cgo, which libibverbs needs", Err: rdma.ErrNotSupported}
}
