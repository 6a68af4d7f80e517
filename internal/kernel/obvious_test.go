package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"sort"
)

// This file is the slow and obvious version: one element, decoded, computed
// exactly with math/big, rounded once, encoded.

// A format is a floating-point format: how long, how its bits are read, and how
// an exact number is rounded to it.
type format struct {
	size     int
	fraction uint // bits of the fraction, the quiet bit being the uppermost
	exponent uint // bits of the exponent
	value    func(bits uint64) float64
	round    func(*big.Float) uint64 // to the bits, nearest, ties to even
}

var formats = map[Type]format{
	Float16:  {2, 10, 5, func(u uint64) float64 { return half(u, 10, 5) }, nearest(10, 5)},
	BFloat16: {2, 7, 8, func(u uint64) float64 { return half(u, 7, 8) }, nearest(7, 8)},
	Float32: {4, 23, 8, func(u uint64) float64 { return float64(math.Float32frombits(uint32(u))) }, func(f *big.Float) uint64 {
		r, _ := f.Float32()
		return uint64(math.Float32bits(r))
	}},
	Float64: {8, 52, 11, math.Float64frombits, func(f *big.Float) uint64 {
		r, _ := f.Float64()
		return math.Float64bits(r)
	}},
}

// half reads a number of 16 bits by the definition of IEEE 754.
func half(u uint64, fraction, exponent uint) float64 {
	f, e := u&(1<<fraction-1), u>>fraction&(1<<exponent-1)
	bias := 1<<(exponent-1) - 1
	r := math.Ldexp(float64(f), 1-bias-int(fraction))
	switch {
	case e == 1<<exponent-1 && f != 0:
		return math.NaN()
	case e == 1<<exponent-1:
		r = math.Inf(1)
	case e != 0:
		r = math.Ldexp(float64(f|1<<fraction), int(e)-bias-int(fraction))
	}
	if u>>15 != 0 {
		r = -r
	}
	return r
}

// nearest looks for the number among all of the format: 0x0000, 0x0001 ... are in
// ascending order, infinity standing where the next number would.
func nearest(fraction, exponent uint) func(*big.Float) uint64 {
	infinity := 1<<15 - 1<<fraction
	values := make([]float64, infinity+1)
	for u := range values {
		values[u] = half(uint64(u), fraction, exponent)
	}
	values[infinity] = math.Ldexp(1, 1<<(exponent-1))
	return func(f *big.Float) uint64 {
		v := new(big.Float).Abs(f)
		about, _ := v.Float64()
		u := min(sort.SearchFloat64s(values, about), infinity)
		if u > 0 {
			below := new(big.Float).SetPrec(4096).Sub(v, big.NewFloat(values[u-1]))
			above := new(big.Float).SetPrec(4096).Sub(big.NewFloat(values[u]), v)
			if c := below.Cmp(above); c < 0 || c == 0 && (u-1)&1 == 0 {
				u--
			}
		}
		if f.Signbit() {
			u |= 1 << 15
		}
		return uint64(u)
	}
}

// obvious is a op b of one element.
func obvious(t Type, op Op, a, b []byte) []byte {
	switch op {
	case Replace:
		return b
	case NoOp:
		return a
	}
	if f, is := formats[t]; is {
		return encode(f.size, f.obvious(op, decode(a), decode(b)))
	}
	switch t {
	case Complex64, Complex128:
		f, n := formats[Float32], 4
		if t == Complex128 {
			f, n = formats[Float64], 8
		}
		ar, ai, br, bi := decode(a[:n]), decode(a[n:]), decode(b[:n]), decode(b[n:])
		if op == Sum {
			return append(encode(n, f.obvious(Sum, ar, br)), encode(n, f.obvious(Sum, ai, bi))...)
		}
		if t == Complex64 { // the language's own product
			p := complex64(complex(f.value(ar), f.value(ai))) * complex64(complex(f.value(br), f.value(bi)))
			return append(encode(4, part(f, uint64(math.Float32bits(real(p))))), encode(4, part(f, uint64(math.Float32bits(imag(p)))))...)
		}
		p := complex(f.value(ar), f.value(ai)) * complex(f.value(br), f.value(bi))
		return append(encode(8, part(f, math.Float64bits(real(p)))), encode(8, part(f, math.Float64bits(imag(p))))...)
	case FloatInt, DoubleInt, LongInt, TwoInt, ShortInt:
		return obviousLoc(t, op, a, b)
	}
	return obviousInteger(t, op, a, b)
}

func part(f format, bits uint64) uint64 {
	if math.IsNaN(f.value(bits)) {
		return f.standard()
	}
	return bits
}

// standard is the default NaN: sign, all of the exponent, the quiet bit.
func (f format) standard() uint64 { return (1<<(f.exponent+2) - 1) << (f.fraction - 1) }

