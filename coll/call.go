package coll

import (
	"fmt"
	"strconv"

	"github.com/gorun-mpi/gorun/coll/kernel"
)

// A Kind is a collective operation.
type Kind uint8

// The collectives.
const (
	Barrier Kind = iota + 1
	Bcast
	Reduce
	AllReduce
	AllGather
	ReduceScatter
	AllToAll
	farewell // a team's last words, see Team.Free
	kinds
)

var kindNames = [kinds]string{"none", "barrier", "bcast", "reduce", "allreduce", "allgather", "reducescatter", "alltoall", "free"}

// String is the collective's name in lower case.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "collective " + strconv.Itoa(int(k))
}

// An Algorithm is a way to do a collective.
type Algorithm uint8

// The algorithms. Auto lets the package select.
const (
	Auto Algorithm = iota
	Direct
	Bruck
	Ring
	Dissemination
	Binomial
	RecursiveDoubling
	ReduceScatterGather // reduce-scatter, then gather or all-gather
	algorithms
)

var algorithmNames = [algorithms]string{"auto", "direct", "bruck", "ring", "dissemination", "binomial", "recursive-doubling", "reduce-scatter-gather"}

// String is the algorithm's name.
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return "algorithm " + strconv.Itoa(int(a))
}

// A Call is all that a plan depends on. Everything but Rank must be the same in
// all members.
type Call struct {
	Kind      Kind
	Algorithm Algorithm
	InPlace   bool // the input is where the output goes
	Rank      int
	Size      int
	Root      int // Bcast, Reduce
	// Bytes is the length of the vector (Bcast, Reduce, AllReduce) or of
	// one block (AllGather, ReduceScatter, AllToAll).
	Bytes int
	// Elem is the length of an element of a reduction, which is never torn; 1
	// for the others.
	Elem int
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
	if s.kind != Barrier && s.kind != farewell {
		text += fmt.Sprintf(" of %d bytes", s.bytes)
	}
	if s.kind == Bcast || s.kind == Reduce {
		text += fmt.Sprintf(" with root %d", s.root)
	}
	if s.operation != 0 {
		text += ", " + kernel.NameOf(s.operation)
	}
	return text + " (" + s.algorithm.String() + ")"
}

// mark is the fingerprint of the summary's messages: that of the plan, which does
// not know the operation, with the operation.
func (s summary) mark() uint32 {
	operation := s.operation
	s.operation = 0
	return s.fingerprint() ^ marked(operation)
}

// marked is an operation as it goes into a fingerprint. The kind stays.
func marked(operation uint16) uint32 { return uint32(operation) * 0x9e3779b1 >> 4 }

// fingerprint is the summary in 32 bits: the kind in the upper 4, so that it
// can be told from any message, and a hash below.
func (s summary) fingerprint() uint32 {
	h := uint64(s.algorithm)<<56 ^ uint64(uint32(s.root))<<32 ^ uint64(s.elem)<<16 ^ uint64(s.operation)
	h = (h ^ s.bytes*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h ^= h >> 29
	h *= 0x94d049bb133111eb
	return uint32(s.kind)<<28 | uint32(h>>36)
}

// kindOf reads the kind back out of a fingerprint.
func kindOf(fingerprint uint32) Kind { return Kind(fingerprint >> 28) }
