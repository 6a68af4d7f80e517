package kernel

import "math"

// reference has a loop in Go for everything that there is. It is data of the
// program, not built at start. Types that only move or only have bits share
// the loops of the unsigned ones.
var reference = [types][ops]Func{
	Bool: {LAnd: and[uint8], LOr: or[uint8], LXor: xor[uint8], Replace: second, NoOp: first},

	Int8: {Sum: sum[int8], Prod: prod[int8], Min: least[int8], Max: most[int8],
		LAnd: and[uint8], LOr: or[uint8], LXor: xor[uint8], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Int16: {Sum: sum[int16], Prod: prod[int16], Min: least[int16], Max: most[int16],
		LAnd: and[uint16], LOr: or[uint16], LXor: xor[uint16], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Int32: {Sum: sum[int32], Prod: prod[int32], Min: least[int32], Max: most[int32],
		LAnd: and[uint32], LOr: or[uint32], LXor: xor[uint32], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Int64: {Sum: sum[int64], Prod: prod[int64], Min: least[int64], Max: most[int64],
		LAnd: and[uint64], LOr: or[uint64], LXor: xor[uint64], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Uint8: {Sum: sum[uint8], Prod: prod[uint8], Min: least[uint8], Max: most[uint8],
		LAnd: and[uint8], LOr: or[uint8], LXor: xor[uint8], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Uint16: {Sum: sum[uint16], Prod: prod[uint16], Min: least[uint16], Max: most[uint16],
		LAnd: and[uint16], LOr: or[uint16], LXor: xor[uint16], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Uint32: {Sum: sum[uint32], Prod: prod[uint32], Min: least[uint32], Max: most[uint32],
		LAnd: and[uint32], LOr: or[uint32], LXor: xor[uint32], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},
	Uint64: {Sum: sum[uint64], Prod: prod[uint64], Min: least[uint64], Max: most[uint64],
		LAnd: and[uint64], LOr: or[uint64], LXor: xor[uint64], BAnd: bitAnd, BOr: bitOr, BXor: bitXor, Replace: second, NoOp: first},

	Float16:  {Sum: sumF16, Prod: prodF16, Min: minF16, Max: maxF16, Replace: second, NoOp: first},
	BFloat16: {Sum: sumBF16, Prod: prodBF16, Min: minBF16, Max: maxBF16, Replace: second, NoOp: first},
	Float32:  {Sum: sumFloat32, Prod: prodFloat32, Min: minFloat32, Max: maxFloat32, Replace: second, NoOp: first},
	Float64:  {Sum: sumFloat64, Prod: prodFloat64, Min: minFloat64, Max: maxFloat64, Replace: second, NoOp: first},

	// A complex sum is that of its parts.
	Complex64:  {Sum: sumFloat32, Prod: prodComplex64, Replace: second, NoOp: first},
	Complex128: {Sum: sumFloat64, Prod: prodComplex128, Replace: second, NoOp: first},

	FloatInt:  {MinLoc: minLoc[float32], MaxLoc: maxLoc[float32], Replace: second, NoOp: first},
	DoubleInt: {MinLoc: minLoc[float64], MaxLoc: maxLoc[float64], Replace: second, NoOp: first},
	LongInt:   {MinLoc: minLoc[int64], MaxLoc: maxLoc[int64], Replace: second, NoOp: first},
	TwoInt:    {MinLoc: minLoc[int32], MaxLoc: maxLoc[int32], Replace: second, NoOp: first},
	ShortInt:  {MinLoc: minLoc[int16], MaxLoc: maxLoc[int16], Replace: second, NoOp: first},
}

func first(dst, a, b []byte) {
	check(dst, a, b)
	copy(dst, a)
}

func second(dst, a, b []byte) {
	check(dst, a, b)
	copy(dst, b)
}

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

type integer interface {
	int8 | int16 | int32 | int64 | unsigned
}

func sum[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func prod[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

func least[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func most[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}

func and[T unsigned](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = truth[T](x[i] != 0) & truth[T](y[i] != 0)
	}
}

func or[T unsigned](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = truth[T](x[i]|y[i] != 0)
	}
}

func xor[T unsigned](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = truth[T](x[i] != 0) ^ truth[T](y[i] != 0)
	}
}

func truth[T unsigned](b bool) T {
	if b {
		return 1
	}
	return 0
}

// Bits have no width: eight bytes at a time, and what is left.

func bitAnd(dst, a, b []byte) {
	d, x, y := operands[uint64](dst, a, b)
	for i := range d {
		d[i] = x[i] & y[i]
	}
	for i := 8 * len(d); i < len(dst); i++ {
		dst[i] = a[i] & b[i]
	}
}

func bitOr(dst, a, b []byte) {
	d, x, y := operands[uint64](dst, a, b)
	for i := range d {
		d[i] = x[i] | y[i]
	}
	for i := 8 * len(d); i < len(dst); i++ {
		dst[i] = a[i] | b[i]
	}
}

func bitXor(dst, a, b []byte) {
	d, x, y := operands[uint64](dst, a, b)
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
	for i := 8 * len(d); i < len(dst); i++ {
		dst[i] = a[i] ^ b[i]
	}
}

// Floating-point numbers. Which of two NaNs x+y keeps depends on the order in
// which the compiler has them in the instruction, so NaNs are made by hand.

func sumFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	for i := range d {
		d[i] = sum32(x[i], y[i])
	}
}

func prodFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	for i := range d {
		d[i] = prod32(x[i], y[i])
	}
}

func minFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	for i := range d {
		d[i] = min32(x[i], y[i])
	}
}

func maxFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	for i := range d {
		d[i] = max32(x[i], y[i])
	}
}

func sum32(x, y float32) float32 {
	if s := x + y; s == s {
		return s
	}
	return nan32(x, y)
}

func prod32(x, y float32) float32 {
	if p := x * y; p == p {
		return p
	}
	return nan32(x, y)
}

func min32(x, y float32) float32 {
	if m := min(x, y); m == m {
		return m
	}
	return nan32(x, y)
}

func max32(x, y float32) float32 {
	if m := max(x, y); m == m {
		return m
	}
	return nan32(x, y)
}

// nan32 is the NaN that x op y gives: x, y, or the default one.
//
//go:noinline
func nan32(x, y float32) float32 {
	const quiet, standard = 1 << 22, 0xffc00000
	switch {
	case x != x:
		return math.Float32frombits(math.Float32bits(x) | quiet)
	case y != y:
		return math.Float32frombits(math.Float32bits(y) | quiet)
	}
	return math.Float32frombits(standard)
}

func sumFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	for i := range d {
		s := x[i] + y[i]
		if s != s {
			s = nan64(x[i], y[i])
		}
		d[i] = s
	}
}

func prodFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	for i := range d {
		p := x[i] * y[i]
		if p != p {
			p = nan64(x[i], y[i])
		}
		d[i] = p
	}
}

func minFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	for i := range d {
		m := min(x[i], y[i])
		if m != m {
			m = nan64(x[i], y[i])
		}
		d[i] = m
	}
}

func maxFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	for i := range d {
		m := max(x[i], y[i])
		if m != m {
			m = nan64(x[i], y[i])
		}
		d[i] = m
	}
}

//go:noinline
func nan64(x, y float64) float64 {
	const quiet, standard = 1 << 51, 0xfff8000000000000
	switch {
	case x != x:
		return math.Float64frombits(math.Float64bits(x) | quiet)
	case y != y:
		return math.Float64frombits(math.Float64bits(y) | quiet)
	}
	return math.Float64frombits(standard)
}

func sumF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(sum32(x[i].Float32(), y[i].Float32()))
	}
}

func prodF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(prod32(x[i].Float32(), y[i].Float32()))
	}
}

func minF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(min32(x[i].Float32(), y[i].Float32()))
	}
}

func maxF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(max32(x[i].Float32(), y[i].Float32()))
	}
}

func sumBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(sum32(x[i].Float32(), y[i].Float32()))
	}
}

func prodBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(prod32(x[i].Float32(), y[i].Float32()))
	}
}

func minBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(min32(x[i].Float32(), y[i].Float32()))
	}
}

func maxBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(max32(x[i].Float32(), y[i].Float32()))
	}
}

// The four products of a complex64 are exact in float64, so a fused multiply
// and add changes nothing.
func prodComplex64(dst, a, b []byte) {
	d, x, y := operands[[2]float32](dst, a, b)
	for i := range d {
		r, s := float64(x[i][0]), float64(x[i][1])
		u, v := float64(y[i][0]), float64(y[i][1])
		d[i] = [2]float32{part32(r*u - s*v), part32(r*v + s*u)}
	}
}

func part32(f float64) float32 {
	if f == f {
		return float32(f)
	}
	return nan32(0, 0)
}

// The conversions forbid the compiler to fuse, which some processors would do.
func prodComplex128(dst, a, b []byte) {
	d, x, y := operands[[2]float64](dst, a, b)
	for i := range d {
		r, s, u, v := x[i][0], x[i][1], y[i][0], y[i][1]
		d[i] = [2]float64{part64(float64(r*u) - float64(s*v)), part64(float64(r*v) + float64(s*u))}
	}
}

func part64(f float64) float64 {
	if f == f {
		return f
	}
	return nan64(0, 0)
}
