//go:build cgo && linux

package main

import (
	"math/bits"
	"slices"

	"github.com/gorun-mpi/gorun/rank"
)

// A datatype is MPI_Datatype: immutable but for its name, its attributes and whether it is committed. A message or another
// type that uses it keeps it alive after MPI_Type_free.
type datatype struct {
	*rank.Datatype
	handle    uintptr
	named     bool // MPI's own: committed and not to be freed
	committed bool
	name      string
	attributes

	// What the memory of items is. moved has its data from byte 0 on, which a slice needs: data may lie before the
	// origin, or, with MPI_BOTTOM, at addresses.
	size, extent, at, span int
	moved                  *rank.Datatype
	pair                   bool   // MINLOC's: combined as it lies, padding and all
	sort                   sort   // of a named type
	parts                  []part // of a named type, or one of Fortran's by precision
	opaque                 bool   // it has bytes with which package rank does not calculate, as those of a long double
	made                   recipe
}

// A sort is which operations a named type has.
type sort int

const (
	number   sort = iota // those that package rank has
	noNumber             // none
	bits8                // bitwise
	truth                // logical
	long                 // those of callLong, in C
	longComplex
	longWithInt
	twoFloats // Fortran's pairs, whose places are numbers of the same kind
	twoDoubles
)

// sorts are those of the types that are no plain numbers.
var sorts = map[uintptr]sort{
	c_CHARACTER: noNumber, c_WCHAR: noNumber, c_PACKED: noNumber, c_BYTE: bits8, c_C_BOOL: truth, c_CXX_BOOL: truth,
	c_LOGICAL: truth, c_LOGICAL1: truth, c_LOGICAL2: truth, c_LOGICAL4: truth, c_LOGICAL8: truth, c_LONG_DOUBLE: long, c_REAL16: noNumber,
	c_COMPLEX32: noNumber, c_C_LONG_DOUBLE_COMPLEX: longComplex, c_CXX_LONG_DOUBLE_COMPLEX: longComplex, c_LONG_DOUBLE_INT: longWithInt,
	c_2REAL: twoFloats, c_2DOUBLE_PRECISION: twoDoubles,
}

var (
	types      = newTable[*datatype](kindType)
	basicTypes [0x400]*datatype
)

func typeOf(h uintptr) *datatype {
	if h < uintptr(len(basicTypes)) {
		return basicTypes[h]
	}
	if t := types.find(h); t != nil {
		return *t
	}
	return nil
}

// newType wraps a type of package rank.
func newType(t *rank.Datatype) (*datatype, error) {
	d := &datatype{Datatype: t, size: t.Size(), moved: t}
	_, d.extent = t.Extent()
	d.at, d.span = t.TrueExtent()
	if d.at != 0 && d.size > 0 {
		lb, extent := t.Extent()
		moved, err := rank.HindexedBlock(1, []int{-d.at}, t)
		if err == nil {
			moved, err = rank.Resized(moved, lb-d.at, extent)
		}
		if err != nil {
			return nil, err
		}
		d.moved = moved
	}
	return d, nil
}

func basic(h uintptr, name string, t *rank.Datatype) *datatype {
	d, err := newType(t)
	if err != nil {
		panic(err)
	}
	d.handle, d.parts, d.name, d.named, d.committed = h, partsOf(h, d.size), name, true, true
	d.made.combiner = c_COMBINER_NAMED
	d.sort = sorts[h]
	d.opaque = d.sort >= long || h == c_REAL16 || h == c_COMPLEX32
	basicTypes[h] = d
	return d
}

// opaque are bytes that have no arithmetic, aligned as a long double.
func opaque(n int) *rank.Datatype {
	t, err := rank.Contiguous(n, rank.TypeUint8)
	if err == nil {
		t, err = rank.Aligned(t, 16)
	}
	if err != nil {
		panic(err)
	}
	return t
}

func twoOf(t *rank.Datatype) *rank.Datatype {
	pair, err := rank.Contiguous(2, t)
	if err != nil {
		panic(err)
	}
	return pair
}

