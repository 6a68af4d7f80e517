package wireup

import (
	"encoding/binary"
	"errors"
	"math"
)

// This is the part of msgpack that cards need: unsigned numbers, strings, binary
// and arrays, in their shortest forms; every form is read. It is written out
// here because ranks start faster without a general library.

var errPack = errors.New("damaged msgpack")

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendString(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendBin(b, v []byte) []byte {
	switch n := len(v); {
	case n <= math.MaxUint8:
		b = append(b, 0xc4, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xc5), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, v...)
}

// unpacker reads what the functions above wrote. The first damage sticks in err,
// and everything read after it is zero.
type unpacker struct {
	b   []byte
	err error
}

func (u *unpacker) fail() {
	u.err, u.b = errPack, nil
}

// take is the next n bytes.
func (u *unpacker) take(n uint64) []byte {
	if u.err != nil || n > uint64(len(u.b)) {
		u.fail()
		return nil
	}
	v := u.b[:n]
	u.b = u.b[n:]
	return v
}

// number is the next n bytes as a big-endian number.
func (u *unpacker) number(n uint64) uint64 {
	var v uint64
	for _, b := range u.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

// tag is the next byte.
func (u *unpacker) tag() byte { return byte(u.number(1)) }

func (u *unpacker) uint() uint64 {
	switch t := u.tag(); {
	case t < 0x80:
		return uint64(t)
	case t >= 0xcc && t <= 0xcf:
		return u.number(1 << (t - 0xcc))
	}
	u.fail()
	return 0
}

// below reads a number that must be at most limit.
func (u *unpacker) below(limit uint64) uint64 {
	v := u.uint()
	if v > limit {
		u.fail()
		return 0
	}
	return v
}

// array reads an array's length. Each element takes a byte or more, so a length
// that the input cannot hold is damage.
func (u *unpacker) array() int {
	n := uint64(0)
	switch t := u.tag(); {
	case t >= 0x90 && t <= 0x9f:
		n = uint64(t & 0x0f)
	case t == 0xdc || t == 0xdd:
		n = u.number(2 << (t - 0xdc))
	default:
		u.fail()
	}
	if n > uint64(len(u.b)) {
		u.fail()
		return 0
	}
	return int(n)
}

func (u *unpacker) string() string {
	switch t := u.tag(); {
	case t >= 0xa0 && t <= 0xbf:
		return string(u.take(uint64(t & 0x1f)))
	case t >= 0xd9 && t <= 0xdb:
		return string(u.take(u.number(1 << (t - 0xd9))))
	}
	u.fail()
	return ""
}

// bin reads binary, which still belongs to the input; nil when it is empty.
func (u *unpacker) bin() []byte {
	t := u.tag()
	if t < 0xc4 || t > 0xc6 {
		u.fail()
		return nil
	}
	v := u.take(u.number(1 << (t - 0xc4)))
	if len(v) == 0 {
		return nil
	}
	return v
}
