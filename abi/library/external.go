//go:build cgo && linux

package main

import "encoding/binary"

// The representation external32: items without gaps, numbers with the high byte first, and in MPI's table of sizes.

// A part is a number of a named type: its sizes in memory and in external32.
type part struct {
	native, external int
	how              conversion
}

type conversion int

const (
	turned   conversion = iota // the same bytes in reverse
	signed                     // an integer with fewer bytes
	unsigned                   // one without a sign
	extended                   // x87's long double, as IEEE's of 128 bits
)

// oddParts are those of the types that are not one number with the same bytes in reverse.
var oddParts = map[uintptr][]part{
	c_LONG: {{8, 4, signed}}, c_UNSIGNED_LONG: {{8, 4, unsigned}}, c_WCHAR: {{4, 2, unsigned}}, c_LONG_DOUBLE: {{16, 16, extended}},
	c_C_FLOAT_COMPLEX: plain(4, 4), c_CXX_FLOAT_COMPLEX: plain(4, 4), c_COMPLEX: plain(4, 4), c_COMPLEX8: plain(4, 4),
	c_C_DOUBLE_COMPLEX: plain(8, 8), c_CXX_DOUBLE_COMPLEX: plain(8, 8), c_DOUBLE_COMPLEX: plain(8, 8), c_COMPLEX16: plain(8, 8), c_COMPLEX32: plain(16, 16),
	c_C_LONG_DOUBLE_COMPLEX: {{16, 16, extended}, {16, 16, extended}}, c_CXX_LONG_DOUBLE_COMPLEX: {{16, 16, extended}, {16, 16, extended}},
	c_FLOAT_INT: plain(4, 4), c_DOUBLE_INT: plain(8, 4), c_2INT: plain(4, 4), c_SHORT_INT: plain(2, 4), c_2INTEGER: plain(4, 4), c_2REAL: plain(4, 4), c_2DOUBLE_PRECISION: plain(8, 8),
	c_LONG_INT: {{8, 4, signed}, {4, 4, turned}}, c_LONG_DOUBLE_INT: {{16, 16, extended}, {4, 4, turned}},
}

func plain(sizes ...int) (list []part) {
	for _, n := range sizes {
		list = append(list, part{native: n, external: n})
	}
	return list
}

// partsOf are those of a named type.
func partsOf(h uintptr, size int) []part {
	if odd, ok := oddParts[h]; ok {
		return odd
	}
	return plain(size)
}

// each calls do for the types that a made one consists of, in their order, with how many of each. A structure's are told
// apart; else items of one type follow each other, wherever they lie.
func (t *datatype) each(do func(of *datatype, n int) error) error {
	for i, of := range t.made.types {
		n := 0
		if t.made.combiner == c_COMBINER_STRUCT {
			n = t.made.ints[1+i]
		} else if of.size > 0 {
			n = t.size / of.size
		}
		if err := do(of, n); err != nil {
			return err
		}
	}
	return nil
}

// externalSize is an item's size in external32.
func (t *datatype) externalSize() (size int) {
	for _, p := range t.parts {
		size += p.external
	}
	_ = t.each(func(of *datatype, n int) error { size += n * of.externalSize(); return nil })
	return size
}

// portable converts packed items, from memory's representation or into it.
type portable struct {
	out              bool
	native, external []byte // what is left of each
}

func (p *portable) items(t *datatype, n int) error {
	for range n {
		for _, q := range t.parts {
			if len(p.native) < q.native || len(p.external) < q.external {
				return wrong(c_ERR_TRUNCATE, "the packed data ends in the middle of an item")
			}
			if err := q.convert(p.native[:q.native], p.external[:q.external], p.out); err != nil {
				return err
			}
			p.native, p.external = p.native[q.native:], p.external[q.external:]
		}
		if err := t.each(p.items); err != nil {
			return err
		}
	}
	return nil
}

func (q part) convert(native, external []byte, out bool) error {
	switch {
	case q.how == extended && out:
		toQuad(external, native)
	case q.how == extended:
		fromQuad(native, external)
	case out:
		for i := range external {
			external[len(external)-1-i] = native[i]
		}
		return q.fits(native, external)
	default:
		fill := byte(0)
		if q.how == signed && external[0]&0x80 != 0 {
			fill = 0xff
		}
		for i := range native {
			if native[i] = fill; i < len(external) {
				native[i] = external[len(external)-1-i]
			}
		}
	}
	return nil
}

// fits is an error for an integer of which bytes were left out that are not those of its sign.
func (q part) fits(native, external []byte) error {
	fill := byte(0)
	if q.how == signed && external[0]&0x80 != 0 {
		fill = 0xff
	}
	for _, b := range native[len(external):] {
		if b != fill {
			return wrong(c_ERR_CONVERSION, "an integer of %d bytes does not fit into the %d that external32 has for its type", len(native), len(external))
		}
	}
	return nil
}

