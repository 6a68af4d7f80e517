// Package kernel combines vectors element by element: the arithmetic of
// reductions over bytes, for each Go number type and each of sum, product,
// minimum and maximum.
//
// A [Reduction] is a value without state. Its function owns nothing, does not
// block and does not allocate. The result of an element depends on the two
// operands and their order only, so a collective with a fixed order of
// combination gives the same bits on every rank: of two NaNs the sum keeps what
// the processor keeps, minimum and maximum of a NaN and a number are NaN.
package kernel

import (
	"fmt"
	"reflect"
)

// An Op is a reduction operation.
type Op uint8

// The operations.
const (
	Sum Op = iota
	Prod
	Min
	Max
	ops
)

var opNames = [ops]string{"sum", "prod", "min", "max"}

// String is the operation's name in lower case.
func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Number is every type that can be reduced. Complex numbers have no order:
// only sum and product.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// A Func sets dst[i] = a[i] op b[i] for all elements. The three are of one
// length, a multiple of the element's; dst may be a or b but not overlap them
// otherwise. Commutative up to the bits of a NaN.
type Func func(dst, a, b []byte)

// A Reduction is an operation on one element type.
type Reduction struct {
	Func Func
	Elem int // bytes of an element, at most 65535
	// ID tells reductions apart when members compare their calls; 0 for one
	// that is not compared.
	ID   uint16
	Name string // "sum of float64"
}

// UserID is the first ID that this package does not use.
const UserID = 1 << 8

// Of is the reduction of elements of type T by op; ok is false where there is
// none: the order of complex numbers, an unknown op. It does not allocate.
func Of[T Number](op Op) (r Reduction, ok bool) { return For(reflect.TypeFor[T]().Kind(), op) }

// For is the reduction of elements of a kind by op.
func For(kind reflect.Kind, op Op) (r Reduction, ok bool) {
	if int(kind) >= len(table) || op >= ops {
		return Reduction{}, false
	}
	r = table[kind][op]
	return r, r.Func != nil
}

// NameOf is the name of the reduction of this package with an ID, "reduction 7"
// for one that it does not have.
func NameOf(id uint16) string {
	if kind := int(id >> 3); kind < len(table) {
		for _, r := range table[kind] {
			if r.ID == id && r.Func != nil {
				return r.Name
			}
		}
	}
	return fmt.Sprintf("reduction %d", id)
}

// table is never written after its initialisation.
var table = [...][ops]Reduction{
	reflect.Int:        ordered[int](reflect.Int),
	reflect.Int8:       ordered[int8](reflect.Int8),
	reflect.Int16:      ordered[int16](reflect.Int16),
	reflect.Int32:      ordered[int32](reflect.Int32),
	reflect.Int64:      ordered[int64](reflect.Int64),
	reflect.Uint:       ordered[uint](reflect.Uint),
	reflect.Uint8:      ordered[uint8](reflect.Uint8),
	reflect.Uint16:     ordered[uint16](reflect.Uint16),
	reflect.Uint32:     ordered[uint32](reflect.Uint32),
	reflect.Uint64:     ordered[uint64](reflect.Uint64),
	reflect.Uintptr:    ordered[uintptr](reflect.Uintptr),
	reflect.Float32:    ordered[float32](reflect.Float32),
	reflect.Float64:    ordered[float64](reflect.Float64),
	reflect.Complex64:  fields[complex64](reflect.Complex64),
	reflect.Complex128: fields[complex128](reflect.Complex128),
}

func fields[T Number](kind reflect.Kind) [ops]Reduction {
	return [ops]Reduction{Sum: named[T](kind, Sum, sum[T]), Prod: named[T](kind, Prod, prod[T])}
}

func ordered[T order](kind reflect.Kind) [ops]Reduction {
	return [ops]Reduction{
		Sum: named[T](kind, Sum, sum[T]), Prod: named[T](kind, Prod, prod[T]),
		Min: named[T](kind, Min, least[T]), Max: named[T](kind, Max, greatest[T]),
	}
}

func named[T Number](kind reflect.Kind, op Op, f Func) Reduction {
	return Reduction{Func: f, Elem: int(reflect.TypeFor[T]().Size()), ID: uint16(kind)<<3 | uint16(op) + 1, Name: op.String() + " of " + kind.String()}
}
