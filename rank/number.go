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

// Element is a type whose values can be sent: plain numbers, complex ones too.
type Element interface {
	Number | ~complex64 | ~complex128
}

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
