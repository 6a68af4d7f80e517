//go:build cgo && linux

package main

// Fortran has no binding here. A library that has one says what its compiler does, once; programs of C name its datatypes, too.

// fortran is what was said.
var fortran struct {
	info    *info
	logical int // the size of a logical with the values of booleans; 0: not said
}

// fortranSizes are those that datatypes have.
var fortranSizes = []pair{{"mpi_logical_size", "4"}, {"mpi_integer_size", "4"}, {"mpi_real_size", "4"}, {"mpi_double_precision_size", "8"}}

func mpiAbiGetFortranInfo(f *frame, to ptr) error {
	switch {
	case to == nil:
		return errNull
	case fortran.info == nil:
		f.putHandle(to, c_INFO_NULL)
	default:
		f.putInfo(to, fortran.info.copy())
	}
	return nil
}

func mpiAbiSetFortranInfo(_ *frame, said *info) error {
	if err := said.some(false); err != nil {
		return err
	}
	if fortran.info != nil {
		return wrong(c_ERR_ABI, "the info about Fortran was set already")
	}
	for _, p := range fortranSizes {
		if v := said.value(p.key); v != "" && v != p.value {
			return wrong(c_ERR_ABI, "%s is %s: the datatype has %s", p.key, v, p.value)
		}
	}
	fortran.info = said.copy()
	return nil
}

// logical is a Fortran logical of a size, as MPI_LOGICAL1 to 8 have one.
func logical(at ptr, size int) ([]byte, error) {
	switch {
	case size < 1 || size > 16 || size&(size-1) != 0:
		return nil, wrong(c_ERR_ARG, "a logical has %d bytes: expected a power of two up to 16", size)
	case at == nil:
		return nil, errNull
	}
	return memory(address(at), size), nil
}

// mpiAbiGetFortranBooleans: the operations on logicals give 1 and 0.
func mpiAbiGetFortranBooleans(f *frame, size int, yes, no, is ptr) error {
	t, err := logical(yes, size)
	if err != nil {
		return err
	}
	n, err := logical(no, size)
	if err != nil {
		return err
	}
	known := fortran.logical == size
	if f.putBool(is, known); known {
		clear(t)
		clear(n)
		t[0] = 1
	}
	return nil
}

func mpiAbiSetFortranBooleans(_ *frame, size int, yes, no ptr) error {
	t, err := logical(yes, size)
	if err != nil {
		return err
	}
	n, err := logical(no, size)
	if err != nil {
		return err
	}
	if fortran.logical != 0 {
		return wrong(c_ERR_ABI, "the values of Fortran's logicals were set already")
	}
	for i := range t {
		if want := byte(1) >> min(i, 1); t[i] != want || n[i] != 0 {
			return wrong(c_ERR_ABI, ".TRUE. and .FALSE. are not 1 and 0, which operations on logicals give")
		}
	}
	fortran.logical = size
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
