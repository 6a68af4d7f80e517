package rdmatest

import (
	"sync/atomic"
	"unsafe"
)

// addressOf is where b's memory is, as a device names it.
func addressOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// store64 sets the 8 aligned bytes at the start of b in one piece, after
// everything that was stored before.
func store64(b []byte, v uint64) {
	if len(b) < 8 {
		panic("store64 of less than 8 bytes")
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), v)
}

// load64 reads the 8 aligned bytes at the start of b in one piece. It is an
// acquire: what the device placed before a flag is visible after the flag.
func load64(b []byte) uint64 {
	if len(b) < 8 { // indexing would be a plain read of shared memory
		panic("load64 of less than 8 bytes")
	}
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
}
