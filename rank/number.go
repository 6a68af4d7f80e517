package rank

import (
	"fmt"
	"reflect"
)

// Number is a type that can be added, multiplied and ordered.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64
}

// Element is a type whose values can be sent: numbers, complex ones too, bool, and
// arrays and structs of those. Go cannot write that down as a constraint, so a
// type that holds a pointer of any sort (a string, a slice, a map) compiles, and
// the call fails with [ErrArgument] and names the field. Types of no bytes are
// refused too. The check costs nothing measurable for plain types, and for others
// the first use of the type costs some reflection.
type Element interface{ any }

// An Op is an operation of a reduction (MPI_Op).
type Op uint8

// The operations. Sum and Prod take every Element, Min and Max every Number.
// A reduction combines in the same order on every rank, so that all of them
// get the same bits.
const (
	Sum  Op = iota // MPI_SUM
	Prod           // MPI_PROD
	Min            // MPI_MIN
	Max            // MPI_MAX
)

var opNames = [...]string{"sum", "prod", "min", "max"}

// String is the operation's name in lower case.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// kindOf is the machine type behind T, named types included.
func kindOf[T Element]() reflect.Kind { return reflect.TypeFor[T]().Kind() }
