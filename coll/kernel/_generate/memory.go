package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// memory is how elements lie in memory and in vectors.
type memory struct {
	full    int // bytes of memory that fill a 32-byte register
	prepare func() []reg.VecVirtual
	load    func(v vector, bytes int, m Mem) reg.VecVirtual
	store   func(v vector, bytes int, r reg.VecVirtual, m Mem, constants []reg.VecVirtual)
}

// plain elements are computed as they lie.
var plain = memory{
	full: 32,
	load: loadPlain,
	store: func(_ vector, bytes int, r reg.VecVirtual, m Mem, _ []reg.VecVirtual) {
		storePlain(bytes, r, m)
	},
}

func loadPlain(_ vector, bytes int, m Mem) reg.VecVirtual {
	switch bytes {
	case 32:
		r := YMM()
		VMOVDQU(m, r)
		return r
	case 16:
		r := XMM()
		VMOVDQU(m, r)
		return r
	case 8:
		r := XMM()
		VMOVQ(m, r)
		return r
	case 4:
		r := XMM()
		VMOVD(m, r)
		return r
	}
	zero, r := XMM(), XMM()
	VPXOR(zero, zero, zero)
	if bytes == 2 {
		VPINSRW(U8(0), m, zero, r)
	} else {
		VPINSRB(U8(0), m, zero, r)
	}
	return r
}

func storePlain(bytes int, r Op, m Mem) {
	switch bytes {
	case 32, 16:
		VMOVDQU(r, m)
	case 8:
		VMOVQ(r, m)
	case 4:
		VMOVD(r, m)
	case 2:
		VPEXTRW(U8(0), r, m)
	case 1:
		VPEXTRB(U8(0), r, m)
	}
}

// float16 elements are computed as float32. Rounding control 0 is to the nearest,
// ties to even, whatever MXCSR says.
var float16 = memory{
	full: 16,
	load: func(v vector, bytes int, m Mem) reg.VecVirtual {
		h, f := loadPlain(v, bytes, m), v.new()
		VCVTPH2PS(h.AsX(), f)
		return f
	},
	store: func(_ vector, bytes int, r reg.VecVirtual, m Mem, _ []reg.VecVirtual) {
		h := XMM()
		VCVTPS2PH(U8(0), r, h)
		storePlain(bytes, h, m)
	},
}

// bfloat16 elements are the upper halves of float32.
func bfloat16(round func(v vector, r reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual, prepare func() []reg.VecVirtual) memory {
	return memory{
		full:    16,
		prepare: prepare,
		load: func(v vector, bytes int, m Mem) reg.VecVirtual {
			h, f := loadPlain(v, bytes, m), v.new()
			VPMOVZXWD(h.AsX(), f)
			VPSLLD(U8(16), f, f)
			return f
		},
		store: func(v vector, bytes int, r reg.VecVirtual, m Mem, constants []reg.VecVirtual) {
			h := round(v, r, constants)
			VPACKUSDW(h, h, h)
			if v.y { // the two halves were packed on their own
				VPERMQ(U8(0b1000), h, h)
			}
			storePlain(bytes, h.AsX(), m)
		},
	}
}

// bfloat16Exact stores what one of the operands was.
var bfloat16Exact = bfloat16(func(v vector, r reg.VecVirtual, _ []reg.VecVirtual) reg.VecVirtual {
	h := v.new()
	VPSRLD(U8(16), r, h)
	return h
}, nil)

// bfloat16Rounded adds 0x7fff, and 1 if what stays is odd, and cuts; a NaN is cut
// and made quiet, which arithmetic has done.
var bfloat16Rounded = bfloat16(func(v vector, r reg.VecVirtual, constants []reg.VecVirtual) reg.VecVirtual {
	one, half := v.as(constants[0]), v.as(constants[1])
	odd, nan := v.new(), v.new()
	VPSRLD(U8(16), r, odd)
	VPAND(one, odd, odd)
	VPADDD(half, odd, odd)
	VPADDD(r, odd, odd)
	VCMPPS(U8(unordered), r, r, nan)
	VBLENDVPS(nan, r, odd, odd)
	VPSRLD(U8(16), odd, odd)
	return odd
}, func() []reg.VecVirtual {
	one, half := ones(), YMM()
	VPSRLD(U8(17), one, half)
	VPSRLD(U8(31), one, one)
	return []reg.VecVirtual{one, half}
})

// complex64s are computed as complex128.
var complex64s = memory{
	full: 16,
	load: func(v vector, bytes int, m Mem) reg.VecVirtual {
		s, d := loadPlain(v, bytes, m), v.new()
		VCVTPS2PD(s.AsX(), d)
		return d
	},
	store: func(v vector, bytes int, r reg.VecVirtual, m Mem, _ []reg.VecVirtual) {
		s := XMM()
		if v.y {
			VCVTPD2PSY(r, s)
		} else {
			VCVTPD2PSX(r, s)
		}
		storePlain(bytes, s, m)
	},
}

// unordered is the predicate of VCMPPS.
const unordered = 3

// ones has all bits set.
func ones() reg.VecVirtual {
	r := YMM()
	VPCMPEQD(r, r, r)
	return r
}
