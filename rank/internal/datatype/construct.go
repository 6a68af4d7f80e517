package datatype

import (
	"fmt"
	"slices"
)

// Contiguous is count items one after the other (MPI_Type_contiguous).
func Contiguous(count int, t *Type) (*Type, error) {
	if count < 0 {
		return nil, negative("count", count)
	}
	return build(fmt.Sprintf("contiguous(%d, %s)", count, inner(t)), []block{{0, count, t}})
}

// Vector is count blocks of length items, whose beginnings are stride items apart
// (MPI_Type_vector).
func Vector(count, length, stride int, t *Type) (*Type, error) {
	bytes, ok := mul(stride, t.ub-t.lb)
	if !ok {
		return nil, ErrTooLarge
	}
	return vector(fmt.Sprintf("vector(%d, %d, %d, %s)", count, length, stride, inner(t)), count, length, bytes, t)
}

// Hvector is Vector with the stride in bytes (MPI_Type_create_hvector).
func Hvector(count, length, stride int, t *Type) (*Type, error) {
	return vector(fmt.Sprintf("hvector(%d, %d, %d, %s)", count, length, stride, inner(t)), count, length, stride, t)
}

func vector(name string, count, length, stride int, t *Type) (*Type, error) {
	switch {
	case count < 0:
		return nil, negative("count", count)
	case length < 0:
		return nil, negative("blocklength", length)
	}
	one, err := Contiguous(length, t)
	if err != nil {
		return nil, err
	}
	if count == 0 || !one.some {
		return build(name, nil)
	}
	last, ok := mul(count-1, stride)
	if !ok {
		return nil, ErrTooLarge
	}
	v := &Type{name: name, align: one.align}
	for _, at := range []int{0, last} { // the others lie between
		if err := v.bounds.add(block{at, 1, one}); err != nil {
			return nil, err
		}
	}
	if v.size, ok = mul(count, one.size); !ok {
		return nil, ErrTooLarge
	}
	v.shape, v.order = one.shape.repeat(count, stride), one.order.repeat(count)
	v.settle()
	return v, nil
}

// Indexed is blocks of the given lengths at the given displacements, both in items
// (MPI_Type_indexed).
func Indexed(lengths, displs []int, t *Type) (*Type, error) {
	return indexed("indexed", lengths, displs, t.ub-t.lb, t)
}

// Hindexed is Indexed with displacements in bytes (MPI_Type_create_hindexed).
func Hindexed(lengths, displs []int, t *Type) (*Type, error) {
	return indexed("hindexed", lengths, displs, 1, t)
}

func indexed(name string, lengths, displs []int, unit int, t *Type) (*Type, error) {
	if len(lengths) != len(displs) {
		return nil, fmt.Errorf("%d blocklengths and %d displacements: expected as many of each", len(lengths), len(displs))
	}
	blocks := make([]block, len(displs))
	for i, d := range displs {
		at, ok := mul(d, unit)
		if !ok {
			return nil, ErrTooLarge
		}
		if lengths[i] < 0 {
			return nil, negative(fmt.Sprintf("blocklength %d", i), lengths[i])
		}
		blocks[i] = block{at, lengths[i], t}
	}
	return build(fmt.Sprintf("%s(%d blocks, %s)", name, len(blocks), inner(t)), blocks)
}

// IndexedBlock is Indexed with blocks of one length (MPI_Type_create_indexed_block).
func IndexedBlock(length int, displs []int, t *Type) (*Type, error) {
	return indexed("indexed_block", slices.Repeat([]int{length}, len(displs)), displs, t.ub-t.lb, t)
}

// HindexedBlock is IndexedBlock with displacements in bytes
// (MPI_Type_create_hindexed_block).
func HindexedBlock(length int, displs []int, t *Type) (*Type, error) {
	return indexed("hindexed_block", slices.Repeat([]int{length}, len(displs)), displs, 1, t)
}

