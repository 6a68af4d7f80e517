package main

import "unsafe"

// integers is registered memory, whose first byte is aligned, as integers.
func integers(b []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/intSize)
}
