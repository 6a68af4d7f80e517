package p2p

import "unsafe"

const (
	lineSize = 64
	// lineData is how much payload a line holds.
	lineData = 40
)

// A line is a cache line of an inbox or a ring, and carries one message: a short
// one whole. word is stored last, with release, and says that the rest is there.
type line struct {
	word  uint64 // see pack
	route uint64 // tag << 32 | context
	id    uint64 // the sender's operation, and the type of the data: typedID
	data  [lineData]byte
}

// bytesOfLines is the memory of lines.
func bytesOfLines(lines []line) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(lines))), len(lines)*lineSize)
}

// A ticket is the sender's word on an announced message: whether it may still be
// read, and which side moves which part of it.
type ticket struct {
	state uint64
	claim uint64 // see split.go
	moved uint64 // pieces that the sender has moved
	_     [lineSize - 24]byte
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(line{})-lineSize]
	_ = [1]struct{}{}[unsafe.Sizeof(ticket{})-lineSize]
)

// linesOf views b, aligned and of whole lines, as lines; ticketsOf as tickets.
func linesOf(b []byte) []line {
	return unsafe.Slice((*line)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/lineSize)
}

func ticketsOf(b []byte) []ticket {
	return unsafe.Slice((*ticket)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/lineSize)
}

// address is where b starts, as scatter/gather entries name it.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// words is b as words; b is aligned, as all registered memory is.
func words(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}
