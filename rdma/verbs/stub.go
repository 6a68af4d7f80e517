//go:build !cgo

package verbs

import "github.com/gorun-mpi/gorun/rdma"

type found struct{}

// Devices fails with ErrNoCgo: nothing of libibverbs can be called.
func (*Provider) Devices() ([]rdma.Device, error) {
	return nil, &rdma.OpError{Op: "get_device_list", Err: ErrNoCgo}
}
