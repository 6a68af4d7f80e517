package rma

import "unsafe"

// address is where b starts, as scatter/gather entries name it.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// wordsOf is b as words; b is aligned, as all registered memory is.
func wordsOf(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// wordAt is the word at the beginning of b, which is aligned for it.
func wordAt(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

// halfAt is the half word there.
func halfAt(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }
