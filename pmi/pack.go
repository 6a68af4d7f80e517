package pmi

import (
	"encoding/binary"
	"errors"
	"math"
)

// This is the part of msgpack that fences and cards need: unsigned numbers,
// binary, and arrays. It is written out here because ranks link this package
// and start faster without a general library; the tests hold it against one.

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

func appendBin[T []byte | string](b []byte, v T) []byte {
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

// unpacker reads what the functions above wrote. The first damage sticks in
// err, and everything read after it is zero.
type unpacker struct {
	b   []byte
	err error
}

func (u *unpacker) take(n int) []byte {
	if u.err != nil || n < 0 || n > len(u.b) {
		u.err = errPack
		return nil
	}
	v := u.b[:n:n]
	u.b = u.b[n:]
	return v
}

// number takes a big-endian number of n bytes.
func (u *unpacker) number(n int) uint64 {
	var v uint64
	for _, b := range u.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (u *unpacker) uint() uint64 {
	switch tag := u.number(1); {
	case tag < 0x80:
		return tag
	case tag >= 0xcc && tag <= 0xcf:
		return u.number(1 << (tag - 0xcc))
	}
	u.err = errPack
	return 0
}

// int is a uint that must be below limit.
func (u *unpacker) int(limit int) int {
	v := u.uint()
	if v >= uint64(limit) {
		u.err = errPack
		return 0
	}
	return int(v)
}

// array is the length of an array. A length that the bytes left cannot hold is
// damage, so it bounds what the caller allocates.
func (u *unpacker) array() int {
	var n uint64
	switch tag := u.number(1); {
	case tag&0xf0 == 0x90:
		n = tag & 0x0f
	case tag == 0xdc:
		n = u.number(2)
	case tag == 0xdd:
		n = u.number(4)
	default:
		u.err = errPack
	}
	if n > uint64(len(u.b)) {
		u.err = errPack
	}
	if u.err != nil {
		return 0
	}
	return int(n)
}

// bin is a part of the bytes given, not a copy.
func (u *unpacker) bin() []byte {
	switch tag := u.number(1); tag {
	case 0xc4, 0xc5, 0xc6:
		return u.take(int(u.number(1 << (tag - 0xc4))))
	}
	u.err = errPack
	return nil
}

// end is the error so far, or that of bytes left over.
func (u *unpacker) end() error {
	if u.err == nil && len(u.b) > 0 {
		u.err = errPack
	}
	return u.err
}