// longPair is a long double and an int, with the padding of C's struct.
func longPair() *rank.Datatype {
	t, err := rank.StructOf([]int{1, 1}, []int{0, 16}, []*rank.Datatype{opaque(16), rank.TypeInt32})
	if err != nil {
		panic(err)
	}
	return t
}

func pairType[V int16 | int32 | int64 | float32 | float64]() *rank.Datatype {
	t, err := rank.TypeFor[rank.Pair[V]]()
	if err != nil {
		panic(err)
	}
	return t
}

func init() {
	for _, b := range []struct {
		h    uintptr
		name string
		t    *rank.Datatype
	}{
		{c_AINT, "MPI_AINT", rank.TypeInt64}, {c_COUNT, "MPI_COUNT", rank.TypeInt64}, {c_OFFSET, "MPI_OFFSET", rank.TypeInt64},
		{c_PACKED, "MPI_PACKED", rank.TypeUint8}, {c_BYTE, "MPI_BYTE", rank.TypeUint8},
		{c_SHORT, "MPI_SHORT", rank.TypeInt16}, {c_INT, "MPI_INT", rank.TypeInt32}, {c_LONG, "MPI_LONG", rank.TypeInt64}, {c_LONG_LONG, "MPI_LONG_LONG", rank.TypeInt64},
		{c_UNSIGNED_SHORT, "MPI_UNSIGNED_SHORT", rank.TypeUint16}, {c_UNSIGNED, "MPI_UNSIGNED", rank.TypeUint32},
		{c_UNSIGNED_LONG, "MPI_UNSIGNED_LONG", rank.TypeUint64}, {c_UNSIGNED_LONG_LONG, "MPI_UNSIGNED_LONG_LONG", rank.TypeUint64},
		{c_FLOAT, "MPI_FLOAT", rank.TypeFloat32}, {c_DOUBLE, "MPI_DOUBLE", rank.TypeFloat64},
		{c_C_FLOAT_COMPLEX, "MPI_C_FLOAT_COMPLEX", rank.TypeComplex64}, {c_C_DOUBLE_COMPLEX, "MPI_C_DOUBLE_COMPLEX", rank.TypeComplex128},
		{c_CXX_FLOAT_COMPLEX, "MPI_CXX_FLOAT_COMPLEX", rank.TypeComplex64}, {c_CXX_DOUBLE_COMPLEX, "MPI_CXX_DOUBLE_COMPLEX", rank.TypeComplex128},
		{c_LOGICAL, "MPI_LOGICAL", rank.TypeInt32}, {c_INTEGER, "MPI_INTEGER", rank.TypeInt32}, {c_REAL, "MPI_REAL", rank.TypeFloat32},
		{c_COMPLEX, "MPI_COMPLEX", rank.TypeComplex64}, {c_DOUBLE_PRECISION, "MPI_DOUBLE_PRECISION", rank.TypeFloat64},
		{c_DOUBLE_COMPLEX, "MPI_DOUBLE_COMPLEX", rank.TypeComplex128}, {c_CHARACTER, "MPI_CHARACTER", rank.TypeUint8},
		{c_LONG_DOUBLE, "MPI_LONG_DOUBLE", opaque(16)}, {c_C_LONG_DOUBLE_COMPLEX, "MPI_C_LONG_DOUBLE_COMPLEX", opaque(32)},
		{c_CXX_LONG_DOUBLE_COMPLEX, "MPI_CXX_LONG_DOUBLE_COMPLEX", opaque(32)}, {c_LONG_DOUBLE_INT, "MPI_LONG_DOUBLE_INT", longPair()},
		{c_C_BOOL, "MPI_C_BOOL", rank.TypeBool}, {c_CXX_BOOL, "MPI_CXX_BOOL", rank.TypeBool}, {c_WCHAR, "MPI_WCHAR", rank.TypeInt32},
		{c_INT8_T, "MPI_INT8_T", rank.TypeInt8}, {c_UINT8_T, "MPI_UINT8_T", rank.TypeUint8}, {c_CHAR, "MPI_CHAR", rank.TypeInt8},
		{c_SIGNED_CHAR, "MPI_SIGNED_CHAR", rank.TypeInt8}, {c_UNSIGNED_CHAR, "MPI_UNSIGNED_CHAR", rank.TypeUint8},
		{c_INT16_T, "MPI_INT16_T", rank.TypeInt16}, {c_UINT16_T, "MPI_UINT16_T", rank.TypeUint16}, {c_INT32_T, "MPI_INT32_T", rank.TypeInt32},
		{c_UINT32_T, "MPI_UINT32_T", rank.TypeUint32}, {c_INT64_T, "MPI_INT64_T", rank.TypeInt64}, {c_UINT64_T, "MPI_UINT64_T", rank.TypeUint64},
		{c_LOGICAL1, "MPI_LOGICAL1", rank.TypeInt8}, {c_LOGICAL2, "MPI_LOGICAL2", rank.TypeInt16}, {c_LOGICAL4, "MPI_LOGICAL4", rank.TypeInt32},
		{c_LOGICAL8, "MPI_LOGICAL8", rank.TypeInt64}, {c_INTEGER1, "MPI_INTEGER1", rank.TypeInt8}, {c_INTEGER2, "MPI_INTEGER2", rank.TypeInt16},
		{c_INTEGER4, "MPI_INTEGER4", rank.TypeInt32}, {c_INTEGER8, "MPI_INTEGER8", rank.TypeInt64}, {c_REAL2, "MPI_REAL2", rank.TypeFloat16},
		{c_REAL4, "MPI_REAL4", rank.TypeFloat32}, {c_REAL8, "MPI_REAL8", rank.TypeFloat64}, {c_COMPLEX8, "MPI_COMPLEX8", rank.TypeComplex64},
		{c_COMPLEX16, "MPI_COMPLEX16", rank.TypeComplex128}, {c_REAL16, "MPI_REAL16", opaque(16)}, {c_COMPLEX32, "MPI_COMPLEX32", opaque(32)},
	} {
		basic(b.h, b.name, b.t)
	}
	basic(c_FLOAT_INT, "MPI_FLOAT_INT", pairType[float32]()).pair = true
	basic(c_DOUBLE_INT, "MPI_DOUBLE_INT", pairType[float64]()).pair = true
	basic(c_LONG_INT, "MPI_LONG_INT", pairType[int64]()).pair = true
	basic(c_2INT, "MPI_2INT", pairType[int32]()).pair = true
	basic(c_SHORT_INT, "MPI_SHORT_INT", pairType[int16]()).pair = true
	basic(c_2INTEGER, "MPI_2INTEGER", pairType[int32]()).pair = true
	basic(c_2REAL, "MPI_2REAL", twoOf(rank.TypeFloat32))
	basic(c_2DOUBLE_PRECISION, "MPI_2DOUBLE_PRECISION", twoOf(rank.TypeFloat64))
}

