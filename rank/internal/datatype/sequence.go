package datatype

import "math/bits"

// A sequence is the basic types of a type map in their order: count times one basic
// type, or the parts one after the other. The signature of a type is the sequence
// without its structure.
type sequence struct {
	count    int
	basic    Basic
	parts    []sequence // nil: basic
	size     int        // bytes of one of the count
	elements int        // basic types in one of the count
	hash     uint64     // of all, see Signature
}

// A Signature stands for the sequence of basic types of some items. Equal sequences
// have equal signatures, however their types were built; different ones have
// different signatures but for a chance of less than elements in 2^60.
type Signature struct {
	Elements int    // basic types
	Hash     uint64 // a polynomial of them modulo 2^61 - 1
}

// Signature is that of count items.
func (t *Type) Signature(count int) Signature {
	if t.size == 0 || count == 0 {
		return Signature{}
	}
	n := t.order.count * t.order.elements
	return Signature{n * count, hashRepeat(t.order.hash, n, count)}
}

// Uniform tells the basic type, and how many there are in an item, when there is
// only one.
func (t *Type) Uniform() (b Basic, n int, ok bool) {
	return t.order.basic, t.order.count, t.order.parts == nil && t.size > 0
}

// Mark tells in a message of what basic type it is, 0: of several, or of bytes, which match all. [MarkName] is
// its name.
func (t *Type) Mark() uint8 {
	if t.order.parts != nil || t.size == 0 || t.order.basic == Uint8 {
		return 0
	}
	return uint8(t.order.basic) + 1
}

// MarkName is the name of a mark that may have come from anywhere.
func MarkName(mark uint8) string {
	if mark == 0 || mark > uint8(basics) {
		return "bytes"
	}
	return Basic(mark - 1).String()
}

// Elements is how many whole basic types the first n bytes of packed items hold;
// false when the last is not whole (MPI_Get_elements).
func (t *Type) Elements(n int) (elements int, whole bool) {
	if t.size == 0 {
		return 0, n == 0
	}
	items := n / t.size
	part, whole := t.order.in(n % t.size)
	return items*t.order.count*t.order.elements + part, whole
}

// in counts the basic types in the first n bytes of a sequence.
func (s *sequence) in(n int) (elements int, whole bool) {
	if s.size == 0 {
		return 0, n == 0
	}
	steps := min(n/s.size, s.count)
	n -= steps * s.size
	elements = steps * s.elements
	for i := range s.parts {
		p := &s.parts[i]
		if n == 0 {
			break
		}
		took, whole := p.in(min(n, p.count*p.size))
		elements += took
		n -= min(n, p.count*p.size)
		if !whole {
			return elements, false
		}
	}
	return elements, n == 0
}

// repeat is the sequence count times.
func (s sequence) repeat(count int) sequence {
	n := s.count * s.elements
	hash := hashRepeat(s.hash, n, count)
	if s.parts == nil || s.count == 1 {
		s.count *= count
		s.hash = hash
		return s
	}
	return sequence{count: count, parts: []sequence{s}, size: s.count * s.size, elements: n, hash: hash}
}

// inOrder is sequences one after the other, none of them empty.
func inOrder(list []sequence) sequence {
	var parts []sequence
	var all sequence
	for _, s := range list {
		all.hash = hashJoin(all.hash, s.hash, s.count*s.elements)
		all.elements += s.count * s.elements
		all.size += s.count * s.size
		if len(parts) > 0 {
			if last := &parts[len(parts)-1]; last.parts == nil && s.parts == nil && last.basic == s.basic {
				last.hash = hashJoin(last.hash, s.hash, s.count)
				last.count += s.count
				continue
			}
		}
		parts = append(parts, s)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	all.count, all.parts = 1, parts
	return all
}

// The hash of a sequence b1 ... bn is the sum of code(bi) * base^(n-i) modulo the
// Mersenne prime 2^61 - 1, so that the hash of a repetition takes its logarithm in
// steps.
const (
	hashPrime = 1<<61 - 1
	hashBase  = 0x1234567890abcdef % hashPrime
)

func basicHash(b Basic) uint64 { return uint64(b) + 1 }

func hashMul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	// a*b = hi*2^64 + lo, and 2^61 is 1.
	return hashAdd(lo&hashPrime, hi<<3|lo>>61)
}

func hashAdd(a, b uint64) uint64 {
	s := a + b
	s = s&hashPrime + s>>61
	if s >= hashPrime {
		s -= hashPrime
	}
	return s
}

func hashPower(n int) uint64 {
	r, b := uint64(1), uint64(hashBase)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			r = hashMul(r, b)
		}
		b = hashMul(b, b)
	}
	return r
}

// hashJoin is the hash of a sequence with hash a and then one with hash b and n elements.
func hashJoin(a, b uint64, n int) uint64 { return hashAdd(hashMul(a, hashPower(n)), b) }

// hashRepeat is the hash of a sequence of n elements, count times.
func hashRepeat(hash uint64, n, count int) uint64 {
	r := uint64(0)
	for ; count > 0; count >>= 1 {
		if count&1 == 1 {
			r = hashJoin(r, hash, n)
		}
		hash = hashJoin(hash, hash, n)
		n *= 2
	}
	return r
}
