package rank_test

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
)

// The suite of collectives works on values of two words, in memory of many layouts.
// A layout of one word drops the second.

// A value is one item of an operand.
type value [2]uint32

// valueOf is the value that rank who has for a place, different for all of them.
func valueOf(who, block, i, round int) value {
	x := uint64(who+1)*0x9e3779b97f4a7c15 ^ uint64(block+1)*0xbf58476d1ce4e5b9 ^ uint64(i+1)*0x94d049bb133111eb ^ uint64(round+1)<<48
	x ^= x >> 29
	x *= 0xd6e8feb86659fd93
	return value{uint32(x >> 32), uint32(x)}
}

// A vec is an operand: items of a layout.
type vec struct {
	buf   rank.Buffer
	words []uint32 // of layout word: what the functions over slices take
	set   func(i int, v value)
	get   func(i int) value
	gaps  func() error // says whether what lies between the data was changed
}

// A layout makes operands of n items. pad is what comes behind them in memory.
type layout struct {
	name string
	keep func(value) value // what of a value it holds
	make func(c *rank.Comm, n int, registered bool) (*vec, error)
}

// memory is ordinary or registered.
func memory[T any](c *rank.Comm, n int, registered bool) ([]T, error) {
	if registered {
		return rank.Alloc[T](c, n)
	}
	return make([]T, n), nil
}

func both(v value) value  { return v }
func first(v value) value { return value{v[0], 0} }

// padded has gaps that the compiler made.
type padded struct {
	Check uint8
	A     uint32
	Short uint16
	B     uint32
	Flag  bool
}

func padOf(v value) padded {
	return padded{uint8(v[0] ^ v[1]), v[0], uint16(v[0] + v[1]), v[1], v[0]&1 != 0}
}

func (p padded) value() value {
	v := value{p.A, p.B}
	if padOf(v) != p {
		return value{0xdead, uint32(p.Short)}
	}
	return v
}

const canary = 0xc0ffee

var (
	word = layout{"word", first, func(c *rank.Comm, n int, registered bool) (*vec, error) {
		s, err := memory[uint32](c, n, registered)
		return &vec{buf: rank.Of(s), words: s,
			set: func(i int, v value) { s[i] = v[0] }, get: func(i int) value { return value{s[i], 0} }}, err
	}}
	array = layout{"array", both, func(c *rank.Comm, n int, registered bool) (*vec, error) {
		s, err := memory[value](c, n, registered)
		return &vec{buf: rank.Of(s), set: func(i int, v value) { s[i] = v }, get: func(i int) value { return s[i] }}, err
	}}
	structs = layout{"struct", both, func(c *rank.Comm, n int, registered bool) (*vec, error) {
		s, err := memory[padded](c, n, registered)
		return &vec{buf: rank.Of(s), set: func(i int, v value) { s[i] = padOf(v) }, get: func(i int) value { return s[i].value() }}, err
	}}
	// Items of two words with a gap between them and one behind.
	gaps = layout{"gaps", both, func(c *rank.Comm, n int, registered bool) (*vec, error) {
		s, err := memory[uint32](c, 4*n, registered)
		if err != nil {
			return nil, err
		}
		t, err := spaced(2, 2, 16)
		for i := range s {
			s[i] = canary
		}
		return &vec{buf: rank.Typed(s, n, t),
			set: func(i int, v value) { s[4*i], s[4*i+2] = v[0], v[1] },
			get: func(i int) value { return value{s[4*i], s[4*i+2]} },
			gaps: func() error {
				for i := 1; i < len(s); i += 2 {
					if s[i] != canary {
						return fmt.Errorf("word %d, in a gap, is %d now", i, s[i])
					}
				}
				return nil
			}}, err
	}}
	// Columns: the first words of all items, and then the second ones.
	columns = layout{"columns", both, func(c *rank.Comm, n int, registered bool) (*vec, error) {
		s, err := memory[uint32](c, 2*n, registered)
		if err != nil {
			return nil, err
		}
		t, err := spaced(2, max(n, 1), 4)
		return &vec{buf: rank.Typed(s, n, t),
			set: func(i int, v value) { s[i], s[n+i] = v[0], v[1] }, get: func(i int) value { return value{s[i], s[n+i]} }}, err
	}}
	// Items of a type whose first byte is not the first in memory.
	backwards = layout{"backwards", both, func(c *rank.Comm, n int, registered bool) (*vec, error) {
		s, err := memory[uint32](c, 2*n, registered)
		if err != nil {
			return nil, err
		}
		u, err := rank.TypeFor[uint32]()
		if err != nil {
			return nil, err
		}
		t, err := rank.Indexed([]int{1, 1}, []int{1, 0}, u)
		return &vec{buf: rank.Typed(s, n, t),
			set: func(i int, v value) { s[2*i+1], s[2*i] = v[0], v[1] }, get: func(i int) value { return value{s[2*i+1], s[2*i]} }}, err
	}}
	layouts = []layout{word, structs, gaps, columns, backwards, array}
)

// spaced is count words, stride words apart, in an extent of bytes.
func spaced(count, stride, extent int) (*rank.Datatype, error) {
	u, err := rank.TypeFor[uint32]()
	if err != nil {
		return nil, err
	}
	t, err := rank.Vector(count, 1, stride, u)
	if err != nil {
		return nil, err
	}
	return rank.Resized(t, 0, extent)
}

// An operation is an Op and what it should do.
type operation struct {
	op      rank.Op
	combine func(a, b value) value
}

// after is b after a, two affine maps x -> v[0]*x + v[1]: associative, and the order
// matters.
func after(a, b value) value { return value{b[0] * a[0], b[0]*a[1] + b[1]} }

func plus(a, b value) value { return value{a[0] + b[0], a[1] + b[1]} }

// A numeric is a layout whose items can be combined.
type numeric struct {
	layout
	operation
}

var numerics = []numeric{
	{word, operation{rank.Sum, plus}},
	{word, operation{rank.OpFunc("join", true, func(dst, a, b []uint32) {
		for i := range dst {
			dst[i] = a[i] | b[i]
		}
	}), func(a, b value) value { return value{a[0] | b[0], a[1] | b[1]} }}},
	{gaps, operation{rank.Sum, plus}},
	{columns, operation{rank.Max, func(a, b value) value { return value{max(a[0], b[0]), max(a[1], b[1])} }}},
	{backwards, operation{rank.BXor, func(a, b value) value { return value{a[0] ^ b[0], a[1] ^ b[1]} }}},
	{array, operation{rank.OpFunc("after", false, func(dst, a, b []value) {
		for i := range dst {
			dst[i] = after(a[i], b[i])
		}
	}), after}},
	{structs, operation{rank.OpFunc("padded after", false, func(dst, a, b []padded) {
		for i := range dst {
			dst[i] = padOf(after(a[i].value(), b[i].value()))
		}
	}), after}},
}
