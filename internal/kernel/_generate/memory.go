package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// memory is how elements lie in memory and in vectors.
type memory struct {
	full  int // bytes of memory that fill a 32-byte register
	load  func(v vector, bytes int, m Mem) reg.VecVirtual
	store func(v vector, bytes int, r reg.VecVirtual, m Mem)
}

// plain elements are computed as they lie.
var plain = memory{
	full: 32,
	load: loadPlain,
	store: func(_ vector, bytes int, r reg.VecVirtual, m Mem) {
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
	store: func(_ vector, bytes int, r reg.VecVirtual, m Mem) {
		h := XMM()
		VCVTPS2PH(U8(0), r, h)
		storePlain(bytes, h, m)
	},
}

// complex64s are computed as complex128.
var complex64s = memory{
	full: 16,
	load: func(v vector, bytes int, m Mem) reg.VecVirtual {
		s, d := loadPlain(v, bytes, m), v.new()
		VCVTPS2PD(s.AsX(), d)
		return d
	},
	store: func(v vector, bytes int, r reg.VecVirtual, m Mem) {
		s := XMM()
		if v.y {
			VCVTPD2PSY(r, s)
		} else {
			VCVTPD2PSX(r, s)
		}
		storePlain(bytes, s, m)
	},
}

// ones has all bits set.
func ones() reg.VecVirtual {
	r := YMM()
	VPCMPEQD(r, r, r)
	return r
}
