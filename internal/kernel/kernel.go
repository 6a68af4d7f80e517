// Package kernel combines vectors element by element: the arithmetic of
// reductions over bytes, for every element type and operation of MPI.
//
// A [Reduction] is a value without state. Its function owns nothing, does not
// block and does not allocate. The result of an element depends on the two
// operands and their order only, never on where in a vector or in memory it
// stands, so a collective with a fixed order of combination gives the same bits
// on every rank. For a NaN that means:
//
//   - Sum, Prod, Min and Max of floating-point numbers: a NaN operand makes the
//     result NaN: the NaN of a, else that of b, made quiet, with its sign and
//     payload. A NaN out of numbers (inf-inf) is the processor's default on
//     amd64: negative, quiet, no payload. Min takes -0 for less than +0.
//   - Sum of complex numbers: the same for each part. A part of a product that
//     is NaN is the default NaN, wherever it came from.
//   - MinLoc and MaxLoc: a NaN wins over every number, as in Min and Max; of
//     two NaNs the one with the lower index.
//
// Float16 and BFloat16 are added and multiplied as float32 and rounded to the
// nearest, ties to even, which for these is the exact result rounded once.
//
// On amd64 with AVX2 generated assembly does most of this (_generate); the loops
// in Go are the reference that tests compare it to, bit for bit, and what runs
// elsewhere.
package kernel

import "fmt"

//go:generate go -C _generate run . -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg kernel

// A Func sets dst[i] = a[i] op b[i] for all elements. The three are of one
// length, a multiple of the element's, at any address; dst may be a or b but not
// overlap them otherwise. A longer a or b is read as far as dst goes, a shorter
// one panics.
type Func func(dst, a, b []byte)

// A Reduction is an operation on one element type.
type Reduction struct {
	Func Func
	Elem int // bytes of an element
	// ID tells reductions apart when members compare their calls; 0 for one
	// that is not compared.
	ID uint16
	// Ordered: a op b is not b op a. Ranks must be combined in their order,
	// a being of the lower ranks.
	Ordered bool
	Name    string // of one that User made; the others have none
}

// UserID is the first ID that no reduction of For has.
const UserID = 1 << 9

// For is the reduction of elements of type t by op; ok is false where MPI knows
// none: the order of complex numbers, bits of floats, minloc of a plain number.
// It does not allocate.
func For(t Type, op Op) (r Reduction, ok bool) {
	if t >= types || op >= ops || reference[t][op] == nil {
		return Reduction{}, false
	}
	f := vectorized(t, op)
	if f == nil {
		f = reference[t][op]
	}
	return Reduction{Func: f, Elem: t.Size(), ID: uint16(t)<<4 | uint16(op), Ordered: op == Replace || op == NoOp}, true
}

// User is the reduction of elements of elem bytes by a function of the user
// (MPI_Op_create), which is associative, and commutative unless ordered. f sets
// dst = a op b for all elements of dst, which may be a or b. The ID is made of
// name, elem and ordered, so that members which name theirs alike agree.
func User(name string, elem int, ordered bool, f func(dst, a, b []byte)) Reduction {
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range fmt.Appendf(nil, "%s %d %t", name, elem, ordered) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return Reduction{Func: f, Elem: elem, ID: uint16(UserID + h%(1<<16-UserID)), Ordered: ordered, Name: name}
}

// String is "sum of float64", or the name of a user's.
func (r Reduction) String() string {
	if r.Name != "" {
		return r.Name
	}
	return NameOf(r.ID)
}

// NameOf is the name of the reduction with an ID: "sum of float64", and
// "operation 7000" for one that For does not make.
func NameOf(id uint16) string {
	t, op := Type(id>>4), Op(id&15)
	if id >= UserID || t >= types || op >= ops || reference[t][op] == nil {
		return fmt.Sprintf("operation %d", id)
	}
	return op.String() + " of " + t.String()
}
