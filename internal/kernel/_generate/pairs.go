package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A pair is a value and, in the second half, an index of 32 bits. Masks of values
// are right in the first half, which is copied to the second at the end.
type pair struct {
	name string
	elem int
	// index and value copy the masks of these to all of an element (VPSHUFD).
	index, value U8
	// shift brings a short value to the top of its 32 bits.
	shift bool
	// greater and equal compare integers, compare floats.
	greater, equal three
	compare        three // predicate, y, x, z
}

func pairs() []kernel {
	var list []kernel
	for _, p := range []pair{
		{name: "FloatInt", elem: 8, index: 0b11110101, value: 0b10100000, compare: VCMPPS},
		{name: "DoubleInt", elem: 16, index: 0b10101010, value: 0b01000100, compare: VCMPPD},
		{name: "LongInt", elem: 16, index: 0b10101010, value: 0b01000100, greater: VPCMPGTQ, equal: VPCMPEQQ},
		{name: "TwoInt", elem: 8, index: 0b11110101, value: 0b10100000, greater: VPCMPGTD, equal: VPCMPEQD},
		{name: "ShortInt", elem: 8, index: 0b11110101, value: 0b10100000, shift: true, greater: VPCMPGTD, equal: VPCMPEQD},
	} {
		list = append(list,
			kernel{name: "minLoc" + p.name + "AVX2", doc: "compares and blends.", elem: p.elem, memory: plain, combine: p.choose(false)},
			kernel{name: "maxLoc" + p.name + "AVX2", doc: "compares and blends.", elem: p.elem, memory: plain, combine: p.choose(true)})
	}
	return list
}

// choose takes b if its value is better, or if they are equal and its index is
// lower.
func (p pair) choose(greatest bool) combination {
	return func(v vector, a, b reg.VecVirtual, _ []reg.VecVirtual) reg.VecVirtual {
		x, y := a, b
		if p.shift {
			x, y = v.new(), v.new()
			VPSLLD(U8(16), a, x)
			VPSLLD(U8(16), b, y)
		}
		low, high := y, x // b is better if low < high
		if greatest {
			low, high = x, y
		}
		better, equal, lower := v.new(), v.new(), v.new()
		if p.compare != nil {
			p.compare(U8(less), high, low, better)
			p.compare(U8(equals), b, a, equal)
			p.nan(v, a, b, better, equal)
		} else {
			p.greater(low, high, better)
			p.equal(y, x, equal)
		}
		VPCMPGTD(b, a, lower)
		VPSHUFD(p.index, lower, lower)
		VPAND(lower, equal, equal)
		VPOR(equal, better, better)
		VPSHUFD(p.value, better, better)
		VBLENDVPS(better, b, a, better)
		return better
	}
}

// nan makes b better where it alone is a NaN, and equal where both are.
func (p pair) nan(v vector, a, b, better, equal reg.VecVirtual) {
	m, n, alone := v.new(), v.new(), v.new()
	p.compare(U8(unordered), a, a, m)
	p.compare(U8(unordered), b, b, n)
	VPANDN(n, m, alone)
	VPOR(alone, better, better)
	VPAND(n, m, m)
	VPOR(m, equal, equal)
}
