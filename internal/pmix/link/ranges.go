package link

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// gorun sends each host the names of all hosts and the places of all ranks. Regular ones take a few bytes on the wire,
// whatever the size of the job.

// Numbers are one for each rank. On the wire they are blocks of three, [first, each, times, ...]: first as often as each says, then
// first+1 as often, and so on, times numbers in all. Ranks that fill 10,000 hosts are one block.
type Numbers []uint32

// numbersMax bounds what a few bytes may say.
const numbersMax = 1 << 24

// EncodeMsgpack is msgpack's.
func (s Numbers) EncodeMsgpack(e *msgpack.Encoder) error {
	var blocks []uint32 // in threes
	for i := 0; i < len(s); {
		first, each := s[i], uint32(0)
		for ; i < len(s) && s[i] == first; i++ {
			each++
		}
		if n := len(blocks); n > 0 && blocks[n-2] == each && blocks[n-3]+blocks[n-1] == first {
			blocks[n-1]++
		} else {
			blocks = append(blocks, first, each, 1)
		}
	}
	return e.Encode(blocks)
}

// DecodeMsgpack is msgpack's.
func (s *Numbers) DecodeMsgpack(d *msgpack.Decoder) error {
	var blocks []uint32
	if err := d.Decode(&blocks); err != nil {
		return err
	}
	*s = nil
	for ; len(blocks) > 0; blocks = blocks[3:] {
		if len(blocks) < 3 || uint64(blocks[1])*uint64(blocks[2]) > uint64(numbersMax-len(*s)) {
			return fmt.Errorf("numbers of ranks: want blocks of three, and at most %d numbers in all", numbersMax)
		}
		if blocks[1] == 0 {
			continue
		}
		for i := range blocks[2] {
			*s = append(*s, slices.Repeat(Numbers{blocks[0] + i}, int(blocks[1]))...)
		}
	}
	return nil
}

// Names are of hosts. On the wire a name is itself, and names that count up, as node08, node09, node10, are one range.
type Names []string

// A nameRange is Count names: Prefix, a number of at least Digits digits that begins with First, Suffix.
type nameRange struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // package msgpack reads its tag
	Prefix   string
	First    uint64
	Digits   int
	Suffix   string
	Count    int
}

func (r *nameRange) at(i int) string {
	text := strconv.FormatUint(r.First+uint64(i), 10)
	return r.Prefix + strings.Repeat("0", max(0, r.Digits-len(text))) + text + r.Suffix
}

// Bounds of what a few bytes may say.
const (
	digitsMax    = 18
	nameBytesMax = 1 << 28
)

// rangeOf is the range that two names begin, if they do.
func rangeOf(a, b string) (r nameRange, ok bool) {
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	from := 0
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	for from > 0 && digit(a[from-1]) {
		from--
	}
	to := from
	for to < len(a) && digit(a[to]) {
		to++
	}
	if to == from || to-from > digitsMax {
		return r, false
	}
	r = nameRange{Prefix: a[:from], Digits: to - from, Suffix: a[to:], Count: 2}
	r.First, _ = strconv.ParseUint(a[from:to], 10, 64)
	return r, r.at(1) == b
}

// EncodeMsgpack is msgpack's.
func (s Names) EncodeMsgpack(e *msgpack.Encoder) error {
	var out []any
	for i := 0; i < len(s); {
		if i+1 < len(s) {
			if r, ok := rangeOf(s[i], s[i+1]); ok {
				for i+r.Count < len(s) && r.at(r.Count) == s[i+r.Count] {
					r.Count++
				}
				out = append(out, &r)
				i += r.Count
				continue
			}
		}
		out = append(out, s[i])
		i++
	}
	return e.Encode(out)
}

// DecodeMsgpack is msgpack's.
func (s *Names) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	*s = nil
	bytes := 0
	for range n {
		code, err := d.PeekCode()
		if err != nil {
			return err
		}
		if msgpcode.IsString(code) {
			name, err := d.DecodeString()
			if err != nil {
				return err
			}
			*s = append(*s, name)
			continue
		}
		var r nameRange
		if err := d.Decode(&r); err != nil {
			return err
		}
		if r.Count < 0 || r.Count > numbersMax-len(*s) || r.Digits < 0 || r.Digits > digitsMax {
			return fmt.Errorf("names of hosts: a range of %d names with %d digits, at most %d and %d are allowed", r.Count, r.Digits, numbersMax, digitsMax)
		}
		if bytes += r.Count * (len(r.Prefix) + digitsMax + 2 + len(r.Suffix)); bytes > nameBytesMax {
			return fmt.Errorf("names of hosts: more than %d bytes", nameBytesMax)
		}
		for i := range r.Count {
			*s = append(*s, r.at(i))
		}
	}
	return nil
}
