package rank

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank/internal/datatype"
)

// A Datatype says where the data of an item lies in memory (MPI_Datatype): which
// numbers, in which order, at which distances from the item's origin. It is immutable,
// and all goroutines and worlds may use it. It need not be committed or freed.
//
// [TypeFor] returns the type of a Go type; the functions below build others from it. Two sides of a message
// match when the sequence of numbers is the same, wherever they lie: a row may be received as a column.
type Datatype struct {
	core *datatype.Type
	pair kernel.Type // of a pair of MINLOC and MAXLOC, which has padding; else 0
}

// Float16 and BFloat16 are 16-bit floating-point numbers, for sending and reducing.
type (
	// Float16 is an IEEE 754 half-precision number, for sending and reducing.
	Float16 = kernel.F16
	// BFloat16 is a 16-bit number with the exponent range of a float32, for sending and reducing.
	BFloat16 = kernel.BF16
)

// plainTypes are the types of plain kinds.
var plainTypes = func() (list [reflect.Complex128 + 1]*Datatype) {
	for k := range list {
		if t := datatype.OfKind(reflect.Kind(k)); t != nil {
			list[k] = &Datatype{core: t}
		}
	}
	return list
}()

var (
	float16Type, bfloat16Type = reflect.TypeFor[Float16](), reflect.TypeFor[BFloat16]()
	float16s, bfloat16s       = &Datatype{core: datatype.Of(datatype.Float16)}, &Datatype{core: datatype.Of(datatype.BFloat16)}
)

// Datatypes of the basic types. [TypeFor] returns the same values, with an error.
var (
	TypeBool       = plainTypes[reflect.Bool]
	TypeInt8       = plainTypes[reflect.Int8]
	TypeInt16      = plainTypes[reflect.Int16]
	TypeInt32      = plainTypes[reflect.Int32]
	TypeInt64      = plainTypes[reflect.Int64]
	TypeUint8      = plainTypes[reflect.Uint8]
	TypeUint16     = plainTypes[reflect.Uint16]
	TypeUint32     = plainTypes[reflect.Uint32]
	TypeUint64     = plainTypes[reflect.Uint64]
	TypeFloat32    = plainTypes[reflect.Float32]
	TypeFloat64    = plainTypes[reflect.Float64]
	TypeComplex64  = plainTypes[reflect.Complex64]
	TypeComplex128 = plainTypes[reflect.Complex128]
	TypeFloat16    = float16s
	TypeBFloat16   = bfloat16s
)

// TypeFor returns the type of a number, or of a struct or array of numbers. Padding
// between fields is not part of it, and is neither sent nor overwritten. A T that
// contains a pointer, or that has no bytes, is an error that names the field.
func TypeFor[T Element]() (*Datatype, error) {
	t := reflect.TypeFor[T]()
	if d := plainType(t); d != nil {
		return d, nil
	}
	return reflectType(t)
}

// plainType is the type of a number, nil for other types. It costs a load and a few
// comparisons.
func plainType(t reflect.Type) *Datatype {
	k := t.Kind()
	if k > reflect.Complex128 {
		return nil
	}
	if k == reflect.Uint16 {
		switch t {
		case float16Type:
			return float16s
		case bfloat16Type:
			return bfloat16s
		}
	}
	return plainTypes[k]
}

// reflectType is TypeFor of what is not plain.
func reflectType(t reflect.Type) (*Datatype, error) {
	core, err := reflected(t, t.String())
	if err == nil && core.Size() == 0 {
		err = badClass(ClassType, "elements of type %v have size 0", t)
	}
	if err != nil {
		return nil, err
	}
	return &Datatype{core: core, pair: pairOf(t)}, nil
}

// pairOf is the type of a pair, 0 for others.
func pairOf(t reflect.Type) kernel.Type {
	switch t {
	case reflect.TypeFor[kernel.Pair[float32]]():
		return kernel.FloatInt
	case reflect.TypeFor[kernel.Pair[float64]]():
		return kernel.DoubleInt
	case reflect.TypeFor[kernel.Pair[int64]]():
		return kernel.LongInt
	case reflect.TypeFor[kernel.Pair[int32]]():
		return kernel.TwoInt
	case reflect.TypeFor[kernel.Pair[int16]]():
		return kernel.ShortInt
	}
	return 0
}

// reducible is what the elements of a reduction are; ok is
// false when they are not all alike. A pair is one element of its whole extent, with
// the padding that its type map leaves out.
func (t *Datatype) reducible() (element kernel.Type, ok bool) {
	if t.pair != 0 {
		return t.pair, true
	}
	b, _, ok := t.core.Uniform()
	return basicElements[b], ok
}

