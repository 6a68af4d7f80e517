package dpa

import "unsafe"

// word is the 8 bytes of a region at at, which is a multiple of 8. They are accessed by atomic
// operations only, here and by the device of package rdma, which stores 8 aligned bytes at once.
func word(mem []byte, at int) *uint64 {
	_ = mem[at : at+8 : at+8]
	return (*uint64)(unsafe.Pointer(&mem[at]))
}
