package rank

import (
	"reflect"
	"unsafe"
)

// sizeOf is the size of a T in bytes.
func sizeOf[T Element]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// A typeID is a type of elements or of items, and is compared faster than a reflect.Type:
// the address of its description, which it keeps.
type typeID unsafe.Pointer

func elementID(t reflect.Type) typeID { return (*[2]typeID)(unsafe.Pointer(&t))[1] }

func datatypeID(t *Datatype) typeID { return typeID(t) }

// bytesOf is the memory of s. It keeps s alive as s itself does, and a nil or
// empty s gives an empty slice: nil for nil, so that "in place" stays visible.
func bytesOf[T Element](s []T) []byte {
	if s == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// elementsOf is b as elements of some bytes each; b holds whole elements and is aligned for them,
// as all registered memory is.
func elementsOf[T Element](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}

// address is where b starts, for comparing with the bounds of regions.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// aligned tells whether b may be seen as elements.
func aligned[T Element](b []byte) bool {
	var zero T
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(zero) == 0
}
