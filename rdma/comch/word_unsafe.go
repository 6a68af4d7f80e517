package comch

import "unsafe"

// word is the 8 bytes of a ring at at, which is a multiple of 8. Both ends access them
// by atomic operations only.
func word(mem []byte, at int) *uint64 {
	_ = mem[at : at+8 : at+8]
	return (*uint64)(unsafe.Pointer(&mem[at]))
}
