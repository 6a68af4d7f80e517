package kernel

import (
	"fmt"
	"unsafe"
)

// view is the memory as elements; a torn last element is left out.
func view[T any](b []byte) []T {
	var e T
	n := len(b) / int(unsafe.Sizeof(e))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// operands views all three at dst's length, so that the loops check no bounds.
func operands[T any](dst, a, b []byte) (d, x, y []T) {
	check(dst, a, b)
	d = view[T](dst)
	return d, view[T](a)[:len(d)], view[T](b)[:len(d)]
}

func check(dst, a, b []byte) {
	if len(a) < len(dst) || len(b) < len(dst) {
		short(dst, a, b)
	}
}

// short is also where the assembly ends.
func short(dst, a, b []byte) {
	panic(fmt.Sprintf("kernel: operands of %d and %d bytes for a result of %d", len(a), len(b), len(dst)))
}
