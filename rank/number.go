package rank

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