// mostBytes bounds what a buffer may claim.
const mostBytes = 1 << 46

// firstAddress is the lowest that may be a buffer: below is NULL with an offset.
const firstAddress = 4096

// buffer is C's three arguments as one operand.
func (f *frame) buffer(at ptr, count int, t *datatype) rank.Buffer {
	b, err := operand(at, count, t, false)
	if err != nil {
		f.bad(err)
	}
	return b
}

// operand is count items of t. whole: with the padding of the last one, for operations that take items as they lie.
func operand(at ptr, count int, t *datatype, whole bool) (rank.Buffer, error) {
	switch {
	case t == nil:
		return rank.Buffer{}, wrong(c_ERR_TYPE, "the datatype is null, freed, or no datatype")
	case count < 0:
		return rank.Buffer{}, wrong(c_ERR_COUNT, "the count is %d: expected 0 or more", count)
	case !t.committed:
		return rank.Buffer{}, wrong(c_ERR_TYPE, "the datatype is not committed: call MPI_Type_commit")
	case address(at) == inPlace:
		return rank.Buffer{}, wrong(c_ERR_BUFFER, "MPI_IN_PLACE is not a buffer here")
	case count == 0 || t.size == 0:
		return rank.Typed(memory(0, 0), count, t.moved), nil
	}
	if t.extent < 0 && count > 1 {
		return backwards(at, count, t)
	}
	over, n := bits.Mul64(uint64(count-1), uint64(t.extent))
	if over != 0 || n > mostBytes {
		return rank.Buffer{}, wrong(c_ERR_COUNT, "%d items of %d bytes do not fit into memory", count, t.extent)
	}
	length := int(n) + t.span
	if lb, _ := t.Extent(); (whole || t.pair) && lb == 0 && t.at >= 0 && address(at) >= firstAddress {
		return rank.Typed(memory(address(at), max(length+t.at, count*t.extent)), count, t.Datatype), nil
	}
	from := address(at) + uintptr(t.at)
	if from < firstAddress {
		return rank.Buffer{}, wrong(c_ERR_BUFFER, "the buffer is NULL, and there are %d items", count)
	}
	return rank.Typed(memory(from, length), count, t.moved), nil
}

// backwards is operand for items that follow each other downwards.
func backwards(at ptr, count int, t *datatype) (rank.Buffer, error) {
	whole, err := rank.Contiguous(count, t.Datatype)
	if err != nil {
		return rank.Buffer{}, err
	}
	d, err := newType(whole)
	if err != nil {
		return rank.Buffer{}, err
	}
	d.committed = true
	return operand(at, 1, d, false)
}

// build enters a type that a constructor has made.
func (f *frame) build(to ptr, made recipe, t *rank.Datatype, err error) error {
	if err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	d, err := newType(t)
	if err != nil {
		return err
	}
	made.fromCounts = f.large
	d.made = made
	for _, old := range made.types {
		d.opaque = d.opaque || old.opaque
	}
	h, slot := types.enter()
	*slot, d.handle = d, h
	f.putHandle(to, h)
	return nil
}

// checkList is an error for a list that is missing, or that has a negative number.
func checkList(list []int, n int, class int) error {
	if n < 0 {
		return wrong(c_ERR_ARG, "the count is %d: expected 0 or more", n)
	}
	if n > 0 && list == nil {
		return wrong(c_ERR_ARG, "a list is NULL, and is to have %d entries", n)
	}
	for i, v := range list {
		if v < 0 && class != 0 {
			return wrong(class, "entry %d of a list is %d: expected 0 or more", i, v)
		}
	}
	return nil
}

func natural(n int) error {
	if n < 0 {
		return wrong(c_ERR_ARG, "%d is negative", n)
	}
	return nil
}

func mpiTypeContiguous(f *frame, count int, old *datatype, to ptr) error {
	if count < 0 {
		return wrong(c_ERR_COUNT, "the count is %d: expected 0 or more", count)
	}
	t, err := rank.Contiguous(count, old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_CONTIGUOUS, ints: []int{count}, types: []*datatype{old}}, t, err)
}

func mpiTypeVector(f *frame, count, length, stride int, old *datatype, to ptr) error {
	if count < 0 {
		return wrong(c_ERR_COUNT, "the count is %d: expected 0 or more", count)
	}
	if err := natural(length); err != nil {
		return err
	}
	t, err := rank.Vector(count, length, stride, old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_VECTOR, ints: []int{count, length, stride}, types: []*datatype{old}}, t, err)
}

func mpiTypeCreateHvector(f *frame, count, length, stride int, old *datatype, to ptr) error {
	if count < 0 {
		return wrong(c_ERR_COUNT, "the count is %d: expected 0 or more", count)
	}
	if err := natural(length); err != nil {
		return err
	}
	t, err := rank.Hvector(count, length, stride, old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_HVECTOR, ints: []int{count, length}, longs: []int{stride}, types: []*datatype{old}}, t, err)
}

