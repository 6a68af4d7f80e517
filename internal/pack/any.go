package pack

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// maxDepth is how deep arrays and maps may lie in each other: decoding recurses.
const maxDepth = 512

// Marshal gives the msgpack of a value of any type that has one.
func Marshal(v any) ([]byte, error) { return msgpack.Marshal(v) }

// Unmarshal reads one value, which is all of b, into *to. Bytes that are not whole,
// go on behind the value, or are nested too deep are ErrDamaged before anything is
// allocated; an error of the type is msgpack's.
func Unmarshal(b []byte, to any) (err error) {
	if !whole(b) {
		return ErrDamaged
	}
	// msgpack v5.4.1 panics where it finds nil for a time.Time or another struct that
	// decodes itself.
	defer func() {
		if p := recover(); p != nil {
			wrong, ok := p.(*reflect.ValueError)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("msgpack: nil, or another value that does not fit: %w", wrong)
		}
	}()
	return msgpack.Unmarshal(b, to)
}

// whole tells whether b is one value. Each length is held against the bytes left.
func whole(b []byte) bool {
	open := []uint64{1} // values to come, of each array and map around
	for len(open) > 0 {
		last := len(open) - 1
		if open[last] == 0 {
			open = open[:last]
			continue
		}
		open[last]--
		if len(b) == 0 {
			return false
		}
		head, data, values := size(b)
		if uint64(len(b)) < head {
			return false
		}
		b = b[head:]
		if data > uint64(len(b)) || values > uint64(len(b)) || len(open) > maxDepth {
			return false
		}
		b = b[data:]
		if values > 0 {
			open = append(open, values)
		}
	}
	return len(b) == 0
}

// size is what the value at the beginning of b takes: the bytes of its code and
// length, the bytes of data behind them, and the values within it. A code that is
// none, or a length that is not whole, is longer than b.
func size(b []byte) (head, data, values uint64) {
	const bad = math.MaxUint64
	length := func(n int) (uint64, bool) { // the big-endian number behind the code
		if len(b) < 1+n {
			return 0, false
		}
		var wide [8]byte
		copy(wide[8-n:], b[1:1+n])
		return binary.BigEndian.Uint64(wide[:]), true
	}
	c := b[0]
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small numbers, nil, bool
		return 1, 0, 0
	case c <= 0x8f: // map
		return 1, 0, 2 * uint64(c&0xf)
	case c <= 0x9f: // array
		return 1, 0, uint64(c & 0xf)
	case c <= 0xbf: // string
		return 1, uint64(c & 0x1f), 0
	case c == 0xc1: // no code
		return bad, 0, 0
	case c <= 0xc6: // binary
		return sized(1<<(c-0xc4), 0, length)
	case c <= 0xc9: // extension: a byte for its type
		return sized(1<<(c-0xc7), 1, length)
	case c <= 0xcb: // float
		return 1, 4 << (c - 0xca), 0
	case c <= 0xcf: // unsigned
		return 1, 1 << (c - 0xcc), 0
	case c <= 0xd3: // signed
		return 1, 1 << (c - 0xd0), 0
	case c <= 0xd8: // extension of 1 to 16 bytes
		return 1, 1 + 1<<(c-0xd4), 0
	case c <= 0xdb: // string
		return sized(1<<(c-0xd9), 0, length)
	}
	n := 2 << (c & 1) // array and map, of 16 or 32 bits
	count, ok := length(n)
	if !ok {
		return bad, 0, 0
	}
	if c >= 0xde {
		count *= 2
	}
	return 1 + uint64(n), 0, count
}

func sized(n int, more uint64, length func(int) (uint64, bool)) (head, data, values uint64) {
	bytes, ok := length(n)
	if !ok {
		return math.MaxUint64, 0, 0
	}
	return 1 + uint64(n), bytes + more, 0
}
