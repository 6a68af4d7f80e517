//go:build !linux

package soft

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func supportsDMABuf() error { return fmt.Errorf("dma-bufs are Linux's: %w", rdma.ErrNotSupported) }
