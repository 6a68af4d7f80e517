package shm

import "unsafe"

// The entries' place in the file is part of its format.
var _ = [1]struct{}{}[unsafe.Sizeof(rankEntry{})-entrySize]

// entriesIn views the rank entries of a mapped header, which must be long
// enough. The view lives as long as the mapping, which the garbage collector
// does not know of.
func entriesIn(header []byte, ranks int) []rankEntry {
	_ = header[:headerFixed+ranks*entrySize]
	return unsafe.Slice((*rankEntry)(unsafe.Pointer(&header[headerFixed])), ranks)
}
