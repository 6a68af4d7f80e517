//go:build cgo && linux

package main

// A handle is a number of 31 bits, so that it is its own int for Fortran: what kind of object it names, how often the
// place was given before, and the place in the kind's table. Handles of the ABI's own objects are below 0x400.
const (
	placeBits = 20
	lifeBits  = 7
	places    = 1 << placeBits
	lives     = 1 << lifeBits
)

// The kinds, in a handle's upper bits.
const (
	kindComm = iota + 1
	kindGroup
	kindType
	kindOp
	kindRequest
	kindMessage
	kindInfo
	kindErrhandler
	kindKeyval
	kindWindow
	kindFile
	kindSession
)

// A table has the objects of a kind. Places are given again in the order in which they became free, and only when there are
// many: so a handle that was kept too long is found out for long.
type table[T any] struct {
	kind        uintptr
	slots       []*slot[T]
	first, last int // free places, linked; -1: none
	free        int
}

type slot[T any] struct {
	handle uintptr // 0: free
	life   uintptr
	next   int
	value  T
}

// freeMost is how many places are free before one is given again.
const freeMost = 64

func newTable[T any](kind uintptr) *table[T] { return &table[T]{kind: kind, first: -1, last: -1} }

// enter gives a handle and room for its object, as the last object in it left that.
func (t *table[T]) enter() (uintptr, *T) {
	i := len(t.slots)
	if t.free > freeMost || i == places {
		if t.free == 0 {
			abort(1, "libmpi_abi.so.1 of gorun: the program has a million objects of one kind, and makes another")
		}
		i = t.first
		t.first = t.slots[i].next
		t.free--
	} else {
		t.slots = append(t.slots, &slot[T]{})
	}
	s := t.slots[i]
	s.life = (s.life + 1) % lives
	s.handle = t.kind<<(placeBits+lifeBits) | s.life<<placeBits | uintptr(i)
	return s.handle, &s.value
}

// find is the object of a handle, nil for none.
func (t *table[T]) find(h uintptr) *T {
	i := h & (places - 1)
	if i >= uintptr(len(t.slots)) || t.slots[i].handle != h || h == 0 {
		return nil
	}
	return &t.slots[i].value
}

// leave makes a handle invalid.
func (t *table[T]) leave(h uintptr) {
	i := int(h & (places - 1))
	s := t.slots[i]
	s.handle, s.next = 0, -1
	if t.free == 0 {
		t.first = i
	} else {
		t.slots[t.last].next = i
	}
	t.last = i
	t.free++
}
