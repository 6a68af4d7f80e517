//go:build cgo && linux

package main

// Datatypes of Fortran by their precision, which programs of C may name too. There is no Fortran to tell more of.

func mpiAbiGetFortranInfo(f *frame, to ptr) error {
	f.putHandle(to, c_INFO_NULL)
	return nil
}

// A precision is how many digits and what exponent a datatype has.
type precision struct{ digits, exponent, handle int }

var (
	f90Integers  = []precision{{2, 0, c_INTEGER1}, {4, 0, c_INTEGER2}, {9, 0, c_INTEGER4}, {18, 0, c_INTEGER8}}
	f90Reals     = []precision{{6, 37, c_REAL4}, {15, 307, c_REAL8}}
	f90Complexes = []precision{{6, 37, c_COMPLEX8}, {15, 307, c_COMPLEX16}}

	// f90 are the types that were made: equal arguments give one type.
	f90 = map[[3]int]uintptr{}
)

func mpiTypeCreateF90Integer(f *frame, digits int, to ptr) error {
	return f.f90(to, c_COMBINER_F90_INTEGER, f90Integers, digits, 0)
}

func mpiTypeCreateF90Real(f *frame, digits, exponent int, to ptr) error {
	return f.f90(to, c_COMBINER_F90_REAL, f90Reals, digits, exponent)
}

func mpiTypeCreateF90Complex(f *frame, digits, exponent int, to ptr) error {
	return f.f90(to, c_COMBINER_F90_COMPLEX, f90Complexes, digits, exponent)
}

// f90 stores the first of the types that suffices, as an unnamed one.
func (f *frame) f90(to ptr, combiner int, list []precision, digits, exponent int) error {
	key := [3]int{combiner, digits, exponent}
	if h := f90[key]; types.find(h) != nil {
		f.putHandle(to, h)
		return nil
	}
	if digits == c_UNDEFINED && exponent == c_UNDEFINED {
		return wrong(c_ERR_ARG, "neither the digits nor the exponent is given")
	}
	for _, p := range list {
		if p.digits < digits || p.exponent < exponent {
			continue
		}
		fresh := *typeOf(uintptr(p.handle))
		ints := []int{digits, exponent}
		if combiner == c_COMBINER_F90_INTEGER {
			ints = ints[:1]
		}
		fresh.named, fresh.name, fresh.made = false, "", recipe{combiner: combiner, ints: ints}
		h, slot := types.enter()
		fresh.handle, *slot = h, &fresh
		f90[key] = h
		f.putHandle(to, h)
		return nil
	}
	return wrong(c_ERR_ARG, "no type has %d digits and an exponent of %d", digits, exponent)
}
