package kernel

import "unsafe"

type order interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64
}

// view is the memory as elements; a torn last element is left out.
func view[T Number](b []byte) []T {
	var e T
	n := len(b) / int(unsafe.Sizeof(e))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// operands views all three at dst's length, so that the loops check no bounds.
func operands[T Number](dst, a, b []byte) (d, x, y []T) {
	d, x, y = view[T](dst), view[T](a), view[T](b)
	return d, x[:len(d)], y[:len(d)]
}

// The loops are plain: unrolled by 4 and by 8 they were no faster (float32: 7 GB/s
// at 4 KiB each, on a machine whose AVX2 makes 93).

func sum[T Number](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func prod[T Number](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

func least[T order](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func greatest[T order](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}
