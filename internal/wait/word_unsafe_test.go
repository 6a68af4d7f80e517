package wait

import "unsafe"

// wordAt views 8 aligned bytes of an arena as a word.
func wordAt(arena []byte, at int) *uint64 {
	return (*uint64)(unsafe.Pointer(&arena[at : at+8][0]))
}

// stampIn views a rank's time stamp.
func stampIn(arena []byte) *int64 {
	return (*int64)(unsafe.Pointer(wordAt(arena, stampAt)))
}
