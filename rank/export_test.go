package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// AlltoallWith lets tests compare the algorithms of one communicator.
func AlltoallWith[T Element](ctx context.Context, c *Comm, send, recv []T, algorithm coll.Algorithm) error {
	k := c.begin("alltoall").alltoall(Of(send), Of(recv))
	k.args.Algorithm = algorithm
	return k.run(ctx)
}
