package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// three is an instruction of the form y, x, z: z = x op y.
type three func(...Op)

// fixed makes one of an instruction that has no masked forms.
func fixed(f func(y, x, z Op)) three { return func(o ...Op) { f(o[0], o[1], o[2]) } }

// A combination emits instructions that combine two vectors into a new one.
type combination func(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual

// Predicates of VCMPPS and VCMPPD.
const equals, unordered, ordered, less = 0, 3, 7, 17

// of makes one that applies a single instruction.
func of(f three) combination {
	return func(v vector, a, b reg.VecVirtual, _ []reg.VecVirtual) reg.VecVirtual {
		r := v.new()
		f(b, a, r)
		return r
	}
}

func kernels() []kernel {
	var list []kernel
	add := func(k kernel) { list = append(list, k) }
	simple := func(name, doc string, elem int, f three) {
		add(kernel{name: name, doc: doc, elem: elem, memory: plain, combine: of(f)})
	}

	// Integers. Sum and product do not depend on the sign.
	for i, f := range []three{VPADDB, VPADDW, VPADDD, VPADDQ} {
		simple(fmt.Sprintf("sumInt%dAVX2", 8<<i), "adds.", 1<<i, f)
	}
	add(kernel{name: "prodInt8AVX2", doc: "multiplies the even and the odd bytes as words.", elem: 1, memory: plain, prepare: lowBytes, combine: prodInt8})
	simple("prodInt16AVX2", "multiplies.", 2, VPMULLW)
	simple("prodInt32AVX2", "multiplies.", 4, VPMULLD)
	add(kernel{name: "prodInt64AVX2", doc: "multiplies halves: a.low*b.low + (a.high*b.low + a.low*b.high)<<32.", elem: 8, memory: plain, combine: prodInt64})

	for i, f := range [][4]three{{VPMINSB, VPMAXSB, VPMINUB, VPMAXUB}, {VPMINSW, VPMAXSW, VPMINUW, VPMAXUW}, {VPMINSD, VPMAXSD, VPMINUD, VPMAXUD}} {
		for j, name := range []string{"minInt", "maxInt", "minUint", "maxUint"} {
			simple(fmt.Sprintf("%s%dAVX2", name, 8<<i), "compares.", 1<<i, f[j])
		}
	}
	for _, greatest := range []bool{false, true} {
		name := map[bool]string{false: "min", true: "max"}[greatest]
		add(kernel{name: name + "Int64AVX2", doc: "compares and blends.", elem: 8, memory: plain, combine: orderInt64(greatest, false)})
		add(kernel{name: name + "Uint64AVX2", doc: "compares, the uppermost bits turned, and blends.", elem: 8, memory: plain, prepare: signBits, combine: orderInt64(greatest, true)})
	}

	simple("bitAndAVX2", "has no width.", 1, fixed(VPAND))
	simple("bitOrAVX2", "has no width.", 1, fixed(VPOR))
	simple("bitXorAVX2", "has no width.", 1, fixed(VPXOR))

	for i, equal := range []three{VPCMPEQB, VPCMPEQW, VPCMPEQD, VPCMPEQQ} {
		for _, f := range logic(equal) {
			add(kernel{name: fmt.Sprintf("%s%dAVX2", f.name, 8<<i), doc: f.doc, elem: 1 << i, memory: plain, prepare: truth(i), combine: f.combine})
		}
	}

	// Complex products.
	add(kernel{name: "prodComplex64AVX2", doc: "multiplies as float64.", elem: 8, memory: complex64s, prepare: standardNaN, combine: prodComplex})
	add(kernel{name: "prodComplex128AVX2", doc: "multiplies.", elem: 16, memory: plain, prepare: standardNaN, combine: prodComplex})

	// Floating-point numbers. Of two NaNs the instructions keep x of (y, x, z),
	// which is a.
	simple("sumFloat32AVX2", "adds.", 4, VADDPS)
	simple("prodFloat32AVX2", "multiplies.", 4, VMULPS)
	simple("sumFloat64AVX2", "adds.", 8, VADDPD)
	simple("prodFloat64AVX2", "multiplies.", 8, VMULPD)
	single := floats{min: VMINPS, max: VMAXPS, add: VADDPS, compare: VCMPPS, blend: VBLENDVPS}
	double := floats{min: VMINPD, max: VMAXPD, add: VADDPD, compare: VCMPPD, blend: VBLENDVPD}
	for _, greatest := range []bool{false, true} {
		name, doc := "min", "is right for zeros by taking the minimum both ways, for NaNs by adding."
		if greatest {
			name, doc = "max", "is right for zeros by taking the maximum both ways, for NaNs by adding."
		}
		add(kernel{name: name + "Float32AVX2", doc: doc, elem: 4, memory: plain, combine: single.order(greatest)})
		add(kernel{name: name + "Float64AVX2", doc: doc, elem: 8, memory: plain, combine: double.order(greatest)})
		add(kernel{name: name + "F16AVX2", doc: doc, elem: 2, memory: float16, combine: single.order(greatest)})
		add(kernel{name: name + "BF16AVX2", doc: doc, elem: 2, memory: plain, prepare: halves, combine: bfloat16(single.order(greatest), false)})
	}
	add(kernel{name: "sumF16AVX2", doc: "adds as float32.", elem: 2, memory: float16, combine: of(VADDPS)})
	add(kernel{name: "prodF16AVX2", doc: "multiplies as float32.", elem: 2, memory: float16, combine: of(VMULPS)})
	add(kernel{name: "sumBF16AVX2", doc: "adds as float32.", elem: 2, memory: plain, prepare: halves, combine: bfloat16(of(VADDPS), true)})
	add(kernel{name: "prodBF16AVX2", doc: "multiplies as float32.", elem: 2, memory: plain, prepare: halves, combine: bfloat16(of(VMULPS), true)})
	return append(list, pairs()...)
}

// lowBytes has the lower byte of each word set.
func lowBytes() []reg.VecVirtual {
	r := ones()
	VPSRLW(U8(8), r, r)
	return []reg.VecVirtual{r}
}

func prodInt8(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
	even, x, y := v.new(), v.new(), v.new()
	VPMULLW(b, a, even)
	VPAND(v.as(constants[0]), even, even)
	VPSRLW(U8(8), a, x)
	VPSRLW(U8(8), b, y)
	VPMULLW(y, x, x)
	VPSLLW(U8(8), x, x)
	VPOR(x, even, even)
	return even
}

func prodInt64(v vector, a, b reg.VecVirtual, _ []reg.VecVirtual) reg.VecVirtual {
	x, y, low := v.new(), v.new(), v.new()
	VPSRLQ(U8(32), a, x)
	VPMULUDQ(b, x, x)
	VPSRLQ(U8(32), b, y)
	VPMULUDQ(y, a, y)
	VPADDQ(y, x, x)
	VPSLLQ(U8(32), x, x)
	VPMULUDQ(b, a, low)
	VPADDQ(x, low, low)
	return low
}

func signBits() []reg.VecVirtual {
	r := ones()
	VPSLLQ(U8(63), r, r)
	return []reg.VecVirtual{r}
}

func orderInt64(greatest, unsigned bool) combination {
	return func(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
		r, x, y := v.new(), a, b
		if unsigned {
			x, y = v.new(), v.new()
			VPXOR(v.as(constants[0]), a, x)
			VPXOR(v.as(constants[0]), b, y)
		}
		VPCMPGTQ(y, x, r) // a > b
		if greatest {
			VBLENDVPD(r, a, b, r)
		} else {
			VBLENDVPD(r, b, a, r)
		}
		return r
	}
}

// truth makes the constant 1 of a width.
func truth(width int) func() []reg.VecVirtual {
	return func() []reg.VecVirtual {
		r := ones()
		switch width {
		case 0:
			VPABSB(r, r)
		case 1:
			VPSRLW(U8(15), r, r)
		case 2:
			VPSRLD(U8(31), r, r)
		case 3:
			VPSRLQ(U8(63), r, r)
		}
		return []reg.VecVirtual{r}
	}
}

type logical struct {
	name, doc string
	combine   combination
}

// logic is made of comparisons with 0.
func logic(equal three) []logical {
	isZero := func(v vector, x reg.VecVirtual) reg.VecVirtual {
		zero, r := v.new(), v.new()
		VPXOR(zero, zero, zero)
		equal(zero, x, r)
		return r
	}
	return []logical{
		{"and", "is 1 where neither is 0.", func(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
			r := isZero(v, a)
			VPOR(isZero(v, b), r, r)
			VPANDN(v.as(constants[0]), r, r)
			return r
		}},
		{"or", "is 1 where not both are 0.", func(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
			r := v.new()
			VPOR(b, a, r)
			r = isZero(v, r)
			VPANDN(v.as(constants[0]), r, r)
			return r
		}},
		{"xor", "is 1 where one is 0.", func(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
			r := isZero(v, a)
			VPXOR(isZero(v, b), r, r)
			VPAND(v.as(constants[0]), r, r)
			return r
		}},
	}
}

// floats are the instructions of a floating-point format.
type floats struct {
	min, max, add three
	compare       func(...Op)            // predicate, y, x, z
	blend         func(mask, y, x, z Op) // y where the mask is set
}

// order is minimum or maximum. The instructions give y of (y, x, z) if both are
// zeros or one is a NaN. Of zeros, the two ways together have both signs: either
// is less, both are needed to be more. For a NaN the sum is the right one.
func (f floats) order(greatest bool) combination {
	return func(v vector, a, b reg.VecVirtual, _ []reg.VecVirtual) reg.VecVirtual {
		r, s, nan, sum := v.new(), v.new(), v.new(), v.new()
		if greatest {
			f.max(b, a, r)
			f.max(a, b, s)
			VPAND(s, r, r)
		} else {
			f.min(b, a, r)
			f.min(a, b, s)
			VPOR(s, r, r)
		}
		f.compare(U8(unordered), b, a, nan)
		f.add(b, a, sum)
		f.blend(nan, sum, r, r)
		return r
	}
}

// standardNaN is the default NaN: sign, exponent and the quiet bit.
func standardNaN() []reg.VecVirtual {
	r := ones()
	VPSLLQ(U8(51), r, r)
	return []reg.VecVirtual{r}
}

// prodComplex has real parts in the even lanes: a.real*b is ready for the sum, and
// a.imag*b once the parts of b are exchanged.
func prodComplex(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
	x, y, swapped, nan := v.new(), v.new(), v.new(), v.new()
	VMOVDDUP(a, x)
	VMULPD(b, x, x)
	VPERMILPD(U8(0b1111), a, y)
	VPERMILPD(U8(0b0101), b, swapped)
	VMULPD(swapped, y, y)
	VADDSUBPD(y, x, x)
	VCMPPD(U8(unordered), x, x, nan)
	VBLENDVPD(nan, v.as(constants[0]), x, x)
	return x
}

// halves makes what bfloat16 needs: the upper halves of 32 bits, and for rounding 1
// and a little less than half of the last place.
func halves() []reg.VecVirtual {
	upper, one, half := ones(), YMM(), YMM()
	VPSRLD(U8(31), upper, one)
	VPSRLD(U8(17), upper, half)
	VPSLLD(U8(16), upper, upper)
	return []reg.VecVirtual{upper, one, half}
}

// bfloat16 combines the even and the odd elements as float32, whose upper halves
// they are. A minimum needs no rounding.
func bfloat16(combine combination, rounds bool) combination {
	return func(v vector, a, b reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
		upper := v.as(constants[0])
		x, y := v.new(), v.new()
		VPSLLD(U8(16), a, x)
		VPSLLD(U8(16), b, y)
		even := combine(v, x, y, nil)
		x, y = v.new(), v.new()
		VPAND(upper, a, x)
		VPAND(upper, b, y)
		odd := combine(v, x, y, nil)
		if rounds {
			round(v, even, constants)
			round(v, odd, constants)
		}
		VPSRLD(U8(16), even, even)
		VPAND(upper, odd, odd)
		VPOR(odd, even, even)
		return even
	}
}

// round adds 0x7fff, and 1 if what stays is odd, so that cutting the lower half
// rounds. A NaN is left alone: arithmetic has made its upper half quiet.
func round(v vector, r reg.VecVirtual, constants []reg.VecVirtual) {
	odd, number := v.new(), v.new()
	VPSRLD(U8(16), r, odd)
	VPAND(v.as(constants[1]), odd, odd)
	VPADDD(v.as(constants[2]), odd, odd)
	VCMPPS(U8(ordered), r, r, number)
	VPAND(number, odd, odd)
	VPADDD(odd, r, r)
}
