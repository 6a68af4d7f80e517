package wait

import "unsafe"

// wordAt views 8 aligned bytes of an arena as a word.
func wordAt(arena []byte, at int) *uint64 {
	return (*uint64)(unsafe.Pointer(&arena[at : at+8][0]))
}

// signedAt views 8 aligned bytes of an arena as a signed word.
func signedAt(arena []byte, at int) *int64 {
	return (*int64)(unsafe.Pointer(wordAt(arena, at)))
}