// basicElements are the elements of reductions by basic type.
var basicElements = [...]kernel.Type{
	datatype.Bool: kernel.Bool,
	datatype.Int8: kernel.Int8, datatype.Int16: kernel.Int16, datatype.Int32: kernel.Int32, datatype.Int64: kernel.Int64,
	datatype.Uint8: kernel.Uint8, datatype.Uint16: kernel.Uint16, datatype.Uint32: kernel.Uint32, datatype.Uint64: kernel.Uint64,
	datatype.Float16: kernel.Float16, datatype.BFloat16: kernel.BFloat16, datatype.Float32: kernel.Float32, datatype.Float64: kernel.Float64,
	datatype.Complex64: kernel.Complex64, datatype.Complex128: kernel.Complex128,
}

// reflected is the type map of t, which stands at path.
func reflected(t reflect.Type, path string) (*datatype.Type, error) {
	if d := plainType(t); d != nil {
		return d.core, nil
	}
	switch t.Kind() {
	case reflect.Array:
		elem, err := reflected(t.Elem(), path+"[0]")
		if err != nil {
			return nil, err
		}
		core, err := datatype.Contiguous(t.Len(), elem)
		if err != nil {
			return nil, badClass(ClassType, "%s: %v", path, err)
		}
		return datatype.Sized(t.String(), core, 0, int(t.Size()))
	case reflect.Struct:
		return reflectedStruct(t, path)
	}
	return nil, badClass(ClassType, "%s is a %s, which is not valid in another process: use numbers, bool, or arrays and structs of those", path, kindName(t))
}

func reflectedStruct(t reflect.Type, path string) (*datatype.Type, error) {
	n := t.NumField()
	lengths, displs, types := make([]int, n), make([]int, n), make([]*datatype.Type, n)
	for i := range n {
		f := t.Field(i)
		var err error
		if types[i], err = reflected(f.Type, path+"."+f.Name); err != nil {
			return nil, err
		}
		lengths[i], displs[i] = 1, int(f.Offset)
	}
	core, err := datatype.Struct(lengths, displs, types)
	if err != nil {
		return nil, badClass(ClassType, "%s: %v", path, err)
	}
	return datatype.Sized(t.String(), core, 0, int(t.Size()))
}

// kindName is a type's name, and its kind when the name does not show it.
func kindName(t reflect.Type) string {
	if t.Name() == "" || t.Name() == t.Kind().String() {
		return t.String()
	}
	return fmt.Sprintf("%v (%v)", t, t.Kind())
}

// made is the result of a constructor.
func made(core *datatype.Type, err error) (*Datatype, error) {
	if err != nil {
		return nil, badClass(ClassType, "%v", err)
	}
	return &Datatype{core: core}, nil
}

// errNoType: a constructor was given a nil *Datatype.
var errNoType = badClass(ClassType, "the datatype is nil")

// Contiguous is count consecutive items (MPI_Type_contiguous).
func Contiguous(count int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Contiguous(count, t.core))
}

// Column is a column of a row-major matrix with these numbers of rows and columns.
// Consecutive items are adjacent columns: Typed(matrix[j:], 2, column) are columns j and j+1.
func Column(rows, columns int, t *Datatype) (*Datatype, error) {
	v, err := Vector(rows, 1, columns, t)
	if err != nil {
		return nil, err
	}
	_, extent := t.Extent()
	return Resized(v, 0, extent)
}

// Vector is count blocks of blocklength items each, whose origins are stride items apart (MPI_Type_vector).
func Vector(count, blocklength, stride int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Vector(count, blocklength, stride, t.core))
}

// Hvector is Vector with the stride in bytes (MPI_Type_create_hvector).
func Hvector(count, blocklength, stride int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Hvector(count, blocklength, stride, t.core))
}

// Indexed is blocks with their own lengths and displacements, both in items (MPI_Type_indexed).
func Indexed(blocklengths, displs []int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Indexed(blocklengths, displs, t.core))
}

// Hindexed is Indexed with displacements in bytes (MPI_Type_create_hindexed).
func Hindexed(blocklengths, displs []int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Hindexed(blocklengths, displs, t.core))
}

// IndexedBlock is Indexed with blocks of one length (MPI_Type_create_indexed_block).
func IndexedBlock(blocklength int, displs []int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.IndexedBlock(blocklength, displs, t.core))
}

// HindexedBlock is IndexedBlock with displacements in bytes
// (MPI_Type_create_hindexed_block).
func HindexedBlock(blocklength int, displs []int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.HindexedBlock(blocklength, displs, t.core))
}

