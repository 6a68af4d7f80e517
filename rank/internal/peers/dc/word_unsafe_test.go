package dc

import "unsafe"

// wordAt is the word at the beginning of registered memory, for atomic loads of what
// a device may be writing.
func wordAt(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }
