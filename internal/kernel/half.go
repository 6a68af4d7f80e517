package kernel

import "math"

// F16 is an IEEE 754 binary16 number (Type Float16): sign, 5 bits of exponent, 10
// of fraction.
type F16 uint16

// ToF16 rounds to the nearest, ties to even; from 65520 on to infinity, below
// 2^-14 to a subnormal. A NaN keeps its sign and its upper 10 bits and is made quiet.
func ToF16(f float32) F16 {
	u := math.Float32bits(f)
	sign, u := F16(u>>16&0x8000), u&^(1<<31)
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00 | F16(u>>13&0x3ff)
	case u >= 0x47800000: // 2^16 and infinity
		return sign | 0x7c00
	case u < 0x38800000: // 2^-14
		// The sum has a unit of 2^-24, a subnormal's, and so rounds right; its
		// fraction holds the result, 2^10 for what became the least normal number.
		return sign | F16(math.Float32bits(math.Float32frombits(u)+0.5)-math.Float32bits(0.5))
	}
	// The exponent's bias goes from 127 to 15. A carry out of the fraction goes
	// into the exponent, and beyond the greatest number makes infinity.
	u -= 112 << 23
	return sign | F16((u+0xfff+u>>13&1)>>13)
}

// Float32 is exact. A signalling NaN is made quiet.
func (h F16) Float32() float32 {
	sign, exponent, fraction := uint32(h)>>15<<31, uint32(h)>>10&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0:
		f := float32(fraction) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	case 0x1f:
		if fraction != 0 {
			fraction |= 0x200
		}
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// BF16 is the upper half of a float32 (Type BFloat16): sign, 8 bits of exponent,
// 7 of fraction.
type BF16 uint16

// ToBF16 rounds to the nearest, ties to even; beyond the greatest number to
// infinity. A NaN keeps its upper half and is made quiet.
func ToBF16(f float32) BF16 {
	u := math.Float32bits(f)
	if f != f {
		return BF16(u>>16 | 0x40)
	}
	return BF16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 is exact.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }
