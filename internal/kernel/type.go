package kernel

import (
	"fmt"
	"math/bits"
	"reflect"
)

// A Type is the type of an element in memory.
type Type uint8

// The types. The zero Type is none.
const (
	_          Type = iota
	Bool            // one byte, 0 is false (MPI_C_BOOL)
	Int8            // MPI_INT8_T ...
	Int16           //
	Int32           //
	Int64           //
	Uint8           // MPI_UINT8_T ..., MPI_BYTE
	Uint16          //
	Uint32          //
	Uint64          //
	Float16         // IEEE 754 binary16
	BFloat16        // the upper half of a Float32
	Float32         // MPI_FLOAT
	Float64         // MPI_DOUBLE
	Complex64       // MPI_C_FLOAT_COMPLEX
	Complex128      // MPI_C_DOUBLE_COMPLEX
	FloatInt        // Pair[float32] (MPI_FLOAT_INT)
	DoubleInt       // Pair[float64] (MPI_DOUBLE_INT)
	LongInt         // Pair[int64] (MPI_LONG_INT)
	TwoInt          // Pair[int32] (MPI_2INT)
	ShortInt        // Pair[int16] (MPI_SHORT_INT)
	types
)

var typeNames = [types]string{"no type", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
	"float16", "bfloat16", "float32", "float64", "complex64", "complex128",
	"(float32, int32)", "(float64, int32)", "(int64, int32)", "(int32, int32)", "(int16, int32)"}

// String is the name of the Go type, "(float32, int32)" for a pair.
func (t Type) String() string {
	if t < types {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

var typeSizes = [types]uint8{0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16, 8, 16, 16, 8, 8}

// Size is the length of an element in bytes, a pair's padding included; 0 of no
// type.
func (t Type) Size() int {
	if t < types {
		return int(typeSizes[t])
	}
	return 0
}

// int, uint and uintptr are types of their size.
const (
	intType  = Int32 + Type(bits.UintSize/64)
	uintType = Uint32 + Type(bits.UintSize/64)
)

var kinds = [...]Type{
	reflect.Bool: Bool,
	reflect.Int:  intType, reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64,
	reflect.Uint: uintType, reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64,
	reflect.Uintptr: uintType,
	reflect.Float32: Float32, reflect.Float64: Float64, reflect.Complex64: Complex64, reflect.Complex128: Complex128,
}

// TypeOf is the type of a kind of plain values; ok is false for all other kinds.
func TypeOf(kind reflect.Kind) (t Type, ok bool) {
	if int(kind) < len(kinds) {
		t = kinds[kind]
	}
	return t, t != 0
}

// TypeFor is the type of T: that of its kind for plain values, of named types
// too; [F16], [BF16] and [Pair] for exactly these, because a type declared as one
// of them has only its kind (uint16, struct) in common with it. It does not
// allocate.
func TypeFor[T any]() (t Type, ok bool) {
	switch reflect.TypeFor[T]() {
	case reflect.TypeFor[F16]():
		return Float16, true
	case reflect.TypeFor[BF16]():
		return BFloat16, true
	case reflect.TypeFor[Pair[float32]]():
		return FloatInt, true
	case reflect.TypeFor[Pair[float64]]():
		return DoubleInt, true
	case reflect.TypeFor[Pair[int64]]():
		return LongInt, true
	case reflect.TypeFor[Pair[int32]]():
		return TwoInt, true
	case reflect.TypeFor[Pair[int16]]():
		return ShortInt, true
	}
	return TypeOf(reflect.TypeFor[T]().Kind())
}