// Struct is blocks of different types at displacements in bytes
// (MPI_Type_create_struct). Unless a type among them was resized, the extent is
// rounded up as a compiler does, so that the data of the next item is aligned as
// that of the first.
func Struct(lengths, displs []int, types []*Type) (*Type, error) {
	if len(lengths) != len(displs) || len(lengths) != len(types) {
		return nil, fmt.Errorf("%d blocklengths, %d displacements and %d types: expected as many of each", len(lengths), len(displs), len(types))
	}
	blocks := make([]block, len(types))
	for i, t := range types {
		if lengths[i] < 0 {
			return nil, negative(fmt.Sprintf("blocklength %d", i), lengths[i])
		}
		blocks[i] = block{displs[i], lengths[i], t}
	}
	s, err := build(fmt.Sprintf("struct(%d blocks)", len(blocks)), blocks)
	if err == nil && !s.marked && s.align > 1 {
		if rest := (s.ub - s.lb) % s.align; rest != 0 {
			s.ub += s.align - rest
		}
		s.settle()
	}
	return s, err
}

// Resized is t with other bounds (MPI_Type_create_resized).
func Resized(t *Type, lb, extent int) (*Type, error) {
	r, err := Sized(fmt.Sprintf("resized(%s, %d, %d)", inner(t), lb, extent), t, lb, extent)
	if err == nil {
		r.marked, r.some = true, true
	}
	return r, err
}

// Sized is t under another name and with other bounds, which count as its natural
// ones in larger types.
func Sized(name string, t *Type, lb, extent int) (*Type, error) {
	if magnitude(lb) > limit || magnitude(extent) > limit {
		return nil, ErrTooLarge
	}
	r := &Type{name: name, size: t.size, bounds: t.bounds, align: t.align, shape: t.shape, order: t.order}
	r.lb, r.ub = lb, lb+extent
	r.settle()
	return r, nil
}

// Aligned is t with the alignment of n bytes, to which Struct rounds its extent up.
func Aligned(t *Type, n int) (*Type, error) {
	if n < 1 || n&(n-1) != 0 {
		return nil, fmt.Errorf("an alignment of %d bytes: expected a power of two", n)
	}
	r, err := Sized(t.name, t, t.lb, t.ub-t.lb)
	if err == nil {
		r.marked, r.align = t.marked, n
	}
	return r, err
}

// Subarray is the part of an array of items that begins at starts and has subsizes,
// the last index running fastest (MPI_Type_create_subarray, MPI_ORDER_C). Its extent
// is that of the whole array.
func Subarray(sizes, subsizes, starts []int, t *Type) (*Type, error) {
	if len(sizes) != len(subsizes) || len(sizes) != len(starts) || len(sizes) == 0 {
		return nil, fmt.Errorf("%d sizes, %d subsizes and %d starts: expected as many of each", len(sizes), len(subsizes), len(starts))
	}
	extent := t.ub - t.lb
	part, at := t, 0
	for d := len(sizes) - 1; d >= 0; d-- {
		if sizes[d] < 1 || subsizes[d] < 1 || starts[d] < 0 || starts[d] > sizes[d]-subsizes[d] {
			return nil, fmt.Errorf("dimension %d: %d indices from %d on are outside of an array of %d", d, subsizes[d], starts[d], sizes[d])
		}
		var err error
		if part, err = Hvector(subsizes[d], 1, extent, part); err != nil {
			return nil, err
		}
		offset, ok := mul(starts[d], extent)
		if !ok {
			return nil, ErrTooLarge
		}
		at += offset
		if extent, ok = mul(extent, sizes[d]); !ok || magnitude(at) > limit {
			return nil, ErrTooLarge
		}
	}
	placed, err := build("", []block{{at, 1, part}})
	if err != nil {
		return nil, err
	}
	s, err := Resized(placed, 0, extent)
	if err == nil {
		s.name = fmt.Sprintf("subarray(%v of %v from %v, %s)", subsizes, sizes, starts, inner(t))
	}
	return s, err
}
