package coll

import (
	"fmt"
	"unsafe"
)

// addressOf is where memory is now. A caller keeps mem alive and on the
// heap: a team stores it in itself for the time of the call.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// wordsOf views a region as words, for atomic loads.
func wordsOf(mem []byte) ([]uint64, error) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%8 != 0 {
		return nil, fmt.Errorf("control region at %p is not aligned to 8 bytes", p)
	}
	return unsafe.Slice((*uint64)(p), len(mem)/8), nil
}

// overlap tells whether two pieces of memory share a byte, and whether they
// begin at the same one.
func overlap(a, b []byte) (any, same bool) {
	if len(a) == 0 || len(b) == 0 {
		return false, false
	}
	p, q := addressOf(a), addressOf(b)
	return p < q+uint64(len(b)) && q < p+uint64(len(a)), p == q
}
