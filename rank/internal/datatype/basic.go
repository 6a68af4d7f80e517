package datatype

import "reflect"

// A Basic is a type that a type map is made of.
type Basic uint8

// The basic types. Go's int, uint and uintptr are those of their size.
const (
	Bool Basic = iota
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	Complex64
	Complex128
	basics
)

var basicTable = [basics]struct {
	name        string
	size, align int
}{
	Bool: {"bool", 1, 1},
	Int8: {"int8", 1, 1}, Int16: {"int16", 2, 2}, Int32: {"int32", 4, 4}, Int64: {"int64", 8, 8},
	Uint8: {"uint8", 1, 1}, Uint16: {"uint16", 2, 2}, Uint32: {"uint32", 4, 4}, Uint64: {"uint64", 8, 8},
	Float16: {"float16", 2, 2}, BFloat16: {"bfloat16", 2, 2}, Float32: {"float32", 4, 4}, Float64: {"float64", 8, 8},
	Complex64: {"complex64", 8, 4}, Complex128: {"complex128", 16, 8},
}

// String is the name, as Go spells it.
func (b Basic) String() string { return basicTable[b].name }

// Size is in bytes.
func (b Basic) Size() int { return basicTable[b].size }

// predefined are the types of one basic type each.
var predefined = func() (list [basics]*Type) {
	for b := range basics {
		size := b.Size()
		list[b] = &Type{
			name: b.String(), size: size, bounds: bounds{ub: size, trueUB: size, some: true, data: true}, align: basicTable[b].align,
			shape: run(0, size), order: sequence{count: 1, basic: b, size: size, elements: 1, hash: basicHash(b)}, solid: true,
		}
	}
	return list
}()

// Of is the type of one basic type.
func Of(b Basic) *Type { return predefined[b] }

// OfKind is the type of a plain kind, nil for others.
func OfKind(k reflect.Kind) *Type {
	if k > reflect.Complex128 {
		return nil
	}
	return kinds[k]
}

var kinds = [reflect.Complex128 + 1]*Type{
	reflect.Bool: Of(Bool),
	reflect.Int8: Of(Int8), reflect.Int16: Of(Int16), reflect.Int32: Of(Int32), reflect.Int64: Of(Int64),
	reflect.Uint8: Of(Uint8), reflect.Uint16: Of(Uint16), reflect.Uint32: Of(Uint32), reflect.Uint64: Of(Uint64),
	reflect.Int: word(Int32, Int64), reflect.Uint: word(Uint32, Uint64), reflect.Uintptr: word(Uint32, Uint64),
	reflect.Float32: Of(Float32), reflect.Float64: Of(Float64), reflect.Complex64: Of(Complex64), reflect.Complex128: Of(Complex128),
}

// word is the one of two types that has the machine's word size.
func word(four, eight Basic) *Type {
	if ^uint(0)>>32 == 0 {
		return Of(four)
	}
	return Of(eight)
}