func mpiTypeIndexed(f *frame, count int, lengths, displs ptr, old *datatype, to ptr) error {
	l, d := f.wide(lengths, count), f.wide(displs, count)
	if err := listed(count, l, d); err != nil {
		return err
	}
	t, err := rank.Indexed(l, placed(l, d), old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_INDEXED, ints: join([]int{count}, l, d), types: []*datatype{old}}, t, err)
}

func mpiTypeCreateHindexed(f *frame, count int, lengths, displs ptr, old *datatype, to ptr) error {
	l, d := f.wide(lengths, count), longs(displs, count)
	if err := listed(count, l, d); err != nil {
		return err
	}
	t, err := rank.Hindexed(l, placed(l, d), old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_HINDEXED, ints: join([]int{count}, l), longs: d, types: []*datatype{old}}, t, err)
}

func mpiTypeCreateIndexedBlock(f *frame, count, length int, displs ptr, old *datatype, to ptr) error {
	d := f.wide(displs, count)
	if err := checkList(d, count, 0); err != nil {
		return err
	}
	if err := natural(length); err != nil {
		return err
	}
	t, err := rank.IndexedBlock(length, d, old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_INDEXED_BLOCK, ints: join([]int{count, length}, d), types: []*datatype{old}}, t, err)
}

func mpiTypeCreateHindexedBlock(f *frame, count, length int, displs ptr, old *datatype, to ptr) error {
	d := longs(displs, count)
	if err := checkList(d, count, 0); err != nil {
		return err
	}
	if err := natural(length); err != nil {
		return err
	}
	t, err := rank.HindexedBlock(length, d, old.Datatype)
	return f.build(to, recipe{combiner: c_COMBINER_HINDEXED_BLOCK, ints: []int{count, length}, longs: d, types: []*datatype{old}}, t, err)
}

func mpiTypeCreateStruct(f *frame, count int, lengths, displs, list, to ptr) error {
	l, d := f.wide(lengths, count), longs(displs, count)
	if err := listed(count, l, d); err != nil {
		return err
	}
	olds, cores, err := typesAt(list, count)
	if err != nil {
		return err
	}
	t, err := rank.StructOf(l, placed(l, d), cores)
	return f.build(to, recipe{combiner: c_COMBINER_STRUCT, ints: join([]int{count}, l), longs: d, types: olds}, t, err)
}

// typesAt is a list of datatypes.
func typesAt(list ptr, n int) (olds []*datatype, cores []*rank.Datatype, err error) {
	handles := handlesAt(list, n)
	if n > 0 && handles == nil {
		return nil, nil, wrong(c_ERR_ARG, "the list of datatypes is NULL")
	}
	for _, h := range handles {
		t := typeOf(h)
		if t == nil {
			return nil, nil, badHandle(c_ERR_TYPE, "datatype", h)
		}
		olds, cores = append(olds, t), append(cores, t.Datatype)
	}
	return olds, cores, nil
}

func listed(n int, lengths, displs []int) error {
	if err := checkList(lengths, n, c_ERR_ARG); err != nil {
		return err
	}
	return checkList(displs, n, 0)
}

// placed are displacements of which those of empty blocks, which may be any number, are 0.
func placed(lengths, displs []int) []int {
	list := displs
	for i, n := range lengths {
		if n == 0 {
			if &list[0] == &displs[0] {
				list = slices.Clone(displs)
			}
			list[i] = 0
		}
	}
	return list
}

