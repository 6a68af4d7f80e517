package soft

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// storesInOrder: plain stores of a processor become visible in program order.
const storesInOrder = runtime.GOARCH == "amd64"

// copyRelease copies src to dst, which has its length, so that a process that sees a byte
// of it sees everything that this goroutine placed before. Aligned words of 4
// and 8 bytes are one store, and one load.
func copyRelease(dst, src []byte) {
	switch len(src) {
	case 8:
		if d := word64(dst); d != nil {
			if s := word64(src); s != nil {
				// A peer may be writing the source in the same way.
				arch.StoreRelease64(d, atomic.LoadUint64(s))
			} else {
				arch.StoreRelease64(d, binary.NativeEndian.Uint64(src))
			}
			return
		}
	case 4:
		if d := word32(dst); d != nil {
			if s := word32(src); s != nil {
				arch.StoreRelease32(d, atomic.LoadUint32(s))
			} else {
				arch.StoreRelease32(d, binary.NativeEndian.Uint32(src))
			}
			return
		}
	}
	if !storesInOrder {
		// An acquire-release read-modify-write lets neither the stores before
		// it sink nor those of the copy rise.
		var fence uint32
		atomic.AddUint32(&fence, 1)
	}
	arch.Copy(dst, src)
}