func (f format) obvious(op Op, a, b uint64) uint64 {
	x, y := f.value(a), f.value(b)
	quiet := uint64(1) << (f.fraction - 1)
	switch {
	case math.IsNaN(x):
		return a | quiet
	case math.IsNaN(y):
		return b | quiet
	case op == Min && (y < x || y == x && math.Signbit(y)), op == Max && (y > x || y == x && !math.Signbit(y)):
		return b
	case op == Min || op == Max:
		return a
	case math.IsInf(x, 0) || math.IsInf(y, 0):
		r := x + y
		if op == Prod {
			r = x * y
		}
		if math.IsNaN(r) {
			return f.standard()
		}
		return f.round(big.NewFloat(r))
	}
	r := new(big.Float).SetPrec(4096)
	if op == Sum {
		r.Add(big.NewFloat(x), big.NewFloat(y))
	} else {
		r.Mul(big.NewFloat(x), big.NewFloat(y))
	}
	return f.round(r)
}

// obviousLoc has padding of zeros, as random does.
func obviousLoc(t Type, op Op, a, b []byte) []byte {
	at := t.Size() / 2 // of the index
	value := map[Type]Type{FloatInt: Float32, DoubleInt: Float64, LongInt: Int64, TwoInt: Int32, ShortInt: Int16}[t]
	cmp := 0 // a better than b: -1
	if f, is := formats[value]; is {
		x, y := f.value(decode(a[:f.size])), f.value(decode(b[:f.size]))
		switch {
		case math.IsNaN(x) && math.IsNaN(y):
		case math.IsNaN(x), x < y == (op == MinLoc) && x != y && !math.IsNaN(y):
			cmp = -1
		case x != y:
			cmp = 1
		}
	} else {
		cmp = integerOf(value, a).Cmp(integerOf(value, b))
		if op == MaxLoc {
			cmp = -cmp
		}
	}
	if cmp == 0 {
		cmp = integerOf(Int32, a[at:]).Cmp(integerOf(Int32, b[at:]))
	}
	chosen := a
	if cmp > 0 {
		chosen = b
	}
	out := make([]byte, t.Size())
	copy(out, chosen[:value.Size()])
	copy(out[at:], chosen[at:at+4])
	return out
}

func obviousInteger(t Type, op Op, a, b []byte) []byte {
	x, y, r := integerOf(t, a), integerOf(t, b), new(big.Int)
	truth := func(b bool) *big.Int {
		if b {
			return big.NewInt(1)
		}
		return new(big.Int)
	}
	p, q := x.Sign() != 0, y.Sign() != 0
	switch op {
	case Sum:
		r.Add(x, y)
	case Prod:
		r.Mul(x, y)
	case Min, Max:
		r = x
		if c := y.Cmp(x); op == Min && c < 0 || op == Max && c > 0 {
			r = y
		}
	case LAnd:
		r = truth(p && q)
	case LOr:
		r = truth(p || q)
	case LXor:
		r = truth(p != q)
	case BAnd:
		r.And(x, y)
	case BOr:
		r.Or(x, y)
	case BXor:
		r.Xor(x, y)
	}
	// And with all ones wraps around like the type.
	return encode(t.Size(), r.And(r, new(big.Int).SetUint64(math.MaxUint64)).Uint64())
}

func integerOf(t Type, b []byte) *big.Int {
	u := decode(b[:t.Size()])
	if unused := 64 - 8*t.Size(); t >= Int8 && t <= Int64 {
		return big.NewInt(int64(u<<unused) >> unused)
	}
	return new(big.Int).SetUint64(u)
}

func decode(b []byte) (u uint64) {
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:])
}

func encode(n int, u uint64) []byte { return binary.LittleEndian.AppendUint64(nil, u)[:n:n] }

// random draws one element: of all bits, or one of those where things go wrong.
func random(rng *rand.Rand, t Type) []byte {
	switch t {
	case Complex64:
		return append(random(rng, Float32), random(rng, Float32)...)
	case Complex128:
		return append(random(rng, Float64), random(rng, Float64)...)
	case FloatInt, TwoInt, ShortInt, DoubleInt, LongInt:
		value := map[Type]Type{FloatInt: Float32, DoubleInt: Float64, LongInt: Int64, TwoInt: Int32, ShortInt: Int16}[t]
		e := make([]byte, t.Size())
		copy(e, random(rng, value))
		copy(e[len(e)/2:], random(rng, Int32))
		return e
	}
	u := rng.Uint64()
	size := uint(t.Size())
	if f, is := formats[t]; is {
		sign := u & (1 << (8*size - 1))
		infinity := uint64(1)<<f.exponent - 1
		switch rng.IntN(8) {
		case 0: // zeros
			u = sign
		case 1: // infinities
			u = sign | infinity<<f.fraction
		case 2: // NaNs, signalling and quiet
			u |= infinity << f.fraction
		case 3: // subnormal
			u = sign | u&(1<<f.fraction-1)
		case 4, 5: // about 1, so that sums cancel and products do not overflow
			u = sign | (infinity>>1+uint64(rng.IntN(5))-2)<<f.fraction | u&(1<<f.fraction-1)
		}
	} else {
		switch rng.IntN(4) {
		case 0:
			u = uint64(rng.IntN(5) - 2)
		case 1:
			u = 1<<(8*size-1) - uint64(rng.IntN(3)) // the greatest and the least
		}
	}
	return encode(int(size), u)
}
