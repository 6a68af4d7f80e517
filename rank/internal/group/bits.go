package group

// Bits is a set of indices of members. nil is the empty set.
type Bits []byte

// Has tells whether an index is in the set.
func (b Bits) Has(index int) bool { return index>>3 < len(b) && b[index>>3]>>(index&7)&1 != 0 }

// With is the set with one more index below n, in the same memory unless that was empty.
func (b Bits) With(index, n int) Bits {
	if b == nil {
		b = make(Bits, (n+7)/8)
	}
	b[index>>3] |= 1 << (index & 7)
	return b
}