func join(lists ...[]int) (all []int) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func mpiTypeCreateSubarray(f *frame, dims int, sizes, subsizes, starts ptr, order int, old *datatype, to ptr) error {
	a, b, c := f.wide(sizes, dims), f.wide(subsizes, dims), f.wide(starts, dims)
	if dims < 1 || a == nil || b == nil || c == nil {
		return wrong(c_ERR_ARG, "%d dimensions: expected 1 or more, and their lists", dims)
	}
	for i := range a {
		if a[i] < 1 || b[i] < 1 || b[i] > a[i] || c[i] < 0 || c[i] > a[i]-b[i] {
			return wrong(c_ERR_ARG, "dimension %d: %d items from %d on are no part of %d", i, b[i], c[i], a[i])
		}
	}
	var t *rank.Datatype
	var err error
	switch order {
	case c_ORDER_C:
		t, err = rank.Subarray(a, b, c, old.Datatype)
	case c_ORDER_FORTRAN:
		t, err = rank.SubarrayColumns(a, b, c, old.Datatype)
	default:
		return wrong(c_ERR_ARG, "order %d: expected MPI_ORDER_C or MPI_ORDER_FORTRAN", order)
	}
	return f.build(to, recipe{combiner: c_COMBINER_SUBARRAY, ints: join([]int{dims}, a, b, c, []int{order}), types: []*datatype{old}}, t, err)
}

func mpiTypeCreateDarray(f *frame, size, me, dims int, sizes, how, args, procs ptr, order int, old *datatype, to ptr) error {
	a, hows, dargs, p := f.wide(sizes, dims), ints(how, dims), ints(args, dims), ints(procs, dims)
	if dims < 1 || a == nil || hows == nil || dargs == nil || p == nil {
		return wrong(c_ERR_ARG, "%d dimensions: expected 1 or more, and their lists", dims)
	}
	list := make([]rank.Distribution, dims)
	for i := range list {
		n := dargs[i]
		if n == c_DISTRIBUTE_DFLT_DARG {
			n = 0
		} else if n <= 0 && hows[i] != c_DISTRIBUTE_NONE {
			return wrong(c_ERR_ARG, "dimension %d: the distribution's argument is %d", i, n)
		}
		switch hows[i] {
		case c_DISTRIBUTE_NONE:
			list[i] = rank.NotDistributed()
		case c_DISTRIBUTE_BLOCK:
			list[i] = rank.Blocks(n)
		case c_DISTRIBUTE_CYCLIC:
			list[i] = rank.Cyclic(max(n, 1))
		default:
			return wrong(c_ERR_ARG, "dimension %d: no distribution has the number %d", i, hows[i])
		}
	}
	var t *rank.Datatype
	var err error
	switch order {
	case c_ORDER_C:
		t, err = rank.Darray(size, me, a, list, p, old.Datatype)
	case c_ORDER_FORTRAN:
		t, err = rank.DarrayColumns(size, me, a, list, p, old.Datatype)
	default:
		return wrong(c_ERR_ARG, "order %d: expected MPI_ORDER_C or MPI_ORDER_FORTRAN", order)
	}
	return f.build(to, recipe{combiner: c_COMBINER_DARRAY, ints: join([]int{size, me, dims}, a, hows, dargs, p, []int{order}), types: []*datatype{old}}, t, err)
}

func mpiTypeCreateResized(f *frame, old *datatype, lb, extent int, to ptr) error {
	t, err := rank.Resized(old.Datatype, lb, extent)
	return f.build(to, recipe{combiner: c_COMBINER_RESIZED, longs: []int{lb, extent}, types: []*datatype{old}}, t, err)
}

func mpiTypeDup(f *frame, old *datatype, to ptr) error {
	f.putHandle(to, c_DATATYPE_NULL)
	fresh := &datatype{}
	if err := old.copyTo(&fresh.attributes, old.handle); err != nil {
		return err
	}
	if err := f.build(to, recipe{combiner: c_COMBINER_DUP, types: []*datatype{old}}, old.Datatype, nil); err != nil {
		return err
	}
	d := typeOf(f.handleAt(to))
	d.committed, d.pair, d.attributes = old.committed, old.pair, fresh.attributes
	return nil
}

func mpiTypeCommit(f *frame, at ptr) error {
	t := typeOf(f.handleAt(at))
	if t == nil {
		return badHandle(c_ERR_TYPE, "datatype", f.handleAt(at))
	}
	t.committed = true
	return nil
}

