package soft

import (
	"math/bits"
	"reflect"

	"github.com/gorun-mpi/gorun/rdma"
)

var _ rdma.QPSizer = (*context)(nil)

// listed is what the lists and tables of queue pairs take for one.
const listed = 240

// QPBytes counts a queue pair's context and receive slots in the arena and its half on the
// heap. What is deferred takes more while it waits. Of a receive queue that many take from
// only a datagram queue pair's is its own.
func (c *context) QPBytes(init rdma.QPInitAttr) int {
	size := contextSize + 4 + listed + int(reflect.TypeFor[queuePair]().Size()) + int(reflect.TypeFor[[]byte]().Size())*max(init.Cap.MaxSendSGE, 1)
	n := init.Cap.MaxRecvWR
	if n == 0 || init.SRQ != nil || init.Type == rdma.DCI {
		return size
	}
	slots := 1 << bits.Len32(uint32(n-1))
	stride := slotStride(init.Cap.MaxRecvSGE + (init.Cap.MaxInlineRecv+slotSGESize-1)/slotSGESize)
	if init.Type == rdma.UD {
		return size + sharedSize + int(reflect.TypeFor[sharedQueue]().Size()) + slots*(16+stride) + slots*(8+4+4)
	}
	return size + slots*max(init.Striding.Strides, 1)*stride + 8*slots
}
