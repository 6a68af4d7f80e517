package rank

import (
	"math/bits"
	"reflect"

	"github.com/gorun-mpi/gorun/rank/internal/datatype"
)

// A Buffer is memory as a call takes it: address, count and datatype, as MPI's three arguments. [Of]
// and [Typed] make it; the zero Buffer is empty. A mistake in it is reported by the call that takes it.
type Buffer struct {
	mem   []byte // from the origin of the first item on
	count int
	elem  reflect.Type // what the memory is made of
	t     *Datatype    // nil: elem's, to be found out
	typed bool         // t was given
	in    bool         // InPlace
}

// InPlace as the send operand of a collective says that the data is
// already in the receive operand (MPI_IN_PLACE).
var InPlace = Buffer{in: true}

// Of is a Buffer of all elements of s. Padding inside structs is not sent.
func Of[T Element](s []T) (b Buffer) {
	hold(&b, s)
	return b
}

// hold makes the zero b a buffer of all of s, where it lies: see [Comm.status].
func hold[T Element](b *Buffer, s []T) {
	b.mem, b.count, b.elem = bytesOf(s), len(s), reflect.TypeFor[T]()
}

// Typed is a Buffer of count items of type t, with the origin of the first at s[0]. All their data must
// lie in s. A type with data before its origin has to be moved forward first, with [HindexedBlock].
func Typed[T Element](s []T, count int, t *Datatype) Buffer {
	return Buffer{mem: bytesOf(s), count: count, elem: reflect.TypeFor[T](), t: t, typed: true}
}

// set is *b = *from, a word at a time: see [Comm.status].
func (b *Buffer) set(from *Buffer) {
	b.mem, b.count, b.elem, b.t, b.typed, b.in = from.mem, from.count, from.elem, from.t, from.typed, from.in
}

// A use is what a call does with a buffer.
type use uint8

const (
	toRead use = iota
	toWrite
)

// mostData bounds the bytes of a buffer's data. Items that overlap may claim any
// number of them, and are packed for sending.
const mostData = 1 << 40

// check finds the type of a buffer's items and makes sure that all its data lies in
// its memory, and once only where it is to be written. Afterwards core is not nil.
func (b *Buffer) check(w *World, u use) (err error) {
	if b.elem == nil {
		if b.in {
			return badClass(ClassBuffer, "InPlace was passed where a buffer is expected")
		}
		b.t = plainTypes[reflect.Uint8] // the zero Buffer
		return nil
	}
	own, err := w.elements.of(b.elem)
	switch {
	case err != nil:
		return err
	case !b.typed:
		b.t = own
		return nil // all of a slice lies in it, and once
	case b.t == nil:
		return errNoType
	}
	if b.count < 0 {
		return badClass(ClassCount, "%d items: expected 0 or more", b.count)
	}
	if over, size := bits.Mul64(uint64(b.count), uint64(b.t.core.Size())); over != 0 || size > mostData {
		return badClass(ClassCount, "%d items of %v do not fit into memory", b.count, b.t)
	}
	lo, hi, ok := b.t.core.Span(b.count)
	if !ok || lo < 0 || hi > len(b.mem) {
		return badClass(ClassBuffer, "%d items of %v reach from byte %d to %d of a slice of %d bytes", b.count, b.t, lo, hi, len(b.mem))
	}
	if u == toWrite && b.t.core.Overlaps(b.count) {
		return badClass(ClassBuffer, "%d items of %v overlap each other, so they cannot be written", b.count, b.t)
	}
	return nil
}

// core is the type map.
func (b *Buffer) core() *datatype.Type { return b.t.core }

// size is how many bytes of data the buffer holds.
func (b *Buffer) size() int { return b.count * b.t.core.Size() }

// solid tells whether the data is one run of bytes: then bytes gives it.
func (b *Buffer) solid() bool { return b.t.core.Solid() }

// bytes is the memory of a solid buffer.
func (b *Buffer) bytes() []byte { return b.mem[:b.size()] }

// run is bytes of a buffer that has not been checked, and of use where its like was; nil
// for items that do not lie in its memory.
func (b *Buffer) run() []byte {
	switch {
	case !b.typed:
		return b.mem
	case b.t == nil:
		return nil
	}
	if n := b.size(); b.count >= 0 && 0 <= n && n <= len(b.mem) {
		return b.mem[:n:n]
	}
	return nil
}

// Pack packs the data of b into dst at position and returns the position after it, in
// bytes (MPI_Pack). The packed bytes are those of a message, for all types: one Unpack
// may unpack the result of several calls of Pack, and a receive of bytes may receive it.
func Pack(c *Comm, dst []byte, position int, b Buffer) (int, error) {
	return c.pack("pack", dst, position, &b, toRead)
}

// Unpack unpacks src at position into b and returns the position after it, in bytes (MPI_Unpack).
func Unpack(c *Comm, src []byte, position int, b Buffer) (int, error) {
	return c.pack("unpack", src, position, &b, toWrite)
}

// PackSize is the number of bytes that Pack needs for count items of type t (MPI_Pack_size).
func PackSize(count int, t *Datatype) (int, error) {
	if t == nil {
		return 0, errNoType
	}
	whole, err := Contiguous(count, t)
	if err != nil {
		return 0, err
	}
	return whole.Size(), nil
}

func (c *Comm) pack(op string, packed []byte, position int, b *Buffer, u use) (int, error) {
	if err := c.enter(); err != nil {
		return position, c.fail(op, -1, err)
	}
	defer c.world.leave()
	err := b.check(c.world, u)
	if err == nil && (position < 0 || position > len(packed) || b.size() > len(packed)-position) {
		err = badArgument("%d bytes of data at position %d do not fit into %d bytes", b.size(), position, len(packed))
	}
	if err != nil {
		return position, c.fail(op, -1, err)
	}
	end := position + b.size()
	if u == toRead {
		b.core().Pack(packed[position:end], b.mem, 0)
	} else {
		b.core().Unpack(b.mem, packed[position:end], 0)
	}
	return end, nil
}
