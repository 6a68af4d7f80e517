package datatype

// overlapMost is the longest range of bytes that is searched for overlaps byte by
// byte: the search takes a bit for each.
const overlapMost = 1 << 28

// Overlaps tells whether two pieces of data of count items share a byte, which no
// buffer of a receive may do. Where items or their parts are interleaved it looks at
// each byte, once for a type: what was found is remembered. Interleaved data over
// more than 256 MiB is taken to be good.
func (t *Type) Overlaps(count int) bool {
	if t.size == 0 || count == 0 {
		return false
	}
	if int64(count) <= t.disjoint.Load() {
		return false
	}
	if n := t.overlapping.Load(); n > 0 && int64(count) >= n {
		return true
	}
	over := t.overlaps(count)
	// Another goroutine may find out about another count meanwhile; either is true.
	if over {
		t.overlapping.Store(int64(count))
	} else {
		t.disjoint.Store(int64(count))
	}
	return over
}

func (t *Type) overlaps(count int) bool {
	if t.shape.apart() && (count == 1 || int(magnitude(t.ub-t.lb)) >= t.trueUB-t.trueLB) {
		return false
	}
	lo, hi, ok := t.Span(count)
	if !ok || hi-lo > overlapMost {
		return false
	}
	if hi-lo < count*t.size {
		return true
	}
	seen := make([]uint64, (hi-lo+63)/64)
	for i := range count {
		if t.shape.mark(seen, i*(t.ub-t.lb)-lo) {
			return true
		}
	}
	return false
}

// hull is the range that a node's data lies in.
func (n *node) hull() (lo, hi int) {
	lo, hi = 0, n.step
	for i := range n.parts {
		l, h := n.parts[i].hull()
		if i == 0 {
			lo, hi = l, h
		}
		lo, hi = min(lo, l), max(hi, h)
	}
	last := (n.count - 1) * n.stride
	return n.off + lo + min(0, last), n.off + hi + max(0, last)
}

// apart tells whether it is plain that a node does not overlap itself: steps and
// parts follow one another, upwards.
func (n *node) apart() bool {
	width := n.step
	if n.parts != nil {
		first, end := 0, 0
		for i := range n.parts {
			lo, hi := n.parts[i].hull()
			if i > 0 && lo < end || !n.parts[i].apart() {
				return false
			}
			if i == 0 {
				first = lo
			}
			end = hi
		}
		width = end - first
	}
	return n.count == 1 || int(magnitude(n.stride)) >= width
}

// mark sets the bits of a node's bytes; true: one was set already.
func (n *node) mark(seen []uint64, base int) bool {
	base += n.off
	for range n.count {
		for i := range n.parts {
			if n.parts[i].mark(seen, base) {
				return true
			}
		}
		if n.parts == nil {
			for b := base; b < base+n.step; b++ {
				if seen[b/64]&(1<<(b%64)) != 0 {
					return true
				}
				seen[b/64] |= 1 << (b % 64)
			}
		}
		base += n.stride
	}
	return false
}
