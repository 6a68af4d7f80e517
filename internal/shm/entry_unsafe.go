package shm

import "unsafe"

// The entries' place in the file is part of its format.
var _ = [1]struct{}{}[unsafe.Sizeof(rankEntry{})-entrySize]

// marksIn views the marks of a mapped header, as entriesIn does its entries. They are behind those, so aligned.
func marksIn(header []byte, g Geometry) []uint64 {
	if g.World == 0 {
		return nil
	}
	at := g.marksAt()
	_ = header[:at+8*g.markWords()]
	return unsafe.Slice((*uint64)(unsafe.Pointer(&header[at])), g.markWords())
}

// entriesIn views the rank entries of a mapped header, which must be long
// enough. The view lives as long as the mapping, which the garbage collector
// does not know of.
func entriesIn(header []byte, ranks int) []rankEntry {
	_ = header[:headerFixed+ranks*entrySize]
	return unsafe.Slice((*rankEntry)(unsafe.Pointer(&header[headerFixed])), ranks)
}