// StructOf is blocks of different types at displacements in bytes (MPI_Type_create_struct). Unless
// one of the types was resized, the extent is rounded up to the alignment, as that of a C struct.
func StructOf(blocklengths, displs []int, types []*Datatype) (*Datatype, error) {
	cores := make([]*datatype.Type, len(types))
	for i, t := range types {
		if t == nil {
			return nil, errNoType
		}
		cores[i] = t.core
	}
	return made(datatype.Struct(blocklengths, displs, cores))
}

// Resized is t with another lower bound and extent in bytes (MPI_Type_create_resized): the next item begins
// extent bytes after this one. A type that contains resized types takes its bounds from those alone.
func Resized(t *Datatype, lb, extent int) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Resized(t.core, lb, extent))
}

// Aligned is t that begins at multiples of n bytes in C, a power of two: StructOf rounds the extent of a struct
// that contains it up to them. It is for bytes that stand for a type that Go lacks, as C's long double.
func Aligned(t *Datatype, n int) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Aligned(t.core, n))
}

// Subarray is the part of an array with the given sizes that begins at starts and
// has the given subsizes. The array is row-major, as in Go and C
// (MPI_Type_create_subarray, MPI_ORDER_C). Its extent is that of the whole array.
func Subarray(sizes, subsizes, starts []int, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(datatype.Subarray(sizes, subsizes, starts, t.core))
}

// SubarrayColumns is Subarray of a column-major array, as in Fortran (MPI_ORDER_FORTRAN).
func SubarrayColumns(sizes, subsizes, starts []int, t *Datatype) (*Datatype, error) {
	return Subarray(backwards(sizes), backwards(subsizes), backwards(starts), t)
}

func backwards(list []int) []int {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// A Distribution says how the indices of a dimension are distributed over the ranks of a grid.
type Distribution = datatype.Distribution

// NotDistributed does not distribute a dimension (MPI_DISTRIBUTE_NONE).
// The grid has one rank in this dimension.
func NotDistributed() Distribution { return Distribution{Kind: datatype.Whole} }

// Blocks gives each rank one block of n indices (MPI_DISTRIBUTE_BLOCK). The
// blocks must cover all indices; n = 0 is the shortest length that does.
func Blocks(n int) Distribution { return Distribution{Kind: datatype.Blocks, N: n} }

// Cyclic distributes n indices at a time, round robin (MPI_DISTRIBUTE_CYCLIC); n = 0 stands for 1.
func Cyclic(n int) Distribution { return Distribution{Kind: datatype.Cyclic, N: n} }

// Darray is the part of a distributed array that one rank has (MPI_Type_create_darray,
// MPI_ORDER_C). The array has the given sizes, and is distributed over a row-major grid
// of size ranks with dims ranks in each dimension. Its extent is that of the whole array.
func Darray(size, rank int, sizes []int, how []Distribution, dims []int, t *Datatype) (*Datatype, error) {
	return dealt(datatype.Deal{Size: size, Rank: rank, Sizes: sizes, How: how, Grid: dims}, t)
}

// DarrayColumns is Darray of a column-major array (MPI_ORDER_FORTRAN). The grid is row-major here too.
func DarrayColumns(size, rank int, sizes []int, how []Distribution, dims []int, t *Datatype) (*Datatype, error) {
	return dealt(datatype.Deal{Size: size, Rank: rank, Sizes: sizes, How: how, Grid: dims, Columns: true}, t)
}

func dealt(a datatype.Deal, t *Datatype) (*Datatype, error) {
	if t == nil {
		return nil, errNoType
	}
	return made(a.Of(t.core))
}

// Size is the number of bytes of data in an item (MPI_Type_size).
func (t *Datatype) Size() int { return t.core.Size() }

// Extent is the lower bound of an item and the distance to the next item, in bytes (MPI_Type_get_extent).
func (t *Datatype) Extent() (lb, extent int) { return t.core.Extent() }

// TrueExtent is the lower bound of an item's data and the length of the
// range that contains all of it, in bytes (MPI_Type_get_true_extent).
func (t *Datatype) TrueExtent() (lb, extent int) { return t.core.TrueExtent() }

// Runs calls f for each run of bytes, from an item's origin on, that holds the n bytes of data from byte from on, in their
// order. Items follow one another at the extent, without end. The first error ends it.
func (t *Datatype) Runs(from, n int, f func(off, n int) error) error { return t.core.Runs(from, n, f) }

// String describes the type as it was built.
func (t *Datatype) String() string { return t.core.String() }