// toQuad widens the fraction of 63 bits to 112; the leading one is not written.
func toQuad(quad, x87 []byte) {
	fraction := binary.LittleEndian.Uint64(x87) << 1
	binary.BigEndian.PutUint64(quad, uint64(binary.LittleEndian.Uint16(x87[8:]))<<48|fraction>>16)
	binary.BigEndian.PutUint64(quad[8:], fraction<<48)
}

// fromQuad rounds to the nearest, of two to the even one.
func fromQuad(x87, quad []byte) {
	const rest, half = 1<<49 - 1, 1 << 48
	high, low := binary.BigEndian.Uint64(quad), binary.BigEndian.Uint64(quad[8:])
	exponent, fraction := uint16(high>>48), high<<16>>1|low>>49
	switch left := low & rest; {
	case exponent&0x7fff == 0x7fff: // infinite, or no number, which it stays
		if left != 0 {
			fraction |= 1 << 62
		}
	case left > half || left == half && fraction&1 == 1:
		if fraction++; fraction>>63 == 1 {
			fraction = 0
			exponent++
		}
	}
	if exponent&0x7fff != 0 {
		fraction |= 1 << 63
	}
	clear(x87)
	binary.LittleEndian.PutUint64(x87, fraction)
	binary.LittleEndian.PutUint16(x87[8:], exponent)
}

// gather copies the data of items together; scatter is its reverse, as far as there are bytes.
func (m flat) gather(to []byte) {
	_ = m.t.Runs(0, len(to), func(off, n int) error {
		copy(to, memory(address(m.at)+uintptr(off), n))
		to = to[n:]
		return nil
	})
}

func (m flat) scatter(from []byte) {
	_ = m.t.Runs(0, len(from), func(off, n int) error {
		copy(memory(address(m.at)+uintptr(off), n), from)
		from = from[n:]
		return nil
	})
}

// externalOf is an error for the name of another representation than external32.
func externalOf(rep ptr) error {
	if name := text(rep); name != "external32" {
		return wrong(c_ERR_UNSUPPORTED_DATAREP, "the data representation is %q: expected external32", name)
	}
	return nil
}

func mpiPackExternal(f *frame, rep, from ptr, count int, t *datatype, to ptr, room int, position ptr) error {
	m := flat{from, count, t}
	where, size, err := m.externally(rep, to, room, position)
	if err != nil {
		return err
	}
	p := portable{out: true, native: make([]byte, count*t.size), external: memory(address(to), room)[where : where+size]}
	m.gather(p.native)
	if err := p.items(t, count); err != nil {
		return err
	}
	f.putLong(position, where+size)
	return nil
}

func mpiUnpackExternal(f *frame, rep, from ptr, room int, position, to ptr, count int, t *datatype) error {
	m := flat{to, count, t}
	where, size, err := m.externally(rep, from, room, position)
	if err != nil {
		return err
	}
	stage := make([]byte, count*t.size)
	p := portable{native: stage, external: memory(address(from), room)[where : where+size]}
	if err := p.items(t, count); err != nil {
		return err
	}
	m.scatter(stage)
	f.putLong(position, where+size)
	return nil
}

// externally checks the arguments of packing, and gives where the packed data begins, and its bytes.
func (m flat) externally(rep, at ptr, room int, position ptr) (where, size int, err error) {
	if err = externalOf(rep); err != nil {
		return 0, 0, err
	}
	if _, err = operand(m.at, m.count, m.t, false); err != nil {
		return 0, 0, err
	}
	start := longsAt(position, 1)
	size = m.count * m.t.externalSize()
	switch {
	case start == nil:
		return 0, 0, errNull
	case room < 0:
		return 0, 0, wrong(c_ERR_ARG, "the size is %d", room)
	case at == nil && room > 0:
		return 0, 0, wrong(c_ERR_BUFFER, "the packed data is at NULL")
	case start[0] < 0 || int(start[0]) > room:
		return 0, 0, wrong(c_ERR_ARG, "the position is %d in %d bytes", start[0], room)
	case size > room-int(start[0]):
		return 0, 0, wrong(c_ERR_TRUNCATE, "%d bytes from byte %d on in a buffer of %d", size, start[0], room)
	}
	return int(start[0]), size, nil
}

func mpiPackExternalSize(f *frame, rep ptr, count int, t *datatype, to ptr) error {
	if err := externalOf(rep); err != nil {
		return err
	}
	if count < 0 {
		return wrong(c_ERR_COUNT, "the count is %d: expected 0 or more", count)
	}
	f.putLong(to, count*t.externalSize())
	return nil
}
