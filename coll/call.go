package coll

import (
	"fmt"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// A Call is everything that a plan depends on. All members give the same values except Rank.
type Call struct {
	Kind      Kind
	Algorithm Algorithm
	InPlace   bool // the input is in the output buffer
	Rank      int
	Size      int
	// Root is the root of the kinds that have one. For ReduceScatterV it is
	// a hash of the lengths of its blocks.
	Root int
	// Bytes is as in Args; for ReduceScatterV it is the sum of the blocks. For Exchange
	// and Fold it is 0, because their lengths are compared message by message.
	Bytes int
	// Elem is the length of an element of a reduction in bytes, and 1 for
	// other kinds. Blocks consist of whole elements.
	Elem int
	// Ordered: the reduction is not commutative, so data is combined from rank 0 on.
	Ordered bool
	// Pairs: vectors that are gathered are combined in the order of recursive doubling, which
	// is what a team does with them whose members are on one host.
	Pairs bool
}

// summary is the part of a call on which the members must agree.
type summary struct {
	kind      Kind
	algorithm Algorithm
	root      int32
	bytes     uint64
	elem      uint16
	operation uint16 // kernel.Reduction.ID
}

func (c *Call) summary(operation uint16) summary {
	return summary{kind: c.Kind, algorithm: c.Algorithm, root: int32(c.Root), bytes: uint64(c.Bytes), elem: uint16(c.Elem), operation: operation}
}

func (s summary) String() string {
	text := s.kind.String()
	switch {
	case s.kind == Barrier || s.kind == farewell:
	case sized(s.kind):
		text += fmt.Sprintf(" with a part of %d bytes", s.bytes) + s.elements()
	default:
		text += fmt.Sprintf(" of %d bytes", s.bytes) + s.elements()
	}
	if s.kind < kinds && operations[s.kind].rooted {
		text += fmt.Sprintf(" with root %d", s.root)
	}
	if s.operation != 0 {
		text += ", " + kernel.NameOf(s.operation)
	}
	return text + " (" + s.algorithm.String() + ")"
}

// elements is how many elements the bytes are, where that says more. Of what type
// they are only reductions know.
func (s summary) elements() string {
	if s.elem < 2 || s.bytes%uint64(s.elem) != 0 {
		return ""
	}
	return fmt.Sprintf(" (%d elements of %d)", s.bytes/uint64(s.elem), s.elem)
}

// sized tells whether the messages of a kind say their lengths.
func sized(k Kind) bool { return k < kinds && operations[k].sized }

// mark is the fingerprint of the summary's messages: that of the plan, which does
// not know the operation, with the operation.
func (s summary) mark() uint32 {
	operation := s.operation
	s.operation = 0
	return s.fingerprint() ^ marked(operation)
}

// kindBits is how many bits of a fingerprint are the kind.
const kindBits = 5

// marked is an operation as it goes into a fingerprint. The kind stays.
func marked(operation uint16) uint32 { return uint32(operation) * 0x9e3779b1 >> kindBits }

// fingerprint is the summary in 32 bits: the kind in the upper ones, so that it
// can be told from any message, and a hash below. That of a sized kind has the
// bytes exclusive-ored to it, see lengthMark; that of an Exchange nothing else.
func (s summary) fingerprint() uint32 {
	bytes := s.bytes
	if sized(s.kind) {
		bytes = 0
	}
	h := uint64(s.algorithm)<<56 ^ uint64(uint32(s.root))<<32 ^ uint64(s.elem)<<16 ^ uint64(s.operation)
	h = (h ^ bytes*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h ^= h >> 29
	h *= 0x94d049bb133111eb
	f := uint32(h >> (32 + kindBits))
	if s.kind == Exchange {
		f = 0
	}
	if sized(s.kind) {
		f ^= lengthMark(s.bytes)
	}
	return uint32(s.kind)<<(32-kindBits) | f
}

// kindOf reads the kind back out of a fingerprint.
func kindOf(fingerprint uint32) Kind { return Kind(fingerprint >> (32 - kindBits)) }

// lengthBits are below the kind and one more bit, which tells a length from the
// hash of one that does not fit.
const lengthBits = 32 - kindBits - 1

// lengthMark is a length in a fingerprint.
func lengthMark(n uint64) uint32 {
	if n < 1<<lengthBits {
		return uint32(n)
	}
	return 1<<lengthBits | uint32(n*0x9e3779b97f4a7c15>>(64-lengthBits))
}

// lengthOf reads the length back out of an Exchange's fingerprint, if it fits.
func lengthOf(fingerprint uint32) (n uint64, ok bool) {
	return uint64(fingerprint & (1<<lengthBits - 1)), fingerprint>>lengthBits&1 == 0
}