func mpiTypeFree(f *frame, at ptr) error {
	t := typeOf(f.handleAt(at))
	switch {
	case t == nil:
		return badHandle(c_ERR_TYPE, "datatype", f.handleAt(at))
	case t.named:
		return wrong(c_ERR_TYPE, "%s is MPI's own and cannot be freed", t.name)
	}
	if err := t.deleteAll(t.handle); err != nil {
		return err
	}
	types.leave(t.handle)
	f.putHandle(at, c_DATATYPE_NULL)
	return nil
}

func mpiTypeSize(f *frame, t *datatype, to ptr) error {
	f.putWide(to, t.size)
	return nil
}

func mpiTypeSizeX(f *frame, t *datatype, to ptr) error {
	f.putLong(to, t.size)
	return nil
}

func mpiTypeGetExtent(f *frame, t *datatype, lb, extent ptr) error {
	l, e := t.Extent()
	f.putLong(lb, l)
	f.putLong(extent, e)
	return nil
}

func mpiTypeGetTrueExtent(f *frame, t *datatype, lb, extent ptr) error {
	l, e := t.TrueExtent()
	f.putLong(lb, l)
	f.putLong(extent, e)
	return nil
}

func mpiTypeGetExtentX(f *frame, t *datatype, lb, extent ptr) error {
	return mpiTypeGetExtent(f, t, lb, extent)
}

func mpiTypeGetTrueExtentX(f *frame, t *datatype, lb, extent ptr) error {
	return mpiTypeGetTrueExtent(f, t, lb, extent)
}

func mpiTypeSetName(_ *frame, t *datatype, name ptr) error {
	if name == nil {
		return errNull
	}
	t.name = text(name)
	t.name = t.name[:min(len(t.name), c_MAX_OBJECT_NAME-1)]
	return nil
}

func mpiTypeGetName(f *frame, h uintptr, to, length ptr) error {
	t := typeOf(h)
	if h == c_DATATYPE_NULL {
		f.putText(to, length, c_MAX_OBJECT_NAME, "MPI_DATATYPE_NULL")
		return nil
	}
	if t == nil {
		return badHandle(c_ERR_TYPE, "datatype", h)
	}
	f.putText(to, length, c_MAX_OBJECT_NAME, t.name)
	return nil
}

// mpiTypeGetValueIndex gives the pair for MPI_MINLOC of a value and an index, null where there is none.
func mpiTypeGetValueIndex(f *frame, value, index *datatype, to ptr) error {
	pairs := map[uintptr]uintptr{c_FLOAT: c_FLOAT_INT, c_DOUBLE: c_DOUBLE_INT, c_LONG: c_LONG_INT, c_INT: c_2INT, c_SHORT: c_SHORT_INT, c_LONG_DOUBLE: c_LONG_DOUBLE_INT}
	h, ok := pairs[value.handle]
	if !ok || index.handle != c_INT {
		h = c_DATATYPE_NULL
	}
	f.putHandle(to, h)
	return nil
}

func mpiTypeMatchSize(f *frame, class, size int, to ptr) error {
	list := map[[2]int]int{
		{c_TYPECLASS_INTEGER, 1}: c_INTEGER1, {c_TYPECLASS_INTEGER, 2}: c_INTEGER2, {c_TYPECLASS_INTEGER, 4}: c_INTEGER4, {c_TYPECLASS_INTEGER, 8}: c_INTEGER8,
		{c_TYPECLASS_REAL, 2}: c_REAL2, {c_TYPECLASS_REAL, 4}: c_REAL4, {c_TYPECLASS_REAL, 8}: c_REAL8, {c_TYPECLASS_REAL, 16}: c_REAL16,
		{c_TYPECLASS_COMPLEX, 8}: c_COMPLEX8, {c_TYPECLASS_COMPLEX, 16}: c_COMPLEX16, {c_TYPECLASS_COMPLEX, 32}: c_COMPLEX32,
	}
	h, ok := list[[2]int{class, size}]
	if !ok {
		return wrong(c_ERR_ARG, "no type of class %d has %d bytes", class, size)
	}
	f.putHandle(to, uintptr(h))
	return nil
}
