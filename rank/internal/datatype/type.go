package datatype

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
)

// ErrTooLarge says that a type would be larger than any memory.
var ErrTooLarge = errors.New("the type is too large")

// A Type is a type map with bounds.
type Type struct {
	name string
	size int // of the data, in bytes
	bounds
	align int // the strictest of its basic types, 0 when there are none
	shape node
	order sequence
	solid bool

	// What is known of overlaps: this many items have none, this many have
	// one; 0: not known.
	disjoint, overlapping atomic.Int64
}

// Bounds are in bytes from an item's origin. Items follow one another at the extent,
// ub - lb. The true ones are those of the data alone.
type bounds struct {
	lb, ub         int
	trueLB, trueUB int
	// marked: lb and ub were set by Resized, and outweigh those of types that
	// stand beside this one in a larger type.
	marked bool
	// some: there is data or a mark; otherwise all bounds are 0 and mean nothing.
	// data: there is data; otherwise the true ones mean nothing.
	some, data bool
}

// String describes the type as its constructor was called.
func (t *Type) String() string { return t.name }

// Size is how many bytes of data an item has.
func (t *Type) Size() int { return t.size }

// Extent is the lower bound of an item and the distance from one to the next.
func (t *Type) Extent() (lb, extent int) { return t.lb, t.ub - t.lb }

// TrueExtent is the lower bound and the length of the smallest range that holds the
// data of an item.
func (t *Type) TrueExtent() (lb, extent int) {
	if !t.data {
		return 0, 0
	}
	return t.trueLB, t.trueUB - t.trueLB
}

// Solid tells whether any number of items is one run of bytes from the origin on.
func (t *Type) Solid() bool { return t.solid }

// Span is the range of bytes, from the first item's origin, that count items touch;
// ok is false when that is no number.
func (t *Type) Span(count int) (lo, hi int, ok bool) {
	if count == 0 || t.size == 0 {
		return 0, 0, true
	}
	last, ok := mul(count-1, t.ub-t.lb)
	return t.trueLB + min(0, last), t.trueUB + max(0, last), ok
}

// limit bounds all numbers of a type, so that sums of a few do not overflow.
const limit = 1 << 56

// mul is a*b; false when it is beyond the limit.
func mul(a, b int) (int, bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 || lo > limit {
		return 0, false
	}
	return a * b, true
}

func magnitude(a int) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

// A block is a part of a type under construction: count items of a type, the first
// at a displacement in bytes.
type block struct {
	at, count int
	t         *Type
}

// build makes a type of blocks. Each block is at its own place, and only those with
// data or marks say something about the bounds.
func build(name string, blocks []block) (*Type, error) {
	t := &Type{name: name}
	nodes := make([]node, 0, len(blocks))
	orders := make([]sequence, 0, len(blocks))
	for _, b := range blocks {
		size, ok := mul(b.count, b.t.size)
		if !ok || t.size+size > limit {
			return nil, ErrTooLarge
		}
		if b.count == 0 || !b.t.some {
			continue
		}
		if err := t.bounds.add(b); err != nil {
			return nil, err
		}
		t.size += size
		t.align = max(t.align, b.t.align)
		if size > 0 {
			n := b.t.shape.repeat(b.count, b.t.ub-b.t.lb)
			n.off += b.at
			nodes = append(nodes, n)
			orders = append(orders, b.t.order.repeat(b.count))
		}
	}
	t.shape, t.order = list(nodes), inOrder(orders)
	t.settle()
	return t, nil
}

// add widens bounds by those of a block.
func (s *bounds) add(b block) error {
	last, ok := mul(b.count-1, b.t.ub-b.t.lb)
	if !ok || magnitude(b.at) > limit {
		return ErrTooLarge
	}
	before, after := b.at+min(0, last), b.at+max(0, last)
	n := bounds{lb: before + b.t.lb, ub: after + b.t.ub, trueLB: before + b.t.trueLB, trueUB: after + b.t.trueUB, marked: b.t.marked, some: true, data: b.t.data}
	if magnitude(n.lb) > limit || magnitude(n.ub) > limit || magnitude(n.trueLB) > limit || magnitude(n.trueUB) > limit {
		return ErrTooLarge
	}
	switch {
	case !s.some:
		*s = n
		return nil
	case n.marked && !s.marked:
		s.lb, s.ub, s.marked = n.lb, n.ub, true
	case n.marked == s.marked:
		s.lb, s.ub = min(s.lb, n.lb), max(s.ub, n.ub)
	}
	switch {
	case n.data && !s.data:
		s.trueLB, s.trueUB, s.data = n.trueLB, n.trueUB, true
	case n.data:
		s.trueLB, s.trueUB = min(s.trueLB, n.trueLB), max(s.trueUB, n.trueUB)
	}
	return nil
}

// settle works out what follows from the rest.
func (t *Type) settle() {
	s := &t.shape
	t.solid = t.ub-t.lb == t.size && (t.size == 0 || s.parts == nil && s.count == 1 && s.off == 0)
}

// inner is a type's name inside another's.
func inner(t *Type) string {
	const most = 60
	if len(t.name) > most {
		return t.name[:most] + "..."
	}
	return t.name
}

func negative(what string, n int) error { return fmt.Errorf("%s is %d, which is negative", what, n) }
