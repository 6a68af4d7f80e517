package rank

// Number is a type that can be added, multiplied and ordered.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64
}

// Element is a type whose values can be sent: numbers, including complex numbers, bool,
// and arrays and structs of those. Go's constraints cannot express that. Therefore a
// type that contains a pointer (a string, a slice, a map) compiles, and the call fails
// with [ErrArgument] and names the field. Types of size zero fail too. The first use of
// a struct or array type needs some reflection; later uses cost nothing measurable.
type Element interface{ any }
