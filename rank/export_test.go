package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// AlltoallWith lets tests compare the algorithms of one communicator.
func AlltoallWith[T Element](ctx context.Context, c *Comm, send, recv []T, algorithm coll.Algorithm) error {
	return alltoallWith(ctx, c, send, recv, algorithm)
}
